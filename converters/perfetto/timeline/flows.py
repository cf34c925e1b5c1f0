"""Flows (the arrows of the UI) within a rank and between ranks: which are drawn, and how each binds to its slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN, Bools, Int64s, Table
from tracelink._model.events import Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.timeline.drawing import Drawing, OpeningOrder
from tracelink.converters.perfetto.timeline.layout import FIRST_SLICE_FLOW, Numbering
from tracelink.converters.perfetto.timeline.schema import EFFECT_FIRST, FLOW_NAMES

# Flows within a rank.


MOST_RUNS = 100
"""Runs of each region or kernel to which a flow leads from its compilation."""


class Flows(Table, frozen=True):
    """Flows from earlier to later events, by row; those of one relation from one event share a number."""

    source: Int64s
    target: Int64s
    relation: Int64s


class SliceFlow(Struct):
    """The flow that a slice carries: its number, and if it leaves or enters the slice, or both."""

    number: int
    outgoing: bool = False
    incoming: bool = False


class BoundFlows(Struct):
    """Flows by the way in which they bind: events of their own, or carried by slices."""

    flows: Flows
    number: Int64s
    """The number of each of `flows`."""
    ahead: Bools
    """True if the target is the first of several slices to open: the flow's end is written just before it."""
    slice_flows: dict[int, SliceFlow] = field(default_factory=dict)
    count: int = 0
    findings: list[Finding] = field(default_factory=list)


def bound_flows(
    graph: EventGraph,
    drawing: Drawing,
    opening_order: OpeningOrder,
    numbering: Numbering,
    *,
    by_correlation: bool = False,
) -> BoundFlows:
    """All flows within one rank, bound to its slices; `by_correlation`: with unique correlation ids as numbers."""
    findings: list[Finding] = []
    flows = flows_of(graph, drawing, findings)
    correlation = graph.key(Key.CORRELATION).dense(len(graph), UNKNOWN) if by_correlation else None
    return bind(flows, drawing, opening_order, numbering, graph.name, findings, correlation)


def bind(
    flows: Flows,
    drawing: Drawing,
    opening_order: OpeningOrder,
    numbering: Numbering,
    name_of: Callable[[int], str],
    findings: list[Finding],
    correlation: Int64s | None = None,
) -> BoundFlows:
    """Chooses how each flow binds to exactly its own slices; those that cannot are in the findings.

    Launches with a unique `correlation` of their call have it as number: other tools find the launched work by it.
    """
    first, last = opening_order.first, opening_order.last
    own_events = last[flows.source] & last[flows.target]
    carried = flows.take(~own_events)
    slice_flows, left = _bind(carried, drawing, numbering.first_slice_flow)
    rest = carried.take(left)
    possible = (
        last[rest.source] & first[rest.target] & (drawing.start[rest.target] > drawing.start[rest.source])
    )
    undrawn = rest.take(~possible)
    if len(undrawn):
        findings.append(_crowded(undrawn, name_of))
    rest = rest.take(possible)
    plain = flows.take(own_events)
    with_events = Flows(
        np.concatenate([plain.source, rest.source]),
        np.concatenate([plain.target, rest.target]),
        np.concatenate([plain.relation, rest.relation]),
    )
    ahead = np.arange(len(with_events)) >= len(plain)
    number = _numbers(with_events, numbering.first_flow, correlation)
    return BoundFlows(with_events, number, ahead, slice_flows, len(flows) - len(undrawn), findings)


