"""Clocks of recorders: by how much they differ, and how long work has been unfinished by any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.participation import DumpTimes, highest
from tracelink._hang.facts.sets import Earlier
from tracelink._hang.facts.waits import Wait, WaitOrder, index_waits
from tracelink._model.columns import (
    MILLISECOND,
    NO_TIME,
    SECOND,
    UNKNOWN,
    Bools,
    Float64s,
    Int64s,
    ranges,
    stable_order,
    starts_of,
)
from tracelink._model.communications import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER
from tracelink._model.operations import peers_of
from tracelink._model.text import duration

if TYPE_CHECKING:
    from networkx import DiGraph


# From waits to causes.


class Cause(Struct, frozen=True):
    """A wait for ranks that do not wait themselves, or a cycle of waits."""

    waits: Sequence[Wait]
    """One wait; all waits of the cycle for a deadlock."""
    culprits: tuple[int, ...]
    """Awaited ranks that do not wait; empty if all ranks have joined, and for a deadlock."""
    waiting: tuple[int, ...]
    """Ranks that wait because of it, directly or indirectly."""


def causes_of(waits: Sequence[Wait]) -> list[Cause]:
    """The causes of all waits, sorted by the time at which ranks began to wait."""
    inside = index_waits(waits)
    free = [tuple(rank for rank in wait.awaited if rank not in inside) for wait in waits]
    waits_for = [
        (number, other)
        for number, wait in enumerate(waits)
        for rank in wait.awaited
        for other in inside.get(rank, ())
    ]
    # Importing networkx takes longer than reading the dumps of ten ranks: only if ranks wait for waiting ranks.
    causes = (
        _cycles_and_ends(waits, free, waits_for)
        if waits_for
        else [
            Cause([wait], culprits, tuple(sorted(wait.rows)))
            for wait, culprits in zip(waits, free, strict=True)
        ]
    )
    return sorted(causes, key=lambda cause: cause.waits[0].created)


def _cycles_and_ends(
    waits: Sequence[Wait], free: Sequence[tuple[int, ...]], waits_for: Sequence[tuple[int, int]]
) -> list[Cause]:
    import networkx

    graph: DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(range(len(waits)))
    graph.add_edges_from(waits_for)
    causes = []
    for component in networkx.strongly_connected_components(graph):
        cycle = sorted(component, key=lambda number: (-len(waits[number].rows), waits[number].created))
        leaves = any(other not in component for number in cycle for other in graph.successors(number))
        waiting = _waiting(graph, waits, cycle)
        open_ended = [number for number in cycle if free[number]]
        causes += [Cause([waits[number]], free[number], waiting) for number in open_ended]
        if not open_ended and not leaves:
            causes.append(Cause([waits[number] for number in cycle], (), waiting))
    return causes


def _waiting(graph: DiGraph[int], waits: Sequence[Wait], cycle: Sequence[int]) -> tuple[int, ...]:
    from networkx import ancestors

    behind = {*cycle, *chain.from_iterable(ancestors(graph, number) for number in cycle)}
    return tuple(sorted({rank for number in behind for rank in waits[number].rows}))


def merge_causes(causes: Sequence[Cause], order: WaitOrder) -> list[Cause]:
    """Each culprit once, with the first collective that it did not join; other waits for it are merged."""
    remaining = _narrowed([cause for cause in causes if cause.culprits])
    kept = [cause for cause in causes if not cause.culprits]
    while remaining:
        same_culprits = [cause for cause in remaining if set(cause.culprits) & set(remaining[0].culprits)]
        waits = [cause.waits[0] for cause in same_culprits]
        first = same_culprits[order.earliest(waits, without=remaining[0].culprits)]
        waiting = {rank for cause in same_culprits for rank in cause.waiting}
        kept.append(Cause(first.waits, first.culprits, tuple(sorted(waiting))))
        blamed = set(first.culprits)
        rest = [
            Cause(cause.waits, tuple(rank for rank in cause.culprits if rank not in blamed), cause.waiting)
            for cause in remaining
        ]
        remaining = [cause for cause in rest if cause.culprits]
    return sorted(kept, key=lambda cause: cause.waits[0].created)


def _narrowed(causes: Sequence[Cause]) -> list[Cause]:
    """Merges causes of which at least one rank must be the culprit into causes that name fewer of these ranks."""
    kept: list[Cause] = []
    for cause in sorted(causes, key=lambda cause: (not cause.waits[0].absent, len(cause.culprits))):
        narrower = [other for other in kept if set(other.culprits) < set(cause.culprits)]
        if cause.waits[0].absent or not narrower:
            kept.append(cause)
            continue
        first = kept.index(narrower[0])
        waiting = tuple(sorted({*kept[first].waiting, *cause.waiting}))
        kept[first] = Cause(kept[first].waits, kept[first].culprits, waiting)
    return sorted(kept, key=lambda cause: cause.waits[0].created)


NEWEST = 256
"""How many of the newest entries of each rank are used: a few steps; over longer times clocks drift."""
MOST_COLLECTIVES = 32
"""How many of the newest collectives of a group are used: a rank is on time in a quarter of them."""
NEARLY_ALWAYS = 0.25
"""Quantile of lags: a clock that is ahead is ahead in all collectives, a late rank is late in some.

