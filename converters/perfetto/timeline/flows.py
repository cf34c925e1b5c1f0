"""Flows within a rank and between ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from tracelink.converters.perfetto.timeline.drawing import Drawing, Openings
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.converters.perfetto.timeline.rank import Picture
from tracelink.converters.perfetto.timeline.schema import EFFECT_FIRST, FLOW_NAMES
from tracelink.errors import Finding, Severity
from tracelink.model.columns import Bools, Int64s, Table
from tracelink.model.events import Relation
from tracelink.model.graph import EventGraph
from tracelink.model.job import Job

# Arrows: which ones are drawn, and by what means each binds to exactly its own slices.


@dataclass(frozen=True, slots=True)
class Arrows:
    """Arrows from earlier to later events; one number for all of one relation from one event."""

    source: Int64s
    target: Int64s
    relation: Int64s

    def __len__(self) -> int:
        return len(self.source)

    def where(self, keep: Bools | Int64s) -> Arrows:
        """Some of the arrows."""
        return Arrows(self.source[keep], self.target[keep], self.relation[keep])


@dataclass(slots=True)
class Binding:
    """What a slice carries of arrows: their number, and whether they leave and arrive."""

    number: int
    leaves: bool = False
    arrives: bool = False


@dataclass(slots=True)
class Flows:
    """Arrows by means: events of their own, in front of their slice, or carried by slices."""

    arrows: Arrows
    number: Int64s
    """The number of each of `arrows`."""
    ahead: Bools
    """Whether the target is the first of several to open: its end is written just before it."""
    bindings: dict[int, Binding] = field(default_factory=dict)
    count: int = 0
    findings: list[Finding] = field(default_factory=list)


def flows_of(graph: EventGraph, drawing: Drawing, openings: Openings, numbering: Numbering) -> Flows:
    """All arrows within one rank."""
    findings: list[Finding] = []
    arrows = arrows_of(graph, drawing, findings)
    return bound(arrows, drawing, openings, numbering, graph.name, findings)


def bound(
    arrows: Arrows,
    drawing: Drawing,
    openings: Openings,
    numbering: Numbering,
    name_of: Callable[[int], str],
    findings: list[Finding],
) -> Flows:
    """These arrows by the means by which each binds to its slices."""
    first, last = openings.first, openings.last
    own_events = last[arrows.source] & last[arrows.target]
    carried = arrows.where(~own_events)
    bindings, left = _bind(carried, drawing, numbering.first_binding)
    rest = carried.where(left)
    possible = (
        last[rest.source] & first[rest.target] & (drawing.start[rest.target] > drawing.start[rest.source])
    )
    lost = rest.where(~possible)
    if len(lost):
        findings.append(_crowded(lost, name_of))
    rest = rest.where(possible)
    plain = arrows.where(own_events)
    whole = Arrows(
        np.concatenate([plain.source, rest.source]),
        np.concatenate([plain.target, rest.target]),
        np.concatenate([plain.relation, rest.relation]),
    )
    ahead = np.arange(len(whole)) >= len(plain)
    group = whole.relation * (len(drawing.start) + 1) + whole.source
    _, number = np.unique(group, return_inverse=True)
    return Flows(whole, number + numbering.first_arrow, ahead, bindings, len(arrows) - len(lost), findings)


def arrows_of(graph: EventGraph, drawing: Drawing, findings: list[Finding]) -> Arrows:
    """All arrows within one rank, each once, from whatever starts first; `findings` gets why others are not drawn."""
    return _unique(_forward(_chosen(graph, drawing, findings), drawing, findings))


def _chosen(graph: EventGraph, drawing: Drawing, findings: list[Finding]) -> Arrows:
    """Cause to effect, for the relations that are drawn and events that are."""
    edges = graph.edges
    relation = edges.relation.astype(np.int64)
    wanted = np.isin(relation, list(FLOW_NAMES))
    turned = np.isin(relation, list(EFFECT_FIRST))
    source = np.where(turned, edges.target, edges.source)
    target = np.where(turned, edges.source, edges.target)
    ends = drawing.shown[source] & drawing.shown[target] & (source != target)
    hidden = np.flatnonzero(wanted & ~ends & (relation != Relation.SAME))
    if len(hidden):
        findings.append(
            Finding(
                Severity.INFO,
                "flow_without_end",
                "edges to or from events that are not drawn have no arrow",
                count=len(hidden),
                example=graph.name(int(source[hidden[0]])),
            )
        )
    return Arrows(source, target, relation).where(wanted & ends)


def _unique(arrows: Arrows) -> Arrows:
    """Each arrow once, those of one relation from one event together."""
    if not len(arrows):
        return arrows
    arrows = arrows.where(np.lexsort((arrows.target, arrows.source, arrows.relation)))
    fresh = np.ones(len(arrows), np.bool_)
    fresh[1:] = (
        (arrows.source[1:] != arrows.source[:-1])
        | (arrows.target[1:] != arrows.target[:-1])
        | (arrows.relation[1:] != arrows.relation[:-1])
    )
    return arrows.where(fresh)


def _forward(arrows: Arrows, drawing: Drawing, findings: list[Finding]) -> Arrows:
    """Turns arrows that would run back in time: the engine loses an end that comes before its start."""
    back = drawing.start[arrows.source] > drawing.start[arrows.target]
    count = int(np.count_nonzero(back & (arrows.relation != Relation.SAME)))
    if count:
        findings.append(
            Finding(
                Severity.WARNING,
                "flow_reversed",
                "arrows whose cause starts after its effect are drawn from the effect: the clocks may differ",
                count=count,
            )
        )
    return Arrows(
        np.where(back, arrows.target, arrows.source),
        np.where(back, arrows.source, arrows.target),
        arrows.relation,
    )


def _bind(arrows: Arrows, drawing: Drawing, first_number: int) -> tuple[dict[int, Binding], Bools]:
    """Lets slices carry arrows, in the order in which the engine meets their ends; marks what is left over."""
    bindings: dict[int, Binding] = {}
    holder: dict[int, int] = {}
    newest: dict[int, int] = {}
    left = np.zeros(len(arrows), np.bool_)
    turn = _turns(np.concatenate([arrows.source, arrows.target]), drawing)
    leaving, arriving = turn[: len(arrows)], turn[len(arrows) :]
    early = np.where(leaving < arriving, arrows.source, arrows.target)
    late = np.where(leaving < arriving, arrows.target, arrows.source)
    able = ~drawing.instant[early] & ~drawing.instant[late]
    sequence = np.lexsort((np.minimum(leaving, arriving), np.maximum(leaving, arriving)))
    for index, source, target in zip(
        sequence.tolist(), early[sequence].tolist(), late[sequence].tolist(), strict=True
    ):
        start = bindings.get(source)
        free = start is None or holder[start.number] == source or newest[start.number] == source
        if not able[index] or target in bindings or not free:
            left[index] = True
            continue
        if start is None:
            start = bindings[source] = Binding(first_number + len(holder))
        start.leaves = True
        holder[start.number] = source
        bindings[target] = Binding(start.number, arrives=True)
        newest[start.number] = target
    return bindings, left


def _turns(rows: Int64s, drawing: Drawing) -> Int64s:
    """The turn of each row as the engine meets slices: by start, longest first, then as written."""
    _, turn = np.unique(
        np.stack([drawing.start[rows], -drawing.duration[rows], rows]), axis=1, return_inverse=True
    )
    return np.asarray(turn.ravel(), np.int64)


def _crowded(lost: Arrows, name_of: Callable[[int], str]) -> Finding:
    names: Sequence[str] = [name_of(int(lost.source[0])), name_of(int(lost.target[0]))]
    return Finding(
        Severity.WARNING,
        "flow_crowded",
        "arrows at slices that open together with others and carry other arrows already are not drawn",
        count=len(lost),
        example=" -> ".join(names),
    )


# Arrows between ranks: each rank says where its ends of them lie, then all are written at once.


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
class Ends(Table):
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


def possible_ties(job: Job, ends: Ends, meetings: Meetings, free: Bools) -> tuple[Bools, list[Finding]]:
    """Which arrows can be drawn, and why the others cannot; `free` says of which the beginning finds its event."""
    cause, effect = meetings.cause, meetings.effect
    drawn = ends.drawn[cause] & ends.drawn[effect]
    ended = drawn & ends.ended[effect]
    forward = ended & (ends.end[effect] >= ends.start[cause])
    possible = forward & free
    lost = (
        (Severity.INFO, "flow_without_end", "to or from events that are not drawn are left out", ~drawn),
        (
            Severity.INFO,
            "flow_to_unfinished",
            "to events whose end was not recorded are not drawn",
            drawn & ~ended,
        ),
        (
            Severity.WARNING,
            "flow_against_time",
            "whose effect ends before its cause starts are not drawn: clocks differ, or an event only asks for work",
            ended & ~forward,
        ),
        (
            Severity.WARNING,
            "flow_crowded",
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
