"""Tests of tracelink._time.compare.report."""

from __future__ import annotations

from tracelink._model.findings import Finding, Severity
from tracelink._show import markdown
from tracelink._show.document import Paragraph, Table, Tone
from tracelink._time.compare.model import (
    CauseChange,
    Comparison,
    Gate,
    GateState,
    PartChange,
    Status,
    StepChange,
)
from tracelink._time.compare.report import headline, report_of, signed
from tracelink._time.rank.costs import StepPart

LONGER = {"before_ns": 1_000_000, "after_ns": 1_200_000, "delta_ns": 200_000}


def compared() -> Comparison:
    """A comparison with one cause of a hostile name."""
    return Comparison(
        True,
        [],
        StepChange(5, 5, **LONGER),
        [PartChange(StepPart.IDLE, **LONGER)],
        [CauseChange("idle: <b>|x", StepPart.IDLE, Status.SLOWER, **LONGER)],
        [Gate("idle > 5%", GateState.FAILED, 50_000, **LONGER)],
        [
            Finding(Severity.WARNING, "few_steps", "few steps"),
            Finding(Severity.INFO, "other_version", "version"),
        ],
    )


def test_whole_comment() -> None:
    assert markdown.draw(report_of(compared())).splitlines() == [
        r"**A step takes 1.200 ms, 0.200 ms \(20 %\) longer than before\: mostly idle\: \<b\>\|x \+0.200 ms.**",
        "",
        r"gate idle \> 5%\: failed; 1.000 ms before, 1.200 ms after \(\+0.200 ms, limit \+0.050 ms\)",
        "",
        "### Parts",
        "",
        r"| part of the step | before \(ms\) | after \(ms\) | change \(ms\) |",
        "| --- | ---: | ---: | ---: |",
        r"| idle | 1.000 | 1.200 | \+0.200 |",
        r"| step | 1.000 | 1.200 | \+0.200 |",
        "",
        "### Causes",
        "",
        r"| change \(ms\) | cause | status | before \(ms\) | after \(ms\) | part |",
        "| ---: | --- | --- | ---: | ---: | --- |",
        r"| \+0.200 | idle\: \<b\>\|x | slower | 1.000 | 1.200 | idle |",
        "",
        r"- warning\: few steps",
    ]


def test_a_failed_gate_is_a_problem() -> None:
    report = report_of(compared())
    (gate,) = report.summary
    assert isinstance(gate, Paragraph)
    assert report.tone is gate.tone is Tone.PROBLEM


def test_causes_within_the_variation_come_last_and_are_counted() -> None:
    same = CauseChange("a", StepPart.COMPUTE, Status.SAME, before_ns=0, after_ns=300_000, delta_ns=300_000)
    found = compared()
    both = Comparison(True, [], found.step, found.parts, [same, *found.causes], [], [])
    causes, rest = next(one for one in report_of(both).sections if one.title == "Causes").blocks
    assert isinstance(causes, Table)
    assert ([row.what for row in causes.rows], causes.brief) == (["idle: <b>|x", "a"], 1)
    assert isinstance(rest, Paragraph)
    assert rest.text == "1 cause within the variation between steps: +0.300 ms together."


def changed(before: int, after: int, causes: dict[str, int], *, whole: bool = False) -> Comparison:
    rows = [
        CauseChange(what, StepPart.COMPUTE, Status.SLOWER, before_ns=0, after_ns=delta, delta_ns=delta)
        for what, delta in causes.items()
    ]
    step = StepChange(5, 5, whole, before_ns=before, after_ns=after, delta_ns=after - before)
    return Comparison(True, [], step, [], rows, [], [])


def test_a_second_cause_in_the_headline_is_notable() -> None:
    start = "A step takes 2.000 ms, 1.000 ms (100 %) longer than before: mostly "
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
    assert headline(found) == "A recording takes 2.000 ms, 1.000 ms (100 %) longer than before."
    (parts,) = report_of(found).sections[0].blocks
    assert isinstance(parts, Table)
    assert [row.name for row in parts.rows] == ["recording"]
