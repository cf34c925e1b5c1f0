"""Fields of entries, checked; requests; one entry for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from tracelink.converters.flight_recorder.scan import Entries
from tracelink.converters.flight_recorder.schema import Dump, Layout
from tracelink.model.columns import UNKNOWN, Bools, Int8s, Int32s, Int64s, StringTable, distinct
from tracelink.model.operations import peers_of, type_named
from tracelink.model.records import Requests

# What entries say of tensors: how many numbers they hold, of which sizes and types.


MOST_NUMBERS = 1 << 20
"""Entries may refer to one list from many places: of more sizes than this at once none is written out."""
LARGEST_TENSORS = float(1 << 62)
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
    if total and (
        sizes.min() < 0 or _combined(np.multiply, sizes.astype(float), lengths, 1).max() > LARGEST_TENSORS
    ):
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


# The fields of decoded entries as they were decoded, and which of them can be used.


TEXT = frozenset({str})
NUMBER = frozenset({int})
ABSENT = frozenset({type(None)})
LARGEST = int(np.iinfo(np.int64).max)

Value = TypeVar("Value", int, str)

GroupName = tuple[str, str]
"""Name and description."""


@dataclass(slots=True)
class Values:
    """One list for each field; None where an entry does not have it."""

    name: list[str]
    created: list[int]
    completed: list[int | None]
    group: list[Any]
    group_id: list[Any]
    collective: list[int | None]
    p2p: list[int | None]
    state: list[str | None]
    record: list[int | None]
    is_message: list[Any]
    started: list[Any]
    retired: list[Any]
    timeout: list[Any]
    input_sizes: list[Any]
    output_sizes: list[Any]
    input_types: list[Any]
    output_types: list[Any]

    @classmethod
    def of(cls, layout: Layout, entries: Sequence[dict[Any, Any]]) -> Values:
        """The fields of all entries at once where all have all."""
        names = _fields_of(layout)
        try:
            columns = list(map(list, zip(*map(itemgetter(*names), entries), strict=True)))
        except KeyError:
            columns = [[entry.get(name) for entry in entries] for name in names]
        return cls(*(columns or ([] for _ in names)))

    def group_names(self) -> list[GroupName]:
        """Name and description of the group of each entry."""
        if set(map(type, self.group)) <= {tuple}:
            return self.group
        return [tuple(group) if type(group) is list else (str(group), "") for group in self.group]

    def unusable(self, layout: Layout) -> dict[int, str]:
        """Rows with a field that cannot be used, and why."""
        wrong: dict[int, str] = {}
        _mistyped(layout.name, self.name, TEXT, wrong)
        _mistyped(layout.created, self.created, NUMBER, wrong, LARGEST // layout.created_unit_ns)
        _mistyped(layout.completed, self.completed, NUMBER | ABSENT, wrong)
        _mistyped(layout.collective_sequence, self.collective, NUMBER | ABSENT, wrong)
        _mistyped(layout.p2p_sequence, self.p2p, NUMBER | ABSENT, wrong)
        _mistyped(layout.state, self.state, TEXT | ABSENT, wrong)
        _mistyped(layout.record, self.record, NUMBER | ABSENT, wrong)
        if layout.group and not _are_group_names(self.group):
            for row, group in enumerate(self.group):
                if not _is_group_name(group):
                    wrong.setdefault(row, f"{layout.group} is not a name and a description")
        if not layout.group:
            _mistyped(layout.group_id, self.group, NUMBER | TEXT, wrong)
        return wrong


def _fields_of(layout: Layout) -> tuple[str, ...]:
    return (
        layout.name,
        layout.created,
        layout.completed,
        layout.group or layout.group_id,
        layout.group_id,
        layout.collective_sequence,
        layout.p2p_sequence,
        layout.state,
        layout.record,
        layout.is_message,
        layout.started,
        layout.retired,
        layout.timeout,
        layout.input_sizes,
        layout.output_sizes,
        layout.input_types,
        layout.output_types,
    )


def _mistyped(
    field: str,
    column: Sequence[Any],
    allowed: Collection[type],
    wrong: dict[int, str],
    largest: int = LARGEST,
) -> None:
    """Notes the rows whose value is of another type, or a number that is negative or too large."""
    types = set(map(type, column))
    if types <= set(allowed) and (int not in types or _in_range(column, largest)):
        return
    for row, value in enumerate(column):
        if type(value) not in allowed:
            wrong.setdefault(row, f"{field} is of type {type(value).__name__}")
        elif type(value) is int and not 0 <= value <= largest:
            wrong.setdefault(row, f"{field} is {value}")


def _in_range(column: Sequence[Any], largest: int) -> bool:
    numbers = [value for value in column if value is not None] if None in column else column
    return bool(min(numbers) >= 0 and max(numbers) <= largest)


def _are_group_names(groups: Sequence[Any]) -> bool:
    """Whether all are tuples of two texts, as pickles have them; the few different ones are looked at."""
    try:
        return set(map(type, groups)) <= {tuple} and all(map(_is_group_name, set(groups)))
    except TypeError:
        return False


def _is_group_name(group: Any) -> bool:
    return (
        (type(group) is tuple or type(group) is list)
        and len(group) == 2
        and type(group[0]) is str
        and type(group[1]) is str
    )


# Requests


@dataclass(frozen=True, slots=True)
class EntryRequests:
    """The distinct requests, and the request of each entry."""

    request: Int64s
    """For each entry the row of its request."""
    distinct: Requests
    sizes: list[Any]
    """The sizes of the input tensors of each request, as decoded."""
    invalid_sizes: int
    """Number of entries with invalid sizes."""


def requests_of(entries: Entries, values: Values, layout: Layout, strings: StringTable) -> EntryRequests:
    """The requests in the order of the entries that make them first."""
    fields = (layout.name, layout.input_sizes, layout.output_sizes, layout.input_types, layout.output_types)
    combination, (name, given, got, given_type, got_type) = _combinations(entries, fields)
    sizes = sizes_of(values.input_sizes + values.output_sizes)
    got = got + len(values.input_sizes)
    type_out = first_types(values.output_types, strings)[got_type]
    type_in = first_types(values.input_types, strings)[given_type]
    operation = strings.encode(values.name)[name]
    requests = Requests(
        operation,
        *_peers(operation, strings),
        sizes.elements[given],
        sizes.elements[got],
        sizes.shapes[given],
        sizes.shapes[got],
        np.where(type_in == UNKNOWN, type_out, type_in),
        type_out,
    )
    request, first = _numbered(requests)
    wrong = sizes.wrong[given] | sizes.wrong[got]
    return EntryRequests(
        request[combination],
        requests.take(first),
        [values.input_sizes[row] for row in given[first].tolist()],
        int(np.count_nonzero(wrong[combination])),
    )


def _numbered(requests: Requests) -> tuple[Int64s, Int64s]:
    """The same number for the same requests, in the order of the first ones; and these."""
    rows = zip(*(column.tolist() for column in requests.columns().values()), strict=True)
    numbers: dict[tuple[int, ...], int] = {}
    number = np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)
    first = np.empty(len(numbers), np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return number, first


def _combinations(entries: Entries, fields: tuple[str, ...]) -> tuple[Int64s, list[Int64s]]:
    """Entries told by the same have the same number, in the order of the first; and by whom, for each field."""
    tellers = entries.tellers(fields)
    if not entries.repeats:
        return tellers[0], tellers
    number, first = distinct(*{id(teller): teller for teller in tellers}.values())
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place[number], [teller[first[order]] for teller in tellers]


def _peers(operation: Int32s, strings: StringTable) -> tuple[Int32s, Int32s]:
    """Which rank sends, and which receives."""
    texts = strings.texts()
    codes, which = np.unique(operation, return_inverse=True)
    known = [peers_of(texts[code]) or (UNKNOWN, UNKNOWN) for code in codes.tolist()]
    peers = np.array(known, np.int32).reshape(-1, 2)[which]
    return peers[:, 0], peers[:, 1]


# Entries as columns of what they say: one row for each that can be used.


FLAGS = {True: 1, False: 0}


@dataclass(frozen=True, slots=True)
class Fields:
    """UNKNOWN stands for what is None, and for what is no whole number."""

    place: Int64s
    """In the dump."""
    group: Int64s
    """Row of the groups."""
    group_id: Int64s
    collective: Int64s
    p2p: Int64s
    created: Int64s
    started: Int64s
    completed: Int64s
    timeout: Int64s
    state: Int32s
    """Code of a text."""
    retired: Int8s
    is_message: Bools
    requests: EntryRequests
    groups: list[GroupName]
    first_record: int
    skipped: int = 0
    """How many entries cannot be used."""
    example: str = ""
    """What is wrong with the first of them."""

    def __len__(self) -> int:
        return len(self.place)


def fields_of(dump: Dump, entries: Entries, strings: StringTable) -> Fields | None:
    """The usable entries; None if some repeat others in a way that this cannot tell."""
    layout = dump.layout
    usable, place, example = _distinct_dicts(entries.decoded)
    values = Values.of(layout, usable)
    wrong = values.unusable(layout)
    if entries.repeats and (wrong or example or entries.numbered(*_words(layout))):
        return None
    if wrong:
        example = example or wrong[min(wrong)]
        kept = [row for row in range(len(usable)) if row not in wrong]
        usable, place = [usable[row] for row in kept], place[kept]
        values = Values.of(layout, usable)
    if not entries.repeats:
        entries = Entries.all_decoded(usable)
    fields = _told(dump, entries, values, strings)
    if (fields.created < 0).any():
        return None
    skipped = len(dump.entries) - len(usable)
    return fields if entries.repeats else replace(fields, place=place, skipped=skipped, example=example)


def _told(dump: Dump, entries: Entries, values: Values, strings: StringTable) -> Fields:
    layout = dump.layout
    names = values.group_names()
    groups = {group: code for code, group in enumerate(dict.fromkeys(names))}
    states = np.array([UNKNOWN if state is None else strings[state] for state in values.state], np.int32)
    retired = [FLAGS[value] if type(value) is bool else UNKNOWN for value in values.retired]

    def numbers(field: str, column: Sequence[Any]) -> Int64s:
        return entries.numbers(field, _whole(column))

    return Fields(
        place=np.arange(entries.count),
        group=entries.told(layout.group, np.array(list(map(groups.__getitem__, names)), np.int64)),
        group_id=numbers(layout.group_id, values.group_id),
        collective=numbers(layout.collective_sequence, values.collective),
        p2p=numbers(layout.p2p_sequence, values.p2p),
        created=numbers(layout.created, values.created) * layout.created_unit_ns,
        started=numbers(layout.started, values.started),
        completed=numbers(layout.completed, values.completed),
        timeout=numbers(layout.timeout, values.timeout),
        state=entries.told(layout.state, states),
        retired=entries.told(layout.retired, np.array(retired, np.int8)),
        is_message=entries.told(
            layout.is_message, np.array([told is True for told in values.is_message], np.bool_)
        ),
        requests=requests_of(entries, values, layout, strings),
        groups=list(groups),
        first_record=(values.record[0] or 0) if values.record else 0,
    )


def _distinct_dicts(entries: Sequence[Any]) -> tuple[list[dict[Any, Any]], Int64s, str]:
    """An entry that is no dict, or is one that was there before, is no entry; both are rare."""
    identities = np.fromiter(map(id, entries), np.int64, len(entries))
    unique, first = np.unique(identities, return_index=True)
    if len(unique) == len(entries) and set(map(type, entries)) <= {dict}:
        return list(entries), np.arange(len(entries)), ""
    place = [int(row) for row in np.sort(first) if type(entries[row]) is dict]
    return (
        [entries[row] for row in place],
        np.array(place, np.int64),
        "an entry that is not a dict of its own",
    )


def _whole(column: Sequence[Any]) -> Int64s:
    """Whole numbers; UNKNOWN for all else."""
    if set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= LARGEST:
        return np.array(column, np.int64)
    return np.array(
        [one if type(one) is int and 0 <= one <= LARGEST else UNKNOWN for one in column], np.int64
    )


def _words(layout: Layout) -> tuple[str, ...]:
    """Fields that hold no numbers, or whose numbers are names."""
    return (
        layout.name,
        layout.group or layout.group_id,
        layout.state,
        layout.is_message,
        layout.retired,
        layout.input_sizes,
        layout.output_sizes,
        layout.input_types,
        layout.output_types,
    )
