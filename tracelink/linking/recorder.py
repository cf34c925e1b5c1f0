"""Same: recorder entry and operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.linking.communicating import Words
from tracelink.linking.links import Links
from tracelink.model.columns import UNKNOWN, Bools, Int64s, lookup, values_at
from tracelink.model.communications import Communications
from tracelink.model.events import ON_THREAD, Edges, EventKind, Relation
from tracelink.model.graph import LinkReport
from tracelink.model.operations import COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.model.trace import RankTrace

# Calls and flight-recorder entries that have the same number in the same group.


def numbers_of(group: Any, point_to_point: Any, sequence: Any) -> Int64s:
    """One value for each number of each group, of collectives and of messages; UNKNOWN where any is not known."""
    known = (group != UNKNOWN) & (sequence != UNKNOWN)
    number = (sequence.astype(np.int64) << 24 | group.astype(np.int64)) << 1 | point_to_point
    return np.where(known, number, UNKNOWN)


def by_number(table: Communications, records: Int64s, told: Mapping[str, Any], open_calls: Int64s) -> Int64s:
    """For each of `open_calls` the record of the same number, or UNKNOWN."""
    numbers = numbers_of(told["group"], told["point_to_point"], told["sequence"])[open_calls]
    return values_at(records, paired(numbers, numbers_said(table, records)))


def numbers_said(table: Communications, rows: Int64s) -> Int64s:
    """The numbers that events give themselves."""
    said = lookup(table.row, rows)
    group, sequence = values_at(table.group, said), values_at(table.sequence, said)
    return numbers_of(group, values_at(table.point_to_point, said, False), sequence)


def paired(ours: Int64s, theirs: Int64s) -> Int64s:
    """For each of our numbers its place among theirs, or UNKNOWN.

    Where several have one number they were issued as one, and are the same in order if they are as many.
    """
    values, place = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    mine, other = place[: len(ours)], place[len(ours) :]
    as_many = np.bincount(mine, minlength=len(values)) == np.bincount(other, minlength=len(values))
    turn, other_turn = _turns(mine), _turns(other)
    most = int(max(turn.max(initial=0), other_turn.max(initial=0))) + 1
    found = lookup(other * most + other_turn, mine * most + turn)
    return np.where((ours != UNKNOWN) & as_many[mine], found, UNKNOWN)


def _turns(values: Int64s) -> Int64s:
    """How many of the same value stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turns = np.empty(len(values), np.int64)
    turns[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turns


# *same*: a flight-recorder entry, the operator that made it, and the kernels which that operator launched.


DEEPEST = 16
"""Collective operators enclose each other a few deep at most; further back none is still running."""


@dataclass(frozen=True, slots=True)
class _Thread:
    """The collective operators of one thread, by start; operators that enclose others come before them."""

    rows: list[int]
    start: Int64s
    end: Int64s
    names: Sequence[str]

    def holding(self, time: int) -> Iterator[int]:
        """Positions of the operators whose interval holds `time`, innermost first."""
        last = int(np.searchsorted(self.start, time, side="right"))
        for position in range(last - 1, max(last - DEEPEST, 0) - 1, -1):
            if self.end[position] >= time:
                yield position


def link_recorder(trace: RankTrace) -> Links:
    """Entry to the operator of its number, else to the one on whose interval its creation time falls."""
    events = trace.events
    entries = np.flatnonzero(events.of_kind(EventKind.RECORD) & events.timed)
    inside = entries[profiled(trace, events.start[entries])]
    operator = _by_number(trace, inside)
    numbered = int(np.count_nonzero(operator != UNKNOWN))
    if numbered < len(inside):
        _by_time(trace, inside, operator)
    linked = operator != UNKNOWN
    edges = Edges.of(Relation.SAME, inside[linked], operator[linked])
    missing, outside = len(inside) - len(edges), len(entries) - len(inside)
    notes = {
        "entries from outside the profiled time": outside if events.of_kind(*ON_THREAD).any() else 0,
        "linked by number": numbered,
    }
    report = LinkReport(
        "same.recorder_kineto",
        linked=len(edges),
        candidates=len(inside),
        unlinked={"no collective operator holds its creation time": missing} if missing else {},
        notes={note: count for note, count in notes.items() if count},
    )
    return Links(edges, report)


def _by_number(trace: RankTrace, entries: Int64s) -> Int64s:
    """The operator of the same number in the same group, where profiles number them; or UNKNOWN."""
    table, words = trace.communications, Words(trace.strings)
    numbered = (table.sequence != UNKNOWN) & (trace.events.kind[table.row] == EventKind.OPERATOR)
    numbered &= ~words.only_waits(table.operation)
    rows = table.row[numbered]
    found: Int64s = values_at(rows, paired(numbers_said(table, entries), numbers_said(table, rows)))
    return found


def _by_time(trace: RankTrace, entries: Int64s, operator: Int64s) -> None:
    """Fills in the operators that ran when entries were created."""
    threads, texts = _threads(trace), trace.strings.texts()
    for place in np.flatnonzero(operator == UNKNOWN).tolist():
        entry = entries[place]
        row = _operator_of(int(trace.events.start[entry]), texts[trace.events.name[entry]], threads)
        operator[place] = UNKNOWN if row is None else row


def link_recorder_kernels(trace: RankTrace, recorded: Edges, launches: Edges) -> Links:
    """Entry to the collective kernels launched on its operator's thread while the operator ran."""
    events = trace.events
    kernel = Words(trace.strings).matching(COLLECTIVE_KERNEL, events.name[launches.target])
    call, work = launches.source[kernel], launches.target[kernel]
    order = np.argsort(events.start[call], kind="stable")
    call, work = call[order], work[order]
    source: list[int] = []
    target: list[int] = []
    first = np.searchsorted(events.start[call], events.start[recorded.target])
    last = np.searchsorted(events.start[call], events.end[recorded.target], side="right")
    for entry, operator, begin, end in zip(
        recorded.source.tolist(), recorded.target.tolist(), first.tolist(), last.tolist(), strict=True
    ):
        same_thread = events.track[call[begin:end]] == events.track[operator]
        found = work[begin:end][same_thread].tolist()
        source += [entry] * len(found)
        target += found
    edges = Edges.of(Relation.SAME, np.array(source, np.int64), np.array(target, np.int64))
    candidates = len(recorded) if len(work) else 0
    with_kernel = len(set(source))
    none = candidates - with_kernel
    reasons = {"its operator launched no collective kernel": none} if none else {}
    return Links(edges, LinkReport("same.recorder_kernel", with_kernel, candidates, reasons))


def profiled(trace: RankTrace, time: Int64s) -> Bools:
    """Whether each time lies between the first and the last thing that a profile saw on a thread."""
    events = trace.events
    inside = np.zeros(len(time), np.bool_)
    if not len(time):
        return inside
    seen = events.of_kind(*ON_THREAD) & events.timed
    for source in np.unique(events.source[seen]):
        chosen = seen & (events.source == source)
        inside |= (time >= events.start[chosen].min()) & (time <= events.end[chosen].max())
    return inside


def _threads(trace: RankTrace) -> list[_Thread]:
    texts = trace.strings.texts()
    named = np.array([bool(COLLECTIVE_OPERATOR.search(text)) for text in texts] or [False], np.bool_)
    events = trace.events
    rows = np.flatnonzero(events.of_kind(EventKind.OPERATOR) & named[events.name] & events.timed)
    rows = rows[np.lexsort((-events.end[rows], events.start[rows], events.track[rows]))]
    threads = []
    for track in np.unique(events.track[rows]):
        chosen = rows[events.track[rows] == track]
        names = [texts[code] for code in events.name[chosen].tolist()]
        threads.append(_Thread(chosen.tolist(), events.start[chosen], events.end[chosen], names))
    return threads


def _operator_of(time: int, name: str, threads: Sequence[_Thread]) -> int | None:
    """The innermost operator around `time`; where several threads have one, one that does what the entry says."""
    around = [
        (_same_operation(name, thread.names[place]), int(thread.start[place]), thread.rows[place])
        for thread in threads
        if (place := next(thread.holding(time), None)) is not None
    ]
    return max(around)[2] if around else None


def _same_operation(entry: str, operator: str) -> bool:
    return _plain(entry.rsplit(":", 1)[-1]) in _plain(operator.rsplit(":", 1)[-1])


def _plain(name: str) -> str:
    return name.replace("_", "").split(" ", 1)[0].lower()
