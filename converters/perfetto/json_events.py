"""Events of Chrome's trace event format as JSON text: names of processes and threads, slices, instants, flows, samples.

Every event starts by closing the one before it, and is left open up to the text that follows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._io.json_array import at_several_places
from tracelink._model.columns import Bools, Float64s, Int32s, Int64s
from tracelink._model.events import BYTES, COUNT, EventKind, InstantScope, Key, Relation, Track
from tracelink._model.graph import EventGraph
from tracelink._model.trace import Payload, Payloads
from tracelink.converters.perfetto.facts import (
    AddedArguments,
    Texts,
    add_member,
    encoded,
    loadable,
    micros,
    numbers,
    quoted,
)
from tracelink.converters.perfetto.timeline.drawing import Drawing, drawn_samples
from tracelink.converters.perfetto.timeline.flows import BoundFlows, SliceFlow
from tracelink.converters.perfetto.timeline.groups import GROUPS_PROCESS
from tracelink.converters.perfetto.timeline.job import ArgumentChoice, RankTimeline, payload_runs
from tracelink.converters.perfetto.timeline.layout import Layout, OutputThreads, Process
from tracelink.converters.perfetto.timeline.schema import FLOW_NAMES, LINK, RECORDER, SCOPES, Categories

# The document.

EVENTS = b',\n"traceEvents": [\n'
LAST = b"}"
"""Closes the last event."""

END = b"\n]\n}\n"

# Parts of events.

NEXT = b"},\n"
"""Closes an event, before the next one."""

TIME = b',"ts":'
DURATION = b',"dur":'
ARGUMENTS = b',"args":'
RECORDED = b'{"%s":%%s}' % RECORDER.encode()
"""The argument that holds what a recorder recorded."""

COUNTER_VALUE = b',"args":{"value":'
AFTER_ARGUMENT = b'}},"ts":'
"""Follows the value of the only argument of an instant."""

HUNG_COLOUR = b',"cname":"terrible"'
"""The colour of slices that hang; `chrome://tracing` uses it."""

SLICE, INSTANT = b'"X"', b'"i","s":"t"'
INSTANTS = tuple(b'"i","s":"%s"' % scope.encode() for scope in SCOPES.values())
"""Instants by their scope, a value of `InstantScope`."""

FLOW_START, FLOW_END = b'"s"', b'"f"'
ENCLOSED_FLOW_END = b'"f","bp":"e"'
"""The end of a flow at the slice around it, not at the next one."""


def metadata_event(name: str, pid: int | str, tid: int | str, args: dict[str, Any]) -> dict[str, Any]:
    """An event with the name, label or order of a thread, or of a process if `tid` is 0."""
    return {"ph": "M", "name": name, "pid": pid, "tid": tid or pid, "ts": 0, "args": args}


def event_opening(phase: bytes, category: bytes, pid: bytes, tid: bytes) -> bytes:
    """A slice or an instant up to its name; everything is JSON text."""
    return b'%s{"ph":%s,"cat":%s,"pid":%s,"tid":%s,"name":' % (NEXT, phase, category, pid, tid)


def instant_opening(category: str, name: str, argument: str | None, pid: int, tid: int) -> bytes:
    """An instant up to the value of its only argument, or up to its time without one."""
    form = '%s{"ph":"i","s":"t","cat":"%s","name":"%s","pid":%d,"tid":%d'
    args = "" if argument is None else f',"args":{{"{LINK}":{{"{argument}":'
    return (form % (NEXT.decode(), category, name, pid, tid) + args).encode()


def flow_opening(phase: bytes, name: str, pid: int, tid: int) -> bytes:
    """The start or end of a flow up to its number."""
    text = name.encode()
    return b'%s{"ph":%s,"cat":"%s","name":"%s","pid":%d,"tid":%d,"id":' % (NEXT, phase, text, text, pid, tid)


def sample_opening(name: str, pid: int) -> bytes:
    """A sample of a counter up to its time."""
    return b'%s{"ph":"C","name":%s,"pid":%d,"tid":%d' % (NEXT, quoted(name), pid, pid)


def slice_flow_members(slice_flow: SliceFlow) -> bytes:
    """The members of a slice that carries a flow."""
    outgoing = b',"flow_out":true' if slice_flow.outgoing else b""
    incoming = b',"flow_in":true' if slice_flow.incoming else b""
    return b',"bind_id":%d%s%s' % (slice_flow.number, outgoing, incoming)


# Names, numbers and order of processes and threads: viewers append the numbers to names, so they are known ones.


ROW = " · row"
"""Ends the names of threads that have no number of their own: a viewer shows `PyTorch Profiler · row 3`."""

LARGEST = (1 << 31) - 1


class NamedThread(Struct, frozen=True):
    """A thread of the timeline: its name, and its number and process in the source if known."""

    name: str
    original: str | None
    original_pid: str | None = None


class ShownProcess(Struct, frozen=True):
    """A rank, or all process groups, as one process."""

    pid: int
    name: str
    order: int
    labels: str
    threads: Sequence[NamedThread]
    tids: Sequence[int]
    rows: frozenset[int]
    """Numbers of threads that have none of their own."""

    @classmethod
    def of_rank(
        cls, rank: int, title: str, labels: Sequence[str], threads: Sequence[NamedThread]
    ) -> ShownProcess:
        """The process of a rank: a viewer shows `node-1 · rank 3`."""
        host = title.partition(" · ")[2]
        name = f"{host} · rank" if host else "rank"
        return cls(rank, name, rank + 1, ", ".join(labels), threads, *_tids(threads, rank))

    @classmethod
    def of_groups(cls, ranks: int, threads: Sequence[NamedThread]) -> ShownProcess:
        """The process of all groups, before those of all ranks: a viewer shows `collectives · world size 8`."""
        name = f"{GROUPS_PROCESS} · world size"
        return cls(ranks, name, 0, GROUPS_PROCESS, threads, *_tids(threads, ranks))

    def metadata(self) -> Iterator[dict[str, Any]]:
        """The events that give the process and its threads their names and their order."""
        yield metadata_event("process_name", self.pid, 0, {"name": self.name})
        yield metadata_event("process_labels", self.pid, 0, {"labels": self.labels})
        yield metadata_event("process_sort_index", self.pid, 0, {"sort_index": self.order})
        for order, (tid, thread) in enumerate(zip(self.tids, self.threads, strict=True), 1):
            args: dict[str, Any] = {
                "name": thread.name.removesuffix(f" {tid}") + (ROW if tid in self.rows else "")
            }
            args |= {} if thread.original is None else {"original tid": thread.original}
            args |= {} if thread.original_pid is None else {"original pid": thread.original_pid}
            yield metadata_event("thread_name", self.pid, tid, args)
            yield metadata_event("thread_sort_index", self.pid, tid, {"sort_index": order})


def counter_names(names: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The names of the counters of a rank, unique: engines know counters of a process by their names."""
    return [
        f"{name} · {label}" if names.index(name) != index and label else name
        for index, (name, label) in enumerate(zip(names, labels, strict=True))
    ]


