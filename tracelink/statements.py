"""What one event says of communication, as a reader puts it down while it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tracelink.communications import COMMUNICATION_COLUMNS, COMMUNICATION_TEXTS, UNKNOWN, Communications
from tracelink.operations import POINT_TO_POINT, ROOTED, Operation, operation_of, peers_of
from tracelink.strings import StringTable

LARGEST_RANK = int(np.iinfo(np.int32).max)
LARGEST_NUMBER = int(np.iinfo(np.int64).max)
LONGEST_NUMBER = len(str(LARGEST_NUMBER))

Sizes = list[list[int]]
"""Of several tensors."""


@dataclass(slots=True)
class Statement:
    """One row of `Communications`; a text that is not known is empty, a number is UNKNOWN."""

    operation: str
    group: str = ""
    sequence: int = UNKNOWN
    point_to_point: bool = False
    source: int = UNKNOWN
    target: int = UNKNOWN
    global_ranks: bool = False
    tag: int = UNKNOWN
    elements_in: int = UNKNOWN
    elements_out: int = UNKNOWN
    type: str = ""
    size: int = UNKNOWN
    members: str = ""
    shape: str = ""

    def name_peer(self, rank: int) -> None:
        """Takes in the one rank of the group that a source names: the other end of a message, or the root."""
        operation = operation_of(self.operation)
        if operation == Operation.SEND:
            self.target = rank
        elif operation == Operation.RECV or operation in ROOTED:
            self.source = rank


def stated_by(name: str) -> Statement:
    """What the name of an event says, and nothing more."""
    source, target = peers_of(name) or (UNKNOWN, UNKNOWN)
    return Statement(name, point_to_point=operation_of(name) in POINT_TO_POINT, source=source, target=target)


def communications(
    rows: Sequence[int], statements: Sequence[Statement], strings: StringTable
) -> Communications:
    """The table of what was stated of events; its texts are added to `strings`."""
    columns: dict[str, Any] = {}
    for name in COMMUNICATION_COLUMNS:
        values = [getattr(statement, name) for statement in statements]
        if name in COMMUNICATION_TEXTS:
            values = [strings[text] if text else UNKNOWN for text in values]
        columns[name] = values
    return Communications.of(rows, **columns)


def rank_in(value: Any) -> int:
    """A rank or a count of ranks; UNKNOWN where the value is none."""
    return _whole(value, LARGEST_RANK)


def number_in(value: Any) -> int:
    """A sequence number, a tag or a count; UNKNOWN where the value is none."""
    return _whole(value, LARGEST_NUMBER)


def text_in(value: Any) -> str:
    """A text that can be written as UTF-8; empty where the value is none."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def elements_of(sizes: Sizes | None) -> int:
    """How many numbers tensors of these sizes hold together; UNKNOWN where there are none."""
    return number_in(sum(map(math.prod, sizes))) if sizes else UNKNOWN


def shape_of(sizes: Sizes | None) -> str:
    """The sizes as compact JSON."""
    return msgspec.json.encode(sizes).decode() if sizes else ""


def sizes_in(dims: Any) -> Sizes | None:
    """The sizes in lists of tensors, or in lists of such lists; None where something in them is no size."""
    try:
        sizes = list(_tensors(dims, 3)) if isinstance(dims, list) else []
    except TypeError:
        return None
    return sizes or None


def _tensors(dims: Any, depth: int) -> Iterator[list[int]]:
    """The sizes of each tensor; `depth` is how deep lists of tensors may stand in each other."""
    if not isinstance(dims, list) or not depth:
        raise TypeError(f"{dims!r} is no size of a tensor")
    if dims and all(type(dim) is int and dim >= 0 for dim in dims):
        yield dims
        return
    for inner in dims:
        if inner == []:
            yield []
        else:
            yield from _tensors(inner, depth - 1)


def _whole(value: Any, largest: int) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) <= LONGEST_NUMBER:
        value = int(value)
    return value if type(value) is int and 0 <= value <= largest else UNKNOWN
