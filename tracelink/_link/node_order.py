"""Nodes to operators without common ids: by names, sequence numbers of autograd, nesting, and the order on each thread.

In: the rank trace, the rows of its nodes and of its operators. Out: the edges, and a report on the nodes without one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._link.alignment import MOST_EDITS, Alignment, align, align_start, run_hashes
from tracelink._link.nesting import nest, sort_outer_first
from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int32s, Int64s, distinct, lookup, scatter
from tracelink._model.events import Edges, Key, Relation
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, scoped_pair

THREADS_DIFFER = 100 * MICROSECOND
"""Operators of two threads may start in another order than their nodes are numbered, within this time."""

RUN_LENGTHS = (64, 32, 16, 8, 4)
"""Lengths of runs that are looked up to split sequences that differ too much for one alignment."""

EARLIEST, LATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)

TRUSTED = 0.5
"""The smallest share of equal sequence numbers that must be in the same order."""

CERTAIN = 0.95
"""The smallest share of nodes whose operators are nested like the nodes, if parents of nodes are to be used."""


def link_by_order(relation: str, trace: RankTrace, nodes: Int64s, operators: Int64s) -> Links:
    """Thread by thread: nodes are numbered in the order in which operators start."""
    events = trace.events
    node_id = trace.key(Key.NODE_ID).dense(len(events), 0)
    nodes = nodes[np.argsort(node_id[nodes], kind="stable")]
    matcher = _Matcher(
        events.name.astype(np.int64),
        trace.key(Key.SEQUENCE).dense(len(events), UNKNOWN),
        events.start,
        events.end,
        _callers(trace, nodes, operators),
        np.full(len(events), UNKNOWN, np.int64),
        np.zeros(len(events), np.bool_),
    )
    logical = trace.key(Key.LOGICAL_THREAD).dense(len(events), 0)
    threads = list(matcher.threads(nodes, logical, _by_start(trace, operators), events.track))
    for thread in threads:
        matcher.pair(*thread)
    for thread_nodes, thread_operators in threads:
        if not (matcher.partner[thread_nodes] != UNKNOWN).any():
            matcher.pair_meanwhile(thread_nodes, thread_operators, nodes)
    by_time = operators[np.argsort(events.start[operators], kind="stable")]
    for number in np.unique(logical[nodes]):
        matcher.pair_left_over(nodes[logical[nodes] == number], by_time, nodes)
    linked = nodes[matcher.partner[nodes] != UNKNOWN]
    edges = Edges.of_relation(Relation.SAME, linked, matcher.partner[linked])
    several = int(np.count_nonzero(matcher.ambiguous[nodes] & (matcher.partner[nodes] == UNKNOWN)))
    missing = len(nodes) - len(edges) - several
    unlinked = {"several operators match": several, "no operator of its name at its position": missing}
    notes = {"linked by name and order": len(edges)}
    notes |= nonzero({"equal sequence numbers": matcher.equal_numbers(linked)})
    return Links(edges, LinkReport(relation, len(edges), len(nodes), nonzero(unlinked), notes))


class _Matcher(Struct, frozen=True):
    """Pairs nodes with operators by names, sequence numbers and order; columns have one row for each event."""

    name: Int64s
    number: Int64s
    """Sequence numbers of autograd; UNKNOWN of events without one."""
    start: Int64s
    end: Int64s
    caller: Int64s
    """The parent of each node, and the operator around each operator."""
    partner: Int64s
    """The operator of each node."""
    ambiguous: Bools
    """The nodes that several operators match."""

    def threads(
        self, nodes: Int64s, logical: Int64s, operators: Int64s, track: Int32s
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Nodes of each logical thread, with the operators of the OS thread that has the most in common."""
        free = {int(number): operators[track[operators] == number] for number in np.unique(track[operators])}
        threads = [nodes[logical[nodes] == number] for number in np.unique(logical[nodes])]
        for thread in sorted(threads, key=len, reverse=True):
            if free:
                best = max(free, key=lambda number: self._in_common(thread, free[number]))
                yield thread, free.pop(best)

    def _in_common(self, nodes: Int64s, operators: Int64s) -> tuple[int, int]:
        """The number of names with their sequence numbers, and of names, that are on both threads, in any order."""
        numbered = (nodes[self.number[nodes] != UNKNOWN], operators[self.number[operators] != UNKNOWN])
        code = self._codes(*numbered)
        return _in_both(*code), _in_both(self.name[nodes], self.name[operators])

    def _codes(self, nodes: Int64s, operators: Int64s) -> tuple[Int64s, Int64s]:
        """One number for each name with its sequence number."""
        rows = np.concatenate([nodes, operators])
        code, _ = distinct(self.name[rows], self.number[rows])
        return code[: len(nodes)], code[len(nodes) :]

    def pair(self, nodes: Int64s, operators: Int64s) -> None:
        """Fills in the operator of each node, and marks the nodes that several operators match."""
        anchors = self._anchors(nodes, operators)
        nested = self._nested(nodes, operators, anchors)
        alignment = nested
        if (nested.index == UNKNOWN).any():
            flat = self._flat(nodes, operators, anchors)
            more = np.count_nonzero(flat.index != UNKNOWN) > np.count_nonzero(nested.index != UNKNOWN)
            if more and not self._nests(nodes, operators, flat):
                alignment = flat
        self._fill(nodes, operators, alignment)

    def _fill(self, nodes: Int64s, operators: Int64s, alignment: Alignment) -> None:
        paired = alignment.index != UNKNOWN
        self.partner[nodes[paired]] = operators[alignment.index[paired]]
        self.ambiguous[nodes[alignment.ambiguous]] = True

    def _flat(self, nodes: Int64s, operators: Int64s, anchors: Int64s) -> Alignment:
        """By names in order; without anchors if that pairs more: then numbers mean different things."""
        names = self.name[nodes], self.name[operators]
        alignment = place(*names, anchors)
        if (anchors != UNKNOWN).any() and (alignment.index == UNKNOWN).any():
            plain = place(*names)
            if np.count_nonzero(plain.index != UNKNOWN) > np.count_nonzero(alignment.index != UNKNOWN):
                return plain
        return alignment

    def _nested(
        self, nodes: Int64s, operators: Int64s, anchors: Int64s, bounded: tuple[bool, bool] = (False, False)
    ) -> Alignment:
        """By names in order, and by what is inside what: the end of an event with others inside is an element too."""
        first, second = (
            _Brackets.of(self.name[rows], _parents(self.caller, rows)) for rows in (nodes, operators)
        )
        known = np.full(len(first.label), UNKNOWN, np.int64)
        rows = np.flatnonzero(anchors != UNKNOWN)
        known[first.begin[rows]] = second.begin[anchors[rows]]
        alignment = _place_between(first.label, second.label, known, bounded)
        index = alignment.index[first.begin]
        paired = index != UNKNOWN
        index[paired] = second.element[index[paired]]
        return Alignment(index, alignment.ambiguous[first.begin])

    def _nests(self, nodes: Int64s, operators: Int64s, alignment: Alignment) -> bool:
        """True if the parents of nodes are around their children in the profile too, with few exceptions."""
        paired = alignment.index != UNKNOWN
        partner = scatter(len(self.partner), nodes[paired], operators[alignment.index[paired]])
        child = nodes[paired]
        child = child[self.caller[child] != UNKNOWN]
        child = child[partner[self.caller[child]] != UNKNOWN]
        inner, outer = partner[child], partner[self.caller[child]]
        inside = (self.start[inner] >= self.start[outer]) & (self.end[inner] <= self.end[outer])
        return bool(inside.mean() >= CERTAIN) if len(child) else False

    def _anchors(self, nodes: Int64s, operators: Int64s) -> Int64s:
        """Index of the operator with the name and sequence number of each node, if both occur equally often."""
        anchors = np.full(len(nodes), UNKNOWN, np.int64)
        rows = np.flatnonzero(self.number[nodes] != UNKNOWN)
        columns = np.flatnonzero(self.number[operators] != UNKNOWN)
        if not len(rows) or not len(columns):
            return anchors
        left, right = self._codes(nodes[rows], operators[columns])
        size = int(max(left.max(), right.max())) + 1
        equal = np.bincount(left, minlength=size) == np.bincount(right, minlength=size)
        rows, columns = rows[equal[left]], columns[equal[right]]
        rows = rows[np.argsort(left[equal[left]], kind="stable")]
        anchors[rows] = columns[np.argsort(right[equal[right]], kind="stable")]
        in_order = ascending(anchors)
        if np.count_nonzero(in_order) < TRUSTED * len(rows):
            in_order[:] = False
        anchors[~in_order] = UNKNOWN
        return anchors

    def pair_meanwhile(self, thread: Int64s, operators: Int64s, nodes: Int64s) -> None:
        """Pairs a thread with what its operators did between the linked nodes before and after, on other threads."""
        inside, bounded = self._meanwhile(thread, operators, nodes)
        if any(bounded):
            anchors = np.full(len(thread), UNKNOWN, np.int64)
            self._fill(thread, inside, self._nested(thread, inside, anchors, bounded))

    def _meanwhile(self, left: Int64s, operators: Int64s, nodes: Int64s) -> tuple[Int64s, tuple[bool, bool]]:
        """The operators that start when those of `left` can start; whether there is a first and a last time."""
        early, late = self._bounds(left[[0, -1]], nodes)
        start = self.start[operators]
        inside = operators[(start >= early[0]) & (start <= late[1])]
        return inside, (bool(early[0] != EARLIEST), bool(late[1] != LATEST))

    def pair_left_over(self, thread: Int64s, by_time: Int64s, nodes: Int64s) -> None:
        """Pairs the remaining nodes of a thread with free operators of any thread."""
        left_over = thread[self.partner[thread] == UNKNOWN]
        if not len(left_over):
            return
        used = np.zeros(len(self.partner), np.bool_)
        used[self.partner[nodes[self.partner[nodes] != UNKNOWN]]] = True
        free = by_time[~used[by_time]]
        free, _ = self._meanwhile(left_over, free[np.isin(self.name[free], self.name[left_over])], nodes)
        alignment = place(self.name[left_over], self.name[free])
        early, late = self._bounds(left_over, nodes)
        index = alignment.index.copy()
        paired = np.flatnonzero(index != UNKNOWN)
        start = self.start[free[index[paired]]]
        index[paired[(start < early[paired]) | (start > late[paired])]] = UNKNOWN
        self._fill(left_over, free, Alignment(index, alignment.ambiguous))

    def _bounds(self, left: Int64s, nodes: Int64s) -> tuple[Int64s, Int64s]:
        """Between which times the operators of these nodes start: those of the linked nodes before and after."""
        start = self.start[self.partner[nodes]]
        linked = self.partner[nodes] != UNKNOWN
        before = np.maximum.accumulate(np.where(linked, start - THREADS_DIFFER, EARLIEST))
        after = np.minimum.accumulate(np.where(linked, start + THREADS_DIFFER, LATEST)[::-1])[::-1]
        index = lookup(nodes, left)
        return before[index], after[index]

    def equal_numbers(self, linked: Int64s) -> int:
        """The number of linked nodes that have the sequence number of their operator."""
        number = self.number[linked]
        return int(np.count_nonzero((number != UNKNOWN) & (number == self.number[self.partner[linked]])))


