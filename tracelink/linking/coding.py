"""Numbering rows by what their columns hold, and sorting by such numbers, for millions of rows at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracelink.events import Int64s

Whole = npt.NDArray[np.integer]

RADIX = 16
MASK = (1 << RADIX) - 1


def distinct(*columns: Whole) -> tuple[Int64s, Int64s]:
    """Numbers for rows, equal where all columns are and in the order of the columns; the first row of each."""
    length = len(columns[0])
    numbers, count = np.zeros(length, np.int64), 1
    for column in columns if length else ():
        codes, span = _codes(column, count)
        numbers, count = _dense(numbers * span + codes, count * span)
    first = np.empty(count if length else 0, np.int64)
    first[numbers[::-1]] = np.arange(length - 1, -1, -1)
    return numbers, first


def stable_order(numbers: Whole) -> Int64s:
    """The rows in the order of their numbers, which are not negative; rows of one number keep their order."""
    high = int(numbers.max()) if len(numbers) else 0
    order = np.argsort((numbers & MASK).astype(np.uint16), kind="stable")
    shift = RADIX
    while high >> shift:
        digit = ((numbers >> shift) & MASK).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += RADIX
    return order


def starts_of(sorted_numbers: Whole) -> Int64s:
    """Where each run of equal numbers begins."""
    if not len(sorted_numbers):
        return np.empty(0, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(sorted_numbers)) + 1])


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """All numbers of all ranges that begin at `starts`, one range after the other."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    numbers: Int64s = np.arange(total) + np.repeat(starts - before, lengths)
    return numbers


def _codes(column: Whole, times: int) -> tuple[Int64s, int]:
    """Small numbers for the values of a column, and how many there can be."""
    low, high = int(column.min()), int(column.max())
    span = high - low + 1
    if span * times <= _room(len(column)):
        return column.astype(np.int64) - low, span
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _dense(codes: Int64s, span: int) -> tuple[Int64s, int]:
    """The codes without gaps, and how many there are."""
    if span > _room(len(codes)):
        values, numbers = np.unique(codes, return_inverse=True)
        return numbers.astype(np.int64), len(values)
    seen = np.zeros(span, np.bool_)
    seen[codes] = True
    number = np.cumsum(seen) - 1
    dense: Int64s = number[codes]
    return dense, int(number[-1]) + 1


def _room(length: int) -> int:
    return 4 * length + (1 << 20)