def _tids(threads: Sequence[NamedThread], pid: int) -> tuple[list[int], frozenset[int]]:
    """The id of a thread, the number of a stream, else a row; a thread is not numbered as its process."""
    chosen: dict[int, int] = {}
    for index, thread in enumerate(threads):
        number = _own_number(thread)
        if number is not None and number != pid:
            chosen.setdefault(number, index)
    own = {index: number for number, index in chosen.items()}
    rows = (row for row in count(1) if row not in chosen and row != pid)
    tids = [own[index] if index in own else next(rows) for index in range(len(threads))]
    return tids, frozenset(tids) - chosen.keys()


def _own_number(thread: NamedThread) -> int | None:
    text = thread.original or ""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= LARGEST:
        return None
    return int(text) if re.match(rf"rank \d+ (main thread|thread|stream) {text}(?!\d)", thread.name) else None


def process_of(rank: int, layout: Layout, threads: OutputThreads) -> ShownProcess:
    """A rank as one process."""
    named = [
        NamedThread(name, thread.original, thread.process.original)
        for name, thread in zip(threads.name, threads.thread, strict=True)
    ]
    return ShownProcess.of_rank(rank, layout.title, [process.label for process in layout.processes], named)


def unclosed(events: Iterable[dict[str, Any]]) -> bytes:
    """The text of events; the last one is left open, for the next event to close."""
    text = io.BytesIO()  # there can be millions: a list of their texts takes as much again
    for event in events:
        text.write(b"},\n" if text.tell() else b"")
        text.write(encoded(event).removesuffix(b"}"))
    return text.getvalue()