With two ranks it cannot be known which of them is late.
"""


# Lags of ranks.


class Lags(Struct, frozen=True):
    """For each rank of the journal how much later its times are than those of others."""

    lag: Float64s
    """In ns."""
    component: Int64s
    """Lags are comparable where these are equal."""


def lags_of(journal: Journal, most: int = MOST_COLLECTIVES) -> Lags:
    """Lags from the times at which ranks joined the `most` newest collectives of each group, group by group."""
    lag, component = np.zeros(len(journal.ranks)), np.arange(len(journal.ranks))
    for ranks, times in _arrivals_by_group(journal, most):
        components, count = np.unique(component[ranks], return_counts=True)
        if len(components) == 1:
            continue
        corrected = times - lag[ranks]
        largest = component[ranks] == components[count.argmax()]
        reference = largest if count.max() > 1 else np.ones(len(ranks), np.bool_)
        later = corrected - np.median(corrected[:, reference], axis=1)[:, None]
        shift = np.quantile(later, NEARLY_ALWAYS if len(ranks) > 2 else 0.5, axis=0)
        for number in components.tolist():
            members = component[ranks] == number
            if not (largest & members).any() or reference.all():
                lag[component == number] += np.median(shift[members])
        component[np.isin(component, components)] = components[0]
    return Lags(lag, component)


def _arrivals_by_group(journal: Journal, most: int) -> Iterator[tuple[Int64s, Float64s]]:
    """For each group, the largest first: its rank indexes, and their arrival times, a row for each collective."""
    rows = _newest(journal)
    if not len(rows):
        return
    rows = rows[stable_order(journal.records.group[rows])]
    groups = np.split(rows, starts_of(journal.records.group[rows])[1:])
    ranks = [np.unique(np.searchsorted(journal.ranks, journal.rank[group])) for group in groups]
    for number in sorted(range(len(groups)), key=lambda number: -len(ranks[number])):
        if len(ranks[number]) > 1:
            times = _arrivals(journal, groups[number], ranks[number])[-most:]
            if len(times):
                yield ranks[number], times


def _newest(journal: Journal) -> Int64s:
    """The newest entries of each rank that show when it joined a collective."""
    records, ends = journal.records, journal.bounds[1:]
    lengths = np.minimum(np.diff(journal.bounds), NEWEST)
    rows = ranges(ends - lengths, lengths)
    known = (records.sequence[rows] >= 0) & (records.created[rows] != NO_TIME)
    newest: Int64s = rows[known & ~records.point_to_point[rows] & (records.group[rows] != UNKNOWN)]
    return newest


def _arrivals(journal: Journal, rows: Int64s, ranks: Int64s) -> Float64s:
    """Arrival times of the collectives that all of these ranks joined, a row for each, the newest last."""
    records = journal.records
    sequences, collective = np.unique(records.sequence[rows], return_inverse=True)
    column = np.searchsorted(ranks, np.searchsorted(journal.ranks, journal.rank[rows]))
    times = np.full((len(sequences), len(ranks)), np.nan)
    first = int(records.created[rows].min())
    # of several entries of one collective the first one counts
    times[collective[::-1], column[::-1]] = records.created[rows][::-1] - first
    complete: Float64s = times[~np.isnan(times).any(axis=1)]
    return complete


# Durations.


class Elapsed:
    """How long entries have been unfinished, by the times of all recorders."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    @cached_property
    def latest(self) -> Int64s:
        """The latest time in each recording, by rank index; NO_TIME if it has none."""
        records, bounds = self.journal.records, self.journal.bounds
        latest = np.full(len(self.journal.ranks), NO_TIME, np.int64)
        filled = np.diff(bounds) > 0
        for times in (records.created, records.started, records.completed) if filled.any() else ():
            latest[filled] = np.maximum(latest[filled], np.maximum.reduceat(times, bounds[:-1][filled]))
        return latest

    @cached_property
    def lags(self) -> Lags:
        """By how much each rank, or its clock, usually is late."""
        return lags_of(self.journal)

    @cached_property
    def longest_finished(self) -> Int64s:
        """For each group the longest duration of finished work, in ns; UNKNOWN if none."""
        return longest_finished_work(self.journal)

    def since(self, rows: Mapping[int, int]) -> dict[int, int]:
        """For each rank how long its entry has existed at the last time that any recorder saw, at least, in ns.

        A rank that is usually late may have a clock that is ahead: its times are corrected by its lag.
        """
        elapsed = {}
        for rank, row in rows.items():
            created = int(self.journal.records.created[row])
            if created == NO_TIME:
                continue
            index = int(np.searchsorted(self.journal.ranks, rank))
            comparable = (self.lags.component == self.lags.component[index]) & (self.latest != NO_TIME)
            ahead = np.maximum(self.lags.lag[comparable] - self.lags.lag[index], 0)
            elapsed[rank] = int((self.latest[comparable] - created - ahead.astype(np.int64)).max())
        return elapsed

    def on_clock_of(self, other: int, rank: int, time: int) -> int:
        """A time of a rank by the clock of another one, unless their clocks cannot be compared."""
        own, there = np.searchsorted(self.journal.ranks, [rank, other]).tolist()
        comparable = time != NO_TIME and self.lags.component[own] == self.lags.component[there]
        return time + round(self.lags.lag[there] - self.lags.lag[own]) if comparable else time

    def longest(self, rows: Mapping[int, int]) -> int | None:
        """The longest of these; None if no recorder saw any later time."""
        return max(self.since(rows).values(), default=0) or None


