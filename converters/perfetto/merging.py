"""Findings of many ranks as those of the job: one for each reason, with the ranks where it is not all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tracelink.findings import Finding
from tracelink.ranges import Numbers


def merged_findings(findings: Mapping[int, Sequence[Finding]]) -> tuple[Finding, ...]:
    """Alike findings of several ranks as one, with their counts added."""
    alike: dict[tuple[str, str, str], list[tuple[int, Finding]]] = {}
    for rank, found in findings.items():
        for finding in found:
            alike.setdefault((finding.severity, finding.reason, finding.message), []).append((rank, finding))
    return tuple(_one(ranks, len(findings)) for ranks in alike.values())


def _one(found: Sequence[tuple[int, Finding]], ranks: int) -> Finding:
    where = {rank for rank, _ in found}
    first = found[0][1]
    message = first.message if len(where) == ranks else f"{first.message} (rank {Numbers.of(where)})"
    return replace(first, message=message, count=sum(finding.count for _, finding in found))