Column = Sequence[Payload] | bytes
"""A text for each row, or one for all."""


def interleave(rows: int, *columns: Column) -> list[Payload]:
    """The texts of all columns row by row."""
    texts: list[Payload] = [b""] * (rows * len(columns))
    for place, column in enumerate(columns):
        texts[place :: len(columns)] = [column] * rows if isinstance(column, bytes) else column
    return texts


# Slices and instants: the arguments that sources recorded are copied unchanged.


SLICES_PER_CHUNK = 4096
"""Events that are joined at once: text that fits a cache is joined several times faster."""

PHASES = (SLICE, *INSTANTS)
"""The phases of slices and of instants by scope: `(thread * categories + category) * 4 + phase` codes an opening."""

TEXTS_PER_EVENT = 7


class SliceTexts(Struct, frozen=True):
    """Columns of slices and instants, and the texts of which they are made; built once, shared by all sections."""

    codes_of: Callable[[Int64s], Int64s]
    """The code of the opening of each of some rows, which are in order."""
    openings: Texts
    """By code: everything up to the name."""
    name: Int32s
    names: Texts
    start: Int64s
    duration: Int64s
    instant: Bools
    hung: Collection[int]
    slice_flows: Mapping[int, SliceFlow]
    added: Mapping[int, bytes]
    """Arguments that are added to those of a few rows."""
    special: Int64s
    """The rows that carry a flow, have added arguments, or hang."""

    @classmethod
    def of(
        cls,
        rows: Int64s,
        codes_of: Callable[[Int64s], Int64s],
        threads: Sequence[tuple[bytes, bytes]],
        categories: Sequence[str],
        name: Int32s,
        strings: Sequence[str],
        times: tuple[Int64s, Int64s, Bools],
        hung: Collection[int],
        slice_flows: Mapping[int, SliceFlow],
        added: Mapping[int, bytes],
    ) -> SliceTexts:
        """Those of these rows; `threads` are processes and numbers, `times` start, duration and instants."""
        openings = _used_texts(
            len(threads) * len(categories) * len(PHASES),
            codes_of(rows),
            partial(_opening, threads, categories),
        )
        names = _used_texts(len(strings), name[rows], lambda code: quoted(strings[code]) + TIME)
        rare = [np.fromiter(column, np.int64, len(column)) for column in (slice_flows, added, hung)]
        special = np.unique(np.concatenate(rare))
        return cls(codes_of, openings, name, names, *times, hung, slice_flows, added, special)

    def columns(self, rows: Int64s, payloads: Sequence[Payload]) -> list[Payload]:
        """`TEXTS_PER_EVENT` texts for each of these rows, the last of which is its arguments."""
        column = interleave(
            len(rows),
            self.openings[self.codes_of(rows)].tolist(),
            self.names[self.name[rows]].tolist(),
            micros(self.start[rows]),
            DURATION,
            micros(self.duration[rows]),
            ARGUMENTS,
            payloads,
        )
        if not all(payloads):
            column[5::TEXTS_PER_EVENT] = [ARGUMENTS if text else b"" for text in payloads]
        for at in (TEXTS_PER_EVENT * np.flatnonzero(self.instant[rows])).tolist():
            column[at + 3] = column[at + 4] = b""
        special = self.special[slice(*np.searchsorted(self.special, [rows[0], rows[-1] + 1]).tolist())]
        index = np.searchsorted(rows, special)
        for row, place in zip(special.tolist(), index.tolist(), strict=True):
            if rows[place] == row:
                self._add_special(row, column, place * TEXTS_PER_EVENT)
        return column

    def _add_special(self, row: int, column: list[Payload], at: int) -> None:
        if slice_flow := self.slice_flows.get(row):
            column[at + 5] = b"%s%s" % (slice_flow_members(slice_flow), column[at + 5])
        if members := self.added.get(row):
            if not column[at + 6]:
                column[at + 5] = b"%s%s" % (column[at + 5], ARGUMENTS)
            column[at + 6] = with_members(column[at + 6], members)
        if row in self.hung:
            column[at + 5] = b"%s%s" % (HUNG_COLOUR, column[at + 5])


