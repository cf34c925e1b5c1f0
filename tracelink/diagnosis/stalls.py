"""Stalls: what decides whether ranks in a call hang, or the job runs.

Decisive are calls that were given up, a timeout that has passed, calls that take far longer than similar work, and the
user, who may know that the job hangs. If nothing decides, ranks that all wait for the same few ranks count as a hang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.dumps.movement import Earlier
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.participation import DumpTimes
from tracelink.diagnosis.waits import Cause, Wait
from tracelink.model.collectives import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER
from tracelink.model.columns import MILLISECOND, NO_TIME, SECOND, UNKNOWN
from tracelink.model.fields import FrozenRanks
from tracelink.model.operations import peers_of
from tracelink.model.text import duration

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
    late_before: Mapping[FrozenRanks, int] = field(default_factory=dict)
    """How late ranks were at most for which the others waited again and again."""


NO_CLUES = Clues()


class Stalls(Struct, frozen=True):
    """Decides about waits and their causes."""

    journal: Journal
    elapsed: Elapsed
    times: DumpTimes
    clues: Clues
    ranks: frozenset[int]
    """Ranks whose state is known: they have entries, and their dumps are complete."""
    moving: frozenset[int] = frozenset()
    """Ranks in a call that others have finished: they are about to leave it."""

    @classmethod
    def of(cls, journal: Journal, waits: Sequence[Wait], times: DumpTimes, clues: Clues) -> Stalls:
        """What the times of a journal, and `clues`, decide."""
        filled = journal.ranks[np.diff(journal.bounds) > 0].tolist()
        ranks = frozenset(rank for rank in filled if not journal.recordings[rank].broken_off)
        moving = frozenset(rank for wait in waits if wait.ending for rank in wait.rows)
        return cls(journal, Elapsed(journal), times, clues, ranks, moving)

    def is_ending(self, wait: Wait) -> bool:
        """Whether a wait is about to end: other ranks have finished it, and it does not take too long."""
        return wait.ending and not self.is_stuck(wait)

    def is_stuck(self, wait: Wait) -> bool:
        """Whether a wait is known to hang."""
        unmoved = self.clues.earlier is not None and self.clues.earlier.decides(
            wait.rows.values(), wait.awaited
        )
        return self.clues.hung or bool(unmoved) or is_stuck(self.elapsed, wait)

    def has_moved(self, wait: Wait) -> bool:
        """Whether a rank began this wait after earlier dumps were taken."""
        return (
            self.clues.earlier is not None
            and self.clues.earlier.decides(wait.rows.values(), wait.awaited) is False
        )

    def is_decided(self, cause: Cause) -> bool:
        """Whether a cause is known to make ranks hang: by time, by a cycle, or by a dump that is missing."""
        incomplete = any(not self.ranks.issuperset(wait.unknown) and not wait.absent for wait in cause.waits)
        return self.is_deadlock(cause) or incomplete or any(self.is_stuck(wait) for wait in cause.waits)

    def is_deadlock(self, cause: Cause) -> bool:
        """Whether ranks wait for each other in different calls, none of which a rank has passed since its dump."""
        return is_cycle(cause) and not any(
            self.times.is_over(rank, row) for wait in cause.waits for rank, row in wait.rows.items()
        )

    def stop_all(self, causes: Sequence[Cause]) -> bool:
        """Whether every rank waits for the same few ranks, which running jobs rarely do."""
        with_culprits = [cause for cause in causes if cause.culprits]
        if len(with_culprits) != 1:
            return False
        (cause,) = with_culprits
        if self.moving & set(cause.culprits) or any(map(self.has_moved, cause.waits)):
            return False
        few = len(cause.culprits) < len(cause.waiting) or len(cause.culprits) == 1
        stopped = {*cause.waiting, *cause.culprits}
        return few and not self._was_as_late(cause) and self._connected(stopped) <= stopped

    def _connected(self, ranks: set[int]) -> frozenset[int]:
        """The ranks whose state is known that can wait for these: they share groups, directly or through others."""
        if self.ranks <= ranks:
            return self.ranks
        connected, rest = set(ranks), [set(group.ranks) for group in self.journal.groups]
        while joined := [members for members in rest if not connected.isdisjoint(members)]:
            connected.update(*joined)
            rest = [members for members in rest if connected.isdisjoint(members)]
        return self.ranks & connected

    def _was_as_late(self, cause: Cause) -> bool:
        """Whether the culprit has often been late before, and as late."""
        latest = self.clues.late_before.get(tuple(cause.culprits))
        return latest is not None and (self.elapsed.longest(cause.waits[0].rows) or 0) <= latest


def is_cycle(cause: Cause) -> bool:
    """Whether ranks wait for each other in different calls; both ends of one message may be in flight."""
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
    """Whether it was given up, or takes longer than its timeout or than any similar work."""
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
