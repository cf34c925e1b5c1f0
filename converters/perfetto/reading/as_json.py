"""Native trace as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.perfetto.json.events import (
    mark_opening,
    marks,
    named,
    sample_opening,
    samples,
    unclosed,
    write_flows,
)
from tracelink.converters.perfetto.json.schema import (
    DURATION,
    END,
    EVENTS,
    HUNG_COLOUR,
    INNER_END,
    LAST,
    NEXT,
)
from tracelink.converters.perfetto.json_text import Texts, micros, quoted, table, unclosed_object
from tracelink.converters.perfetto.native.arguments import as_recorded
from tracelink.converters.perfetto.native.decode import (
    InternedTexts,
    ProcessFact,
    ThreadFact,
    Unbundled,
    batches,
    event_fields,
    interned_texts,
    numbers_of,
    of_wire,
)
from tracelink.converters.perfetto.native.schema import Argument, Event, Table
from tracelink.converters.perfetto.native.trace import (
    Bound,
    Native,
    Stretch,
    bound_arrows,
    findings_of,
    native_of,
)
from tracelink.converters.perfetto.timeline.blocks import Piece, spans, write_pieces
from tracelink.converters.perfetto.timeline.flows import Binding
from tracelink.converters.perfetto.timeline.layout import Seats
from tracelink.converters.perfetto.timeline.schema import (
    ARRIVAL_CATEGORY,
    COLLECTIVE,
    COLLECTIVE_CATEGORY,
    LINK,
    ORIGINAL,
    TIE_NAMES,
)
from tracelink.engine import Engine
from tracelink.io.framing import Batch, FramingError
from tracelink.io.protobuf import Fields, Octets, split_all
from tracelink.io.sources import Source
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.events import Relation
from tracelink.plugins import Output, Target

# What events say as arguments, as JSON: that of all events of a batch at a time.


ANY = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class ArgumentTexts:
    """Turns the arguments of events into text."""

    names: InternedTexts
    recorded: bool = False
    """Whether only what sources recorded is written."""

    def of_events(self, octets: Octets, inner: Fields, sequence: Int32s, bare: Bools) -> Texts:
        """The arguments of events, of which `inner` are the fields; in those that are `bare` collectives are too."""
        event, read = of_wire(inner, Event.ARGUMENT)
        told = split_all(octets, read.begin, read.end)
        number = numbers_of(told, Argument.NAME, len(event), UNKNOWN)
        owner, read = of_wire(told, Argument.JSON)
        event, number = event[owner], number[owner]
        names, name = interned_texts(self.names, Table.ARGUMENT_NAMES, sequence[event], number)
        if self.recorded:
            some = ~_is(names, LINK, COLLECTIVE)[name]
            event, name, read = event[some], name[some], read.where(some)
        alone = _is(names, ORIGINAL)[name] | (_is(names, COLLECTIVE)[name] & bare[event])
        spans = map(slice, read.begin.tolist(), read.end.tolist())
        texts = _recorded([octets.data[span] for span in spans])
        return _joined(_members(texts, names, name, alone), event, len(sequence))


def _is(names: Sequence[str | None], *some: str) -> Bools:
    return np.array([name in some for name in names], np.bool_)


def _recorded(texts: Sequence[bytes]) -> list[bytes]:
    """JSON texts as their sources said them; what is none, in a damaged file, as a text."""
    return [text if _is_json(text) else quoted(text.decode(errors="replace")) for text in as_recorded(texts)]


def _is_json(text: bytes) -> bool:
    try:
        ANY.decode(text if text.isascii() else text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _members(texts: Sequence[bytes], names: Sequence[str | None], name: Int64s, alone: Bools) -> list[bytes]:
    """Each as a member of an object; of those that stand alone the members that they have."""
    keys = [quoted(one or "") + b":" for one in names]
    return [
        text[1:-1].strip() if bare and text.startswith(b"{") else keys[of] + text
        for text, of, bare in zip(texts, name.tolist(), alone.tolist(), strict=True)
    ]


def _joined(members: Sequence[bytes], event: Int64s, count: int) -> Texts:
    """All members of each of `count` events, as the arguments that it has."""
    joined = [b""] * count
    for place, member in zip(event.tolist(), members, strict=True):
        if member:
            joined[place] = joined[place] + b"," + member if joined[place] else member
    return table([b',"args":{%s}' % text if text else b"" for text in joined], count)


# The text of slices and instants in JSON, made of packets that are read again.


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


# The text of a native trace in JSON: its header, names, events, arrows and samples.


STRETCHES = 8
"""Batches of a piece at most."""


@dataclass(frozen=True, slots=True)
class Document:
    """All that is written."""

    native: Native
    bound: Bound
    sheet: Sheet

    @classmethod
    def of(cls, source: Source, native: Native, count: Callable[[int], None]) -> Document:
        """The document of a file."""
        bound = bound_arrows(native)
        bindings: dict[int, Binding] = {}
        for flows in bound.flows:
            bindings |= flows.bindings
        threads = native.said.threads
        lanes = [Lane(b"%d" % thread.pid, b"%d" % thread.tid) for thread in threads]
        behind = _tie_ends(native, bound, threads)
        return cls(native, bound, Sheet(source, native, lanes, count, bindings, behind))

    @property
    def events(self) -> int:
        """How many slices and instants ranks have, without those at the ends of arrows between them."""
        blocks = self.native.said.blocks
        of_ranks = np.array([block.rank is not None for block in blocks for _ in block.threads], np.bool_)
        drawn = int(np.count_nonzero(of_ranks[self.native.events.seat]))
        return drawn - len(self.sheet.behind) - len(self.bound.ties.crowded)

    def opening(self) -> bytes:
        """Everything before the first slice."""
        head = unclosed_object(self.native.said.header or {}) + EVENTS
        return head + unclosed(self._names())

    def closing(self) -> bytes:
        """Everything behind the last event."""
        return (LAST if any(True for _ in self._names()) else b"") + END

    def pieces(self) -> list[Piece]:
        """Slices and instants, then arrows within ranks, samples, and where arrows between ranks begin.

        Instants at which such an arrow ends stand behind that where it begins and ends at once.
        """
        native, arrows = self.native, self.bound.ties.arrows
        start, seat = native.events.start, native.events.seat.astype(np.int64)
        late = np.zeros(len(native.events), np.bool_)
        late[arrows.target[start[arrows.source] == start[arrows.target]]] = True
        plain = ~late
        plain[self.bound.ties.crowded] = False
        seats, drawing = self._seats(), self.bound.drawing
        return [
            *self._slices(plain),
            *(partial(write_flows, flows, drawing, seats, seat) for flows in self.bound.flows),
            self._samples,
            self._tie_starts,
            *self._slices(late),
        ]

    def _slices(self, wanted: Bools) -> list[Piece]:
        """Those that are wanted, where there are any."""
        native = self.native
        first = np.array([stretch.first for stretch in native.stretches], np.int64)
        used = np.unique(np.searchsorted(first, native.events.packet[wanted], side="right") - 1)
        runs = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else []
        return [
            partial(write_events, self.sheet, low, high, wanted)
            for run in runs
            for low, high in spans(int(run[0]), int(run[-1]) + 1, STRETCHES)
        ]

    def _names(self) -> Iterator[dict[str, Any]]:
        """The names of processes and threads, and their order: what ranks did together stands before all."""
        for block in self.native.said.blocks:
            for process in block.processes:
                yield named("process_name", process.pid, 0, _own(process, "original pid"))
                yield named("process_labels", process.pid, 0, {"labels": process.label})
                order = 0 if block.rank is None else process.pid
                yield named("process_sort_index", process.pid, 0, {"sort_index": order})
            for thread in block.threads:
                yield named("thread_name", thread.pid, thread.tid, _own(thread, "original tid"))
                yield named("thread_sort_index", thread.pid, thread.tid, {"sort_index": thread.tid})

    def _seats(self) -> Seats:
        threads = self.native.said.threads
        first = np.arange(len(threads))
        return Seats(first, [one.pid for one in threads], [one.tid for one in threads], [], [])

    def _samples(self) -> Iterator[bytes]:
        drawn = self.native.samples
        openings = [sample_opening(counter.name, counter.pid) for counter in self.native.said.counters]
        yield from samples(table(openings, len(openings)), drawn.counter, drawn.time, drawn.value)

    def _tie_starts(self) -> Iterator[bytes]:
        """One for all arrows that have a number."""
        ties, events = self.bound.ties, self.native.events
        _, first = np.unique(ties.number, return_index=True)
        source, relation = ties.arrows.source[first], ties.arrows.relation[first]
        openings, codes = _mark_openings(b'"s"', self.native.said.threads, events.seat[source], relation)
        yield from marks(openings, codes, ties.number[first], events.start[source])


def _tie_ends(native: Native, bound: Bound, threads: Sequence[ThreadFact]) -> dict[int, bytes]:
    """What stands behind the instants at which arrows between ranks end."""
    ties, events = bound.ties, native.events
    target = ties.arrows.target
    openings, codes = _mark_openings(INNER_END, threads, events.seat[target], ties.arrows.relation)
    behind: dict[int, bytes] = {}
    texts = zip(
        target.tolist(),
        openings[codes].tolist(),
        ties.number.tolist(),
        micros(events.start[target]),
        strict=True,
    )
    for row, opening, number, time in texts:
        behind[row] = behind.get(row, b"") + b'%s%d,"ts":%s' % (opening, number, time)
    return behind


def _mark_openings(
    phase: bytes, threads: Sequence[ThreadFact], seat: Int32s, relation: Int64s
) -> tuple[Texts, Int64s]:
    """The texts of ends of arrows up to their numbers, and which of them each has."""
    places, which = np.unique(np.stack([seat, relation]), axis=1, return_inverse=True)
    openings = [
        mark_opening(phase, TIE_NAMES[Relation(kind)], threads[place].pid, threads[place].tid)
        for place, kind in places.T.tolist()
    ]
    return table(openings, len(openings)), which.ravel()


def _own(fact: ProcessFact | ThreadFact, original: str) -> dict[str, Any]:
    """The name, and the number in the source where there is one."""
    return {"name": fact.name} | ({} if fact.original is None else {original: fact.original})


# A native trace as the JSON that would have been written instead.


SUFFIXES = (".json", ".json.gz")


KNOWN = (".gz", ".pftrace", ".perfetto-trace")


class NativeAsJson:
    """A native trace that tracelink wrote, as JSON."""

    name = "perfetto-json"

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        document = Document.of(source, native_of(source, engine), engine.meter.add)
        name = _renamed(source.name)
        path = target.path(name)
        with target.file(name) as out:
            out.write(document.opening())
            write_pieces(document.pieces(), out, os.path.dirname(path) or None, engine)
            out.write(document.closing())
        findings = (*findings_of(source.path, document.native), *document.bound.findings)
        return [Output(path, self.name, None, target.size(name), document.events, findings)]


def _renamed(name: str) -> str:
    for known in KNOWN:
        name = name.removesuffix(known)
    return name + SUFFIXES[0]
