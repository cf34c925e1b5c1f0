"""What must be known to read a summary: which definitions were used, and what the recording does not contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.job import LinkedJob
from tracelink._model.text import counted, name_in_words, number, percent, ranks_in_words, subject
from tracelink._time.model.results import OWN, WorkIn
from tracelink._time.rank.account import Account
from tracelink.plugins import Content, reader_spec

COLLECTIVES = f"{OWN}collectives"
NOTICEABLE = 0.01
"""The share of the work of a rank from which on it is noted."""


def notes_on(accounts: Sequence[Account], job: LinkedJob) -> list[Finding]:
    """The notes on the breakdowns of all ranks."""
    return [*_definitions(accounts, job), *_unlaunched(accounts), *_later_work(accounts)]


def lost_data(job: LinkedJob) -> list[str]:
    """A sentence on inputs that are truncated or cannot be read; none if all are whole."""
    ranks = {source.path: source.rank for source in job.sources}
    truncated = {finding.source for finding in job.findings if finding.reason == Truncated.reason}
    unreadable = {
        finding.source
        for finding in job.findings
        if finding.severity is Severity.ERROR and finding.source and finding.source not in truncated
    }
    of = sorted({rank for path in truncated if (rank := ranks.get(path)) is not None})
    parts = []
    if of:
        whose = ranks_in_words(of)
        whose = f"{whose[0].lower()}{whose[1:]}"
        sources = "A file of {} is" if len(truncated) == 1 else "Files of {} are"
        parts.append(
            f"{sources.format(whose)} truncated: what the lost end contains is missing in all numbers"
        )
    if unreadable:
        parts.append(
            f"{_files(sorted(unreadable))} cannot be read, and {'is' if len(unreadable) == 1 else 'are'} missing"
        )
    return [f"{'; '.join(parts)}."] if parts else []


def _files(paths: Sequence[str]) -> str:
    first = name_in_words(PurePath(paths[0]).name)
    return first if len(paths) == 1 else f"{first} and {counted(len(paths) - 1, 'other file')}"


def _definitions(accounts: Sequence[Account], job: LinkedJob) -> Iterator[Finding]:
    if on_threads := [each.summary.rank for each in accounts if each.summary.work is WorkIn.OPERATORS]:
        yield Finding(
            Severity.INFO,
            f"{OWN}operators",
            f"{ranks_in_words(on_threads)}: no device work was recorded, so compute is the time of operators on "
            "threads that do not communicate.",
        )
    if nothing := [each.summary.rank for each in accounts if each.summary.work is WorkIn.NOTHING]:
        yield Finding(
            Severity.WARNING,
            f"{OWN}no_profile",
            f"{ranks_in_words(nothing)}: no profile, so there is no breakdown of the time. {_instead(job)}",
        )
    whole = [each.summary.rank for each in accounts if any(step.step is None for step in each.summary.steps)]
    if whole:
        yield Finding(
            Severity.INFO,
            f"{OWN}no_steps",
            f"{ranks_in_words(whole)}: no steps were recorded (ProfilerStep#N, step N), so the whole recording "
            "is one step.",
        )
    if nested := sum(account.nested_steps for account in accounts):
        message = f"{subject(nested, 'step', 'are')} within another step and not listed."
        yield Finding(Severity.INFO, f"{OWN}nested_steps", message)


def _instead(job: LinkedJob) -> str:
    """What to do without profiles."""
    if {reader_spec(source.format).content for source in job.sources} == {Content.RECORDS}:
        return "`tracelink diagnose PATH` says what flight-recorder dumps show; `tracelink run` records profiles."
    return "`tracelink run` records profiles; `tracelink inspect` shows what the inputs are."


def _unlaunched(accounts: Sequence[Account]) -> Iterator[Finding]:
    launches = [each.summary.launches for each in accounts if each.summary.launches]
    unknown = sum(each.unknown for each in launches)
    total = unknown + sum(each.count for each in launches)
    if unknown:
        yield Finding(
            Severity.INFO,
            f"{OWN}unknown_launches",
            f"The launches of {number(unknown)} of {number(total)} kernels and copies were not recorded, so the cause "
            "of idle time before them is unknown.",
        )


def _later_work(accounts: Sequence[Account]) -> Iterator[Finding]:
    later = sum(each.summary.later_work_ns for each in accounts)
    busy = sum(stream.busy_ns for each in accounts for stream in each.summary.streams)
    if later > NOTICEABLE * busy:
        yield Finding(
            Severity.INFO,
            f"{OWN}later_work",
            f"{percent(later, busy)} of the device work ran in a later step than the one that launched it; it counts "
            "in the step in which it ran.",
        )
