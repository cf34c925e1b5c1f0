"""The fields of messages that are of one wire type; what a damaged file has instead is passed over."""

from __future__ import annotations

import numpy as np

from tracelink.events import Int64s
from tracelink.fields import DELIMITED, VARINT, Fields, Read


def of_wire(fields: Fields, number: int, wire: int = DELIMITED) -> tuple[Int64s, Read]:
    """The owners of these fields, and the fields."""
    owner, read = fields.of(number)
    some = read.wire == wire
    return owner[some], read.where(some)


def numbers_of(fields: Fields, number: int, count: int, none: int = 0) -> Int64s:
    """The whole number that this field is of each of `count` messages, `none` where it is missing."""
    owner, read = of_wire(fields, number, VARINT)
    numbers = np.full(count, none, np.int64)
    numbers[owner] = read.value
    return numbers
