"""Converts a native trace that tracelink wrote to the JSON trace that it would have written instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._io.engine import Engine
from tracelink._io.protobuf import Fields, Octets, split_all
from tracelink._io.sources import Source
from tracelink._io.targets import Target, spool_folder
from tracelink._model.columns import Bools, Int32s, Int64s
from tracelink._model.events import InstantScope, Relation
from tracelink.converters.perfetto import json_events
from tracelink.converters.perfetto.facts import Texts, micros, quoted, table, unclosed_object
from tracelink.converters.perfetto.json_events import (
    TEXTS_PER_EVENT,
    NamedThread,
    ShownProcess,
    SliceTexts,
    counter_names,
    flow_events,
    sample_events,
    unclosed,
    write_flows,
)
from tracelink.converters.perfetto.native_arguments import as_recorded
from tracelink.converters.perfetto.native_trace import (
    BlockFacts,
    NativeTrace,
    TraceFlows,
    findings_of,
    flows_of_trace,
    read_native,
)
from tracelink.converters.perfetto.packets.reading import (
    States,
    find_fields,
    read_again,
    read_bytes,
    read_numbers,
    split_messages,
)
from tracelink.converters.perfetto.packets.schema import Annotation, Event, Packet, TextTable
from tracelink.converters.perfetto.timeline import schema as timeline_schema
from tracelink.converters.perfetto.timeline.blocks import Section, row_ranges, write_sections
from tracelink.converters.perfetto.timeline.flows import SliceFlow
from tracelink.converters.perfetto.timeline.layout import SUMMARY, OutputThreads
from tracelink.plugins import Output

# Arguments of events, a batch at a time.


ANY = msgspec.json.Decoder(msgspec.Raw)


class ArgumentTexts(Struct, frozen=True):
    """Converts the arguments of events to JSON."""

    states: States
    recorded: bool = False
    """True if only recorded arguments are written."""

    def of_events(self, octets: Octets, inner: Fields, state: Int32s, unwrapped: Bools) -> list[bytes]:
        """The arguments of events with the fields `inner`; `unwrapped` events get those of collectives directly."""
        event, _, fields = split_messages(octets, inner, Event.ANNOTATION)
        number = read_numbers(fields, Annotation.NAME, len(event))
        owner, read = find_fields(fields, Annotation.JSON)
        event, number = event[owner], number[owner]
        names, name = self.states.resolve(TextTable.ANNOTATION_NAMES, state[event], number)
        if self.recorded:
            some = ~_is(names, timeline_schema.LINK, timeline_schema.COLLECTIVE)[name]
            event, name, read = event[some], name[some], read.where(some)
        unwrapped = _is(names, timeline_schema.ORIGINAL)[name] | (
            _is(names, timeline_schema.COLLECTIVE)[name] & unwrapped[event]
        )
        texts = _recorded(read_bytes(octets, read))
        return _joined(_members(texts, names, name, unwrapped), event, len(state))


def _is(names: Sequence[str | None], *some: str) -> Bools:
    return np.array([name in some for name in names], np.bool_)


def _recorded(texts: Sequence[bytes]) -> list[bytes]:
    """JSON as it was recorded; invalid JSON, in a damaged file, as a string."""
    return [text if _is_json(text) else quoted(text.decode(errors="replace")) for text in as_recorded(texts)]


def _is_json(text: bytes) -> bool:
    try:
        ANY.decode(text if text.isascii() else text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _members(
    texts: Sequence[bytes], names: Sequence[str | None], name: Int64s, unwrapped: Bools
) -> list[bytes]:
    """Each argument as a member of an object; `unwrapped` ones as the members that they contain."""
    keys = [quoted(one or "") + b":" for one in names]
    return [
        text[1:-1].strip() if unwrapped and text.startswith(b"{") else keys[of] + text
        for text, of, unwrapped in zip(texts, name.tolist(), unwrapped.tolist(), strict=True)
    ]


def _joined(members: Sequence[bytes], event: Int64s, count: int) -> list[bytes]:
    """All members of each of `count` events, as its arguments."""
    joined = [b""] * count
    for index, member in zip(event.tolist(), members, strict=True):
        if member:
            joined[index] = joined[index] + b"," + member if joined[index] else member
    return [b"{%s}" % text if text else b"" for text in joined]


# Slices and instants, from packets that are read again.


CHUNK = 1 << 14
"""Events that are joined at once."""


ThreadIds = tuple[bytes, bytes]
"""The process and number of a thread, as JSON text."""


class EventTexts(Struct, frozen=True):
    """The data of which the text of events is made."""

    source: Source
    native: NativeTrace
    count: Callable[[int], None]
    slices: SliceTexts
    appended: Mapping[int, bytes]
    """Text after some events."""
    recorded: bool
    """True if only recorded arguments are written."""

    @classmethod
    def of(
        cls,
        source: Source,
        native: NativeTrace,
        thread_ids: Sequence[ThreadIds],
        count: Callable[[int], None] = lambda _: None,
        slice_flows: Mapping[int, SliceFlow] | None = None,
        appended: Mapping[int, bytes] | None = None,
        *,
        recorded: bool = False,
    ) -> EventTexts:
        """The texts of the events on threads with these numbers, in the order of the facts."""
        events, several = native.events, len(native.facts.blocks) > 1 and not recorded
        used = np.unique(events.category)
        index_of = np.zeros(len(native.texts) + 1, np.int64)
        index_of[used] = np.arange(len(used))
        slices = SliceTexts.of(
            np.arange(len(events)),
            partial(_opening_codes, native, index_of, InstantScope.PROCESS if several else InstantScope.ALL),
            thread_ids,
            [_text(native, code) for code in used.tolist()],
            events.name,
            [*native.texts, ""],
            (events.start, events.duration, events.instant),
            frozenset(np.flatnonzero(events.hung).tolist()),
            slice_flows or {},
            {},
        )
        return cls(source, native, count, slices, appended or {}, recorded)


def _opening_codes(native: NativeTrace, index_of: Int64s, widest: InstantScope, rows: Int64s) -> Int64s:
    """Codes of threads, categories and phases; `index_of` has the index of each category among those in use."""
    events = native.events
    categories = int(index_of.max(initial=0)) + 1
    codes = (events.thread[rows] * np.int64(categories) + index_of[events.category[rows]]) * len(
        json_events.PHASES
    )
    return codes + np.where(events.instant[rows], 1 + np.minimum(_scopes(native, rows), widest), 0)


def write_events(texts: EventTexts, low: int, high: int, mask: Bools) -> Iterator[bytes]:
    """The text of the events of some batches that are in the mask."""
    for _, text in events_by_group(texts, low, high, mask - np.int64(1)):
        yield text


def events_by_group(texts: EventTexts, low: int, high: int, group: Int64s) -> Iterator[tuple[int, bytes]]:
    """The text of the events of some batches, each with its group; those of group -1 are skipped."""
    native = texts.native
    arguments = ArgumentTexts(native.states, texts.recorded)
    for first, batch in read_again(texts.source, native.batch_starts[low:high], texts.count):
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
                yield number, _texts(texts, arguments, octets, packets, rows)


def _texts(
    texts: EventTexts, arguments: ArgumentTexts, octets: Octets, packets: Fields, rows: Int64s
) -> bytes:
    """The text of events in these packets."""
    events = texts.native.events
    owner, _, inner = split_messages(octets, packets, Packet.TRACK_EVENT)
    inner = replace(inner, owner=owner[inner.owner])
    unwrapped = np.isin(
        events.category[rows],
        _codes(texts.native, timeline_schema.COLLECTIVE_CATEGORY, timeline_schema.ARRIVAL_CATEGORY),
    )
    column = texts.slices.columns(rows, arguments.of_events(octets, inner, events.state[rows], unwrapped))
    some = np.fromiter(texts.appended, np.int64, len(texts.appended))
    for index in np.flatnonzero(np.isin(rows, some)).tolist():
        last = TEXTS_PER_EVENT * (index + 1) - 1
        column[last] = b"%s%s" % (column[last], texts.appended[int(rows[index])])
    return b"".join(column)


def without_arguments(texts: EventTexts, rows: Int64s) -> bytes:
    """The text of some events without their arguments, for which no packet is read again."""
    return b"".join(texts.slices.columns(rows, [b""] * len(rows)))


def _scopes(native: NativeTrace, rows: Int64s) -> Int64s:
    """The scope of each event, if it is an instant."""
    scope = np.full(len(rows), InstantScope.THREAD, np.int64)
    for instants in native.wide_instants:
        index = np.flatnonzero(native.events.name[rows] == instants.name)
        thread = native.events.thread[rows[index]]
        scope[index[(thread >= instants.threads.start) & (thread < instants.threads.stop)]] = instants.scope
    return scope


def _codes(native: NativeTrace, *texts: str) -> list[int]:
    return [native.texts.index(text) for text in texts if text in native.texts]


def _text(native: NativeTrace, code: int) -> str:
    return native.texts[code] if code >= 0 else ""


# The document: header, names, events, flows and samples.


BATCHES_PER_SECTION = 8
"""Most batches of a section."""


class Document(Struct, frozen=True):
    """The JSON document of a native trace."""

    native: NativeTrace
    flows: TraceFlows
    texts: EventTexts

    @classmethod
    def of(cls, source: Source, native: NativeTrace, count: Callable[[int], None]) -> Document:
        """The document of a file."""
        flows = flows_of_trace(native)
        slice_flows: dict[int, SliceFlow] = {}
        for of_rank in flows.flows:
            slice_flows |= of_rank.slice_flows
        threads = _shown_threads(native.facts.blocks)
        thread_ids = [(b"%d" % pid, b"%d" % tid) for pid, tid in threads]
        appended = _cross_rank_ends(native, flows, threads)
        return cls(native, flows, EventTexts.of(source, native, thread_ids, count, slice_flows, appended))

    @property
    def events(self) -> int:
        """The number of slices and instants of ranks, without those at the ends of flows between them."""
        blocks = self.native.facts.blocks
        of_ranks = np.array([block.rank is not None for block in blocks for _ in block.threads], np.bool_)
        drawn = int(np.count_nonzero(of_ranks[self.native.events.thread] & ~self._summary))
        return drawn - len(self.texts.appended) - len(self.flows.cross_rank.undrawn)

    @property
    def _single(self) -> bool:
        """True if it is the timeline of one rank, which is also a profile for other tools."""
        return len(self.native.facts.blocks) == 1

    @property
    def _summary(self) -> Bools:
        """A mask of the events that show at a glance what a rank does."""
        return np.isin(self.native.events.category, _codes(self.native, timeline_schema.SUMMARY_CATEGORY))

    def opening(self) -> bytes:
        """Everything before the first slice."""
        head = unclosed_object(self.native.facts.header or {}) + json_events.EVENTS
        return head + unclosed(self._names())

    def closing(self) -> bytes:
        """Everything after the last event."""
        return (json_events.LAST if any(True for _ in self._names()) else b"") + json_events.END

    def sections(self) -> list[Section]:
        """Slices and instants, then flows within ranks, samples, and the starts of flows between ranks.

        Instants at which a flow ends follow its start if both have the same time.
        """
        native, flows = self.native, self.flows.cross_rank.flows
        start, thread = native.events.start, native.events.thread.astype(np.int64)
        late = np.zeros(len(native.events), np.bool_)
        late[flows.target[start[flows.source] == start[flows.target]]] = True
        plain = ~late
        if self._single:
            plain &= ~self._summary
        plain[self.flows.cross_rank.undrawn] = False
        threads, drawing = self._output_threads(), self.flows.drawing
        return [
            *self._slices(plain),
            *(partial(write_flows, flows, drawing, threads, thread) for flows in self.flows.flows),
            self._samples,
            self._cross_rank_starts,
            *self._slices(late),
        ]

    def _slices(self, mask: Bools) -> list[Section]:
        """The events in the mask."""
        native = self.native
        first = np.array([stretch.first for stretch in native.batch_starts], np.int64)
        used = np.unique(np.searchsorted(first, native.events.packet[mask], side="right") - 1)
        runs = np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else []
        return [
            partial(write_events, self.texts, low, high, mask)
            for run in runs
            for low, high in row_ranges(int(run[0]), int(run[-1]) + 1, BATCHES_PER_SECTION)
        ]

    def _names(self) -> Iterator[dict[str, Any]]:
        """Names and order of processes and threads: the process groups come first."""
        for process, _ in shown_processes(self.native.facts.blocks):
            yield from process.metadata()

    def _output_threads(self) -> OutputThreads:
        shown = _shown_threads(self.native.facts.blocks)
        return OutputThreads(
            np.arange(len(shown)), [pid for pid, _ in shown], [tid for _, tid in shown], [], []
        )

    def _samples(self) -> Iterator[bytes]:
        drawn = self.native.samples
        openings = list[bytes]()
        for process, block in shown_processes(self.native.facts.blocks):
            labels = {section.pid: section.label for section in block.processes}
            names = [counter.name for counter in block.counters]
            unique = counter_names(names, [labels.get(counter.pid, "") for counter in block.counters])
            openings += [json_events.sample_opening(name, process.pid) for name in unique]
        yield from sample_events(table(openings, len(openings)), drawn.counter, drawn.time, drawn.value)

    def _cross_rank_starts(self) -> Iterator[bytes]:
        """One start for all flows with the same number."""
        cross_rank, events = self.flows.cross_rank, self.native.events
        _, first = np.unique(cross_rank.number, return_index=True)
        source, relation = cross_rank.flows.source[first], cross_rank.flows.relation[first]
        threads = _shown_threads(self.native.facts.blocks)
        openings, codes = _flow_openings(json_events.FLOW_START, threads, events.thread[source], relation)
        yield from flow_events(openings, codes, cross_rank.number[first], events.start[source])


def _cross_rank_ends(
    native: NativeTrace, flows: TraceFlows, threads: Sequence[tuple[int, int]]
) -> dict[int, bytes]:
    """Text after the instants at which flows between ranks end: those ends."""
    cross_rank, events = flows.cross_rank, native.events
    target = cross_rank.flows.target
    openings, codes = _flow_openings(
        json_events.ENCLOSED_FLOW_END, threads, events.thread[target], cross_rank.flows.relation
    )
    appended: dict[int, bytes] = {}
    texts = zip(
        target.tolist(),
        openings[codes].tolist(),
        cross_rank.number.tolist(),
        micros(events.start[target]),
        strict=True,
    )
    for row, opening, number, time in texts:
        appended[row] = appended.get(row, b"") + b'%s%d,"ts":%s' % (opening, number, time)
    return appended


def _flow_openings(
    phase: bytes, threads: Sequence[tuple[int, int]], thread: Int32s, relation: Int64s
) -> tuple[Texts, Int64s]:
    """Openings of flow events, and the index of each flow's opening."""
    places, which = np.unique(np.stack([thread, relation]), axis=1, return_inverse=True)
    openings = [
        json_events.flow_opening(
            phase, timeline_schema.CROSS_RANK_FLOW_NAMES[Relation(kind)], *threads[index]
        )
        for index, kind in places.T.tolist()
    ]
    return table(openings, len(openings)), which.ravel()