def _numbers(flows: Flows, first_number: int, correlation: Int64s | None) -> Int64s:
    """One number for all flows of one relation from one event; numbers are unique over relations."""
    group = flows.relation * (int(flows.source.max(initial=0)) + 1) + flows.source
    _, first, number = np.unique(group, return_index=True, return_inverse=True)
    if correlation is None or not len(first):
        return number + first_number
    launches = flows.relation[first] == Relation.LAUNCHES
    wanted = np.where(launches, correlation[flows.source[first]], UNKNOWN)
    value, count = np.unique(wanted, return_counts=True)
    kept = (wanted > 0) & (wanted < FIRST_SLICE_FLOW // 2) & (count[np.searchsorted(value, wanted)] == 1)
    first_number = max(first_number, int(wanted[kept].max(initial=0)) + 1)
    return np.where(kept, wanted, first_number + np.cumsum(~kept) - 1)[number]


def flows_of(graph: EventGraph, drawing: Drawing, findings: list[Finding]) -> Flows:
    """All flows within one rank, each once, from the event that starts first; others are reported in `findings`."""
    return _unique(_forward(_chosen(graph, drawing, findings), drawing, findings))


def _chosen(graph: EventGraph, drawing: Drawing, findings: list[Finding]) -> Flows:
    """Cause to effect, for the relations and events that are drawn."""
    edges = graph.edges
    relation = edges.relation.astype(np.int64)
    has_flow = np.isin(relation, list(FLOW_NAMES))
    turned = np.isin(relation, list(EFFECT_FIRST))
    source = np.where(turned, edges.target, edges.source)
    target = np.where(turned, edges.source, edges.target)
    ends = drawing.shown[source] & drawing.shown[target] & (source != target)
    has_flow &= ~_later_runs(graph, source, target, relation == Relation.COMPILES, findings)
    hidden = np.flatnonzero(has_flow & ~ends & (relation != Relation.SAME))
    if len(hidden):
        findings.append(
            Finding(
                Severity.INFO,
                "flow_without_end",
                "edges to or from events that are not drawn have no flow",
                count=len(hidden),
                example=graph.name(int(source[hidden[0]])),
            )
        )
    return Flows(source, target, relation).take(has_flow & ends)


def _later_runs(
    graph: EventGraph, source: Int64s, target: Int64s, compiles: Bools, findings: list[Finding]
) -> Bools:
    """The flows to runs of compiled code after the first `MOST_RUNS` of each name: code can run millions of times."""
    later = np.zeros(len(source), np.bool_)
    rows = np.flatnonzero(compiles)
    if len(rows) <= MOST_RUNS:
        return later
    name, start = graph.events.name[target[rows]], graph.events.start[target[rows]]
    order = np.lexsort((start, name, source[rows]))
    fresh = np.ones(len(rows), np.bool_)
    fresh[1:] = (np.diff(name[order]) != 0) | (np.diff(source[rows][order]) != 0)
    first = np.maximum.accumulate(np.where(fresh, np.arange(len(rows)), 0))
    later[rows[order[np.arange(len(rows)) - first >= MOST_RUNS]]] = True
    if later.any():
        text = f"flows from a compilation lead to the first {MOST_RUNS} runs of each name; to later ones none is drawn"
        findings.append(Finding(Severity.INFO, "flow_to_later_run", text, int(np.count_nonzero(later))))
    return later


def _unique(flows: Flows) -> Flows:
    """Each flow once, sorted by relation and source."""
    if not len(flows):
        return flows
    flows = flows.take(np.lexsort((flows.target, flows.source, flows.relation)))
    fresh = np.ones(len(flows), np.bool_)
    fresh[1:] = (
        (flows.source[1:] != flows.source[:-1])
        | (flows.target[1:] != flows.target[:-1])
        | (flows.relation[1:] != flows.relation[:-1])
    )
    return flows.take(fresh)


def _forward(flows: Flows, drawing: Drawing, findings: list[Finding]) -> Flows:
    """Reverses flows that would run back in time: the engine loses an end that comes before its start."""
    back = drawing.start[flows.source] > drawing.start[flows.target]
    counted = back & (flows.relation != Relation.SAME)
    after = counted & (
        drawing.start[flows.source] > drawing.start[flows.target] + drawing.duration[flows.target]
    )
    for severity, which, text in (
        (
            Severity.WARNING,
            after,
            "flows whose cause starts after its effect are drawn in reverse; the clocks may differ",
        ),
        (
            Severity.INFO,
            counted & ~after,
            "flows whose cause starts while its effect runs are drawn in reverse, as Perfetto does",
        ),
    ):
        if which.any():
            findings.append(Finding(severity, "flow_reversed", text, int(np.count_nonzero(which))))
    return Flows(
        np.where(back, flows.target, flows.source),
        np.where(back, flows.source, flows.target),
        flows.relation,
    )


def _bind(flows: Flows, drawing: Drawing, first_number: int) -> tuple[dict[int, SliceFlow], Bools]:
    """Lets slices carry flows, in the order in which the engine reads their ends; the mask is of those left over."""
    slice_flows: dict[int, SliceFlow] = {}
    holder: dict[int, int] = {}
    newest: dict[int, int] = {}
    left = np.zeros(len(flows), np.bool_)
    turn = _turns(np.concatenate([flows.source, flows.target]), drawing)
    leaving, arriving = turn[: len(flows)], turn[len(flows) :]
    early = np.where(leaving < arriving, flows.source, flows.target)
    late = np.where(leaving < arriving, flows.target, flows.source)
    able = ~drawing.instant[early] & ~drawing.instant[late]
    sequence = np.lexsort((np.minimum(leaving, arriving), np.maximum(leaving, arriving)))
    for index, source, target in zip(
        sequence.tolist(), early[sequence].tolist(), late[sequence].tolist(), strict=True
    ):
        start = slice_flows.get(source)
        free = start is None or holder[start.number] == source or newest[start.number] == source
        if not able[index] or target in slice_flows or not free:
            left[index] = True
            continue
        if start is None:
            start = slice_flows[source] = SliceFlow(first_number + len(holder))
        start.outgoing = True
        holder[start.number] = source
        slice_flows[target] = SliceFlow(start.number, incoming=True)
        newest[start.number] = target
    return slice_flows, left


def _turns(rows: Int64s, drawing: Drawing) -> Int64s:
    """The order in which the engine reads slices: by start, longest first, then as written."""
    _, turn = np.unique(
        np.stack([drawing.start[rows], -drawing.duration[rows], rows]), axis=1, return_inverse=True
    )
    return np.asarray(turn.ravel(), np.int64)


def _crowded(undrawn: Flows, name_of: Callable[[int], str]) -> Finding:
    names: Sequence[str] = [name_of(int(undrawn.source[0])), name_of(int(undrawn.target[0]))]
    return Finding(
        Severity.WARNING,
        "flow_crowded",
        "flows are not drawn at slices that open at the same time as others and already carry a flow",
        count=len(undrawn),
        example=" -> ".join(names),
    )


# Flows between ranks: each rank provides its ends, then all flows are written at once.


ROWS = 1 << 40
"""More than a rank has events: `index * ROWS + row` identifies an event of the job."""


class SharedEvents(Struct, frozen=True):
    """The events at which flows between ranks start or end: each once, rank by rank."""

    row: Int64s
    bounds: Sequence[int]
    cause: Int64s
    """For each flow the index of its cause in `row`."""
    effect: Int64s

    def of_part(self, index: int) -> Int64s:
        """The rows of the rank at an index."""
        return self.row[self.bounds[index] : self.bounds[index + 1]]


class CrossRankEnds(Table, frozen=True):
    """Thread and time of the shared events, in their order."""

    pid: Int64s
    tid: Int64s
    start: Int64s
    end: Int64s
    """The last nanosecond within the event."""
    drawn: Bools
    ended: Bools
    """True if the end of the event is known."""
    opens_last: Bools
    """True if no other slice opens after it at the same time: the engine would bind a flow to that one."""


def shared_events_of(job: LinkedJob) -> SharedEvents:
    """The events at both ends of all flows between ranks."""
    ties = job.ties
    index = np.zeros(max((part.rank for part in job.parts), default=0) + 1, np.int64)
    index[[part.rank for part in job.parts]] = np.arange(len(job.parts))
    ranks = np.concatenate([ties.cause_rank, ties.effect_rank])
    events = index[ranks] * ROWS + np.concatenate([ties.cause, ties.effect])
    distinct, which = np.unique(events, return_inverse=True)
    bounds = np.searchsorted(distinct, np.arange(len(job.parts) + 1) * ROWS).tolist()
    return SharedEvents(distinct % ROWS, bounds, which[: len(ties)], which[len(ties) :])


def drawable_flows(
    job: LinkedJob, ends: CrossRankEnds, shared: SharedEvents, bindable: Bools
) -> tuple[Bools, list[Finding]]:
    """The flows that can be drawn, and why others cannot; the start of `bindable` ones binds to its event."""
    cause, effect = shared.cause, shared.effect
    drawn = ends.drawn[cause] & ends.drawn[effect]
    ended = drawn & ends.ended[effect]
    forward = ended & (ends.end[effect] >= ends.start[cause])
    possible = forward & bindable
    undrawn = (
        (Severity.INFO, "flow_without_end", "to or from events that are not drawn are omitted", ~drawn),
        (
            Severity.INFO,
            "flow_to_unfinished",
            "to events whose end was not recorded are not drawn",
            drawn & ~ended,
        ),
        (
            Severity.WARNING,
            "flow_against_time",
            "whose effect ends before its cause starts are not drawn; clocks differ, or an event only requests work",
            ended & ~forward,
        ),
        (
            Severity.WARNING,
            "flow_crowded",
            "from slices that open at the same time as others are not drawn",
            forward & ~possible,
        ),
    )
    findings = [
        Finding(
            severity, reason, f"flows between ranks {why}", int(which.sum()), example=_example(job, which)
        )
        for severity, reason, why, which in undrawn
        if which.any()
    ]
    return possible, findings


def _example(job: LinkedJob, which: Bools) -> str:
    first = int(np.argmax(which))
    return f"rank {job.ties.cause_rank[first]} -> rank {job.ties.effect_rank[first]}"
