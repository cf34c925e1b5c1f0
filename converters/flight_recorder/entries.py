"""Fields of entries: the checked columns of a dump, and the distinct requests of its entries.

Input: decoded entries, and the repetitions that need no decoding. Output: one row for each valid entry.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Bools, Int8s, Int32s, Int64s, StringTable, distinct
from tracelink._model.errors import encodable
from tracelink._model.operations import peers_of, type_named
from tracelink._model.records import Requests
from tracelink.converters.flight_recorder.scan import Entries
from tracelink.converters.flight_recorder.schema import FRAME_FILE, FRAME_LINE, FRAME_NAME, Dump, Layout

_MAX_SIZES = 1 << 20
"""Many entries may refer to one list: with more sizes than this at once, they are not expanded."""
_MAX_ELEMENTS = float(1 << 62)

LATEST = 4 * 10**18
"""Later times (after the year 2096) are invalid; sums of a time and a duration fit a column."""

_WITHIN_TENSOR, _AMONG_TENSORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd numbers without a pattern: sums of sizes times their powers are equal for equal sizes only."""

_LIST = frozenset({list})
_STRING = frozenset({str})
_NUMBER = frozenset({int})
_MISSING = frozenset({type(None)})
_TYPES = {
    "name": _STRING,
    "created": _NUMBER,
    **dict.fromkeys(("completed", "collective_sequence", "p2p_sequence"), _NUMBER | _MISSING),
    "state": _STRING | _MISSING,
    "record": _NUMBER | _MISSING,
}
"""The types of fields of valid entries; all others may be anything. An error names the first that does not fit."""
_LARGEST = int(np.iinfo(np.int64).max)
_LARGEST_SITE = int(np.iinfo(np.int32).max)
_FLAGS = {True: 1, False: 0}
_FRAME_FIELDS = (FRAME_FILE, FRAME_LINE, FRAME_NAME)
_FRAME_TYPES = (str, int, str)
_CACHED_LINES = 4096
"""All dumps of a job contain the same lines."""

_Value = TypeVar("_Value", int, str)

GroupName = tuple[str, str]
"""Name and description."""


# Fields


