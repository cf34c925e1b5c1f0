"""Decoding a dump: from the bytes of a source to its entries, and entries again when they are requested.

Payloads are JSON with exact numbers, lists for tuples and null for NaN, and their size is limited: the parts of a
pickle can refer to each other until the JSON would fill the memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from tracelink._io.sources import Source
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.records import Details, Entry, EntryPayloads, Frame, Texts
from tracelink._model.trace import Payload
from tracelink.converters.flight_recorder import pickles, schema
from tracelink.converters.flight_recorder.scan import Entries, abridged, selected
from tracelink.converters.flight_recorder.schema import FRAME_FILE, FRAME_LINE, FRAME_NAME, Layout

_JSON_COSTS = {b"{": 540, b"[": 120, b",": 96}
"""Bytes of memory for each value, at most; an object includes the row of columns that it may become."""

_JSON_START = b"{"
_SPACE = b" \t\r\n"

_BATCH = 512
_RUN = 2048
_PART = 8192
"""Entries that are decoded at once if all of them would be too large."""

_OMITTED = {"tracelink_omitted": "not an entry, or too large to be written as JSON"}

_MAX_JSON_BYTES = 4 << 20
"""Of one entry, or of one value of the header."""

_TOO_LARGE = _MAX_JSON_BYTES + 1
_MAX_DEPTH = 16
_MOST_COLUMNS = 64
_MOST_VISITED = 1 << 20
"""Values that are visited for a common bound."""

_PUNCTUATION_BYTES = 4
_MAX_ESCAPE_BYTES = 6
"""The longest escape of one character."""

_MAX_NUMBER_BYTES = 24
"""The longest number, with its comma."""
_CONTAINERS: frozenset[type] = frozenset({list, tuple, dict})
_KEYS = frozenset({str, int})
_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1
"""Other numbers, of up to 72 bits, are strings in JSON."""


class Decoded(Struct, frozen=True):
    """A dump with its entries, and the findings of decoding it."""

    dump: schema.Dump
    entries: Entries
    findings: list[Finding]
    truncated: bool


def decode(source: Source) -> Decoded:
    """Reads and decodes a complete dump."""
    return _decoded(source, *_bytes(source))


def decodings(source: Source) -> Iterator[Decoded]:
    """First the dump without its repeated entries, if possible; then, if the caller cannot use that, all of it."""
    data, damage = _bytes(source)
    if data.startswith(pickles.HEADER) and (abridgement := abridged(data, source.path)):
        yield Decoded(*abridgement, [], truncated=False)
    yield _decoded(source, data, damage)


def entry_count(source: Source) -> int:
    """The number of entries of a dump."""
    return next(decodings(source)).entries.count


def decode_rows(source: Source, rows: Collection[int]) -> tuple[schema.Dump, Mapping[int, Any]]:
    """The dump, and its entries by row, at least those in `rows`, even if all of them would be too large."""
    try:
        dump = decode(source).dump
    except pickles.TooLargeError:
        data, _ = _bytes(source)
        found = selected(data, source.path, rows) if data.startswith(pickles.HEADER) else None
        if found is None:
            raise
        return found
    return dump, {row: dump.entries[row] for row in rows if 0 <= row < len(dump.entries)}


def _bytes(source: Source) -> tuple[bytes, str]:
    """The bytes of the source, and the damage of its compression, if any."""
    try:
        with source.open() as opened:
            return opened.read_all(pickles.MAX_FILE_BYTES), opened.damage
    except UnreadableError as error:
        error.source = error.source or source.path
        raise
    except OSError as error:
        raise UnreadableError(
            error.strerror or str(error), source=source.path, advice="Check that the file can be read."
        ) from error


def _decoded(source: Source, data: bytes, damage: str) -> Decoded:
    if data.lstrip(_SPACE).startswith(_JSON_START):
        content, truncation = _from_json(data, source.path), None
    else:
        loaded = _from_pickle(data, source.path)
        content, truncation = loaded.content, loaded.truncation
    dump = schema.dump_of(content)
    if dump is None:
        raise UnreadableError(
            "it is not a dump: expected a dict with version and entries, or a list of entries",
            source=source.path,
            advice="Is this the file that the flight recorder wrote? Otherwise leave it out.",
        )
    findings = [_truncated(source, dump, truncation, damage)] if truncation else []
    return Decoded(dump, Entries.all_decoded(dump.entries), findings, truncation is not None)


def _from_json(data: bytes, path: str) -> Any:
    """The content of a JSON dump, as torch's control plane serves it."""
    pickles.refuse_if_too_large(data, _JSON_COSTS, path)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(
            f"it is not valid JSON: {error.msg}",
            source=path,
            position=f"line {error.lineno}, column {error.colno}",
            advice="Copy or take the dump again.",
        ) from None


