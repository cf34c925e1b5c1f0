"""Which events of a rank are drawn, when, on which lane of their thread, and in which order they open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tracelink._link.nesting import ends_within_callers, nest, sort_outer_first
from tracelink._model.causes import depths
from tracelink._model.columns import (
    LOWEST,
    MICROSECOND,
    NO_TIME,
    SECOND,
    UNKNOWN,
    Bools,
    Int64s,
    Table,
    last_at_least,
    previous_at_least,
)
from tracelink._model.events import EventKind, Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph
from tracelink._model.job import LinkedJob
from tracelink.converters.perfetto.timeline.schema import MAX_DEPTH

# Times: every event with a recorded time; nodes in logical order if no event has one.


SHOWS_PROGRESS = frozenset({"started", "completed"})
DONE = "completed"
NO_ROWS = np.empty(0, np.int64)


class Drawing(Struct, frozen=True):
    """For each event whether and when it is drawn; times are nanoseconds after `base`."""

    base: int
    shown: Bools
    instant: Bools
    start: Int64s
    duration: Int64s
    open_ended: Int64s
    """Rows with an unknown end."""
    nodes: Mapping[int, int]
    """For the row of a timed event, the row of the execution-trace node that is the same."""
    findings: tuple[Finding, ...] = ()
    hung: frozenset[int] = frozenset()
    """The rows that hang."""


def base_of(job: LinkedJob) -> int | None:
    """The full second before the first event; None if no event has a time."""
    return None if job.first_ns is None else job.first_ns // SECOND * SECOND


def draw(
    graph: EventGraph,
    base: int | None,
    excluded: Collection[EventKind] = (),
    hung: Int64s = NO_ROWS,
    hung_until: int = 0,
) -> Drawing:
    """Times relative to `base` for all events of one rank that can be drawn and are not of an excluded kind."""
    events = graph.events
    unwanted = events.timed & events.of_kind(*excluded)
    shown = events.timed & ~unwanted
    if base is None and events.of_kind(EventKind.NODE).any():
        return _in_logical_order(graph)
    base = base or 0
    start = np.where(shown, events.start - base, 0)
    instant = events.of_kind(EventKind.INSTANT, EventKind.MEMORY) & (events.duration <= 0) & shown
    open_ended = np.flatnonzero(shown & (events.duration == UNKNOWN) & ~instant)
    duration = np.maximum(events.duration, 0)
    findings = _excluded_findings(unwanted)
    if len(open_ended):
        duration[open_ended] = _until_end_of_same(graph, open_ended, _until_last_sign(graph, open_ended))
        duration[hung] = hung_until - events.start[hung]
        findings += _open_ended_findings(graph, open_ended, hung)
    nodes = _partners(graph, shown)
    findings += _untimed_findings(graph, nodes)
    hung_rows = frozenset(hung[shown[hung]].tolist())
    return Drawing(base, shown, instant, start, duration, open_ended, nodes, tuple(findings), hung_rows)


def drawn_samples(graph: EventGraph) -> Bools:
    """A mask of the samples that are finite numbers."""
    return np.isfinite(graph.counters.value)


def _until_last_sign(graph: EventGraph, rows: Int64s) -> Int64s:
    """Durations of events without an end: up to the last event of their rank that shows progress, or 0.

    Entries of gloo stay "scheduled" even when they are complete. On a recorder track without any progress, an
    entry therefore gets no duration; neither does a completed entry without a recorded one.
    """
    events = graph.events
    until: Int64s = events.end[events.timed].max() - events.start[rows]
    records = events.kind[rows] == EventKind.RECORD
    states = graph.key(Key.STATE).dense(len(events), -1)
    progress = np.array([text in SHOWS_PROGRESS for text in graph.strings] + [False])
    done = np.array([text == DONE for text in graph.strings] + [False])
    reports_progress = np.zeros(len(graph.tracks), np.bool_)
    reports_progress[events.track[progress[states]]] = True
    until[records & (done[states[rows]] | ~reports_progress[events.track[rows]])] = 0
    return until


def _until_end_of_same(graph: EventGraph, rows: Int64s, otherwise: Int64s) -> Int64s:
    """Durations of events without an end that are the same as an event with an end: up to that end."""
    events = graph.events
    same = graph.edges.where(Relation.SAME)
    event, partner = np.concatenate([same.source, same.target]), np.concatenate([same.target, same.source])
    known = events.timed[partner] & (events.duration[partner] != UNKNOWN)
    last = np.full(len(events), NO_TIME)
    np.maximum.at(last, event[known], events.end[partner[known]])
    return np.where(last[rows] > events.start[rows], last[rows] - events.start[rows], otherwise)


def _open_ended_findings(graph: EventGraph, rows: Int64s, hung: Int64s) -> list[Finding]:
    others = np.setdiff1d(rows, hung)
    messages = {
        "hung": "recorder entries that hang are drawn to the end of the trace; their names start with HUNG",
        "unfinished": "events without a recorded end are drawn to the end of the event that is the same, else to the "
        "last event of their rank, or without a duration if their source never records ends",
    }
    return [
        Finding(Severity.INFO, reason, messages[reason], len(some), example=graph.name(int(some[0])))
        for reason, some in (("hung", hung), ("unfinished", others))
        if len(some)
    ]


def _excluded_findings(unwanted: Bools) -> list[Finding]:
    """A finding on excluded events."""
    count = int(np.count_nonzero(unwanted))
    message = "calls of Python functions are not drawn, as requested"
    return [Finding(Severity.INFO, "left_out", message, count)] if count else []


def _untimed_findings(graph: EventGraph, nodes: Mapping[int, int]) -> list[Finding]:
    """A finding on events without a time that are not the same as a timed event."""
    hidden = ~graph.events.timed
    hidden[list(nodes.values())] = False
    rows = np.flatnonzero(hidden)
    if not len(rows):
        return []
    message = "events without a time that are not the same as a timed event are not drawn"
    return [Finding(Severity.INFO, "untimed", message, len(rows), example=graph.name(int(rows[0])))]


def _partners(graph: EventGraph, shown: Bools) -> dict[int, int]:
    """Timed events that are the same as an execution-trace node without a time, and the row of that node."""
    same = graph.edges.where(Relation.SAME)
    number = graph.key(Key.NODE_ID).dense(len(graph), -1)
    timed = np.concatenate([same.source, same.target])
    node = np.concatenate([same.target, same.source])
    fits = shown[timed] & ~shown[node] & (number[node] >= 0)
    return dict(zip(timed[fits].tolist(), node[fits].tolist(), strict=True))


def _in_logical_order(graph: EventGraph) -> Drawing:
    """Nodes in the order of their ids, a microsecond each, around their children."""
    events = graph.events
    shown = events.of_kind(EventKind.NODE)
    rows = np.flatnonzero(shown)
    ids = graph.key(Key.NODE_ID).dense(len(events), -1)
    start = np.zeros(len(events), np.int64)
    end = np.zeros(len(events), np.int64)
    for source in np.unique(events.source[rows]).tolist():
        mine = rows[events.source[rows] == source]
        mine = mine[np.argsort(ids[mine], kind="stable")]
        start[mine] = np.arange(len(mine)) * MICROSECOND
        end[mine] = start[mine] + MICROSECOND
        _enclose_children(graph, mine, ids, end)
    none = np.empty(0, np.int64)
    finding = Finding(
        Severity.WARNING,
        "logical_order",
        "no event has a time: nodes are drawn in the order of their ids, a microsecond each; "
        "durations have no meaning",
        count=len(rows),
    )
    untimed = np.zeros(len(events), np.bool_)
    return Drawing(0, shown, untimed, start, np.maximum(end - start, 0), none, {}, (finding,))


def _enclose_children(graph: EventGraph, rows: Int64s, ids: Int64s, end: Int64s) -> None:
    """Extends every node to the end of its children; `rows` are the nodes of one source, sorted by id."""
    parents = graph.key(Key.NODE_PARENT).dense(len(ids), -1)[rows]
    row_of = dict(zip(ids[rows].tolist(), rows.tolist(), strict=True))
    ends = dict(zip(rows.tolist(), end[rows].tolist(), strict=True))
    for row, parent in zip(reversed(rows.tolist()), reversed(parents.tolist()), strict=True):
        outer = row_of.get(parent, row)
        if ends[outer] < ends[row]:
            ends[outer] = ends[row]
    end[rows] = list(ends.values())


# Lanes: slices of one thread that partly overlap are put on different lanes.


class Slices(Table, frozen=True):
    """Slices by track in the order in which they open, the longest first."""

    track: Int64s
    start: Int64s
    end: Int64s


class Lanes(Struct, frozen=True):
    """The lane of each row, and the rows in the order in which they open on their track."""

    lane: Int64s
    order: Int64s


def in_half_nanoseconds(start: Int64s, duration: Int64s) -> tuple[Int64s, Int64s]:
    """Start and end in half nanoseconds; events without a duration, and instants, last for half a nanosecond."""
    end = 2 * (start + duration)
    end += duration == 0
    return 2 * start, end


def assign_lanes(track: Int64s, start: Int64s, end: Int64s, unclosed: Bools) -> Lanes:
    """Lanes on which all slices nest; of two that partly overlap, the one with fewer slices inside moves with them.

    A slice that is `unclosed` moves alone: what runs while it seems open is not inside it.
    """
    order = sort_outer_first(track, start, end, np.zeros(len(track), np.int64))
    slices = Slices(track[order], start[order], end[order])
    apart = _crossing(slices, unclosed[order])
    if len(apart):
        rest = np.delete(np.arange(len(slices)), apart)
        lane = np.zeros(len(slices), np.int64)
        lane[rest], _ = _nested(slices.take(rest))
        used = np.zeros(int(slices.track[-1]) + 1, np.int64)
        np.maximum.at(used, slices.track[rest], lane[rest] + 1)
        alone = slices.take(apart)
        lane[apart] = used[alone.track] + _chosen_alone(alone)
        parent, _ = _on_lanes(slices, lane)
    else:
        lane, parent = _nested(slices)
    depth = depths(parent)
    if depth.max(initial=0) >= MAX_DEPTH:
        _split_deep(slices.track, depth, lane)
    by_row = np.empty_like(lane)
    by_row[order] = lane
    return Lanes(by_row, order)


def _nested(slices: Slices) -> tuple[Int64s, Int64s]:
    """The lane of each slice, and its parent there."""
    lane = np.zeros(len(slices), np.int64)
    parent, crosses = _on_lanes(slices, lane)
    if crosses.any():
        crossed = np.zeros(int(slices.track[-1]) + 1, np.bool_)
        crossed[slices.track[crosses]] = True
        indexes = np.flatnonzero(crossed[slices.track])
        around = parent[crosses]
        around = np.where(around == UNKNOWN, UNKNOWN, np.searchsorted(indexes, around))
        lane[indexes], inside = _separated(slices.take(indexes), crosses[indexes], around)
        parent[indexes] = np.where(inside == UNKNOWN, UNKNOWN, indexes[inside])
    return lane, parent


def _on_lanes(slices: Slices, lane: Int64s) -> tuple[Int64s, Bools]:
    """The parent of each slice on its lane, and whether it partly overlaps another one there."""
    if not lane.any():
        nesting = nest(slices.track, slices.start, slices.end)
        return nesting.parent, nesting.overlaps
    lane_index = slices.track * (int(lane.max()) + 1) + lane
    order = np.argsort(lane_index, kind="stable")
    nesting = nest(lane_index[order], slices.start[order], slices.end[order])
    parent = np.empty_like(lane)
    parent[order] = np.where(nesting.parent == UNKNOWN, UNKNOWN, order[nesting.parent])
    crosses = np.empty(len(lane), np.bool_)
    crosses[order] = nesting.overlaps
    return parent, crosses


def _separated(slices: Slices, crosses: Bools, around: Int64s) -> tuple[Int64s, Int64s]:
    """Lanes and parents of slices: those that partly overlap choose a lane, all others follow their parent.

    `around` is the innermost slice around each that partly overlaps an earlier one.
    """
    opens, closes = _on_one_line(slices)
    late = np.flatnonzero(crosses)
    early = _outermost_crossed(opens, closes, late, around)
    gives_way = _lighter(opens, closes, late, early)
    choosing = crosses.copy()
    choosing[early] = True
    lane = _chosen(opens, closes, gives_way, choosing)
    parent, crosses = _on_lanes(slices, lane)
    if crosses.any():  # event moved to where another follows
        lane = _chosen(opens, closes, gives_way, np.ones_like(choosing))
        parent, _ = _on_lanes(slices, lane)
    return lane, parent


def _chosen(opens: Int64s, closes: Int64s, gives_way: Bools, choosing: Bools) -> Int64s:
    """Lanes for the slices that choose, and for all others the lane of the slice in which they open."""
    indexes = np.flatnonzero(choosing)
    lanes = choose_lanes(opens[indexes].tolist(), closes[indexes].tolist(), gives_way[indexes].tolist())
    lane = np.zeros(len(opens), np.int64)
    lane[indexes] = lanes
    turns = np.unique(np.concatenate([[0], indexes, np.searchsorted(opens, closes[indexes])]))
    turns = turns[turns < len(opens)]  # between two of them all are in the same slice
    mine = choosing[turns]
    inside, _ = previous_at_least(np.where(mine, closes[turns], LOWEST), opens[turns] + 1)
    followed = np.where(mine | (inside == UNKNOWN), lane[turns], lane[turns[inside]])
    return np.repeat(followed, np.diff(turns, append=len(opens)))


def _on_one_line(slices: Slices) -> tuple[Int64s, Int64s]:
    """Starts and ends with all tracks one after the other, so that they can be compared across tracks."""
    start, end = slices.start, slices.end
    low, span = int(start.min()), int(end.max() - start.min()) + 2
    if span * (int(slices.track.max()) + 1) >= 1 << 62:
        ranks = np.unique(np.concatenate([start, end]), return_inverse=True)[1].astype(np.int64)
        start, end = ranks[: len(start)], ranks[len(start) :]
        low, span = 0, int(ranks.max()) + 2
    base = slices.track * span - low
    return start + base, end + base


def _outermost_crossed(opens: Int64s, closes: Int64s, late: Int64s, around: Int64s) -> Int64s:
    """For each of `late`, the outermost slice that is open at its start and ends before it."""
    turned = last_at_least(closes[::-1], len(closes) - 1 - around, opens[late] + 1)
    return len(closes) - 1 - turned


def _lighter(opens: Int64s, closes: Int64s, late: Int64s, early: Int64s) -> Bools:
    """A mask of the slices that make way for a partly overlapping one: those that contain fewer slices than it."""
    before, after = np.searchsorted(late, late + 1), np.searchsorted(opens, closes[late])
    crossing_inside = np.searchsorted(late, after) - before
    held = after - late - crossing_inside
    lighter = np.zeros(len(opens), np.bool_)
    lighter[early[late - early < held]] = True
    return lighter


def choose_lanes(starts: list[int], ends: list[int], gives_way: list[bool]) -> list[int]:
    """For slices in opening order: the lane of the enclosing slice, or the next lane with room.

    A slice that gives way leaves the lane of the enclosing slice to a later slice.
    """
    around: list[tuple[int, int]] = []
    lanes = _OpenLanes()
    chosen: list[int] = []
    for start, end, leaves in zip(starts, ends, gives_way, strict=True):
        while around and around[-1][0] < end:
            around.pop()
        number = lanes.add(start, end, (around[-1][1] if around else 0) + leaves)
        around.append((end, number))
        chosen.append(number)
    return chosen


EMPTY = 1 << 63
"""The end of the innermost open slice of a lane without any: every slice has room there."""


class _OpenLanes:
    """The open slices of all lanes; a tree of maxima finds the first lane with room, however many there are."""

    def __init__(self) -> None:
        self.ends: list[list[int]] = []
        """The ends of the open slices of each lane, innermost last."""
        self.closing: list[tuple[int, int]] = []
        """(end, lane) of open slices, the next to end first."""
        self.size = 2
        self.tree = [EMPTY] * 4
        """Ends of the innermost slices of lanes from `size` on, and above them the later end of each two."""

    def add(self, start: int, end: int, number: int) -> int:
        """Opens a slice on the first lane from `number` on where it nests in the slices that are open."""
        while self.closing and self.closing[0][0] <= start:
            self._close(heappop(self.closing)[1], start)
        while number + 2 > self.size or len(self.ends) + 2 > self.size:
            self._grow()
        node = self.size + number
        while self.tree[node] < end:
            node += 1
            while not node & 1:
                node >>= 1
        while node < self.size:
            node *= 2
            node += self.tree[node] < end
        lane = node - self.size
        while lane >= len(self.ends):
            self.ends.append([])
        self.ends[lane].append(end)
        heappush(self.closing, (end, lane))
        self._set(lane, end)
        return lane

    def _close(self, lane: int, time: int) -> None:
        open_ends = self.ends[lane]
        while open_ends and open_ends[-1] <= time:
            open_ends.pop()
        self._set(lane, open_ends[-1] if open_ends else EMPTY)

    def _set(self, lane: int, end: int) -> None:
        tree, node = self.tree, self.size + lane
        tree[node] = end
        while node > 1:
            node >>= 1
            tree[node] = max(tree[2 * node], tree[2 * node + 1])

    def _grow(self) -> None:
        leaves = self.tree[self.size :]
        self.size *= 2
        self.tree = [EMPTY] * self.size + leaves + [EMPTY] * (self.size - len(leaves))
        for node in range(self.size - 1, 0, -1):
            self.tree[node] = max(self.tree[2 * node], self.tree[2 * node + 1])


def _split_deep(track: Int64s, depth: Int64s, lane: Int64s) -> None:
    """Moves slices that are too deep on their lane to another lane of their track."""
    band = depth // MAX_DEPTH
    used = np.zeros(int(track[-1]) + 1, np.int64)
    np.maximum.at(used, track, lane + 1)
    deep = np.flatnonzero(band)
    wanted, which = np.unique(np.stack([track[deep], band[deep], lane[deep]]), axis=1, return_inverse=True)
    nth = np.arange(wanted.shape[1]) - np.searchsorted(wanted[0], wanted[0])
    lane[deep] = (used[wanted[0]] + nth)[which.ravel()]


# Slices that never close: their recorded end is missing, or is not that of the event.


def never_closed(graph: EventGraph, drawing: Drawing) -> Bools:
    """A mask of the events without a recorded end, that last longer than their caller, or far beyond all others."""
    start, end = drawing.start, drawing.start + drawing.duration
    unclosed = np.zeros(len(graph), np.bool_)
    unclosed[drawing.open_ended] = True
    calls = graph.edges.where(Relation.CALLS)
    if (end[calls.target] > end[calls.source]).any():
        within = drawing.shown[calls.source] & drawing.shown[calls.target]
        within &= graph.events.track[calls.source] == graph.events.track[calls.target]
        within &= (start[calls.source] <= start[calls.target]) & (start[calls.target] <= end[calls.source])
        unclosed |= ends_within_callers(end, calls.target[within], calls.source[within]) < end
    if drawing.shown.any():
        first, last = int(start[drawing.shown].min()), int(start[drawing.shown].max())
        unclosed |= drawing.shown & (end - last > last - first)
    return unclosed


def _crossing(slices: Slices, unclosed: Bools) -> Int64s:
    """The indexes of the unclosed slices that partly overlap a closed one."""
    late, closed = np.flatnonzero(unclosed), np.flatnonzero(~unclosed)
    if not len(late) or not len(closed):
        return late[:0]
    opens, closes = _on_one_line(slices)
    ends = closes[closed]
    before = last_at_least(ends, np.searchsorted(closed, late), opens[late] + 1)
    after = last_at_least(ends, np.searchsorted(opens[closed], closes[late]), closes[late] + 1)
    crosses = (before != UNKNOWN) & (ends[before] < closes[late])
    crosses |= (after != UNKNOWN) & (opens[closed[after]] > opens[late])
    return late[crosses]


def _chosen_alone(slices: Slices) -> Int64s:
    """Lanes for unclosed slices, counted from the first lane of their track that has no other slice."""
    opens, closes = _on_one_line(slices)
    return np.array(choose_lanes(opens.tolist(), closes.tolist(), [False] * len(slices)), np.int64)


# Recorder entries: one that is requested while another is pending is not called by it, so it is not drawn inside.


MOST_PENDING = 64
"""Tracks with more entries at the same time are drawn as they nest: as many lanes would hide everything else."""


def side_by_side(lanes: Lanes, track: Int64s, start: Int64s, end: Int64s, entries: Bools) -> Lanes:
    """The lanes without nesting of `entries`, on tracks on which nothing else is."""
    rows = np.flatnonzero(entries)
    rows = rows[np.lexsort((-end[rows], start[rows], track[rows]))]
    if not len(rows):
        return lanes
    lane = lanes.lane.copy()
    bounds = np.flatnonzero(np.diff(track[rows], prepend=-1, append=-1))
    for low, high in pairwise(bounds.tolist()):
        mine = rows[low:high]
        if _most_at_once(start[mine], end[mine]) <= MOST_PENDING:
            lane[mine] = first_free_lanes(start[mine].tolist(), end[mine].tolist())
    return Lanes(lane, lanes.order)


def _most_at_once(start: Int64s, end: Int64s) -> int:
    """The largest number of intervals that overlap; `start` is sorted."""
    return int((np.arange(1, len(start) + 1) - np.searchsorted(np.sort(end), start, side="right")).max())


def first_free_lanes(starts: list[int], ends: list[int]) -> list[int]:
    """For intervals sorted by start, the first lane that is free."""
    free: list[int] = []
    chosen = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((lane for lane, until in enumerate(free) if until <= start), len(free))
        free[lane : lane + 1] = [end]
        chosen.append(lane)
    return chosen


# Opening order: it determines to which slice the end of a flow binds.


class OpeningOrder(Struct, frozen=True):
    """The drawn rows, lane by lane in the order in which they open."""

    order: Int64s
    first: Bools
    """For each row whether it is the first of its lane to open at its time."""
    last: Bools
    """For each row whether it is the last of its lane to open at its time."""


def opening_order_of(drawing: Drawing, lane_index: Int64s, order: Int64s) -> OpeningOrder:
    """`order` contains the drawn rows by track in opening order; this function separates the lanes."""
    order = order[np.argsort(lane_index[order], kind="stable")]
    start, lane = drawing.start[order], lane_index[order]
    first_at_time = np.ones(len(order) + 1, np.bool_)
    first_at_time[1:-1] = (start[1:] != start[:-1]) | (lane[1:] != lane[:-1])
    first = np.zeros(len(lane_index), np.bool_)
    last = np.zeros(len(lane_index), np.bool_)
    first[order] = first_at_time[:-1]
    last[order] = first_at_time[1:]
    return OpeningOrder(order, first, last)