def shown_processes(blocks: Sequence[BlockFacts]) -> Iterator[tuple[ShownProcess, BlockFacts]]:
    """Each rank, and all process groups, as one process; the only rank has no summary."""
    for block in blocks:
        originals = {section.pid: section.original for section in block.processes}
        threads = [
            NamedThread(thread.name, thread.original, originals.get(thread.pid))
            for thread in block.threads
            if len(blocks) > 1 or thread.original != SUMMARY
        ]
        if block.rank is None:
            yield (
                ShownProcess.of_groups(int(block.title) if block.title.isdigit() else len(blocks), threads),
                block,
            )
        else:
            labels = [section.label for section in block.processes]
            yield ShownProcess.of_rank(block.rank, block.title, labels, threads), block


def _shown_threads(blocks: Sequence[BlockFacts]) -> list[tuple[int, int]]:
    """Process and number of each thread in the facts; 0 for the summary of the only rank, which is not written."""
    shown: list[tuple[int, int]] = []
    for process, block in shown_processes(blocks):
        tids = iter(process.tids)
        shown += [
            (process.pid, 0 if len(blocks) == 1 and thread.original == SUMMARY else next(tids))
            for thread in block.threads
        ]
    return shown


# The conversion.


SUFFIXES = (".json", ".json.gz")


KNOWN = (".gz", ".pftrace", ".perfetto-trace")


class NativeAsJson:
    """A native trace that tracelink wrote, as JSON."""

    name = "perfetto-json"

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        document = Document.of(source, read_native(source, engine), engine.meter.add)
        name = _renamed(source.name)
        path = target.path(name)
        with target.file(name) as out:
            out.write(document.opening())
            write_sections(document.sections(), out, spool_folder(path), engine)
            out.write(document.closing())
        findings = (*findings_of(source.path, document.native), *document.flows.findings)
        return [Output(path, self.name, None, target.size(name), document.events, findings)]


def _renamed(name: str) -> str:
    for known in KNOWN:
        name = name.removesuffix(known)
    return name + SUFFIXES[0]