def _from_pickle(data: bytes, path: str) -> pickles.Loaded:
    """The content of a pickle as torch writes it, or as Python may have written the same data again."""
    try:
        return pickles.load(data, path)
    except pickles.TooLargeError:
        raise
    except UnreadableError:
        try:
            content = pickles.load_fast(data)
            return pickles.Loaded(content.value if content else pickles.replay(data))
        except UnreadableError:
            pass
        raise


def _truncated(source: Source, dump: schema.Dump, truncation: pickles.Truncation, damage: str) -> Finding:
    why = f"{truncation.problem}{f' ({damage})' if damage else ''}"
    truncated = Truncated(source.path, why, len(dump.entries), "entry", truncation.offset)
    return truncated.finding(severity=Severity.ERROR)


# Payloads


class RecorderPayloads(Struct, EntryPayloads, frozen=True):
    """The entries of one dump; nothing decoded is kept between two calls."""

    source: Source

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Batches of entries in the order of the file."""
        try:
            entries = decode(self.source).dump.entries
        except pickles.TooLargeError:
            yield from self._parts(first, last)
            return
        sizes = JsonSizes()
        indexes = iter(range(*slice(first, last).indices(len(entries))))
        while batch := list(islice(indexes, _BATCH)):
            yield batch[0], _payloads([entries[index] for index in batch], sizes)

    def _parts(self, first: int, last: int | None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """The batches of a dump that is decoded part by part."""
        indexes = iter(range(*slice(first, last).indices(entry_count(self.source))))
        while part := list(islice(indexes, _PART)):
            _, entries = decode_rows(self.source, part)
            yield part[0], _payloads([entries[index] for index in part], JsonSizes())

    def entries(self, places: Collection[int]) -> dict[int, Entry]:
        """The entries at some indexes of the dump, as far as they are valid."""
        dump, found = decode_rows(self.source, places)
        sizes = JsonSizes()
        selected = {index: found[index] for index in places if index in found and sizes.fits(found[index])}
        entries = {index: _entry(recorded, dump.layout) for index, recorded in selected.items()}
        return {index: entry for index, entry in entries.items() if entry}

    def details(self) -> Iterator[Details]:
        """Sizes, types, stacks and durations of all entries, some of them at a time."""
        if decoded := _with_details(self.source):
            yield from _Detailed(decoded.dump.layout, decoded.entries).runs(0)
            return
        indexes = iter(range(entry_count(self.source)))
        while part := list(islice(indexes, _PART)):
            dump, found = decode_rows(self.source, part)
            entries = Entries.all_decoded([found[index] for index in part])
            yield from _Detailed(dump.layout, entries).runs(part[0])


def _payloads(entries: Sequence[Any], sizes: JsonSizes) -> list[Payload]:
    fitting = zip(entries, sizes.fitting(entries), strict=True)
    return [json_bytes(entry if fits and type(entry) is dict else _OMITTED) for entry, fits in fitting]


# Parts of entries in columns: what entries repeat is encoded once.


def _with_details(source: Source) -> Decoded | None:
    """The dump, without entries that repeat all of these parts, if possible; None if it is too large."""
    try:
        return next(decoded for decoded in decodings(source) if _repeats_details(decoded))
    except pickles.TooLargeError:
        return None


def _repeats_details(decoded: Decoded) -> bool:
    return not decoded.entries.has_numbers_in(*_text_fields(decoded.dump.layout))


def _text_fields(layout: Layout) -> tuple[str, ...]:
    return (
        layout.input_sizes,
        layout.input_types,
        layout.output_sizes,
        layout.output_types,
        layout.frames,
    )


class _Detailed(Struct, frozen=True):
    """Entries of which parts are requested."""

    layout: Layout
    entries: Entries

    def runs(self, first: int) -> Iterator[Details]:
        """The parts of all entries, the first of which has this index in the dump."""
        fields, sizes = _text_fields(self.layout), JsonSizes()
        providers = self.entries.providers(fields)
        durations = self._durations()
        for start in range(0, self.entries.count, _RUN):
            run = slice(start, start + _RUN)
            used = {id(provider): np.unique(provider[run], return_inverse=True) for provider in providers}
            inputs, input_types, outputs, output_types, stack = (
                self._texts(field, *used[id(provider)], sizes)
                for field, provider in zip(fields, providers, strict=True)
            )
            yield Details(first + start, inputs, input_types, outputs, output_types, stack, durations[run])

    def _texts(self, field: str, used: Int64s, row: Int64s, sizes: JsonSizes) -> Texts:
        values = [_part(self.entries.decoded[index], field) for index in used.tolist()]
        known: dict[bytes, int] = {}
        codes = [
            known.setdefault(json_bytes(value), len(known)) if fits else UNKNOWN
            for value, fits in zip(values, sizes.fitting(values), strict=True)
        ]
        return Texts(list(known), np.array(codes, np.int64)[row])

    def _durations(self) -> list[float | None]:
        decoded = [_duration(_part(entry, self.layout.duration)) for entry in self.entries.decoded]
        column = self.entries.floats(self.layout.duration, np.array(decoded, np.float64))
        durations: list[float | None] = column.tolist()
        for row in np.flatnonzero(~np.isfinite(column)).tolist():
            durations[row] = None
        return durations


def _part(entry: Any, field: str) -> Any:
    return entry.get(field) if type(entry) is dict else None


def _duration(value: Any) -> float:
    is_number = type(value) is float or (type(value) is int and _SMALLEST <= value <= _LARGEST)
    return float(value) if is_number else np.nan


# Entries for people: an invalid value counts as missing.


def _entry(recorded: Any, layout: Layout) -> Entry | None:
    if type(recorded) is not dict:
        return None
    group, description = _group(recorded, layout)
    is_message = recorded.get(layout.is_message) is True
    created = _number(recorded.get(layout.created))
    retired = recorded.get(layout.retired)
    return Entry(
        group=group,
        description=description,
        sequence=_number(recorded.get(layout.p2p_sequence if is_message else layout.collective_sequence)),
        operation=_string(recorded.get(layout.name)),
        input_sizes=_sizes(recorded.get(layout.input_sizes)),
        output_sizes=_sizes(recorded.get(layout.output_sizes)),
        input_types=_strings(recorded.get(layout.input_types)),
        output_types=_strings(recorded.get(layout.output_types)),
        state=_string(recorded.get(layout.state)),
        retired=retired if type(retired) is bool else None,
        created_ns=created * layout.created_unit_ns if created else None,
        timeout_ms=_number(recorded.get(layout.timeout)),
        frames=tuple(_frame(frame) for frame in _list(recorded.get(layout.frames)) if type(frame) is dict),
    )


def _group(recorded: dict[Any, Any], layout: Layout) -> tuple[str, str]:
    group = _list(recorded.get(layout.group))
    if len(group) == 2:
        return _string(group[0]), _string(group[1])
    number = recorded.get(layout.group_id)
    return (str(number) if type(number) in (int, str) else ""), ""


def _frame(recorded: dict[Any, Any]) -> Frame:
    line = _number(recorded.get(FRAME_LINE)) or 0
    return Frame(_string(recorded.get(FRAME_NAME)), _string(recorded.get(FRAME_FILE)), line)


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size for size in _list(tensor) if type(size) is int) for tensor in _list(value))


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(map(_string, _list(value)))


def _list(value: Any) -> Any:
    return value if type(value) in (list, tuple) else ()


def _string(value: Any) -> str:
    return value if type(value) is str else ""


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


# Decoded values as JSON


class JsonSizes:
    """Upper bounds of the sizes of values as JSON; a shared object is measured once.

    Measured objects must stay alive: they are recognized by their ids.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def fits(self, value: Any) -> bool:
        """True if `value` may be written as JSON."""
        return self._sum((value,), 0) <= _MAX_JSON_BYTES

    def fitting(self, values: Sequence[Any]) -> list[bool]:
        """The same of many values, which have one bound in common if they are similar."""
        if _CommonBound().of(values, 0) <= _MAX_JSON_BYTES:
            return [True] * len(values)
        return [self.fits(value) for value in values]

    def _sum(self, values: Iterable[Any], depth: int) -> int:
        size = 0
        for value in values:
            kind = type(value)
            if kind is str:
                size += _MAX_ESCAPE_BYTES * len(value) + _PUNCTUATION_BYTES
            elif kind is list or kind is dict or kind is tuple:
                size += self._known.get(id(value)) or self._measured(value, depth + 1)
            else:
                size += _MAX_NUMBER_BYTES
        return size

    def _measured(self, value: Any, depth: int) -> int:
        if depth > _MAX_DEPTH:
            return _TOO_LARGE
        if type(value) is dict:
            size = _PUNCTUATION_BYTES + _keys_size(value) + self._sum(value.values(), depth)
        else:
            size = _PUNCTUATION_BYTES + self._sum(value, depth)
        self._known[id(value)] = size
        return size


