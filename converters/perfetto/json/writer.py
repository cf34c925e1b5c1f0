"""Chrome JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tracelink.converters.perfetto.facts import (
    Grouped,
    SaidOf,
    arrival_facts,
    facts_of,
    grouped_parts,
    opening,
    said_of,
)
from tracelink.converters.perfetto.json.events import (
    CHUNK_SLICES,
    RELATIONS,
    instant_opening,
    mark_opening,
    marks,
    marks_at_instants,
    metadata,
    named,
    sample_opening,
    samples,
    sheet,
    unclosed,
    write_counters,
    write_flows,
    write_rows,
)
from tracelink.converters.perfetto.json.schema import (
    ARGUMENTS,
    DURATION,
    END,
    EVENTS,
    HUNG_COLOUR,
    INNER_END,
    LAST,
    NEXT,
    TIME,
)
from tracelink.converters.perfetto.json_text import Texts, micros, quoted, table
from tracelink.converters.perfetto.timeline.blocks import Block, Piece, spans
from tracelink.converters.perfetto.timeline.counters import GroupCounters, group_counters
from tracelink.converters.perfetto.timeline.drawing import base_of
from tracelink.converters.perfetto.timeline.flows import (
    Ends,
    Flows,
    Meetings,
    _Arrows,
    flows_of,
    possible_ties,
)
from tracelink.converters.perfetto.timeline.forecast import Typical, Way, forecast_of
from tracelink.converters.perfetto.timeline.groups import PROCESS, GroupSeats, group_seats, names_of
from tracelink.converters.perfetto.timeline.hangs import Arrivals, Hangs
from tracelink.converters.perfetto.timeline.job import Choices, Sheets, Sort, Wanted, write_whole
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.rank import MOST_PIECES, PIECE_ROWS, Picture
from tracelink.converters.perfetto.timeline.schema import (
    ARRIVAL_CATEGORY,
    COLLECTIVE_CATEGORY,
    TIE_MARKS,
    TIE_NAMES,
)
from tracelink.engine import Engine
from tracelink.errors import Finding
from tracelink.model.columns import Int64s
from tracelink.model.events import Relation
from tracelink.model.job import Job
from tracelink.plugins import Forecast, Output, Target

# Shared definitions


BLOCK_ROWS = 1 << 14
"""Collectives of a piece: less is not worth a process."""


def group_tracks(
    job: Job, hangs: Hangs, base: int, numbering: Numbering, wanted: Wanted
) -> Block[list[Finding]]:
    """The text of all groups' tracks."""
    seats = group_seats(job, hangs, numbering)
    head = unclosed(_metadata(seats)) if seats.tids else b""
    sheet = _Sheet(
        job, hangs, base, seats, _openings(b'"X"', COLLECTIVE_CATEGORY, seats), grouped_parts(job), wanted
    )
    pieces: list[Piece] = [
        partial(_write, sheet, low, high) for low, high in spans(0, len(seats.seat), BLOCK_ROWS)
    ]
    large = len(pieces) > 1
    if seats.tids:
        pieces.append(partial(_write_counters, group_counters(job, seats, numbering), seats.process, base))
    return Block(head, pieces, large, seats.findings)


def _write_counters(counters: GroupCounters, process: int, base: int) -> Iterator[bytes]:
    openings = [sample_opening(name, process) for name in counters.names]
    yield from samples(table(openings, len(openings)), counters.counter, counters.time - base, counters.value)


def _openings(phase: bytes, category: str, seats: GroupSeats) -> list[bytes]:
    """For each thread the text of an event up to its name."""
    form = b'%s{"ph":%s,"cat":"%s","pid":%d,"tid":%d,"name":'
    return [form % (NEXT, phase, category.encode(), seats.process, tid) for tid in seats.tids]


def _metadata(seats: GroupSeats) -> Iterator[dict[str, Any]]:
    """The names of the tracks, before those of all ranks."""
    process = seats.process
    yield named("process_name", process, 0, {"name": PROCESS})
    yield named("process_labels", process, 0, {"labels": PROCESS})
    yield named("process_sort_index", process, 0, {"sort_index": 0})
    for tid, name in zip(seats.tids, seats.names, strict=True):
        yield named("thread_name", process, tid, {"name": name})
        yield named("thread_sort_index", process, tid, {"sort_index": tid})


@dataclass(frozen=True, slots=True)
class _Sheet:
    """All that the text of collectives is made of."""

    job: Job
    hangs: Hangs
    base: int
    seats: GroupSeats
    openings: Sequence[bytes]
    parts: Grouped
    wanted: Wanted


