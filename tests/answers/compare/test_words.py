"""Tests of tracelink.answers.compare.words."""

from __future__ import annotations

from tracelink.answers.compare.model import (
    CauseChange,
    Comparison,
    Gate,
    PartChange,
    Status,
    StepChange,
)
from tracelink.answers.compare.words import markdown_of
from tracelink.answers.model.results import Note
from tracelink.answers.rank.costs import StepPart
from tracelink.model.errors import Severity


def test_whole_comment() -> None:
    comparison = Comparison(
        True,
        [],
        StepChange(1_000_000, 1_200_000, 200_000, 5, 5),
        [PartChange(StepPart.IDLE, 1_000_000, 1_200_000, 200_000)],
        [CauseChange("idle: <b>|x", StepPart.IDLE, Status.SLOWER, 200_000, 1_000_000, 1_200_000)],
        [Gate("idle > 5%", True, 1_000_000, 1_200_000, 50_000)],
        [Note(Severity.WARNING, "few_steps", "few steps"), Note(Severity.INFO, "other_version", "version")],
    )
    assert markdown_of(comparison).splitlines() == [
        r"**A step takes 1.200 ms, 0.200 ms \(20.0%\) longer than before\: mostly idle\: \<b\>\|x \+0.200 ms.**",
        "",
        r"- ❌ gate idle \> 5%\: failed; 1.000 ms before, 1.200 ms after \(\+0.200 ms, limit \+0.050 ms\)",
        "",
        "| part | before | after | change |",
        "| --- | --- | --- | --- |",
        "| idle | 1.000 ms | 1.200 ms | +0.200 ms |",
        "| **step** | 1.000 ms | 1.200 ms | +0.200 ms |",
        "",
        "<details><summary>Causes, which add up to the change</summary>",
        "",
        "| cause | status | before | after | change |",
        "| --- | --- | --- | --- | --- |",
        r"| idle\: \<b\>\|x | slower | 1.000 ms | 1.200 ms | +0.200 ms |",
        "",
        "</details>",
        "",
        "- warning: few steps",
    ]
