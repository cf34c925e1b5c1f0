"""Whether what all ranks joined and nobody finished is stuck, or only under way."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.waits import Wait
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.journal import Journal

LONG_NS = 10_000_000_000
LONG_FOR_A_FIRST_NS = 20_000_000_000
"""Where nothing tells how long a group's collectives take: the first one also sets up connections."""
TIMES_LONGER = 20
"""Than any that the group has finished."""


def is_stuck(elapsed: Elapsed, wait: Wait) -> bool:
    """Whether it was given up, or lasts longer than its timeout or than anything like it."""
    if wait.dropped:
        return True
    since = elapsed.since(wait.rows)
    if not since:
        return False
    timeouts = elapsed.journal.records.timeout_ms
    if any(0 <= timeouts[wait.rows[rank]] * 1_000_000 <= time for rank, time in since.items()):
        return True
    usual = longest_finished(elapsed.journal, wait.group)
    if usual is None:
        return min(since.values()) >= LONG_FOR_A_FIRST_NS
    return min(since.values()) >= max(LONG_NS, TIMES_LONGER * usual)


def longest_finished(journal: Journal, group: int) -> int | None:
    """The longest time that any rank needed for a collective of a group, as far as entries tell, in ns.

    Where its backend does not tell when it is over: until the rank went on to the next.
    """
    records = journal.records
    rows = np.flatnonzero((records.group == group) & (records.created != NO_TIME) & (records.retired == 1))
    completed = rows[records.completed[rows] != NO_TIME]
    if len(completed):
        return int((records.completed[completed] - records.created[completed]).max())
    following = rows[_goes_on(journal, rows)]
    if not len(following):
        return None
    return int((records.created[following + 1] - records.created[following]).max())


def _goes_on(journal: Journal, rows: Int64s) -> Bools:
    """Whether the rank has another entry with a time after each of these."""
    after = np.minimum(rows + 1, len(journal) - 1)
    known = journal.records.created[after] != NO_TIME
    goes_on: Bools = (after > rows) & known & (journal.rank[after] == journal.rank[rows])
    return goes_on
