"""What `tracelink diagnose` tells a person: the verdict first, and under it what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.cli.diagnosis_absent import show_absent
from tracelink.cli.diagnosis_evidence import show_evidence
from tracelink.cli.diagnosis_lateness import show_lateness
from tracelink.cli.diagnosis_sightings import show_sightings
from tracelink.cli.diagnosis_standings import show_standings
from tracelink.cli.found import show_findings
from tracelink.cli.page import Page, counted, number
from tracelink.diagnosis import Diagnosis, Problem
from tracelink.findings import Finding

MOST_PROBLEMS = 10
MOST_EXPLAINED = 3
"""Problems that are named, and those of them that are explained, unless everything is asked for."""

MOST_NOTES = 3
"""Shown of a job in which nothing is wrong; beside a problem they are only counted."""

WRAPPED = "wrapped"
"""The reason of the finding that a ring buffer no longer holds everything."""


def diagnosis_page(diagnosis: Diagnosis, *, verbose: bool, limit: int | None = None) -> str:
    """The diagnosis on one screen; at most `limit` problems, 0 for all."""
    page = Page()
    shown = most_problems(diagnosis, limit, verbose=verbose)
    for line in _headlines(diagnosis, shown) or [_healthy(diagnosis)]:
        page.line(line, "bold red" if diagnosis.problems else "bold green")
    if diagnosis.problems or verbose:
        page.gap()
        show_standings(page, diagnosis, verbose=verbose)
    _explain(page, diagnosis.problems[:shown], verbose=verbose)
    page.gap()
    show_absent(page, diagnosis, verbose=verbose)
    show_lateness(page, diagnosis.lateness, verbose=verbose)
    page.gap()
    for note in _wrapped(diagnosis.findings):
        page.line(f"Note: {note}")
    beside = 0 if diagnosis.problems else MOST_NOTES
    _show_notes(page, diagnosis.notes, len(diagnosis.notes) if verbose else beside)
    _show_findings(page, diagnosis, verbose=verbose)
    return page.text


def _wrapped(findings: Sequence[Finding]) -> list[str]:
    count = sum(finding.reason == WRAPPED for finding in findings)
    ranks = "1 rank" if count == 1 else f"{number(count)} ranks"
    return [f"The buffers of {ranks} had wrapped: what they did first is no longer known."] if count else []


def _show_notes(page: Page, notes: Sequence[str], most: int) -> None:
    for note in notes[:most]:
        page.line(f"Note: {note}")
    if (rest := len(notes) - most) > 0:
        page.line(
            f"{counted(rest, 'more note' if most else 'note')}; -v shows {'it' if rest == 1 else 'them'}.",
            "dim",
        )


def _show_findings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """Those that nothing above tells of."""
    told = set(diagnosis.unreadable.values())
    untold = [
        one for one in diagnosis.findings if one.message not in told and (verbose or one.reason != WRAPPED)
    ]
    show_findings(page, untold, verbose=verbose)


def verdict(diagnosis: Diagnosis, limit: int | None = None) -> str:
    """A line for each problem; for at most `limit` of them, 0 for all."""
    return "\n".join(_headlines(diagnosis, most_problems(diagnosis, limit, verbose=False)))


def most_problems(diagnosis: Diagnosis, limit: int | None, *, verbose: bool) -> int:
    """How many problems to name; `limit` is what the user says."""
    everything = len(diagnosis.problems)
    if limit is None:
        return everything if verbose else MOST_PROBLEMS
    return limit or everything


def _headlines(diagnosis: Diagnosis, most: int) -> list[str]:
    messages = [problem.message for problem in diagnosis.problems]
    if len(messages) < 2:
        return messages
    lines = [f"{place}. {message}" for place, message in enumerate(messages[:most], 1)]
    rest = len(messages) - most
    return lines + ([f"{counted(rest, 'more problem')}; --limit 0 lists all."] if rest > 0 else [])


def _healthy(diagnosis: Diagnosis) -> str:
    checked = diagnosis.checked
    everybody = len({*diagnosis.present, *diagnosis.missing, *diagnosis.unreadable})
    of = f" of {number(everybody)}" if everybody > checked.ranks else ""
    known = f"{number(checked.ranks)}{of} rank{'s' if everybody != 1 else ''}"
    if not checked.entries:
        return f"Nothing can be said: what {known} recorded holds no entry."
    together = [counted(checked.collectives, "collective")]
    if checked.messages:
        together.append(counted(checked.messages, "message"))
    return (
        f"Nothing is wrong in what {known} recorded: "
        f"{' and '.join(together)} of {counted(checked.groups, 'group')}, "
        f"{'1 entry' if checked.entries == 1 else number(checked.entries) + ' entries'} checked: "
        f"{_compared(checked.ranks, everybody)}."
    )


def _compared(ranks: int, everybody: int) -> str:
    if ranks == 1 < everybody:
        return "no other dump is there to compare it with"
    return "everybody joined; operations, types and sizes agree"


def _explain(page: Page, problems: Sequence[Problem], *, verbose: bool) -> None:
    """What problems rest on and what to do about them; the same advice once."""
    given = set()
    for place, problem in enumerate(problems[: None if verbose else MOST_EXPLAINED], 1):
        if len(problems) > 1:
            page.gap()
            page.line(f"{place}. {problem.message}", "bold")
        show_evidence(page, problem, verbose=verbose)
        show_sightings(page, problem, verbose=verbose)
        if problem.advice and problem.advice not in given:
            page.gap()
            page.line(f"Next: {problem.advice}")
        given.add(problem.advice)
