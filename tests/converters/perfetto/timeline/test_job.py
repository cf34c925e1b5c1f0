"""Findings of several ranks as one."""

from __future__ import annotations

from tracelink._model.findings import Finding, Severity
from tracelink.converters.perfetto.timeline.job import merged_findings


def untimed(count: int, example: str = "") -> Finding:
    return Finding(Severity.INFO, "untimed", "events have no time", count, example=example)


def test_alike_findings_of_all_ranks_are_one_with_the_first_example() -> None:
    found = {rank: [untimed(rank + 1, f"of {rank}")] for rank in range(512)}
    assert merged_findings(found) == (untimed(512 * 513 // 2, "of 0"),)


def test_findings_of_some_ranks_name_them() -> None:
    other = Finding(Severity.WARNING, "flow_reversed", "arrows")
    found = {0: [untimed(1)], 1: [], 2: [untimed(2), other], 3: [untimed(3)]}
    assert [(finding.message, finding.count) for finding in merged_findings(found)] == [
        ("events have no time (rank 0, 2-3)", 6),
        ("arrows (rank 2)", 1),
    ]


def test_a_lone_rank_is_not_named() -> None:
    assert merged_findings({5: [untimed(4)]}) == (untimed(4),)
