"""Texts of NVTX ranges, many at once: names, and the ids that torch adds: `aten::mul, seq = 45328, op_id = 990726`."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int32s, Int64s, StringTable, UInt8s

SEPARATOR = b"\x1e"
"""Between two texts."""
ID, SEQUENCE = b", op_id = ", b", seq = "
DIGITS = 18
"""As many fit into 64 bits."""
PADDING = bytes(32)


class Labels(Struct, frozen=True):
    """One row for each text."""

    name: Int32s
    identity: Int64s
    sequence: Int64s
    """What follows `op_id` and `seq`, or UNKNOWN."""


class NameCodes(dict[bytes, int]):
    """Codes of names by their bytes."""

    def __init__(self, names: StringTable) -> None:
        super().__init__()
        self.names = names

    def __missing__(self, name: bytes) -> int:
        code = self[name] = self.names[name.decode("utf-8", "replace")]
        return code


def labels_of(joined: bytes, codes: NameCodes) -> Labels:
    """The labels in texts with separators between them."""
    data = np.frombuffer(joined + SEPARATOR + PADDING, np.uint8)
    ends = np.flatnonzero(data == SEPARATOR[0])
    begins = np.concatenate([[0], ends[:-1] + 1])
    commas = np.flatnonzero(data[: len(joined)] == ID[0])
    at = [_first_marks(data, commas, mark, ends) for mark in (ID, SEQUENCE)]
    name_ends = np.minimum(ends, np.minimum(*(np.where(found == UNKNOWN, ends, found) for found in at)))
    texts = map(joined.__getitem__, map(slice, begins.tolist(), name_ends.tolist()))
    name = np.fromiter(map(codes.__getitem__, texts), np.int32, len(ends))
    numbers = [_numbers(data, found, len(mark)) for found, mark in zip(at, (ID, SEQUENCE), strict=True)]
    return Labels(name, *numbers)


def _first_marks(data: UInt8s, commas: Int64s, mark: bytes, ends: Int64s) -> Int64s:
    """The offset of the first such mark in each text, or UNKNOWN; `commas` are where marks can begin."""
    found = commas
    for index in (2, *(number for number in range(1, len(mark)) if number != 2)):
        found = found[data[found + index] == mark[index]]
    first = np.full(len(ends), UNKNOWN, np.int64)
    first[np.searchsorted(ends, found[::-1])] = found[::-1]
    return first


def _numbers(data: UInt8s, found: Int64s, length: int) -> Int64s:
    """The number behind each mark, or UNKNOWN."""
    numbers = np.full(len(found), UNKNOWN, np.int64)
    rows = np.flatnonzero(found != UNKNOWN)
    at, value = found[rows] + length, np.zeros(len(rows), np.int64)
    for digit in range(DIGITS):
        character = data[at + digit] - np.uint8(48)
        is_digit = character < 10
        if not is_digit.all():
            keep = np.flatnonzero(is_digit)
            if digit:
                numbers[rows[~is_digit]] = value[~is_digit]
            rows, at, value, character = rows[keep], at[keep], value[keep], character[keep]
        if not len(rows):
            break
        value = value * 10 + character
    numbers[rows] = value
    return numbers