class _CommonBound:
    """An upper bound of the sizes of many values as JSON: whole columns are measured, and no single value."""

    def __init__(self) -> None:
        self._left = _MOST_VISITED

    def of(self, values: Sequence[Any], depth: int) -> int:
        """The bound of each value; too large if that would take long, or a key may not be written."""
        self._left -= len(values)
        if depth > _MAX_DEPTH or self._left < 0:
            return _TOO_LARGE
        kinds = set(map(type, values))
        size = _MAX_NUMBER_BYTES
        if str in kinds:
            longest = max(len(value) for value in values if type(value) is str)
            size = max(size, _MAX_ESCAPE_BYTES * longest + _PUNCTUATION_BYTES)
        for kind in kinds & _CONTAINERS:
            distinct: list[Any] = list({id(value): value for value in values if type(value) is kind}.values())
            if sum(map(len, distinct)) > self._left:
                return _TOO_LARGE
            measure = self._of_dicts if kind is dict else self._of_lists
            size = max(size, _PUNCTUATION_BYTES + measure(distinct, depth + 1))
        return size

    def _of_lists(self, lists: Sequence[Any], depth: int) -> int:
        return max(map(len, lists)) * self.of(list(chain.from_iterable(lists)), depth)

    def _of_dicts(self, dicts: Sequence[dict[Any, Any]], depth: int) -> int:
        if not _KEYS.issuperset(map(type, chain.from_iterable(dicts))):
            return _TOO_LARGE
        keys = set(map(tuple, dicts))
        longest = max(map(len, dicts))
        if len(keys) == 1 and longest <= _MOST_COLUMNS:
            columns = zip(*map(dict.values, dicts), strict=True)
            return _keys_size(dicts[0]) + sum(self.of(column, depth) for column in columns)
        largest_key = max((_keys_size(dict.fromkeys(names)) for names in keys), default=0)
        values = list(chain.from_iterable(map(dict.values, dicts)))
        return largest_key + longest * self.of(values, depth)


