"""What must be known to read a summary: which definitions were used, and what the recording does not contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink.answers.model.results import OWN, Note, WorkIn
from tracelink.answers.model.words import percent
from tracelink.answers.rank.account import Account
from tracelink.model.errors import Finding, Severity
from tracelink.model.text import number, ranks_in_words, subject

COLLECTIVES = f"{OWN}collectives"
NOTICEABLE = 0.01
"""The share of the work of a rank from which on it is noted."""


def notes_on(accounts: Sequence[Account]) -> list[Note]:
    """The notes on the breakdowns of all ranks."""
    return [*_definitions(accounts), *_unlaunched(accounts), *_later_work(accounts)]


def notes_of(findings: Sequence[Finding], on_collectives: Sequence[str]) -> list[Note]:
    """What was not used of the collectives, and the findings of the inputs."""
    own = [Note(Severity.INFO, f"{OWN}collectives", text) for text in on_collectives]
    return [*own, *(Note(finding.severity, finding.reason, finding.message) for finding in findings)]


def _definitions(accounts: Sequence[Account]) -> Iterator[Note]:
    if on_threads := [each.summary.rank for each in accounts if each.summary.work is WorkIn.OPERATORS]:
        yield Note(
            Severity.INFO,
            f"{OWN}operators",
            f"{ranks_in_words(on_threads)}: no device work was recorded, so compute is the time of operators on "
            "threads that do not communicate.",
        )
    if nothing := [each.summary.rank for each in accounts if each.summary.work is WorkIn.NOTHING]:
        yield Note(
            Severity.WARNING,
            f"{OWN}no_profile",
            f"{ranks_in_words(nothing)}: no profile, so there is no breakdown of the time. "
            "`tracelink run` records profiles; `tracelink inspect` shows what the inputs are.",
        )
    whole = [each.summary.rank for each in accounts if any(step.step is None for step in each.summary.steps)]
    if whole:
        yield Note(
            Severity.INFO,
            f"{OWN}no_steps",
            f"{ranks_in_words(whole)}: no steps were recorded (ProfilerStep#N, step N), so the whole recording "
            "is one step.",
        )
    if nested := sum(account.nested_steps for account in accounts):
        message = f"{subject(nested, 'step', 'are')} within another step and not listed."
        yield Note(Severity.INFO, f"{OWN}nested_steps", message)


def _unlaunched(accounts: Sequence[Account]) -> Iterator[Note]:
    launches = [each.summary.launches for each in accounts if each.summary.launches]
    unknown = sum(each.unknown for each in launches)
    total = unknown + sum(each.count for each in launches)
    if unknown:
        yield Note(
            Severity.INFO,
            f"{OWN}unknown_launches",
            f"The launches of {number(unknown)} of {number(total)} kernels and copies were not recorded, so the cause "
            "of idle time before them is unknown.",
        )


def _later_work(accounts: Sequence[Account]) -> Iterator[Note]:
    later = sum(each.summary.later_work_ns for each in accounts)
    busy = sum(stream.busy_ns for each in accounts for stream in each.summary.streams)
    if later > NOTICEABLE * busy:
        yield Note(
            Severity.INFO,
            f"{OWN}later_work",
            f"{percent(later, busy)} of the device work ran in a later step than the one that launched it; it counts "
            "in the step in which it ran.",
        )