def _used_texts(count: int, codes: Int64s | Int32s, text_of: Callable[[int], bytes]) -> Texts:
    """A column of `count` texts, of which only those of these codes are made."""
    texts, used = np.empty(count, object), np.zeros(count, np.bool_)
    used[codes] = True
    for code in np.flatnonzero(used).tolist():
        texts[code] = text_of(code)
    return texts


def _opening(threads: Sequence[tuple[bytes, bytes]], categories: Sequence[str], code: int) -> bytes:
    code_of_category, phase = divmod(code, len(PHASES))
    thread, category = divmod(code_of_category, len(categories))
    return event_opening(PHASES[phase], quoted(categories[category]), *threads[thread])


class RankSlices(Struct, frozen=True):
    """The slices and instants of a rank, and their recorded arguments."""

    texts: SliceTexts
    graph: EventGraph
    shown: Bools
    args: ArgumentChoice
    payloads: Sequence[Payloads]
    """For each source, its recorded arguments."""

    @classmethod
    def of(
        cls,
        rank_timeline: RankTimeline,
        slice_flows: Mapping[int, SliceFlow],
        arguments: AddedArguments,
        args: ArgumentChoice,
        widest: InstantScope = InstantScope.ALL,
    ) -> RankSlices:
        """Prepares the texts of the slices and instants of a rank; no instant has a scope wider than `widest`."""
        graph, drawing, threads = rank_timeline.graph, rank_timeline.drawing, rank_timeline.threads
        added: dict[int, bytes] = {}
        for name, members in arguments.items():
            head = b'"%s":{' % name.encode()
            for row, text in members.items():
                add_member(added, row, b"%s%s}" % (head, text))
        categories, scope = Categories.of(graph), graph.key(Key.INSTANT_SCOPE)
        scopes = np.minimum(scope.dense(len(graph), 0), widest) if len(scope) else None
        texts = SliceTexts.of(
            np.flatnonzero(drawing.shown),
            partial(_opening_codes, graph, drawing.instant, rank_timeline.thread, categories, scopes),
            [(b"%d" % pid, b"%d" % tid) for pid, tid in zip(threads.pid, threads.tid, strict=True)],
            categories.names,
            graph.events.name,
            graph.strings,
            (drawing.start, drawing.duration, drawing.instant),
            drawing.hung,
            slice_flows,
            added,
        )
        payloads = [at_several_places(payloads, kept=1) for payloads in graph.payloads]
        return cls(texts, graph, drawing.shown, args, payloads)

    def write(self, source: int, low: int, high: int) -> Iterator[bytes]:
        """The slices and instants among the rows of one source in [low, high)."""
        rows = low + np.flatnonzero(self.shown[low:high])
        numbers, kinds = self.graph.events.payload[rows], self.graph.events.kind
        recorded = source < len(self.payloads) and self.args == ArgumentChoice.ALL
        for begin, payloads in payload_runs(self.payloads[source] if recorded else None, numbers):
            for at in range(0, len(payloads), SLICES_PER_CHUNK):
                some = payloads[at : at + SLICES_PER_CHUNK]
                mine = rows[begin + at : begin + at + len(some)]
                some = _in_recorder_argument(kinds[mine] == EventKind.RECORD, some)
                yield loadable(b"".join(self.texts.columns(mine, some)))


def _in_recorder_argument(recorder: Bools, payloads: Sequence[Payload]) -> Sequence[Payload]:
    """Payloads of recorders within an argument of their own, all others unchanged."""
    if not recorder.any():
        return payloads
    return [
        RECORDED % text if text and of_recorder else text
        for text, of_recorder in zip(payloads, recorder.tolist(), strict=True)
    ]


def with_members(payload: Payload, members: bytes) -> bytes:
    """A JSON object with more members at its end."""
    head = bytes(payload).rstrip().removesuffix(b"}").rstrip() or b"{"
    return b"%s%s%s}" % (head, b"" if head == b"{" else b",", members)


def _opening_codes(
    graph: EventGraph,
    instant: Bools,
    thread: Int64s,
    categories: Categories,
    scope: Int64s | None,
    rows: Int64s,
) -> Int64s:
    codes = (thread[rows] * len(categories.names) + categories.of_rows(graph, rows)) * len(PHASES)
    codes += instant[rows]
    if scope is not None:
        codes += np.where(instant[rows], scope[rows], 0)
    return codes


# Starts and ends of flows.


CHUNK = 8192

