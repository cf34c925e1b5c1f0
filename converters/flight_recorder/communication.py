"""What entries say of communication: whom with, in which order, and how much of what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import orjson

from tracelink.communications import UNKNOWN, Communications
from tracelink.dtypes import type_named
from tracelink.events import Bools, Int32s, Int64s
from tracelink.operations import POINT_TO_POINT, Operation, operation_of, peers_of
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup

MOST_NUMBERS = 1 << 20
"""Entries may refer to one list from many places: of more sizes than this at once none is written out."""
LARGEST = float(1 << 62)
LIST = frozenset({list})
SHAPED = ("gloo:", "mpi:", "ucc:")
"""Backends whose other records name no group: there only the shapes tell operations apart."""


@dataclass(slots=True)
class Tensors:
    """The sizes and the types of what each entry reads and writes, as they were decoded."""

    input_sizes: list[Any]
    output_sizes: list[Any]
    input_types: list[Any]
    output_types: list[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """What numbers each entry: within its group, and whether it counts collectives or messages."""

    collective: Int64s
    message: Int64s
    """UNKNOWN in dumps that count messages with the collectives."""
    is_message: list[Any]


def communications_of(
    name: Int32s, group: Int32s, order: Order, tensors: Tensors, strings: StringTable
) -> tuple[Communications, int]:
    """One row for each entry, and how many entries have sizes that are none."""
    codes, which = np.unique(name, return_inverse=True)
    texts = strings.texts()
    names = [texts[code] for code in codes.tolist()]
    between = np.array([peers_of(text) or (UNKNOWN, UNKNOWN) for text in names], np.int32).reshape(-1, 2)
    message = np.array([operation_of(text) in POINT_TO_POINT for text in names], np.bool_)[which]
    message |= np.array([told is True for told in order.is_message], np.bool_)
    closes = np.array([operation_of(text) == Operation.COALESCED for text in names], np.bool_)[which]
    message |= _closing_messages(closes & ~message, message, group, order)
    given, wrong_given = _elements(tensors.input_sizes)
    got, wrong_got = _elements(tensors.output_sizes)
    shaped = np.array([text.startswith(SHAPED) for text in names], np.bool_)[which]
    table = Communications.of(
        np.arange(len(name)),
        operation=name,
        group=group,
        sequence=np.where(message, order.message, order.collective),
        point_to_point=message,
        source=between[which, 0],
        target=between[which, 1],
        elements_in=given,
        elements_out=got,
        type=_types(tensors, strings),
        shape=_shapes(tensors.input_sizes, shaped & (given != UNKNOWN), strings),
    )
    return table, int(np.count_nonzero(wrong_given | wrong_got))


def _closing_messages(closes: Bools, message: Bools, group: Int32s, order: Order) -> Bools:
    """Which entries end a batch of messages, though they are not marked: they follow the last with its numbers.

    Collectives are counted from 1: what comes before the first is none.
    """
    ends = closes & (order.collective == 0)
    if closes.any():
        row = np.argsort(group, kind="stable")
        last, next_one = row[:-1], row[1:]
        same = group[last] == group[next_one]
        for numbers in (order.collective, order.message):
            same &= numbers[last] == numbers[next_one]
        ends[next_one] |= closes[next_one] & message[last] & same
    return ends


def with_group_sizes(
    communications: Communications, groups: Sequence[ProcessGroup], strings: StringTable
) -> Communications:
    """The same, with the size of each group that is known."""
    size = np.full(len(strings) + 1, UNKNOWN, np.int32)
    for group in groups:
        if group.size and (code := strings.find(group.name)) != UNKNOWN:
            size[code] = group.size
    return replace(communications, size=size[communications.group])


def _elements(column: list[Any]) -> tuple[Int64s, Bools]:
    """How many numbers the tensors of each entry hold, and where something stands in their place that is none."""
    counted = _counted(column)
    if counted is not None:
        return counted, np.zeros(len(column), np.bool_)
    alone: dict[int, int | None] = {id(None): UNKNOWN}
    for value in column:
        if id(value) not in alone:
            counted = _counted([value])
            alone[id(value)] = None if counted is None else int(counted[0])
    found = [alone[id(value)] for value in column]
    elements = np.array([UNKNOWN if count is None else count for count in found], np.int64)
    return elements, np.array([count is None for count in found], np.bool_)


def _counted(column: list[Any]) -> Int64s | None:
    """The numbers of each entry, UNKNOWN where it has no tensor; None if any sizes are none, or they are too many."""
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
    return elements


def _combined(combine: np.ufunc, values: Any, lengths: Int64s, empty: int) -> Any:
    """The values of each part combined into one; `empty` for a part without any."""
    some = lengths > 0
    combined = np.full(len(lengths), empty, values.dtype)
    if some.any():
        combined[some] = combine.reduceat(values, (np.cumsum(lengths) - lengths)[some])
    return combined


def _types(tensors: Tensors, strings: StringTable) -> Int32s:
    """The type of the first tensor that each entry reads; of the first that it writes where it reads none."""
    kind = first_types(tensors.input_types, strings)
    unknown = np.flatnonzero(kind == UNKNOWN)
    if len(unknown):
        kind[unknown] = first_types([tensors.output_types[row] for row in unknown.tolist()], strings)
    return kind


def first_types(column: list[Any], strings: StringTable) -> Int32s:
    """The type of the first of each entry's tensors, or UNKNOWN."""
    try:
        first = list(map(itemgetter(0), column))
        known = {name: _type_code(name, strings) for name in set(first)}
    except (TypeError, LookupError):
        first = [types[0] if type(types) is list and types else None for types in column]
        first = [name if type(name) is str else None for name in first]
        known = {name: _type_code(name, strings) for name in set(first)}
    return np.array(list(map(known.__getitem__, first)), np.int32)


def _type_code(name: Any, strings: StringTable) -> int:
    return strings[type_named(name)] if type(name) is str and name else UNKNOWN


def _shapes(column: list[Any], shaped: Bools, strings: StringTable) -> Int32s:
    """The sizes as text, of those entries that are marked."""
    codes = np.full(len(column), UNKNOWN, np.int32)
    rows = np.flatnonzero(shaped)
    codes[rows] = [strings[orjson.dumps(column[row]).decode()] for row in rows.tolist()]
    return codes