def _callers(trace: RankTrace, nodes: Int64s, operators: Int64s) -> Int64s:
    """The row of the parent of each node, and of the innermost operator around each operator."""
    events = trace.events
    caller = np.full(len(events), UNKNOWN, np.int64)
    identity, wanted = scoped_pair(trace, trace.key(Key.NODE_ID), trace.key(Key.NODE_PARENT))
    found = lookup(identity, wanted)
    caller[trace.key(Key.NODE_PARENT).rows[found != UNKNOWN]] = trace.key(Key.NODE_ID).rows[
        found[found != UNKNOWN]
    ]
    caller[~_marks(len(events), nodes)] = UNKNOWN
    rows = operators[events.timed[operators]]
    track, start, end = events.track[rows].astype(np.int64), events.start[rows], events.end[rows]
    order = sort_outer_first(track, start, end, -events.kind[rows].astype(np.int64))
    nesting = nest(track[order], start[order], end[order])
    inner = np.flatnonzero(nesting.parent != UNKNOWN)
    caller[rows[order[inner]]] = rows[order[nesting.parent[inner]]]
    return caller


def _place_between(first: Int64s, second: Int64s, anchors: Int64s, bounded: tuple[bool, bool]) -> Alignment:
    """Like `place`; where `second` is bounded, its start or end is known to be near that of `first`."""
    head, tail = map(int, bounded)
    short, long = (np.pad(labels, (head, tail), constant_values=(-2, -3)) for labels in (first, second))
    known = np.pad(np.where(anchors == UNKNOWN, UNKNOWN, anchors + head), (head, tail))
    if tail:
        known[-1] = len(long) - 1
    alignment = place(short, long, known)
    inner = slice(head, head + len(first))
    index = alignment.index[inner]
    return Alignment(np.where(index == UNKNOWN, UNKNOWN, index - head), alignment.ambiguous[inner])


