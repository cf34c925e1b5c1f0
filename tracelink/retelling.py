"""Sources that were made of others of the same rank: their events would stand twice."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.findings import Finding, Severity
from tracelink.trace import RankTrace


def told_once(traces: Sequence[RankTrace]) -> tuple[list[RankTrace], list[Finding]]:
    """The traces of a rank without those of which the origins are there too, and what to say of those."""
    formats = {source.format for trace in traces for source in trace.sources}
    findings = [
        Finding(
            Severity.INFO,
            "told_twice",
            f"{trace.source.path}: passed over, it was made of the {min(trace.retells & formats)} file of rank "
            f"{trace.source.rank}. To read it, leave that one out.",
            source=trace.source.path,
        )
        for trace in traces
        if trace.retells & formats
    ]
    return [trace for trace in traces if not trace.retells & formats], findings
