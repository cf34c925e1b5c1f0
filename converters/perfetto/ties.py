"""Arrows between ranks: each rank says where its ends of them lie, then all are written at once.

The engine turns an arrow around whose effect opens before its cause, and who waits opens before whom it waits for.
So an arrow ends at an instant of its own, just before the effect's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from tracelink.converters.perfetto.marks import (
    RELATIONS,
    instant_opening,
    mark_opening,
    marks,
    marks_at_instants,
)
from tracelink.converters.perfetto.numbering import Numbering
from tracelink.converters.perfetto.parts import Piece, spans
from tracelink.converters.perfetto.picture import PIECE_ROWS, Picture
from tracelink.converters.perfetto.schema import INNER_END, TIE_MARKS, TIE_NAMES
from tracelink.converters.perfetto.text import Texts, table
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.events import Bools, Columns, Int64s, Relation
from tracelink.findings import Finding, Severity
from tracelink.job import Job

ROWS = 1 << 40
"""More than a rank has events, so that place * ROWS + row is an event of the job."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """All events at which arrows between ranks begin or end: each once, rank by rank."""

    row: Int64s
    bounds: Sequence[int]
    cause: Int64s
    """For each tie, the place of its cause in `row`."""
    effect: Int64s

    def of_part(self, place: int) -> Int64s:
        """The rows of one rank."""
        return self.row[self.bounds[place] : self.bounds[place + 1]]


@dataclass(frozen=True, slots=True)
class Ends(Columns):
    """Where and when the events of meetings stand, in their order."""

    pid: Int64s
    tid: Int64s
    start: Int64s
    end: Int64s
    """The last nanosecond within the event."""
    drawn: Bools
    ended: Bools
    """Whether it is known when the event ended."""
    alone: Bools
    """Whether no other opens later at its start: an arrow that begins there would be taken for the other's."""

    @classmethod
    def concatenate(cls, parts: Sequence[Ends]) -> Ends:
        """The ends of all ranks."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True, slots=True)
class _Arrows:
    cause: Int64s
    effect: Int64s
    relation: Int64s
    number: Int64s
    cause_rank: Int64s


def meetings_of(job: Job) -> Meetings:
    """Where arrows between ranks begin and end."""
    ties = job.ties
    place = np.zeros(max((part.rank for part in job.parts), default=0) + 1, np.int64)
    place[[part.rank for part in job.parts]] = np.arange(len(job.parts))
    ranks = np.concatenate([ties.cause_rank, ties.effect_rank])
    events = place[ranks] * ROWS + np.concatenate([ties.cause, ties.effect])
    distinct, which = np.unique(events, return_inverse=True)
    bounds = np.searchsorted(distinct, np.arange(len(job.parts) + 1) * ROWS).tolist()
    return Meetings(distinct % ROWS, bounds, which[: len(ties)], which[len(ties) :])


def ends_of(picture: Picture, rows: Int64s) -> Ends:
    """Where and when these rows of one rank stand."""
    drawing, seats = picture.drawing, picture.seats
    start = drawing.start[rows]
    seat = np.where(drawing.shown[rows], picture.seat[rows], len(seats.tid))
    return Ends(
        np.array([*seats.pid, 0], np.int64)[seat],
        np.array([*seats.tid, 0], np.int64)[seat],
        start,
        np.maximum(start + drawing.duration[rows] - 1, start),
        drawing.shown[rows],
        ~np.isin(rows, drawing.open_ended),
        picture.openings.last[rows],
    )


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


def possible_ties(job: Job, ends: Ends, meetings: Meetings, free: Bools) -> tuple[Bools, list[Finding]]:
    """Which arrows can be drawn, and why the others cannot; `free` says of which the beginning finds its event."""
    cause, effect = meetings.cause, meetings.effect
    drawn = ends.drawn[cause] & ends.drawn[effect]
    ended = drawn & ends.ended[effect]
    forward = ended & (ends.end[effect] >= ends.start[cause])
    possible = forward & free
    lost = (
        (Severity.INFO, "arrow_without_end", "to or from events that are not drawn are left out", ~drawn),
        (
            Severity.INFO,
            "arrow_to_no_end",
            "to events whose end was not recorded are not drawn",
            drawn & ~ended,
        ),
        (
            Severity.WARNING,
            "arrow_against_time",
            "whose effect ends before its cause starts are not drawn: clocks differ, or an event only asks for work",
            ended & ~forward,
        ),
        (
            Severity.WARNING,
            "arrow_crowded",
            "from slices that open together with others are not drawn",
            forward & ~possible,
        ),
    )
    findings = [
        Finding(
            severity, reason, f"arrows between ranks {why}", int(which.sum()), example=_example(job, which)
        )
        for severity, reason, why, which in lost
        if which.any()
    ]
    return possible, findings


def _example(job: Job, which: Bools) -> str:
    first = int(np.argmax(which))
    return f"rank {job.ties.cause_rank[first]} -> rank {job.ties.effect_rank[first]}"
