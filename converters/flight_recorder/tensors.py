"""What entries say of tensors: how many numbers they hold, of which sizes and types."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.dtypes import type_named
from tracelink.events import Bools, Int32s, Int64s
from tracelink.strings import StringTable

MOST_NUMBERS = 1 << 20
"""Entries may refer to one list from many places: of more sizes than this at once none is written out."""
LARGEST = float(1 << 62)
LIST = frozenset({list})

WITHIN_TENSOR, AMONG_TENSORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd numbers without a pattern: sums of sizes times their powers are equal for equal sizes only."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the tensors of each entry."""

    elements: Int64s
    """How many numbers they hold; UNKNOWN where there is no tensor."""
    shapes: Int64s
    """A number that is the same for the same sizes."""
    wrong: Bools
    """Where something stands in their place that is none, or is too large."""


def sizes_of(column: list[Any]) -> Sizes:
    """All at once where all are sizes; else each list for itself, once."""
    whole = _measured(column)
    if whole is not None:
        return Sizes(*whole, np.zeros(len(column), np.bool_))
    alone: dict[int, tuple[int, int, bool]] = {id(None): (UNKNOWN, UNKNOWN, False)}
    for value in column:
        if id(value) not in alone:
            one = _measured([value])
            alone[id(value)] = (
                (UNKNOWN, UNKNOWN, True) if one is None else (int(one[0][0]), int(one[1][0]), False)
            )
    elements, shapes, wrong = zip(*(alone[id(value)] for value in column), strict=True)
    return Sizes(np.array(elements, np.int64), np.array(shapes, np.int64), np.array(wrong, np.bool_))


def _measured(column: list[Any]) -> tuple[Int64s, Int64s] | None:
    """Elements and shapes of each entry; None if any sizes are none, or they are too many."""
    if not set(map(type, column)) <= LIST:
        return None
    counts = np.fromiter(map(len, column), np.int64, len(column))
    if counts.sum() > MOST_NUMBERS:
        return None
    tensors = list(chain.from_iterable(column))
    if not set(map(type, tensors)) <= LIST:
        return None
    lengths = np.fromiter(map(len, tensors), np.int64, len(tensors))
    if (total := int(lengths.sum())) > MOST_NUMBERS:
        return None
    try:
        sizes = np.fromiter(chain.from_iterable(tensors), np.int64, total)
    except (TypeError, ValueError, OverflowError):
        return None
    if total and (sizes.min() < 0 or _combined(np.multiply, sizes.astype(float), lengths, 1).max() > LARGEST):
        return None
    elements: Int64s = _combined(np.add, _combined(np.multiply, sizes, lengths, 1), counts, UNKNOWN)
    return elements, _mixed(_mixed(sizes, lengths, WITHIN_TENSOR), counts, AMONG_TENSORS)


def _combined(combine: np.ufunc, values: Any, lengths: Int64s, empty: int) -> Any:
    """The values of each part combined into one; `empty` for a part without any."""
    some = lengths > 0
    combined = np.full(len(lengths), empty, values.dtype)
    if some.any():
        combined[some] = combine.reduceat(values, (np.cumsum(lengths) - lengths)[some])
    return combined


def _mixed(values: Int64s, lengths: Int64s, factor: int) -> Int64s:
    """One number for each run of values, by what they are and where they stand."""
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(values)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max(initial=0)) + 1, factor, np.uint64)
    weight = np.multiply.accumulate(powers)[place + 1] if len(place) else np.empty(0, np.uint64)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum((values.astype(np.uint64) + np.uint64(1)) * weight)]
    )
    mixed: Int64s = (sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64)).astype(np.int64)
    return mixed


def first_types(column: list[Any], strings: StringTable) -> Int32s:
    """The type of the first of each entry's tensors, or UNKNOWN."""
    first = [types[0] if type(types) is list and types else "" for types in column]
    first = [name if type(name) is str else "" for name in first]
    codes = {name: strings[type_named(name)] if name else UNKNOWN for name in set(first)}
    return np.array([codes[name] for name in first], np.int32)
