"""Whether what all ranks joined and nobody finished is stuck, or only under way."""

from __future__ import annotations

from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN

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
    usual = int(elapsed.usual[wait.group])
    if usual == UNKNOWN:
        return min(since.values()) >= LONG_FOR_A_FIRST_NS
    return min(since.values()) >= max(LONG_NS, TIMES_LONGER * usual)