def _marks(length: int, rows: Int64s) -> Bools:
    marks = np.zeros(length, np.bool_)
    marks[rows] = True
    return marks


def _parents(caller: Int64s, rows: Int64s) -> Int64s:
    """The index, in these rows, of the caller of each row; UNKNOWN if it is not before it among them."""
    index = scatter(len(caller) + 1, rows)
    index[UNKNOWN] = UNKNOWN
    parent = index[caller[rows]]
    return np.where(parent < np.arange(len(rows)), parent, UNKNOWN)


class _Brackets(Struct, frozen=True):
    """A sequence in which events with others inside have an end too."""

    label: Int64s
    """Of each begin: twice the name; of each end: the next number."""
    element: Int64s
    """The index of the event of each begin and end."""
    begin: Int64s
    """The index of the begin of each event."""

    @classmethod
    def of(cls, name: Int64s, parent: Int64s) -> _Brackets:
        """The sequence for events in the order in which they begin."""
        last = np.arange(len(name)).tolist()
        outer = parent.tolist()
        for inner in range(len(last) - 1, -1, -1):
            if outer[inner] != UNKNOWN and last[outer[inner]] < last[inner]:
                last[outer[inner]] = last[inner]
        begins = np.arange(len(name))
        ends = np.flatnonzero(np.array(last, np.int64) > begins)
        at = np.concatenate([begins, np.array(last, np.int64)[ends]])
        is_end = np.concatenate([np.zeros(len(begins), np.int64), np.ones(len(ends), np.int64)])
        element = np.concatenate([begins, ends])
        order = np.lexsort((-element, is_end, at))
        begin = np.empty(len(name), np.int64)
        begin[element[order[is_end[order] == 0]]] = np.flatnonzero(is_end[order] == 0)
        return cls((2 * name[element] + is_end)[order], element[order], begin)


