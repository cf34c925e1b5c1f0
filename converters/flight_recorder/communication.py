"""What entries say of communication: whom, in which order, and how much of what."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import orjson

from tracelink.communications import UNKNOWN, Communications
from tracelink.dtypes import type_named
from tracelink.events import Bools, Int32s, Int64s
from tracelink.operations import POINT_TO_POINT, operation_of, peers_of
from tracelink.statements import elements_of
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup

MOST_NUMBERS = 1 << 20
"""A dump may refer to one list from many places: more sizes at once than this are not written out."""

NO_SIZES = b"[]"

Distinct = tuple[list[Any], Int64s]
"""Values, each once, and which of them each row has."""


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
    names: Sequence[str], name: Int32s, group: Int32s, order: Order, tensors: Tensors, strings: StringTable
) -> tuple[Communications, int]:
    """One row for each entry, and how many entries have sizes that are none."""
    named, which = _distinct(names)
    between = np.array([peers_of(text) or (UNKNOWN, UNKNOWN) for text in named], np.int32).reshape(-1, 2)
    message = np.array([operation_of(text) in POINT_TO_POINT for text in named], np.bool_)[which]
    message |= np.fromiter([told is True for told in order.is_message], np.bool_, len(names))
    given, wrong_given = _sizes(tensors.input_sizes)
    got, wrong_got = _sizes(tensors.output_sizes)
    kind = _types(tensors.input_types, strings)
    table = Communications.of(
        np.arange(len(names)),
        operation=name,
        group=group,
        sequence=np.where(message, order.message, order.collective),
        point_to_point=message,
        source=between[which, 0],
        target=between[which, 1],
        elements_in=_elements(given),
        elements_out=_elements(got),
        type=np.where(kind == UNKNOWN, _types(tensors.output_types, strings), kind),
        shape=_shapes(given, strings),
    )
    return table, int(np.count_nonzero(wrong_given | wrong_got))


def with_group_sizes(
    communications: Communications, groups: Sequence[ProcessGroup], strings: StringTable
) -> Communications:
    """The same, with the size of each group that is known."""
    size = np.full(len(strings) + 1, UNKNOWN, np.int32)
    for group in groups:
        if group.size and (code := strings.find(group.name)) != UNKNOWN:
            size[code] = group.size
    return replace(communications, size=size[communications.group])


def _distinct(values: Iterable[Hashable]) -> Distinct:
    codes: dict[Any, int] = {}
    which = np.array([codes.setdefault(value, len(codes)) for value in values], np.int64)
    return list(codes), which


def _sizes(column: list[Any]) -> tuple[Distinct, Bools]:
    """The sizes of the tensors of each entry as JSON, and where something stands in their place that is none."""
    texts: Sequence[bytes | None] | None = _texts(column)
    if texts is None:
        texts = _texts_one_by_one(column)
    wrong = np.array([text is None for text in texts], np.bool_) if None in texts else np.zeros(1, np.bool_)
    return _distinct(text or NO_SIZES for text in texts), wrong


def _texts(column: list[Any]) -> list[bytes] | None:
    """All as JSON; None if any is not a list of lists of numbers, or if it would become too long."""
    if not set(map(type, column)) <= {list} or sum(map(len, column)) > MOST_NUMBERS:
        return None
    if not set(map(type, chain.from_iterable(column))) <= {list}:
        return None
    if sum(map(len, chain.from_iterable(column))) > MOST_NUMBERS:
        return None
    if not set(map(type, chain.from_iterable(chain.from_iterable(column)))) <= {int}:
        return None
    try:
        return list(map(orjson.dumps, column))
    except TypeError:
        return None


def _texts_one_by_one(column: list[Any]) -> list[bytes | None]:
    """Each as JSON, if it can be; a list that several entries refer to is looked at once."""
    known: dict[int, bytes | None] = {id(None): NO_SIZES}
    for value in column:
        if id(value) not in known:
            known[id(value)] = (_texts([value]) or [None])[0]
    return [known[id(value)] for value in column]


def _elements(sizes: Distinct) -> Int64s:
    texts, which = sizes
    return np.array([elements_of(orjson.loads(text)) for text in texts], np.int64)[which]


def _shapes(sizes: Distinct, strings: StringTable) -> Int32s:
    texts, which = sizes
    return _codes([text.decode() if text != NO_SIZES else "" for text in texts], strings)[which]


def _types(column: list[Any], strings: StringTable) -> Int32s:
    """The type of the first tensor of each entry."""
    first = [types[0] if type(types) is list and types else None for types in column]
    named, which = _distinct(name if type(name) is str else "" for name in first)
    return _codes([type_named(name) for name in named], strings)[which]


def _codes(texts: Iterable[str], strings: StringTable) -> Int32s:
    return np.array([strings[text] if text else UNKNOWN for text in texts], np.int32)
