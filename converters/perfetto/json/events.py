"""Events as JSON text: names of tracks, slices, instants, flows, samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.converters.perfetto.facts import SaidOf, add_member
from tracelink.converters.perfetto.json.schema import (
    AFTER_ARGUMENT,
    ARGUMENTS,
    COUNTER_KEY,
    DURATION,
    HUNG_COLOUR,
    INNER_END,
    NEXT,
    RECORDED,
    TIME,
)
from tracelink.converters.perfetto.json_text import Texts, encoded, loadable, micros, numbers, quoted
from tracelink.converters.perfetto.timeline.drawing import Drawing, drawn_samples
from tracelink.converters.perfetto.timeline.flows import Binding, Flows
from tracelink.converters.perfetto.timeline.job import Wanted
from tracelink.converters.perfetto.timeline.layout import Layout, Process, Seats
from tracelink.converters.perfetto.timeline.rank import payload_runs
from tracelink.converters.perfetto.timeline.schema import (
    FLOW_NAMES,
    LINK,
    categories_of,
    category,
    driver_calls,
)
from tracelink.model.columns import Bools, Float64s, Int32s, Int64s
from tracelink.model.events import EventKind, Relation
from tracelink.model.graph import EventGraph
from tracelink.model.trace import Payload

# Names and order of processes and threads.


def metadata(layout: Layout, seats: Seats) -> Iterator[dict[str, Any]]:
    """The events that give processes and threads their names and their order."""
    for process in layout.processes:
        yield named("process_name", process.pid, 0, {"name": process.name, "original pid": process.original})
        yield named("process_labels", process.pid, 0, {"labels": process.label})
        yield named("process_sort_index", process.pid, 0, {"sort_index": process.pid})
    for pid, tid, name, thread in zip(seats.pid, seats.tid, seats.name, seats.thread, strict=True):
        yield named("thread_name", pid, tid, {"name": name, "original tid": thread.original})
        yield named("thread_sort_index", pid, tid, {"sort_index": tid})


def named(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    """The event that says this of a process or thread."""
    return {"ph": "M", "name": name, "pid": pid, "tid": tid or pid, "ts": 0, "args": args}


def unclosed(events: Iterator[dict[str, Any]]) -> bytes:
    """The text of events, the last of them left open for the next event to close."""
    return b"},\n".join(encoded(event).removesuffix(b"}") for event in events)


# Slices and instants: the arguments that sources recorded are copied unchanged.


CHUNK_SLICES = 4096
"""Events that are joined at once: what fits a cache is several times faster than all."""


KINDS = 64
"""More than there are sorts of openings, so that seat * KINDS + kind is a code."""


INSTANTS = 16
"""Added to the category where the event is an instant."""


PIECES = 7


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that the text of events is made of; built once and shared by every part."""

    graph: EventGraph
    drawing: Drawing
    opening: Texts
    """For each seat and kind: everything up to the name."""
    names: Texts
    driver: Bools
    """For each name, whether it is one of the driver's."""
    seat: Int64s
    bindings: dict[int, Binding]
    extras: dict[int, bytes]
    """For few rows: members to add to the arguments."""
    wanted: Wanted
    special: Int64s
    """The rows that have bindings or extras, or hang."""


def sheet(
    graph: EventGraph,
    drawing: Drawing,
    seats: Seats,
    seat: Int64s,
    bindings: dict[int, Binding],
    said: SaidOf,
    wanted: Wanted,
) -> Sheet:
    """Prepares the texts that events share; `said` are more arguments of some rows."""
    rows = np.flatnonzero(drawing.shown)
    extras: dict[int, bytes] = {}
    for name, members in said.items():
        head = b'"%s":{' % name.encode()
        for row, text in members.items():
            add_member(extras, row, b"%s%s}" % (head, text))
    driver = driver_calls(graph)
    rare = [np.fromiter(column, np.int64, len(column)) for column in (bindings, extras, drawing.hung)]
    special = np.unique(np.concatenate(rare))
    openings = _openings_slices(_codes(graph, drawing, seat, driver, rows), seats)
    names = _names(graph, rows)
    return Sheet(graph, drawing, openings, names, driver, seat, bindings, extras, wanted, special)


def write_rows(sheet: Sheet, source: int, low: int, high: int) -> Iterator[bytes]:
    """The text of one source's rows in [low, high)."""
    rows = low + np.flatnonzero(sheet.drawing.shown[low:high])
    numbers = sheet.graph.events.payload[rows]
    own = source < len(sheet.graph.payloads) and sheet.wanted == Wanted.ALL
    for begin, texts in payload_runs(sheet.graph.payloads[source] if own else None, numbers):
        for at in range(0, len(texts), CHUNK_SLICES):
            some = texts[at : at + CHUNK_SLICES]
            yield _chunk(sheet, rows[begin + at : begin + at + len(some)], some)