def longest_finished_work(journal: Journal) -> Int64s:
    """For each group the longest duration of finished work on any rank, in ns; UNKNOWN if none.

    For backends that do not record completion: until the rank's next entry.
    """
    records = journal.records
    rows = np.flatnonzero((records.group != UNKNOWN) & (records.created != NO_TIME) & (records.retired == 1))
    completed = rows[records.completed[rows] != NO_TIME]
    longest = _longest(journal, completed, records.completed[completed])
    following = rows[_has_next(journal, rows)]
    until_next = _longest(journal, following, records.created[following + 1])
    return np.where(longest == UNKNOWN, until_next, longest)


def _longest(journal: Journal, rows: Int64s, ends: Int64s) -> Int64s:
    return highest(journal.records.group[rows], ends - journal.records.created[rows], len(journal.groups))


def _has_next(journal: Journal, rows: Int64s) -> Bools:
    """True where the rank has a later entry with a time."""
    after = np.minimum(rows + 1, len(journal) - 1)
    known = journal.records.created[after] != NO_TIME
    goes_on: Bools = (after > rows) & known & (journal.rank[after] == journal.rank[rows])
    return goes_on


CLOSE_NS = 60 * SECOND
"""Files that were written within this time were written together."""
COPIED_NS = 2 * 3600 * SECOND
"""Files that were written later than this after their last entries are copies."""