def _keys_size(value: dict[Any, Any]) -> int:
    try:
        return _MAX_ESCAPE_BYTES * len("".join(value)) + _PUNCTUATION_BYTES * len(value)
    except TypeError:
        if not all(type(key) is str or type(key) is int for key in value):
            return _TOO_LARGE
        return sum(_MAX_ESCAPE_BYTES * len(str(key)) + _PUNCTUATION_BYTES for key in value)


def json_bytes(value: Any) -> bytes:
    """`value` as JSON; it must fit (see `JsonSizes`)."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return orjson.dumps(_encodable(value), option=orjson.OPT_NON_STR_KEYS)


def _encodable(value: Any) -> Any:
    """A copy without what pickles can hold and readers of JSON cannot.

    A lone surrogate becomes a question mark, an integer of more than 64 bits a string.
    """
    kind = type(value)
    if kind is str:
        return value.encode("utf-8", "replace").decode("utf-8")
    if kind is list or kind is tuple:
        return [_encodable(item) for item in value]
    if kind is dict:
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if kind is int and not _SMALLEST <= value <= _LARGEST:
        return str(value)
    return value


def json_copy(value: Any) -> Any:
    """A copy of `value` that shares no objects, made of JSON types; it must fit."""
    return orjson.loads(json_bytes(value))