def _in_both(first: Int64s, second: Int64s) -> int:
    """The number of elements that two collections have in common, in any order."""
    if not len(first) or not len(second):
        return 0
    size = int(max(first.max(), second.max())) + 1
    return int(np.minimum(np.bincount(first, minlength=size), np.bincount(second, minlength=size)).sum())


def _by_start(trace: RankTrace, operators: Int64s) -> Int64s:
    """By External id, which counts operators as they start; by time if the two orders contradict each other."""
    events = trace.events
    external = trace.key(Key.EXTERNAL_ID).dense(len(events), 0)
    by_time = operators[np.lexsort((external[operators], -events.end[operators], events.start[operators]))]
    by_id = operators[np.argsort(external[operators], kind="stable")]
    for track in np.unique(events.track[operators]):
        starts = events.start[by_id[events.track[by_id] == track]]
        if np.any(np.diff(starts) < 0):
            return by_time
    return by_id


# Where a recording is in a longer one. Pairs between two anchors are found by alignment; before the first anchor and
# after the last, elements near the anchor are preferred, because a recording has no gaps.


def place(first: Int64s, second: Int64s, anchors: Int64s | None = None, most: int = MOST_EDITS) -> Alignment:
    """Pairs each element of `first` with an equal one of `second`, in order.

    Args:
        first: Labels of the short sequence.
        second: Labels of the long sequence.
        anchors: For each element of `first` its known partner, in ascending order, else UNKNOWN.
        most: Edits that one alignment may need; what differs more is split at runs that both sequences have once.
    """
    index = np.full(len(first), UNKNOWN, np.int64)
    ambiguous = np.zeros(len(first), np.bool_)
    rows, columns = np.flatnonzero(_in(first, second)), np.flatnonzero(_in(second, first))
    known = np.full(len(rows), UNKNOWN, np.int64)
    if anchors is not None:
        known = anchors[rows]
        kept = known != UNKNOWN
        known[kept] = np.searchsorted(columns, known[kept])
    alignment = _place(first[rows], second[columns], known, most)
    paired = alignment.index != UNKNOWN
    index[rows[paired]] = columns[alignment.index[paired]]
    ambiguous[rows] = alignment.ambiguous
    return Alignment(index, ambiguous)


def ascending(partner: Int64s) -> Bools:
    """A longest choice of the known partners that is in ascending order; the others are UNKNOWN or contradict it."""
    known = np.flatnonzero(partner != UNKNOWN)
    chosen = np.zeros(len(partner), np.bool_)
    if np.all(np.diff(partner[known]) > 0):
        chosen[known] = True
        return chosen
    tails: list[int] = []
    last: list[int] = []
    previous = []
    for position, value in enumerate(partner[known].tolist()):
        length = bisect_left(tails, value)
        previous.append(last[length - 1] if length else UNKNOWN)
        if length == len(tails):
            tails.append(value)
            last.append(position)
        else:
            tails[length], last[length] = value, position
    position = last[-1]
    while position != UNKNOWN:
        chosen[known[position]] = True
        position = previous[position]
    return chosen