class Fields(Struct, frozen=True):
    """The columns of all valid entries. UNKNOWN represents None, and values that are not integers."""

    index: Int64s
    """The index in the dump."""
    group: Int64s
    """Row of the groups."""
    group_id: Int64s
    collective: Int64s
    p2p: Int64s
    operation_number: Int64s
    created: Int64s
    started: Int64s
    completed: Int64s
    timeout: Int64s
    state: Int32s
    """Code of a string."""
    retired: Int8s
    is_message: Bools
    requests: EntryRequests
    groups: list[GroupName]
    record_id: Int64s
    """The number of the entry in the process, which also counts those that are not in the dump."""
    site: Int32s
    """A hash of its stack, or UNKNOWN."""
    skipped: int = 0
    """Number of invalid entries."""
    example: str = ""
    """The problem of the first of them."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def first_record(self) -> int:
        """How many entries of the process come before the first one."""
        return max(int(self.record_id[0]), 0) if len(self) else 0

    @property
    def has_gaps(self) -> bool:
        """True if entries between others are left out: a ring buffer only loses the oldest ones."""
        left_out = np.diff(self.record_id - self.index)
        return bool((left_out > 0).any() and (left_out >= 0).all()) and UNKNOWN not in self.record_id


def fields_of(dump: Dump, entries: Entries, strings: StringTable) -> Fields | None:
    """The valid entries; None if the repetitions of entries do not determine all fields."""
    layout = dump.layout
    valid, index, example = _distinct_dicts(entries.decoded)
    values = _Values.of(layout, valid)
    problems = values.invalid(layout)
    if entries.repeats and (problems or example or entries.has_numbers_in(*_fields_without_numbers(layout))):
        return None
    if problems:
        example = example or problems[min(problems)]
        kept = [row for row in range(len(valid)) if row not in problems]
        valid, index = [valid[row] for row in kept], index[kept]
        values = _Values.of(layout, valid)
    if not entries.repeats:
        entries = Entries.all_decoded(valid)
    fields = _columns(dump, entries, values, strings)
    if (fields.created < 0).any():
        return None
    skipped = len(dump.entries) - len(valid)
    return fields if entries.repeats else replace(fields, index=index, skipped=skipped, example=example)


def _columns(dump: Dump, entries: Entries, values: _Values, strings: StringTable) -> Fields:
    layout = dump.layout
    names = values.group_names()
    groups = {group: code for code, group in enumerate(dict.fromkeys(names))}
    states = np.array([UNKNOWN if state is None else strings[state] for state in values.state], np.int32)
    retired = [_FLAGS[value] if type(value) is bool else UNKNOWN for value in values.retired]

    def numbers(field: str, column: Sequence[Any]) -> Int64s:
        return entries.numbers(field, _integers(column))

    return Fields(
        index=np.arange(entries.count),
        group=entries.spread(layout.group, np.array(list(map(groups.__getitem__, names)), np.int64)),
        group_id=numbers(layout.group_id, values.group_id),
        collective=numbers(layout.collective_sequence, values.collective_sequence),
        p2p=numbers(layout.p2p_sequence, values.p2p_sequence),
        operation_number=numbers(layout.operation_number, values.operation_number),
        created=numbers(layout.created, values.created) * layout.created_unit_ns,
        started=numbers(layout.started, values.started),
        completed=numbers(layout.completed, values.completed),
        timeout=numbers(layout.timeout, values.timeout),
        state=entries.spread(layout.state, states),
        retired=entries.spread(layout.retired, np.array(retired, np.int8)),
        is_message=entries.spread(
            layout.is_message, np.array([value is True for value in values.is_message], np.bool_)
        ),
        requests=_requests_of(entries, values, layout, strings),
        groups=[(encodable(name), encodable(text)) for name, text in groups],
        record_id=numbers(layout.record, values.record),
        site=_sites(entries, layout),
    )


def _sites(entries: Entries, layout: Layout) -> Int32s:
    """A hash of each stack; unknown if repeating entries have numbers of their own in it."""
    if entries.has_numbers_in(layout.frames):
        return np.full(entries.count, UNKNOWN, np.int32)
    sites = _Sites()
    column: Int32s = entries.spread(
        layout.frames, np.array([sites.of(entry.get(layout.frames)) for entry in entries.decoded], np.int32)
    )
    return column


class _Sites:
    """Hashes of stacks. Pickles share their frames: each is hashed once; the dump keeps them alive."""

    def __init__(self) -> None:
        self._sites: dict[tuple[int, ...], int] = {}
        self._lines: dict[int, int] = {}

    def of(self, frames: Any) -> int:
        """Equal on all ranks for equal lines, so that it does not depend on the hashes of Python's strings."""
        if type(frames) is not list or not frames:
            return UNKNOWN
        same = tuple(map(id, frames))
        if same not in self._sites:
            lines = tuple([self._lines.get(id(frame)) or self._line(frame) for frame in frames])
            self._sites[same] = hash(lines) & _LARGEST_SITE
        return self._sites[same]

    def _line(self, frame: Any) -> int:
        values = tuple(map(frame.get, _FRAME_FIELDS)) if type(frame) is dict else ()
        line = _line(*values) if tuple(map(type, values)) == _FRAME_TYPES else 0
        self._lines[id(frame)] = line
        return line


@lru_cache(maxsize=_CACHED_LINES)
def _line(file: str, line: int, name: str) -> int:
    """A hash of a line; the program may be in different folders on different hosts."""
    text = f"{file.rpartition('/')[2]}\0{line}\0{name}"
    return int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


def _distinct_dicts(entries: Sequence[Any]) -> tuple[list[dict[Any, Any]], Int64s, str]:
    """The entries that are dicts, each once, with their indexes; all others are invalid, and rare."""
    identities = np.fromiter(map(id, entries), np.int64, len(entries))
    unique, first = np.unique(identities, return_index=True)
    if len(unique) == len(entries) and set(map(type, entries)) <= {dict}:
        return list(entries), np.arange(len(entries)), ""
    index = [int(row) for row in np.sort(first) if type(entries[row]) is dict]
    return (
        [entries[row] for row in index],
        np.array(index, np.int64),
        "an entry is not a dict, or is a duplicate",
    )


def _integers(column: Sequence[Any]) -> Int64s:
    """Integers; UNKNOWN for all other values."""
    if set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= _LARGEST:
        return np.array(column, np.int64)
    return np.array(
        [value if type(value) is int and 0 <= value <= _LARGEST else UNKNOWN for value in column], np.int64
    )


def _fields_without_numbers(layout: Layout) -> tuple[str, ...]:
    """Fields without numbers, or with numbers that are names."""
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


# Values


