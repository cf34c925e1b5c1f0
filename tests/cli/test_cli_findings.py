"""Findings in words: what did not fit, one paragraph each, the worst first."""

from __future__ import annotations

from conftest import Job, Run

from tracelink.errors import Finding, Severity


def said(tracelink: Run, job: Job, *findings: Finding, verbose: bool = False) -> list[str]:
    job.findings = findings
    result = tracelink("inspect", "traces/", *(["-v"] if verbose else []))
    return [line for line in result.stdout.splitlines() if line.startswith(("error", "warning", "info"))]


def test_errors_come_before_warnings(tracelink: Run, job: Job) -> None:
    findings = Finding(Severity.WARNING, "odd", "odd."), Finding(Severity.ERROR, "empty", "empty.")
    assert said(tracelink, job, *findings) == ["error: empty.", "warning: odd."]


def test_where_how_often_and_an_example(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "negative", "a negative duration.", 1200, "k_0.json", "at byte 77")
    assert said(tracelink, job, finding) == [
        "warning: k_0.json: a negative duration. (1,200 times) For example: at byte 77"
    ]


def test_a_message_that_names_its_source_is_not_given_it_twice(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "cut", "k_0.json: cut off at byte 9.", source="k_0.json")
    assert said(tracelink, job, finding) == ["warning: k_0.json: cut off at byte 9."]


def test_infos_are_counted_and_shown_to_the_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.INFO, "passed_over", f"{name}: passed over.") for name in "ab"]
    assert said(tracelink, job, *findings) == ["info: 2 more to know; -v shows it."]
    assert said(tracelink, job, *findings, verbose=True) == ["info: a: passed over.", "info: b: passed over."]


def test_many_of_one_sort_are_counted_and_shown_to_the_verbose(tracelink: Run, job: Job) -> None:
    findings = [Finding(Severity.WARNING, "cut", f"k_{rank}.json: cut off.") for rank in range(64)]
    assert said(tracelink, job, *findings) == [
        "warning: k_0.json: cut off.",
        "warning: k_1.json: cut off.",
        "warning: k_2.json: cut off.",
        "warning: 61 more of the same sort; -v shows them.",
    ]
    assert len(said(tracelink, job, *findings, verbose=True)) == 64


def test_links_that_were_not_made_are_said_once(tracelink: Run, job: Job) -> None:
    job.findings = [Finding(Severity.WARNING, "unlinked.launches", "launches: 0 of 4 linked.")]
    assert "0 of 4 linked" not in tracelink("merge", "traces/").stdout


def test_text_out_of_a_trace_cannot_command_the_terminal(tracelink: Run, job: Job) -> None:
    finding = Finding(Severity.WARNING, "odd", "a host called \x1b[2Jclean\udcff.")
    assert said(tracelink, job, finding) == ["warning: a host called \\x1b[2Jclean\\udcff."]