def _in(labels: Int64s, others: Int64s) -> Bools:
    """Labels that the other sequence has too: the others cannot be paired, and would only cost edits."""
    found: Bools = np.isin(labels, others)
    return found


def _place(first: Int64s, second: Int64s, anchors: Int64s, most: int) -> Alignment:
    if (anchors != UNKNOWN).any():
        return _around(first, second, anchors, most)
    occurrences = _occurrences(first, second)
    if len(occurrences) == 1:
        return Alignment(occurrences[0] + np.arange(len(first)), np.zeros(len(first), np.bool_))
    if len(occurrences):
        return Alignment(np.full(len(first), UNKNOWN, np.int64), np.ones(len(first), np.bool_))
    alignment = align(first, second, most)
    if not alignment.exceeded:
        return alignment
    for length in RUN_LENGTHS:
        anchors = _common_runs(first, second, length)
        if (anchors != UNKNOWN).any():
            return _around(first, second, anchors, most)
    return alignment


def _around(first: Int64s, second: Int64s, anchors: Int64s, most: int) -> Alignment:
    """Alignments of the gaps between anchors, and from the outermost anchors outwards."""
    index, ambiguous = anchors.copy(), np.zeros(len(first), np.bool_)
    fixed = np.flatnonzero(anchors != UNKNOWN)
    rows = np.concatenate([[-1], fixed, [len(first)]])
    columns = np.concatenate([[-1], anchors[fixed], [len(second)]])
    wide = np.flatnonzero((np.diff(rows) > 1) & (np.diff(columns) > 1))
    for gap in wide.tolist():
        begin, column = rows[gap] + 1, columns[gap] + 1
        short, long = first[begin : rows[gap + 1]], second[column : columns[gap + 1]]
        if gap == 0:
            part = _outward(short[::-1], long[::-1], most)
            inward = np.where(part.index == UNKNOWN, UNKNOWN, len(long) - 1 - part.index)
            part = Alignment(inward[::-1], part.ambiguous[::-1])
        elif gap == len(fixed):
            part = _outward(short, long, most)
        else:
            part = place(short, long, None, most)
        paired = np.flatnonzero(part.index != UNKNOWN)
        index[begin + paired] = column + part.index[paired]
        ambiguous[begin : rows[gap + 1]] = part.ambiguous
    return Alignment(index, ambiguous)


def _outward(first: Int64s, second: Int64s, most: int) -> Alignment:
    """The alignment of what follows an anchor; `second` may go on."""
    alignment = align_start(first, second, most)
    return place(first, second, None, most) if alignment is None else alignment


def _occurrences(first: Int64s, second: Int64s) -> Int64s:
    """The positions in `second` from which it contains all of `first` without a gap."""
    if not 0 < len(first) <= len(second):
        return np.empty(0, np.int64)
    hashes = run_hashes(second, len(first), len(second))
    return np.flatnonzero(hashes == run_hashes(first, len(first), len(second))[0])


def _common_runs(first: Int64s, second: Int64s, length: int) -> Int64s:
    """The partners of elements where a run that both sequences have once ends, and another such run starts.

    One run is not enough: in a run of equal elements of which one is missing, its end would decide which one.
    """
    starts = np.full(len(first), UNKNOWN, np.int64)
    if min(len(first), len(second)) < length:
        return starts
    longest = max(len(first), len(second))
    short, rows = _once(run_hashes(first, length, longest))
    long, columns = _once(run_hashes(second, length, longest))
    _, at, other = np.intersect1d(short, long, assume_unique=True, return_indices=True)
    starts[rows[at]] = columns[other]
    partner = np.full(len(first), UNKNOWN, np.int64)
    before = starts[: len(first) - length + 1]
    partner[length - 1 :] = np.where(before == UNKNOWN, UNKNOWN, before + length - 1)
    partner[partner != starts] = UNKNOWN
    partner[~ascending(partner)] = UNKNOWN
    return partner


def _once(hashes: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """The hashes that occur once, and where."""
    values, index, count = np.unique(hashes, return_index=True, return_counts=True)
    return values[count == 1], index[count == 1]