class _Values(Struct):
    """One list for each field of a layout, as decoded; None for an entry without the field."""

    name: list[str]
    created: list[int]
    completed: list[int | None]
    group: list[Any]
    group_id: list[Any]
    collective_sequence: list[int | None]
    p2p_sequence: list[int | None]
    state: list[str | None]
    record: list[int | None]
    is_message: list[Any]
    started: list[Any]
    retired: list[Any]
    timeout: list[Any]
    operation_number: list[Any]
    input_sizes: list[Any]
    output_sizes: list[Any]
    input_types: list[Any]
    output_types: list[Any]

    @classmethod
    def of(cls, layout: Layout, entries: Sequence[dict[Any, Any]]) -> _Values:
        """The fields of all entries."""
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

    def invalid(self, layout: Layout) -> dict[int, str]:
        """Rows with an invalid field, with the problem."""
        problems: dict[int, str] = {}
        for name, allowed in _TYPES.items():
            largest = LATEST // layout.created_unit_ns if name == "created" else _LARGEST
            _mistyped(getattr(layout, name), getattr(self, name), allowed, problems, largest)
        if layout.group and not _are_group_names(self.group):
            for row, group in enumerate(self.group):
                if not _is_group_name(group):
                    problems.setdefault(row, f"{layout.group} is not a name and a description")
        if not layout.group:
            _mistyped(layout.group_id, self.group, _NUMBER | _STRING, problems)
        return problems


def _fields_of(layout: Layout) -> tuple[str, ...]:
    names = {name: getattr(layout, name) for name in _Values.__struct_fields__}
    return tuple((names | {"group": layout.group or layout.group_id}).values())


def _mistyped(
    field: str,
    column: Sequence[Any],
    allowed: Collection[type],
    problems: dict[int, str],
    largest: int = _LARGEST,
) -> None:
    """Adds the rows with a value of another type, or with a negative or too large number."""
    types = set(map(type, column))
    if types <= set(allowed) and (int not in types or _in_range(column, largest)):
        return
    for row, value in enumerate(column):
        if type(value) not in allowed:
            problems.setdefault(row, f"{field} is of type {type(value).__name__}")
        elif type(value) is int and not 0 <= value <= largest:
            problems.setdefault(row, f"{field} is {value}")


def _in_range(column: Sequence[Any], largest: int) -> bool:
    numbers = [value for value in column if value is not None] if None in column else column
    return bool(min(numbers) >= 0 and max(numbers) <= largest)


def _are_group_names(groups: Sequence[Any]) -> bool:
    """True if all are tuples of two strings, as in pickles; only the few distinct ones are checked."""
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


class EntryRequests(Struct, frozen=True):
    """The distinct requests, and the request of each entry."""

    request: Int64s
    """For each entry the row of its request."""
    distinct: Requests
    sizes: list[Any]
    """The sizes of the input tensors of each request, as decoded."""
    invalid_sizes: int
    """Number of entries with invalid sizes."""


def _requests_of(entries: Entries, values: _Values, layout: Layout, strings: StringTable) -> EntryRequests:
    """The requests, by the first entry that makes each."""
    fields = (layout.name, layout.input_sizes, layout.output_sizes, layout.input_types, layout.output_types)
    combination, (name, inputs, outputs, in_type, out_type) = _combinations(entries, fields)
    sizes = _sizes_of(values.input_sizes + values.output_sizes)
    outputs = outputs + len(values.input_sizes)
    type_out = _first_types(values.output_types, strings)[out_type]
    type_in = _first_types(values.input_types, strings)[in_type]
    operation = strings.encode(values.name)[name]
    requests = Requests(
        operation,
        *_peers(operation, strings),
        sizes.elements[inputs],
        sizes.elements[outputs],
        sizes.shapes[inputs],
        sizes.shapes[outputs],
        np.where(type_in == UNKNOWN, type_out, type_in),
        type_out,
    )
    request, first = _numbered(requests)
    invalid = sizes.invalid[inputs] | sizes.invalid[outputs]
    return EntryRequests(
        request[combination],
        requests.take(first),
        [values.input_sizes[row] for row in inputs[first].tolist()],
        int(np.count_nonzero(invalid[combination])),
    )


def _numbered(requests: Requests) -> tuple[Int64s, Int64s]:
    """For each request its number, equal for equal requests, and the first row of each number."""
    rows = zip(*(column.tolist() for column in requests.columns().values()), strict=True)
    numbers: dict[tuple[int, ...], int] = {}
    number = np.array([numbers.setdefault(row, len(numbers)) for row in rows], np.int64)
    first = np.empty(len(numbers), np.int64)
    first[number[::-1]] = np.arange(len(number) - 1, -1, -1)
    return number, first


