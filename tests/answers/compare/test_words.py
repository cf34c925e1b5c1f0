"""Tests of tracelink.answers.compare.words."""

from __future__ import annotations

from tracelink.answers.compare.model import (
    CauseChange,
    Comparison,
    Gate,
    GateState,
    PartChange,
    Status,
    StepChange,
)
from tracelink.answers.compare.words import headline, markdown_of, signed
from tracelink.answers.model.results import Note
from tracelink.answers.rank.costs import StepPart
from tracelink.model.findings import Severity


def test_whole_comment() -> None:
    comparison = Comparison(
        True,
        [],
        StepChange(1_000_000, 1_200_000, 200_000, 5, 5),
        [PartChange(StepPart.IDLE, 1_000_000, 1_200_000, 200_000)],
        [CauseChange("idle: <b>|x", StepPart.IDLE, Status.SLOWER, 200_000, 1_000_000, 1_200_000)],
        [Gate("idle > 5%", GateState.FAILED, 1_000_000, 1_200_000, 50_000)],
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


def changed(before: int, after: int, causes: dict[str, int], *, whole: bool = False) -> Comparison:
    rows = [
        CauseChange(what, StepPart.COMPUTE, Status.SLOWER, delta, 0, delta) for what, delta in causes.items()
    ]
    step = StepChange(before, after, after - before, 5, 5, None, whole)
    return Comparison(True, [], step, [], rows, [], [])


def test_a_second_cause_in_the_headline_is_notable() -> None:
    start = "A step takes 2.000 ms, 1.000 ms (100.0%) longer than before: mostly "
    assert headline(changed(10**6, 2 * 10**6, {"a": 960_000, "b": 40_000})) == f"{start}a +0.960 ms."
    assert (
        headline(changed(10**6, 2 * 10**6, {"a": 900_000, "b": 100_000}))
        == f"{start}a +0.900 ms and b +0.100 ms."
    )


def test_changes_that_round_to_zero_have_no_sign() -> None:
    assert [signed(ns) for ns in (-400, 0, 400, -600)] == ["0.000 ms", "0.000 ms", "0.000 ms", "-0.001 ms"]
    assert headline(changed(10**6, 10**6 - 400, {})) == "A step takes 1.000 ms, as before."
    assert (
        headline(changed(10**9, 10**9 - 4_000, {}))
        == "A step takes 999.996 ms, 0.004 ms shorter than before."
    )


def test_recordings_without_steps() -> None:
    found = changed(10**6, 2 * 10**6, {}, whole=True)
    assert headline(found) == "A recording takes 2.000 ms, 1.000 ms (100.0%) longer than before."
    assert "| **recording** | 1.000 ms | 2.000 ms | +1.000 ms |" in markdown_of(found).splitlines()