def _chunk(sheet: Sheet, rows: Int64s, payloads: Sequence[Payload]) -> bytes:
    pieces: list[Payload] = [ARGUMENTS] * (PIECES * len(rows))
    payloads = _grouped(sheet.graph.events.kind[rows] == EventKind.RECORD, payloads)
    codes = _codes(sheet.graph, sheet.drawing, sheet.seat, sheet.driver, rows)
    pieces[0::PIECES] = sheet.opening[codes].tolist()
    pieces[1::PIECES] = sheet.names[sheet.graph.events.name[rows]].tolist()
    pieces[2::PIECES] = micros(sheet.drawing.start[rows])
    pieces[3::PIECES] = [DURATION] * len(rows)
    pieces[4::PIECES] = micros(sheet.drawing.duration[rows])
    pieces[6::PIECES] = payloads
    if not all(payloads):
        pieces[5::PIECES] = [ARGUMENTS if text else b"" for text in payloads]
    for at in (PIECES * np.flatnonzero(sheet.drawing.instant[rows])).tolist():
        pieces[at + 3] = pieces[at + 4] = b""
    first, last = np.searchsorted(sheet.special, [rows[0], rows[-1] + 1]).tolist()
    for index in np.searchsorted(rows, sheet.special[first:last]).tolist():
        _specialise(sheet, int(rows[index]), pieces, index * PIECES)
    return loadable(b"".join(pieces))


def _grouped(recorded: Bools, payloads: Sequence[Payload]) -> Sequence[Payload]:
    """Arguments as they are, but in one of their own where a recorder said them."""
    if not recorded.any():
        return payloads
    return [
        RECORDED % text if text and mine else text
        for text, mine in zip(payloads, recorded.tolist(), strict=True)
    ]


def _specialise(sheet: Sheet, row: int, pieces: list[Payload], at: int) -> None:
    if binding := sheet.bindings.get(row):
        leaves = b',"flow_out":true' if binding.leaves else b""
        arrives = b',"flow_in":true' if binding.arrives else b""
        pieces[at + 5] = b',"bind_id":%d%s%s%s' % (binding.number, leaves, arrives, pieces[at + 5])
    if extra := sheet.extras.get(row):
        if not pieces[at + 6]:
            pieces[at + 5] = b"%s%s" % (pieces[at + 5], ARGUMENTS)
        pieces[at + 6] = with_members(pieces[at + 6], extra)
    if row in sheet.drawing.hung:
        pieces[at + 5] = b"%s%s" % (HUNG_COLOUR, pieces[at + 5])


def with_members(payload: Payload, members: bytes) -> bytes:
    """A JSON object's text with further members at its end."""
    head = bytes(payload).rstrip().removesuffix(b"}").rstrip() or b"{"
    return b"%s%s%s}" % (head, b"" if head == b"{" else b",", members)


def _codes(graph: EventGraph, drawing: Drawing, seat: Int64s, driver: Bools, rows: Int64s) -> Int64s:
    codes = seat[rows] * KINDS + categories_of(graph, driver, rows)
    codes += drawing.instant[rows] * np.int64(INSTANTS)
    return codes


def _openings_slices(codes: Int64s, seats: Seats) -> Texts:
    table = np.empty(len(seats.tid) * KINDS, object)
    used = np.zeros(len(table), np.bool_)
    used[codes] = True
    for code in np.flatnonzero(used).tolist():
        seat, kind = divmod(code, KINDS)
        phase = b'"i","s":"t"' if kind & INSTANTS else b'"X"'
        table[code] = b'%s{"ph":%s,"cat":"%s","pid":%d,"tid":%d,"name":' % (
            NEXT,
            phase,
            category(kind & ~INSTANTS).encode(),
            seats.pid[seat],
            seats.tid[seat],
        )
    return table


def _names(graph: EventGraph, rows: Int64s) -> Texts:
    table = np.empty(len(graph.strings), object)
    used = np.zeros(len(table), np.bool_)
    used[graph.events.name[rows]] = True
    for code in np.flatnonzero(used).tolist():
        table[code] = quoted(graph.strings[code]) + b',"ts":'
    return table


# Ends of flows, and samples of counters.


CHUNK = 8192


RELATIONS = 8
"""More than there are relations, so that seat * RELATIONS + relation is a code."""


def write_flows(flows: Flows, drawing: Drawing, seats: Seats, seat: Int64s) -> Iterator[bytes]:
    """All starts before all ends: of two at one instant the engine must meet the start first.

    They stand after the slices and instants, or an instant of the same time would take them.
    """
    arrows = flows.arrows
    _, first = np.unique(flows.number, return_index=True)
    starts = arrows.where(first)
    yield from _marks(
        b'"s"', seats, seat, starts.source, starts.relation, flows.number[first], drawing.start[starts.source]
    )
    inside = ~flows.ahead
    for enclosing, phase in ((inside, INNER_END), (flows.ahead, b'"f"')):
        ends = arrows.where(enclosing)
        times = drawing.start[ends.target] - np.int64(enclosing is flows.ahead)
        yield from _marks(phase, seats, seat, ends.target, ends.relation, flows.number[enclosing], times)