def _combinations(entries: Entries, fields: tuple[str, ...]) -> tuple[Int64s, list[Int64s]]:
    """A number for each entry, equal if all fields come from the same decoded entries; for each field those entries."""
    providers = entries.providers(fields)
    if not entries.repeats:
        return providers[0], providers
    number, first = distinct(*{id(provider): provider for provider in providers}.values())
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[number], [provider[first[order]] for provider in providers]


def _peers(operation: Int32s, strings: StringTable) -> tuple[Int32s, Int32s]:
    """The sending and the receiving rank."""
    names = strings.texts()
    codes, inverse = np.unique(operation, return_inverse=True)
    known = [peers_of(names[code]) or (UNKNOWN, UNKNOWN) for code in codes.tolist()]
    peers = np.array(known, np.int32).reshape(-1, 2)[inverse]
    return peers[:, 0], peers[:, 1]


# Sizes of tensors


class _Sizes(Struct, frozen=True):
    """The sizes of the tensors of each entry."""

    elements: Int64s
    """Number of elements in all tensors; UNKNOWN without tensors."""
    shapes: Int64s
    """A hash, equal for equal sizes."""
    invalid: Bools
    """Entries whose sizes are not lists of sizes, or are too large."""


def _sizes_of(column: list[Any]) -> _Sizes:
    """Measures all entries at once if all sizes are valid; else each distinct list separately."""
    all_at_once = _measured(column)
    if all_at_once is not None:
        return _Sizes(*all_at_once, np.zeros(len(column), np.bool_))
    separate: dict[int, tuple[int, int, bool]] = {id(None): (UNKNOWN, UNKNOWN, False)}
    for value in column:
        if id(value) not in separate:
            measured = _measured([value])
            separate[id(value)] = (
                (UNKNOWN, UNKNOWN, True)
                if measured is None
                else (int(measured[0][0]), int(measured[1][0]), False)
            )
    elements, shapes, invalid = zip(*(separate[id(value)] for value in column), strict=True)
    return _Sizes(np.array(elements, np.int64), np.array(shapes, np.int64), np.array(invalid, np.bool_))


def _measured(column: list[Any]) -> tuple[Int64s, Int64s] | None:
    """Elements and shapes of each entry; None if any sizes are invalid, or there are too many."""
    if not set(map(type, column)) <= _LIST:
        return None
    counts = np.fromiter(map(len, column), np.int64, len(column))
    if counts.sum() > _MAX_SIZES:
        return None
    tensors = list(chain.from_iterable(column))
    if not set(map(type, tensors)) <= _LIST:
        return None
    lengths = np.fromiter(map(len, tensors), np.int64, len(tensors))
    if (total := int(lengths.sum())) > _MAX_SIZES:
        return None
    try:
        sizes = np.fromiter(chain.from_iterable(tensors), np.int64, total)
    except (TypeError, ValueError, OverflowError):
        return None
    if total and (
        sizes.min() < 0 or _combined(np.multiply, sizes.astype(float), lengths, 1).max() > _MAX_ELEMENTS
    ):
        return None
    elements = _combined(np.add, _combined(np.multiply, sizes, lengths, 1), counts, UNKNOWN)
    return elements, _hashed(_hashed(sizes, lengths, _WITHIN_TENSOR), counts, _AMONG_TENSORS)


def _combined(combine: np.ufunc, values: Any, lengths: Int64s, empty: int) -> Any:
    """The values of each run combined into one; `empty` for an empty run."""
    nonempty = lengths > 0
    combined = np.full(len(lengths), empty, values.dtype)
    if nonempty.any():
        combined[nonempty] = combine.reduceat(values, (np.cumsum(lengths) - lengths)[nonempty])
    return combined


def _hashed(values: Int64s, lengths: Int64s, factor: int) -> Int64s:
    """A hash of each run of values and their order."""
    starts = np.cumsum(lengths) - lengths
    index = np.arange(len(values)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max(initial=0)) + 1, factor, np.uint64)
    weight = np.multiply.accumulate(powers)[index + 1] if len(index) else np.empty(0, np.uint64)
    sums = np.concatenate(
        [np.zeros(1, np.uint64), np.cumsum((values.astype(np.uint64) + np.uint64(1)) * weight)]
    )
    return (sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64)).astype(np.int64)


def _first_types(column: list[Any], strings: StringTable) -> Int32s:
    """The type of each entry's first tensor, or UNKNOWN."""
    first = [types[0] if type(types) is list and types else "" for types in column]
    first = [name if type(name) is str else "" for name in first]
    codes = {name: strings[type_named(name)] if name else UNKNOWN for name in set(first)}
    return np.array([codes[name] for name in first], np.int32)