def _write(sheet: _Sheet, low: int, high: int) -> Iterator[bytes]:
    drawn, job = sheet.seats.drawn, sheet.job
    for at in range(low, high, CHUNK_SLICES):
        some = slice(at, min(at + CHUNK_SLICES, high))
        pieces = [b""] * (7 * len(drawn.row[some]))
        pieces[0::7] = [sheet.openings[seat] for seat in sheet.seats.seat[some].tolist()]
        names, which = names_of(job, drawn.row[some], sheet.hangs)
        texts = [quoted(name) for name in names]
        pieces[1::7] = [texts[number] for number in which.tolist()]
        pieces[2::7] = [TIME] * len(drawn.row[some])
        pieces[3::7] = micros(drawn.start[some] - sheet.base)
        pieces[4::7] = [DURATION] * len(drawn.row[some])
        pieces[5::7] = micros(drawn.end[some] - drawn.start[some])
        if sheet.wanted != Wanted.NONE:
            facts = facts_of(job, sheet.parts, drawn.row[some], drawn.open_ended[some])
            pieces[6::7] = [ARGUMENTS + text for text in facts]
        for place in np.flatnonzero(drawn.hung[some]).tolist():
            pieces[7 * place + 6] = HUNG_COLOUR + pieces[7 * place + 6]
        yield b"".join([*pieces, *_arrivals(sheet, sheet.seats.arrivals.within(some.start, some.stop))])


def _arrivals(sheet: _Sheet, arrivals: Arrivals) -> list[bytes]:
    """The text of instants."""
    if not len(arrivals):
        return []
    openings = _openings(b'"i","s":"t"', ARRIVAL_CATEGORY, sheet.seats)
    names, which = arrivals.names()
    texts = [quoted(name) for name in names]
    pieces = [TIME] * (5 * len(arrivals))
    pieces[0::5] = [openings[seat] for seat in sheet.seats.seat[arrivals.place].tolist()]
    pieces[1::5] = [texts[number] for number in which.tolist()]
    pieces[3::5] = micros(arrivals.time - sheet.base)
    pieces[4::5] = (
        [b""] * len(arrivals)
        if sheet.wanted == Wanted.NONE
        else [ARGUMENTS + text for text in arrival_facts(arrivals)]
    )
    return pieces


# Shared definitions


def tie_pieces(
    job: Job, meetings: Meetings, ends: Ends, numbering: Numbering, wanted: Wanted
) -> tuple[list[Piece], list[Finding]]:
    """The text of all arrows between ranks: first where they begin, then where they end."""
    possible, findings = possible_ties(job, ends, meetings, ends.alone[meetings.cause])
    cause, relation = meetings.cause[possible], job.ties.relation[possible].astype(np.int64)
    _, first, number = np.unique(cause * RELATIONS + relation, return_index=True, return_inverse=True)
    effect, cause_rank = meetings.effect[possible], job.ties.cause_rank[possible].astype(np.int64)
    arrows = _Arrows(cause, effect, relation, number + numbering.first_arrow, cause_rank)
    return [*_beginnings(ends, arrows, first), *_endings(ends, arrows, wanted)], findings


def _beginnings(ends: Ends, arrows: _Arrows, first: Int64s) -> list[Piece]:
    """One for all arrows that have a number."""
    cause, number = arrows.cause[first], arrows.number[first]
    codes, seats = _codes(ends, cause, arrows.relation[first])
    openings = _table(mark_opening(b'"s"', TIE_NAMES[relation], *seat) for relation, *seat in seats)
    return [
        partial(marks, openings, codes[low:high], number[low:high], ends.start[cause[low:high]])
        for low, high in spans(0, len(cause), PIECE_ROWS)
    ]


def _endings(ends: Ends, arrows: _Arrows, wanted: Wanted) -> list[Piece]:
    said = wanted != Wanted.NONE
    codes, seats = _codes(ends, arrows.effect, arrows.relation)
    openings = _table(mark_opening(INNER_END, TIE_NAMES[relation], *seat) for relation, *seat in seats)
    instants = _table(
        instant_opening(TIE_NAMES[relation], name, argument if said else None, *seat)
        for relation, *seat in seats
        for name, argument in [TIE_MARKS[relation]]
    )
    return [
        partial(
            marks_at_instants,
            instants,
            arrows.cause_rank[low:high] if said else None,
            openings,
            codes[low:high],
            arrows.number[low:high],
            ends.end[arrows.effect[low:high]],
        )
        for low, high in spans(0, len(codes), PIECE_ROWS)
    ]


