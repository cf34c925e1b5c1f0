"""*same*: a flight-recorder entry, the operator that made it, and the kernels that the operator launched.

Also matches calls with entries that have the same sequence number in the same group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink._link.call_events import Vocabulary
from tracelink._model.columns import UNKNOWN, Bools, Int64s, lookup, values_at
from tracelink._model.communications import Communications
from tracelink._model.events import ON_THREAD, Edges, EventKind, Relation
from tracelink._model.graph import LinkReport, Links, nonzero
from tracelink._model.operations import COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink._model.trace import RankTrace

# Sequence numbers: calls and entries with the same number in the same group.


def _sequence_keys(group: Any, point_to_point: Any, sequence: Any) -> Int64s:
    """One value for each group, kind (collective or message) and number; UNKNOWN if group or number is unknown."""
    known = (group != UNKNOWN) & (sequence != UNKNOWN)
    number = (sequence.astype(np.int64) << 24 | group.astype(np.int64)) << 1 | point_to_point
    return np.where(known, number, UNKNOWN)


def records_by_number(
    table: Communications, records: Int64s, attributes: Mapping[str, Any], open_calls: Int64s
) -> Int64s:
    """For each of `open_calls` the record with the same number, or UNKNOWN."""
    numbers = _sequence_keys(attributes["group"], attributes["point_to_point"], attributes["sequence"])[
        open_calls
    ]
    return values_at(records, _match_keys(numbers, _declared_numbers(table, records)))


def _declared_numbers(table: Communications, rows: Int64s) -> Int64s:
    """The keys of the numbers that events state."""
    statement = lookup(table.row, rows)
    group, sequence = values_at(table.group, statement), values_at(table.sequence, statement)
    return _sequence_keys(group, values_at(table.point_to_point, statement, False), sequence)


def _match_keys(keys: Int64s, other_keys: Int64s) -> Int64s:
    """For each key the index of the same key in `other_keys`, or UNKNOWN.

    Several with one key were issued together, and match in order if there are equally many on both sides.
    """
    values, index = np.unique(np.concatenate([keys, other_keys]), return_inverse=True)
    code, other_code = index[: len(keys)], index[len(keys) :]
    as_many = np.bincount(code, minlength=len(values)) == np.bincount(other_code, minlength=len(values))
    turn, other_turn = _turns(code), _turns(other_code)
    most = int(max(turn.max(initial=0), other_turn.max(initial=0))) + 1
    found = lookup(other_code * most + other_turn, code * most + turn)
    return np.where((keys != UNKNOWN) & as_many[code], found, UNKNOWN)


def _turns(values: Int64s) -> Int64s:
    """How many equal values come before each one."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turns = np.empty(len(values), np.int64)
    turns[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turns


# The linkers.


DEEPEST = 16
"""The most collective operators that are looked back for one that is still running: few enclose each other."""


class _Thread(Struct, frozen=True):
    """The collective operators of one thread, by start; an operator comes before those that it encloses."""

    rows: list[int]
    start: Int64s
    end: Int64s
    names: Sequence[str]

    def running(self, time: int) -> Iterator[int]:
        """Positions of the operators that run at `time`, innermost first."""
        last = int(np.searchsorted(self.start, time, side="right"))
        for position in range(last - 1, max(last - DEEPEST, 0) - 1, -1):
            if self.end[position] >= time:
                yield position


def link_recorder(trace: RankTrace) -> Links:
    """Entry to the operator with its number, else to the operator that ran when it was created."""
    events = trace.events
    entries = np.flatnonzero(events.of_kind(EventKind.RECORD) & events.timed)
    inside = entries[profiled(trace, events.start[entries])]
    operator = _by_number(trace, inside)
    numbered = int(np.count_nonzero(operator != UNKNOWN))
    if numbered < len(inside):
        _by_time(trace, inside, operator)
    linked = operator != UNKNOWN
    edges = Edges.of_relation(Relation.SAME, inside[linked], operator[linked])
    missing, outside = len(inside) - len(edges), len(entries) - len(inside)
    notes = {
        "entries outside the profiled time": outside if events.of_kind(*ON_THREAD).any() else 0,
        "linked by number": numbered,
    }
    report = LinkReport(
        "same.recorder_kineto",
        linked=len(edges),
        candidates=len(inside),
        unlinked=nonzero({"no collective operator ran when it was created": missing}),
        notes=nonzero(notes),
    )
    return Links(edges, report)


def _by_number(trace: RankTrace, entries: Int64s) -> Int64s:
    """The operator with the same number in the same group, or UNKNOWN; not all profiles have numbers."""
    table, vocabulary = trace.communications, Vocabulary(trace.strings)
    numbered = (table.sequence != UNKNOWN) & (trace.events.kind[table.row] == EventKind.OPERATOR)
    numbered &= ~vocabulary.moves_no_data(table.operation)
    rows = table.row[numbered]
    found: Int64s = values_at(
        rows, _match_keys(_declared_numbers(table, entries), _declared_numbers(table, rows))
    )
    return found


def _by_time(trace: RankTrace, entries: Int64s, operator: Int64s) -> None:
    """Fills in the operator that ran when each entry was created."""
    threads, texts = _threads(trace), trace.strings.texts()
    for index in np.flatnonzero(operator == UNKNOWN).tolist():
        entry = entries[index]
        row = _operator_of(int(trace.events.start[entry]), texts[trace.events.name[entry]], threads)
        operator[index] = UNKNOWN if row is None else row


def link_recorder_kernels(trace: RankTrace, recorded: Edges, launches: Edges) -> Links:
    """Entry to the collective kernels that were launched on its operator's thread while the operator ran."""
    events = trace.events
    kernel = Vocabulary(trace.strings).matches(COLLECTIVE_KERNEL, events.name[launches.target])
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
    edges = Edges.of_relation(Relation.SAME, np.array(source, np.int64), np.array(target, np.int64))
    candidates = len(recorded) if len(work) else 0
    with_kernel = len(set(source))
    without_kernel = candidates - with_kernel
    reasons = nonzero({"its operator launched no collective kernel": without_kernel})
    return Links(edges, LinkReport("same.recorder_kernel", with_kernel, candidates, reasons))


def profiled(trace: RankTrace, time: Int64s) -> Bools:
    """Whether each time is between the first and the last event of a profile's threads."""
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
    """The innermost operator at `time`; of several threads one with the operation of the entry."""
    around = [
        (_same_operation(name, thread.names[position]), int(thread.start[position]), thread.rows[position])
        for thread in threads
        if (position := next(thread.running(time), None)) is not None
    ]
    return max(around)[2] if around else None


def _same_operation(entry: str, operator: str) -> bool:
    return _plain(entry.rsplit(":", 1)[-1]) in _plain(operator.rsplit(":", 1)[-1])


def _plain(name: str) -> str:
    return name.replace("_", "").split(" ", 1)[0].lower()
