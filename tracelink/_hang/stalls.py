"""Stalls: what decides whether ranks in a call hang, or the job runs.

Decisive are calls that were given up, a timeout that has passed, calls that take far longer than similar work, cycles
of waits, earlier dumps, and the user, who may know that the job hangs. That ranks wait for others decides nothing: each
dump is another moment, and running jobs are full of waits.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from tracelink._hang.clocks import Elapsed
from tracelink._hang.dumps.movement import Earlier
from tracelink._hang.journal import Journal
from tracelink._hang.participation import DumpTimes
from tracelink._hang.waits import Cause, Wait
from tracelink._model.collectives import LONG_FOR_A_FIRST_NS, LONG_NS, TIMES_LONGER
from tracelink._model.columns import MILLISECOND, NO_TIME, SECOND, UNKNOWN
from tracelink._model.operations import peers_of
from tracelink._model.text import duration

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
        """Whether a log shows that this call of a rank timed out, or failed."""
        return not self.failed.isdisjoint({(rank, sequence), (rank, None)})


NO_CLUES = Clues()


class Stalls(Struct, frozen=True):
    """Decides about waits and their causes."""

    journal: Journal
    elapsed: Elapsed
    times: DumpTimes
    clues: Clues

    def is_ending(self, wait: Wait) -> bool:
        """Whether a wait is about to end: other ranks have finished it, and it does not take too long."""
        return wait.ending and not self.is_stuck(wait)

    def is_stuck(self, wait: Wait) -> bool:
        """Whether a wait is known to hang."""
        unmoved = self.clues.earlier is not None and self.clues.earlier.decides(
            wait.rows.values(), wait.awaited
        )
        logged = any(self.clues.has_failed(rank, wait.sequence) for rank in wait.rows)
        return self.clues.hung or bool(unmoved) or logged or is_stuck(self.elapsed, wait)

    def is_decided(self, cause: Cause) -> bool:
        """Whether a cause is known to make ranks hang: by time, or by a cycle."""
        return self.is_deadlock(cause) or any(map(self.is_stuck, cause.waits))

    def is_deadlock(self, cause: Cause) -> bool:
        """Whether ranks wait for each other in different calls, none of which a rank has passed since its dump.

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