def _codes(ends: Ends, events: Int64s, relation: Int64s) -> tuple[Int64s, list[tuple[Relation, int, int]]]:
    """For each arrow's end a code, and what the codes stand for: relation, process and thread."""
    seats = ends.tid[events] * RELATIONS + relation
    _, first, codes = np.unique(seats, return_index=True, return_inverse=True)
    kinds = [Relation(code) for code in relation[first].tolist()]
    pids, tids = ends.pid[events[first]].tolist(), ends.tid[events[first]].tolist()
    return codes, list(zip(kinds, pids, tids, strict=True))


def _table(texts: Iterable[bytes]) -> Texts:
    listed = list(texts)
    return table(listed, len(listed))


# Shared definitions


def pieces_of(picture: Picture, flows: Flows, said: SaidOf, wanted: Wanted) -> Sequence[Piece]:
    """Slices and instants by source and rows, then arrows, then counters; `said` are more arguments of some."""
    graph, drawing = picture.graph, picture.drawing
    texts = sheet(graph, drawing, picture.seats, picture.seat, flows.bindings, said, wanted)
    pieces: list[Piece] = [
        partial(write_rows, texts, source, low, high)
        for source, (begin, end) in enumerate(pairwise(graph.bounds))
        for low, high in spans(begin, end, max(PIECE_ROWS, len(graph) // MOST_PIECES))
    ]
    if len(flows.arrows):
        pieces.append(partial(write_flows, flows, drawing, picture.seats, picture.seat))
    if len(graph.counters):
        pieces.append(partial(write_counters, graph, picture.layout.process_of_counter, drawing.base))
    return pieces


# Writes a job as one JSON trace for Perfetto's UI, which of one rank is also a Kineto trace for other tools.


FILE_NAME = "trace.json"
"""The name in a directory."""

TYPICAL = Typical(
    track=250,
    arrow=180,
    tie=235,
    said=75,
    node=47,
    collective=280,
    participation=14,
    arrival=132,
    sample=108,
)
BARE = Typical(
    track=250,
    arrow=180,
    tie=205,
    said=0,
    node=0,
    collective=114,
    participation=0,
    arrival=97,
    sample=108,
)
"""Without arguments."""


@dataclass(frozen=True, slots=True)
class PerfettoJsonWriter:
    """One trace of all ranks, in the JSON that Perfetto's UI and other readers of Kineto traces load."""

    choices: Choices = field(default_factory=Choices)

    name = "perfetto-json"

    def configured(self, **options: str) -> PerfettoJsonWriter:
        """A writer of fewer arguments or events, or of gzip."""
        return PerfettoJsonWriter(self.choices.changed(options))

    def forecast(self, job: Job, engine: Engine, *, compressed: bool) -> Forecast:
        """How large the trace will be."""
        typical = BARE if self.choices.args == Wanted.NONE else TYPICAL
        compressed = compressed or self.choices.compressed
        plain = PerfettoJsonWriter(replace(self.choices, compressed=False))
        way = Way(plain.write, typical, self.choices.args == Wanted.ALL)
        return forecast_of(job, engine, way, compressed=compressed)

    def write(self, job: Job, target: Target, engine: Engine) -> list[Output]:
        """Writes the whole job, with as many ranks in memory as work at once."""
        sheets = Sheets.of(job, base_of(job), self.choices.left_out)
        pen = _JsonPen(sheets, self.choices.args)
        return write_whole(sheets, pen, Sort(self.name, FILE_NAME, self.choices.compressed), target, engine)


@dataclass(frozen=True, slots=True)
class _JsonPen:
    sheets: Sheets
    wanted: Wanted
    separator: bytes = NEXT

    def opening(self) -> bytes:
        return opening(self.sheets.job, self.sheets.base or 0) + EVENTS

    def closing(self, started: bool) -> bytes:
        return (LAST if started else b"") + END

    def rank(self, place: int, picture: Picture) -> Block[Sequence[Finding]]:
        job, numbering = self.sheets.job, self.sheets.numbering(place)
        flows = flows_of(picture.graph, picture.drawing, picture.openings, numbering)
        head = unclosed(metadata(picture.layout, picture.seats))
        if not head:
            return Block(head, (), picture.large, flows.findings)
        said = said_of(picture.graph, picture.drawing, job, self.wanted)
        return Block(head, pieces_of(picture, flows, said, self.wanted), picture.large, flows.findings)

    def groups(self) -> Block[list[Finding]]:
        sheets = self.sheets
        return group_tracks(sheets.job, sheets.hangs, sheets.base or 0, sheets.common, self.wanted)

    def ties(self, ends: Ends) -> tuple[list[Piece], list[Finding]]:
        return tie_pieces(self.sheets.job, self.sheets.meetings, ends, self.sheets.common, self.wanted)
