"""The text of slices and instants in JSON, made of packets that are read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from tracelink.converters.perfetto.flows import Binding
from tracelink.converters.perfetto.schema import ARRIVAL_CATEGORY, COLLECTIVE_CATEGORY, HUNG_COLOUR
from tracelink.converters.perfetto.slices import DURATION, NEXT
from tracelink.converters.perfetto.text import Texts, micros, quoted, table
from tracelink.converters.perfetto_native.reading.arguments import ArgumentTexts
from tracelink.converters.perfetto_native.reading.framing import Batch, FramingError, batches
from tracelink.converters.perfetto_native.reading.packets import event_fields
from tracelink.converters.perfetto_native.reading.trace import Native, Stretch
from tracelink.converters.perfetto_native.reading.unbundling import Unbundled
from tracelink.events import Bools, Int32s, Int64s
from tracelink.fields import Fields, split_all
from tracelink.octets import Octets
from tracelink.sources import Source

CHUNK = 1 << 14
"""Events that are joined at once."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread of the JSON: its process and its number, as they are written."""

    pid: bytes
    tid: bytes


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that the text of events is made of."""

    source: Source
    native: Native
    lanes: Sequence[Lane]
    """Of the threads that the facts list."""
    count: Callable[[int], None]
    bindings: Mapping[int, Binding] = field(default_factory=dict)
    """By event."""
    behind: Mapping[int, bytes] = field(default_factory=dict)
    """What stands behind some events."""
    recorded: bool = False
    """Whether arguments are only what sources recorded."""


def write_events(sheet: Sheet, low: int, high: int, wanted: Bools) -> Iterator[bytes]:
    """The text of those events of some stretches that are wanted."""
    for _, text in events_by_group(sheet, low, high, wanted - np.int64(1)):
        yield text


def events_by_group(sheet: Sheet, low: int, high: int, group: Int64s) -> Iterator[tuple[int, bytes]]:
    """The text of the events of some stretches, each with its group; those of group -1 are left out."""
    native = sheet.native
    arguments = ArgumentTexts(native.numbered, sheet.recorded)
    for first, batch in _again(sheet, native.stretches[low:high]):
        begin, end = np.searchsorted(native.events.packet, [first, first + len(batch.begins)]).tolist()
        some = begin + np.flatnonzero(group[begin:end] >= 0)
        if not len(some):
            continue
        octets, bounds = Octets(batch.data), np.array([batch.begins, batch.ends], np.int64)
        for number in np.unique(group[some]).tolist():
            mine = some[group[some] == number]
            for at in range(0, len(mine), CHUNK):
                rows = mine[at : at + CHUNK]
                packets = split_all(octets, *bounds[:, native.events.packet[rows] - first])
                yield number, _texts(sheet, arguments, octets, packets, rows)


def _again(sheet: Sheet, stretches: Sequence[Stretch]) -> Iterator[tuple[int, Batch]]:
    """The packets of successive stretches, and the number of the first of each batch."""
    with sheet.source.open() as opened, suppress(FramingError):
        opened.skip(stretches[0].offset)
        for stretch, batch in zip(stretches, batches(opened, stretches[0].offset, sheet.count), strict=False):
            first = stretch.first
            for plain in Unbundled(batch):
                yield first, plain
                first += len(plain.begins)


def _texts(sheet: Sheet, arguments: ArgumentTexts, octets: Octets, packets: Fields, rows: Int64s) -> bytes:
    """The text of events, which stand in these packets."""
    events = sheet.native.events
    owner, inner = event_fields(octets, packets)
    inner = replace(inner, owner=owner[inner.owner])
    category, name = events.category[rows], events.name[rows]
    bare = np.isin(category, _codes(sheet.native, COLLECTIVE_CATEGORY, ARRIVAL_CATEGORY))
    instant = events.instant[rows]
    pieces = [
        _openings(sheet, rows),
        _distinct(name, lambda code: quoted(_text(sheet.native, code)) + b',"ts":'),
        table(micros(events.start[rows]), len(rows)),
        np.where(instant, b"", DURATION).astype(object),
        np.where(instant, b"", table(micros(events.duration[rows]), len(rows))),
        _extras(sheet, rows),
        arguments.of_events(octets, inner, events.sequence[rows], bare),
        _behind(sheet, rows),
    ]
    return b"".join(np.stack(pieces, axis=1).ravel().tolist())


def _openings(sheet: Sheet, rows: Int64s) -> Texts:
    """Everything up to the name."""
    events = sheet.native.events
    codes = (
        (events.seat[rows].astype(np.int64) << 32) + (events.category[rows] + 1 << 1) + events.instant[rows]
    )

    def opening(code: int) -> bytes:
        lane = sheet.lanes[code >> 32]
        category = quoted(_text(sheet.native, ((code & 0xFFFF_FFFF) >> 1) - 1))
        phase = b'"i","s":"t"' if code & 1 else b'"X"'
        return b'%s{"ph":%s,"cat":%s,"pid":%s,"tid":%s,"name":' % (NEXT, phase, category, lane.pid, lane.tid)

    return _distinct(codes, opening)


def _extras(sheet: Sheet, rows: Int64s) -> Texts:
    """The arrows that slices carry, and the colour of what hangs."""
    extras = np.full(len(rows), b"", object)
    extras[sheet.native.events.hung[rows]] = HUNG_COLOUR
    for place in _places(sheet.bindings, rows):
        binding = sheet.bindings[int(rows[place])]
        leaves = b',"flow_out":true' if binding.leaves else b""
        arrives = b',"flow_in":true' if binding.arrives else b""
        extras[place] = b',"bind_id":%d%s%s%s' % (binding.number, leaves, arrives, extras[place])
    return extras


def _behind(sheet: Sheet, rows: Int64s) -> Texts:
    behind = np.full(len(rows), b"", object)
    for place in _places(sheet.behind, rows):
        behind[place] = sheet.behind[int(rows[place])]
    return behind


def _places(some: Mapping[int, object], rows: Int64s) -> list[int]:
    """Where in `rows` those are that are among some."""
    found: list[int] = np.flatnonzero(np.isin(rows, np.fromiter(some, np.int64, len(some)))).tolist()
    return found


def _distinct(codes: Int64s | Int32s, text_of: Callable[[int], bytes]) -> Texts:
    distinct, which = np.unique(codes, return_inverse=True)
    return table(map(text_of, distinct.tolist()), len(distinct))[which]


def _codes(native: Native, *texts: str) -> list[int]:
    return [native.texts.index(text) for text in texts if text in native.texts]


def _text(native: Native, code: int) -> str:
    return native.texts[code] if code >= 0 else ""
