"""The text of arrows and of counter samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tracelink.converters.perfetto.drawing import Drawing
from tracelink.converters.perfetto.flows import Flows
from tracelink.converters.perfetto.layout import Process, Seats
from tracelink.converters.perfetto.schema import COUNTER_KEY, FLOW_NAMES, INNER_END, LINK
from tracelink.converters.perfetto.slices import NEXT
from tracelink.converters.perfetto.text import Float64s, Texts, micros, numbers, quoted
from tracelink.events import Bools, Int32s, Int64s, Relation
from tracelink.graph import EventGraph

CHUNK = 8192
TIME = b',"ts":'
AFTER_ARGUMENT = b'}},"ts":'
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


def drawn_samples(graph: EventGraph) -> Bools:
    """The samples that JSON has a number for."""
    return np.isfinite(graph.counters.value)
