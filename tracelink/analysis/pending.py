"""How long what is not finished has been waiting."""

from __future__ import annotations

from tracelink.analysis.waits import Wait
from tracelink.events import NO_TIME
from tracelink.journal import Journal

LONG_NS = 10 * 10**9


def is_stuck(journal: Journal, wait: Wait) -> bool:
    """Whether it was given up, or lasts longer than anything should."""
    return wait.dropped or (waited(journal, wait) or 0) >= LONG_NS


def waited(journal: Journal, wait: Wait) -> int | None:
    """From when the first began to wait to the last that any recorder saw, in ns."""
    if wait.created == NO_TIME or not len(journal):
        return None
    latest = max(int(getattr(journal.records, name).max()) for name in ("created", "started", "completed"))
    return latest - wait.created if latest > wait.created else None