class Clues(Struct, frozen=True):
    """What is known about a job from elsewhere than its newest dumps."""

    hung: bool = False
    """The user knows that it hangs."""
    earlier: Earlier | None = None
    """What earlier dumps show."""
    written: Mapping[int, int] = field(default_factory=dict)
    """When the dumps of ranks were written, in ns since 1970, as far as files show it."""
    failed: frozenset[tuple[int, int | None]] = frozenset()
    """Ranks whose logs show that a call of theirs failed, and its sequence number if the log names it."""

    def has_failed(self, rank: int, sequence: int) -> bool:
        """True if a log shows that this call of a rank timed out, or failed."""
        return not self.failed.isdisjoint({(rank, sequence), (rank, None)})


NO_CLUES = Clues()


class Stalls(Struct, frozen=True):
    """Decides about waits and their causes."""

    journal: Journal
    elapsed: Elapsed
    times: DumpTimes
    clues: Clues

    def is_ending(self, wait: Wait) -> bool:
        """True if a wait is about to end: other ranks have finished it, and it does not take too long."""
        return wait.ending and not self.is_stuck(wait)

    def is_stuck(self, wait: Wait) -> bool:
        """True if a wait is known to hang."""
        unmoved = self.clues.earlier is not None and self.clues.earlier.decides(
            wait.rows.values(), wait.awaited
        )
        logged = any(self.clues.has_failed(rank, wait.sequence) for rank in wait.rows)
        return self.clues.hung or bool(unmoved) or logged or is_stuck(self.elapsed, wait)

    def is_decided(self, cause: Cause) -> bool:
        """True if a cause is known to make ranks hang: by time, or by a cycle."""
        return self.is_deadlock(cause) or any(map(self.is_stuck, cause.waits))

    def is_deadlock(self, cause: Cause) -> bool:
        """True if ranks wait for each other in different calls, none of which a rank has passed since its dump.

        A rank that makes further calls before a message is finished may still make the call that others wait for.
        """
        waits = cause.waits
        over = any(self.times.is_over(rank, row) for wait in waits for rank, row in wait.rows.items())
        going_on = {rank for wait in waits if not wait.blocks for rank in wait.rows}
        certain = all(
            wait.absent and (wait.queued or wait.passed or going_on.isdisjoint(wait.awaited))
            for wait in waits
        )
        buffered = any(wait.buffered and not wait.passed for wait in waits)
        return is_cycle(cause) and certain and not over and not buffered


def is_cycle(cause: Cause) -> bool:
    """True if ranks wait for each other in different calls; both ends of one message may be in flight."""
    calls = {
        (wait.group, peers_of(wait.operation) or (wait.sequence, wait.operation)) for wait in cause.waits
    }
    return len(calls) > 1


def hint_of_file_times(journal: Journal, written: Mapping[int, int]) -> str:
    """A sentence if the files of all ranks were `written` together, long after the last entries; else empty."""
    latest = dict(zip(journal.ranks.tolist(), Elapsed(journal).latest.tolist(), strict=True))
    if not written or set(written) != set(latest) or NO_TIME in latest.values():
        return ""
    times, gap = written.values(), min(written[rank] - latest[rank] for rank in written)
    if max(times) - min(times) > CLOSE_NS or not LONG_NS <= gap <= COPIED_NS:
        return ""
    return (
        f"Hint: the files were written {duration(gap)} after the last entry of each rank. If they are not copies, "
        "the job probably hangs."
    )


def is_stuck(elapsed: Elapsed, wait: Wait) -> bool:
    """True if it was given up, or takes longer than its timeout or than any similar work."""
    if wait.dropped:
        return True
    since = elapsed.since(wait.rows)
    if not since:
        return False
    timeouts = elapsed.journal.records.timeout_ms
    if any(0 <= timeouts[wait.rows[rank]] * MILLISECOND <= time for rank, time in since.items()):
        return True
    longest = int(elapsed.longest_finished[wait.group])
    if longest == UNKNOWN:
        return min(since.values()) >= LONG_FOR_A_FIRST_NS
    return min(since.values()) >= max(LONG_NS, TIMES_LONGER * longest)
