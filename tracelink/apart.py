"""Whether ranks were recorded at one time, as those of one job are."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.findings import Finding, Severity

APART_NS = 60 * 10**9
"""More than clocks differ, less than between two jobs."""

Span = tuple[int, int, int]
"""The first time, the last time, and the rank."""


def recorded_apart(spans: Sequence[Span], advice: str) -> list[Finding]:
    """A minute between the recordings of ranks means that they are of two jobs."""
    reached, before = 0, -1
    for start, end, number in sorted(spans):
        if before >= 0 and start - reached > APART_NS:
            seconds = (start - reached) / 1e9
            message = (
                f"Rank {number} begins {seconds:.0f} s after rank {before} has ended: "
                f"these seem to be recordings of two jobs. {advice}"
            )
            return [Finding(Severity.WARNING, "two_jobs", message)]
        if end > reached:
            reached, before = end, number
    return []