RELATIONS = 8
"""More than there are relations: `thread * RELATIONS + relation` is the code of an opening."""


def write_flows(
    bound: BoundFlows, drawing: Drawing, threads: OutputThreads, thread: Int64s
) -> Iterator[bytes]:
    """All starts before all ends: the engine must read the start first if both have the same time.

    They follow the slices and instants, because an instant of the same time would take them.
    """
    flows = bound.flows
    _, first = np.unique(bound.number, return_index=True)
    starts = flows.take(first)
    openings, codes = _flow_openings(FLOW_START, threads, thread[starts.source], starts.relation)
    yield from flow_events(openings, codes, bound.number[first], drawing.start[starts.source])
    for mask, phase, before in (
        (~bound.ahead, ENCLOSED_FLOW_END, 0),
        (bound.ahead, FLOW_END, 1),
    ):
        ends = flows.take(mask)
        openings, codes = _flow_openings(phase, threads, thread[ends.target], ends.relation)
        yield from flow_events(
            openings, codes, bound.number[mask], drawing.start[ends.target] - np.int64(before)
        )


def _flow_openings(
    phase: bytes, threads: OutputThreads, thread: Int64s, relation: Int64s
) -> tuple[Texts, Int64s]:
    """Openings by code, and the code of each flow."""
    codes = thread * RELATIONS + relation
    openings = np.empty(len(threads.tid) * RELATIONS, object)
    for code in np.unique(codes).tolist():
        index, number = divmod(code, RELATIONS)
        openings[code] = flow_opening(
            phase, FLOW_NAMES[Relation(number)], threads.pid[index], threads.tid[index]
        )
    return openings, codes


def flow_events(openings: Texts, codes: Int64s, number: Int64s, times: Int64s) -> Iterator[bytes]:
    """Starts or ends of flows; `openings[code]` is the text up to the number."""
    for at in range(0, len(codes), CHUNK):
        some = slice(at, at + CHUNK)
        opened = openings[codes[some]].tolist()
        yield b"".join(interleave(len(opened), opened, numbers(number[some]), TIME, micros(times[some])))


def flow_events_at_instants(
    instants: Texts, argument: Int64s | None, openings: Texts, codes: Int64s, number: Int64s, times: Int64s
) -> Iterator[bytes]:
    """Ends of flows, each after an instant of its own; `instants[code]` is its text up to its argument, if any."""
    for at in range(0, len(codes), CHUNK):
        some = slice(at, at + CHUNK)
        time, opened = micros(times[some]), openings[codes[some]].tolist()
        argued: list[Column] = [b"", TIME] if argument is None else [numbers(argument[some]), AFTER_ARGUMENT]
        instant = [instants[codes[some]].tolist(), *argued, time]
        yield b"".join(interleave(len(time), *instant, opened, numbers(number[some]), TIME, time))


# Samples of counters.


def write_samples(
    graph: EventGraph, processes: Mapping[int, Process], base: int, pid: int
) -> Iterator[bytes]:
    """The samples of all counters that are finite numbers."""
    openings = np.empty(len(graph.tracks), object)
    names = [_counter_name(graph.tracks[row], process) for row, process in processes.items()]
    unique = counter_names(names, [process.label for process in processes.values()])
    for row, name in zip(processes, unique, strict=True):
        openings[row] = sample_opening(name, pid)
    drawn, counters = drawn_samples(graph), graph.counters
    yield from sample_events(
        openings, counters.track[drawn], counters.time[drawn] - base, counters.value[drawn]
    )


def _counter_name(track: Track, process: Process) -> str:
    """The name of a counter with what JSON has no other place for: its unit, and the host that it measures."""
    name = track.label or track.identity
    if track.unit not in ("", BYTES, COUNT):
        name += f" ({track.unit})"
    return f"{process.name} · {name}" if process.is_of_no_rank else name


def sample_events(
    openings: Texts, counter: Int64s | Int32s, times: Int64s, values: Float64s
) -> Iterator[bytes]:
    """Samples; `openings[counter]` is the text up to the time."""
    for at in range(0, len(counter), CHUNK):
        some = slice(at, at + CHUNK)
        opened = openings[counter[some]].tolist()
        value = numbers(values[some])
        yield b"".join(interleave(len(opened), opened, TIME, micros(times[some]), COUNTER_VALUE, value, b"}"))
