"""The annotations around the work of CPU backends, which runs on threads of its own, and the calls they are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int32s, Int64s, Key
from tracelink.linking.calls_draft import Draft
from tracelink.linking.communicating import Words, as_gloo_does
from tracelink.linking.joins import NONE, lookup, values_at
from tracelink.linking.recorder import profiled
from tracelink.trace import RankTrace

TOLD = ("operation", "group", "elements_in", "type")

MOST_WAITING = 256
"""Calls of one operation that can wait for their work at a time; older ones were never annotated."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """For each annotation the call that it is of, or NONE, and how many were found in which way."""

    call: Int64s
    by_identity: int
    by_order: int

    @classmethod
    def none(cls) -> Pairing:
        """There was nothing to pair."""
        return cls(np.empty(0, np.int64), 0, 0)


def pair_annotations(
    trace: RankTrace, words: Words, draft: Draft, told: Mapping[str, Any], rows: Int64s
) -> Pairing:
    """Annotations on threads that issue nothing, and the calls that wait for such work."""
    waiting = np.flatnonzero((draft.annotation == NONE) & (draft.kernel == NONE))
    begun = np.where(draft.operator != NONE, draft.operator, draft.record)[waiting]
    waiting = waiting[profiled(trace, values_at(trace.events.start, begun, NO_TIME))]
    calls = _issued(trace, words, draft.take(waiting), {name: told[name][waiting] for name in TOLD})
    annotations = _annotated(trace, words, rows)
    found = _by_identity(trace, calls, annotations)
    identified = int(np.count_nonzero(found != NONE))
    free = np.setdiff1d(np.arange(len(waiting)), found)
    ordered = _by_order(calls, annotations, free, np.flatnonzero(found == NONE))
    found = np.where(found == NONE, ordered, found)
    call = np.where(found == NONE, NONE, values_at(waiting, found))
    return Pairing(call, identified, int(np.count_nonzero(found != NONE)) - identified)


@dataclass(frozen=True, slots=True)
class Work:
    """Things that stand for one communication each, as calls see them or as annotations do."""

    rows: Int64s
    start: Int64s
    thread: Int64s
    operation: Int32s
    group: Int32s
    elements: Int64s
    type: Int32s


def _issued(trace: RankTrace, words: Words, draft: Draft, told: Mapping[str, Any]) -> Work:
    """Calls by the operation that their annotation will name."""
    events = trace.events
    rows = np.where(draft.operator != NONE, draft.operator, draft.record)
    operation, elements = as_gloo_does(words, told["operation"], told["elements_in"])
    track = events.track[rows].astype(np.int64)
    return Work(rows, events.start[rows], track, operation, told["group"], elements, told["type"])


def _annotated(trace: RankTrace, words: Words, rows: Int64s) -> Work:
    """Annotations by what they say themselves."""
    events, table = trace.events, trace.communications
    said = lookup(table.row, rows)
    operation, elements = as_gloo_does(
        words, words.operations(events.name[rows]), values_at(table.elements_in, said)
    )
    track = events.track[rows].astype(np.int64)
    unknown = np.full(len(rows), UNKNOWN, np.int32)
    return Work(rows, events.start[rows], track, operation, unknown, elements, values_at(table.type, said))


def _by_identity(trace: RankTrace, calls: Work, annotations: Work) -> Int64s:
    """For each annotation the call that issued it, or NONE: the profiler numbers both where they are issued.

    The number of an annotation that runs elsewhere lies between those of the operator that issued it and of
    whatever its thread does after that operator.
    """
    numbers = trace.key(Key.RECORD_FUNCTION)
    numbers = numbers.where(numbers.values > 0)
    wanted = values_at(numbers.values, lookup(numbers.rows, annotations.rows))
    own = values_at(numbers.values, lookup(numbers.rows, calls.rows))
    found = np.full(len(annotations.rows), NONE, np.int64)
    nearest = np.full(len(annotations.rows), NONE, np.int64)
    for thread in np.unique(calls.thread[own != NONE]):
        place = np.flatnonzero((calls.thread == thread) & (own != NONE))
        place = place[np.argsort(own[place], kind="stable")]
        last = np.searchsorted(own[place], wanted) - 1
        call = np.where(last == NONE, NONE, place[last])
        next_number = _number_after(trace, int(thread), numbers.rows, numbers.values, calls.rows[call])
        fits = (wanted != NONE) & (last != NONE) & (wanted < next_number)
        fits &= (annotations.operation == calls.operation[call]) & (own[call] > nearest)
        found[fits], nearest[fits] = call[fits], own[call[fits]]
    return found


def _number_after(trace: RankTrace, thread: int, rows: Int64s, values: Int64s, operators: Int64s) -> Int64s:
    """The number of what begins on a thread after each operator has ended."""
    events = trace.events
    here = np.flatnonzero(events.track[rows] == thread)
    here = here[np.argsort(events.start[rows[here]], kind="stable")]
    after = np.searchsorted(events.start[rows[here]], events.end[operators])
    following: Int64s = np.append(values[here], np.iinfo(np.int64).max)[after]
    return following


@dataclass(slots=True)
class _Waiting:
    """Calls that have been issued by a time and have no annotation yet, by operation and in order."""

    calls: Work
    places: list[int]
    next: int = 0
    by_operation: dict[int, list[int]] = field(default_factory=dict)

    def until(self, time: int) -> None:
        """Lets in what is issued by `time`."""
        while self.next < len(self.places) and self.calls.start[self.places[self.next]] <= time:
            place = self.places[self.next]
            queue = self.by_operation.setdefault(int(self.calls.operation[place]), [])
            queue.append(place)
            del queue[:-MOST_WAITING]
            self.next += 1

    def like(self, annotations: Work, index: int) -> Iterator[int]:
        """Places of the calls that an annotation can be of, the oldest first."""
        for place in self.by_operation.get(int(annotations.operation[index]), ()):
            if all(
                theirs[place] == ours[index] or UNKNOWN in (theirs[place], ours[index])
                for theirs, ours in (
                    (self.calls.elements, annotations.elements),
                    (self.calls.type, annotations.type),
                )
            ):
                yield place

    def done(self, place: int) -> None:
        """A call has its annotation."""
        self.by_operation[int(self.calls.operation[place])].remove(place)


def _by_order(calls: Work, annotations: Work, open_calls: Int64s, open_annotations: Int64s) -> Int64s:
    """For each annotation the oldest call that it can be of, or NONE; `open_…` are the places still unpaired.

    Every group has threads of its own, which take its work in the order of issue.
    """
    found = np.full(len(annotations.rows), NONE, np.int64)
    if not len(open_annotations):
        return found
    order = open_calls[np.argsort(calls.start[open_calls], kind="stable")].tolist()
    turns = open_annotations[np.argsort(annotations.start[open_annotations], kind="stable")].tolist()
    group_of = _groups_of_threads(calls, annotations, order, turns)
    waiting = _Waiting(calls, order)
    for index in turns:
        waiting.until(int(annotations.start[index]))
        group = group_of.get(int(annotations.thread[index]), UNKNOWN)
        for place in waiting.like(annotations, index):
            if UNKNOWN in (group, calls.group[place]) or int(calls.group[place]) == group:
                found[index] = place
                waiting.done(place)
                break
    return found


def _groups_of_threads(calls: Work, annotations: Work, order: list[int], turns: list[int]) -> dict[int, int]:
    """The group that each thread works for, learned from annotations that can be of one call only.

    Where there are several calls it is not known which of them still waits, until none does.
    """
    waiting = _Waiting(calls, order)
    votes: Counter[tuple[int, int]] = Counter()
    unsure: set[tuple[int, int]] = set()
    for index in turns:
        waiting.until(int(annotations.start[index]))
        places = list(waiting.like(annotations, index))
        if not places:
            continue
        what = int(annotations.operation[index]), int(annotations.elements[index])
        group = int(calls.group[places[0]])
        waiting.done(places[0])
        if len(places) > 1:
            unsure.add(what)
        elif what in unsure:
            unsure.remove(what)
        elif group != UNKNOWN:
            votes[int(annotations.thread[index]), group] += 1
    return {thread: group for (thread, group), _ in reversed(votes.most_common())}