def _marks(
    phase: bytes, seats: Seats, seat: Int64s, rows: Int64s, relation: Int64s, number: Int64s, times: Int64s
) -> Iterator[bytes]:
    codes = seat[rows] * RELATIONS + relation
    return marks(_openings(phase, codes, seats), codes, number, times)


def marks(openings: Texts, codes: Int64s, number: Int64s, times: Int64s) -> Iterator[bytes]:
    """Ends of arrows: `openings[code]` is the text up to the number."""
    for at in range(0, len(codes), CHUNK):
        some = slice(at, at + CHUNK)
        pieces = [TIME] * (4 * len(codes[some]))
        pieces[0::4] = openings[codes[some]].tolist()
        pieces[1::4] = numbers(number[some])
        pieces[3::4] = micros(times[some])
        yield b"".join(pieces)


def marks_at_instants(
    instants: Texts, argument: Int64s | None, openings: Texts, codes: Int64s, number: Int64s, times: Int64s
) -> Iterator[bytes]:
    """Ends of arrows, each behind an instant of its own: `instants[code]` is its text up to its argument, if any."""
    for at in range(0, len(codes), CHUNK):
        some = slice(at, at + CHUNK)
        pieces = [TIME] * (8 * len(codes[some]))
        pieces[0::8] = instants[codes[some]].tolist()
        if argument is None:
            pieces[1::8] = [b""] * len(codes[some])
        else:
            pieces[1::8] = numbers(argument[some])
            pieces[2::8] = [AFTER_ARGUMENT] * len(codes[some])
        pieces[3::8] = pieces[7::8] = micros(times[some])
        pieces[4::8] = openings[codes[some]].tolist()
        pieces[5::8] = numbers(number[some])
        yield b"".join(pieces)


def instant_opening(category: str, name: str, argument: str | None, pid: int, tid: int) -> bytes:
    """The text of an instant up to its only argument's value, if it has one."""
    form = '%s{"ph":"i","s":"t","cat":"%s","name":"%s","pid":%d,"tid":%d'
    said = "" if argument is None else f',"args":{{"{LINK}":{{"{argument}":'
    return (form % (NEXT.decode(), category, name, pid, tid) + said).encode()


def mark_opening(phase: bytes, name: str, pid: int, tid: int) -> bytes:
    """The text of an arrow's end up to its number."""
    text = name.encode()
    return b'%s{"ph":%s,"cat":"%s","name":"%s","pid":%d,"tid":%d,"id":' % (NEXT, phase, text, text, pid, tid)


def _openings(phase: bytes, codes: Int64s, seats: Seats) -> Texts:
    table = np.empty(len(seats.tid) * RELATIONS, object)
    for code in np.unique(codes).tolist():
        seat, relation = divmod(code, RELATIONS)
        name = FLOW_NAMES[Relation(relation)]
        table[code] = mark_opening(phase, name, seats.pid[seat], seats.tid[seat])
    return table


def write_counters(graph: EventGraph, processes: Mapping[int, Process], base: int) -> Iterator[bytes]:
    """The samples of all counters that are numbers."""
    openings = np.empty(len(graph.tracks), object)
    for row, process in processes.items():
        track = graph.tracks[row]
        openings[row] = sample_opening(track.label or track.identity, process.pid)
    drawn, counters = drawn_samples(graph), graph.counters
    yield from samples(openings, counters.track[drawn], counters.time[drawn] - base, counters.value[drawn])


def samples(openings: Texts, counter: Int64s | Int32s, times: Int64s, values: Float64s) -> Iterator[bytes]:
    """Samples: `openings[counter]` is the text of one up to its time."""
    value_key = b',"args":{"%s":' % COUNTER_KEY.encode()
    for at in range(0, len(counter), CHUNK):
        some = slice(at, at + CHUNK)
        pieces = [TIME] * (6 * len(counter[some]))
        pieces[0::6] = openings[counter[some]].tolist()
        pieces[2::6] = micros(times[some])
        pieces[3::6] = [value_key] * len(counter[some])
        pieces[4::6] = numbers(values[some])
        pieces[5::6] = [b"}"] * len(counter[some])
        yield b"".join(pieces)


def sample_opening(name: str, pid: int) -> bytes:
    """The text of a counter's sample up to its time."""
    return b'%s{"ph":"C","name":%s,"pid":%d,"tid":%d' % (NEXT, quoted(name), pid, pid)
