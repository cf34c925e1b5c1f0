"""The document of a diagnosis: the verdict first, below it the evidence, what to do next, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from msgspec.structs import asdict

from tracelink.diagnosis.dumps.movement import movement_in_words
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis, Lateness
from tracelink.diagnosis.report.calls import called_from, stack_of
from tracelink.diagnosis.report.problems import problem_sections
from tracelink.diagnosis.report.standings import standings_sections
from tracelink.model.columns import NO_TIME, SECOND
from tracelink.model.fields import Count, Doc, RankNumber, Row, Shown
from tracelink.model.findings import Finding, Severity
from tracelink.model.text import (
    counted,
    duration,
    lowered,
    moment,
    number,
    rank_list,
    ranks_cell,
    ranks_in_words,
)
from tracelink.model.witnesses import FoldedStack, Use, Witnesses
from tracelink.show.document import (
    Block,
    Details,
    Facts,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)

MOST_PROBLEMS, BRIEF = 10, 4
"""Problems that -q lists, and that a terminal lists above the first one's explanation without -v."""
MOST_NOTES = 3
"""Notes that a terminal shows of a job without problems; next to a problem they are only counted."""
SELECTION = frozenset({"attempts", "generations"})
"""The reasons of findings on dumps that were not diagnosed because there are newer ones."""
WRAPPED = "wrapped"
"""The reason of the finding that a ring buffer has overwritten its first entries."""
TONES = {"ok": Tone.GOOD, "in_flight": Tone.WARNING, "problem": Tone.PROBLEM}


def report_of(diagnosis: Diagnosis, journal: Journal | None = None, *, limited: bool = False) -> Report:
    """The document of a diagnosis.

    Args:
        diagnosis: The result.
        journal: The entries that it is based on: a page shows the calls around the problem, and the files.
        limited: Whether all of its problems are listed in a terminal, because their number was chosen.
    """
    headline, *others = verdict_of(diagnosis)
    brief = None if limited else BRIEF - 1
    return Report(
        "diagnose",
        headline,
        TONES[diagnosis.verdict],
        summary=[Items(others, brief, "problem"), *_movement(diagnosis)],
        sections=[
            *problem_sections(diagnosis, journal),
            *standings_sections(diagnosis),
            *(_witness_sections(diagnosis.witnesses) if diagnosis.witnesses else ()),
            Section("Late ranks", [*_straggler(diagnosis.lateness)], verbose=bool(diagnosis.problems)),
            Section("Lateness of ranks", [*_lateness(diagnosis.lateness)], verbose=True),
            Section("Dumps", [*_dumps(diagnosis, journal), *_notes(diagnosis)], anchor="dumps"),
        ],
        findings=_findings(diagnosis),
    )


def verdict_of(diagnosis: Diagnosis) -> list[str]:
    """A sentence for each problem, numbered if there are several; or that there is none."""
    messages = [problem.message for problem in diagnosis.problems]
    if not messages:
        return [_healthy(diagnosis)]
    rest = diagnosis.more_problems
    if len(messages) + rest == 1:
        return messages
    lines = [f"{index}. {message}" for index, message in enumerate(messages, 1)]
    return [*lines, f"{counted(rest, 'more problem')} (--limit 0 shows them)."] if rest else lines


def _healthy(diagnosis: Diagnosis) -> str:
    checked = diagnosis.checked
    total = len({*diagnosis.present, *diagnosis.missing, *diagnosis.unreadable})
    of = f" of {number(total)}" if total > checked.ranks else ""
    ranks = f"{number(checked.ranks)}{of} rank{'s' if total != 1 else ''}"
    if not checked.entries:
        return f"No verdict: the recordings of {ranks} contain no entries."
    operations = [counted(checked.collectives, "collective")]
    if checked.messages:
        operations.append(counted(checked.messages, "message"))
    compared = (
        "There is no dump of another rank to compare with."
        if checked.ranks == 1 < total
        else "All ranks joined; operations, types and sizes agree."
    )
    return (
        f"No problem found: {ranks}, {counted(checked.groups, 'group')}, {' and '.join(operations)}, "
        f"{counted(checked.entries, 'entry')}. {compared}"
    )


def _movement(diagnosis: Diagnosis) -> list[Block]:
    """What ranks did since earlier dumps."""
    return [Paragraph(movement_in_words(diagnosis.movement))] if diagnosis.movement else []


def _notes(diagnosis: Diagnosis) -> Iterator[Block]:
    """What is worth knowing; next to a problem a terminal only counts it."""
    if count := sum(finding.reason == WRAPPED for finding in diagnosis.findings):
        buffers = f"buffers of {number(count)} ranks have" if count > 1 else "buffer of 1 rank has"
        yield Paragraph(f"Note: The ring {buffers} wrapped: the first entries are lost.")
    if not diagnosis.problems:
        yield Items([f"Note: {note}" for note in diagnosis.notes], MOST_NOTES)


def _findings(diagnosis: Diagnosis) -> list[Finding]:
    """The findings that nothing else reports, and the notes on a problem."""
    reported = set(diagnosis.unreadable.values())
    notes = diagnosis.notes if diagnosis.problems else ()
    return [
        *(Finding(Severity.INFO, "note", note) for note in notes),
        *(
            finding
            for finding in diagnosis.findings
            if finding.message not in reported and finding.reason not in (*SELECTION, WRAPPED)
        ),
    ]


# Which dumps were diagnosed, and which are missing or damaged.


MOST_FILES = 16


class DumpRow(Row, frozen=True):
    """The file of a rank."""

    rank: RankNumber
    file: Annotated[str, Shown(longest=400)]
    version: str
    entries: Count
    overwritten: Annotated[Count, Shown("overwritten entries")]


def _dumps(diagnosis: Diagnosis, journal: Journal | None) -> Iterator[Block]:
    yield from (Paragraph(one.message) for one in diagnosis.findings if one.reason in SELECTION)
    named = {rank for problem in diagnosis.problems for rank in problem.culprits}
    if not named.issuperset(diagnosis.missing):
        yield Paragraph(f"No dump of {lowered(ranks_in_words(diagnosis.missing))}.", Tone.WARNING)
    damaged = diagnosis.unreadable
    if len(damaged) > 1:
        ranks = lowered(ranks_in_words(list(damaged)))
        yield Paragraph(f"The dumps of {ranks} are damaged.", Tone.WARNING)
        yield Items([f"Rank {rank}: {reason}" for rank, reason in damaged.items()], 1, "damaged dump")
    else:
        for rank, reason in damaged.items():
            yield Paragraph(f"The dump of rank {rank} is damaged: {reason}", Tone.WARNING)
    if journal:
        yield Only([Medium.HTML], [*_read(diagnosis, journal)])


def _read(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    last = int(journal.records.created.max()) if len(journal) else NO_TIME
    created = f" The last entry was created at {moment(last)}." if last != NO_TIME else ""
    counts = ", ".join(f"{number(count)} {name}" for name, count in asdict(diagnosis.checked).items())
    yield Paragraph(f"Checked: {counts}.{created}", Tone.ASIDE)
    named = {
        "Read": diagnosis.present,
        "Missing": diagnosis.missing,
        "Unreadable or truncated": list(diagnosis.unreadable),
    }
    yield Facts(
        {name: f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}" for name, ranks in named.items() if ranks}
    )
    rows = [
        DumpRow(rank, one.source.path, one.source.version, entries, one.overwritten)
        for (rank, one), entries in zip(
            journal.recordings.items(), np.diff(journal.bounds).tolist(), strict=True
        )
    ]
    yield Table(rows, "Files", most=MOST_FILES, thing="file")


# Lateness: which ranks arrived last in collectives.


STANDS_OUT = 4
"""A rank stands out if the other ranks waited this many times as long for it as for any other."""


def _straggler(lateness: Sequence[Lateness]) -> Iterator[Block]:
    """The rank that stands out, if any."""
    if not lateness:
        return
    first, *others = lateness
    if first.total_ns >= SECOND and all(
        first.total_ns >= STANDS_OUT * second.total_ns for second in others[:1]
    ):
        yield Paragraph(
            f"Straggler: rank {first.rank} arrived last in {number(first.collectives)} of "
            f"{counted(first.of, 'collective')}; the other ranks waited {duration(first.total_ns)} for it in total, "
            f"at most {duration(first.worst_ns)} at once (#{first.sequence} of group {first.group})."
        )


def _lateness(lateness: Sequence[Lateness]) -> Iterator[Block]:
    if lateness:
        yield Paragraph("Ranks that arrived last, and how long the other ranks waited for them:", Tone.STRONG)
        yield Table(lateness, thing="rank")


# Logs, stacks and NCCL's monitor, and what was read.


MOST_STACKS = 16
"""Stacks of a page."""


class StackRow(Row, frozen=True):
    """Processes with one stack, in a line."""

    ranks: Annotated[str, Doc("And processes whose rank is unknown.")]
    calls: Annotated[str, Shown("innermost call < its callers", longest=420)]


def _witness_sections(witnesses: Witnesses) -> Iterator[Section]:
    conflicts = [f"{one.message} ({', '.join(one.sources)})" for one in witnesses.conflicts]
    title = "Sources that contradict each other"
    yield Section(title, [Items(conflicts, 3, "contradiction")], anchor="conflicts", titled=True)
    if sum(len(stack.ranks) + len(stack.processes) for stack in witnesses.stacks) > 1:
        yield Section("Stacks", [*_stacks(witnesses.stacks)])
    if witnesses.reports:
        table = Table(witnesses.reports, columns=REPORTS, brief=100, most=200, thing="line")
        yield Section("Watchdog lines", [table], anchor="watchdog", verbose=True, titled=True)
    yield Section(
        "Files", [*_used(witnesses.used)], verbose=any(use.what == "dumps" for use in witnesses.used)
    )


REPORTS = (
    "rank", "sign", "group", "description", "operation", "sequence", "elements_in", "timeout_ms", "enqueued",
    "completed",
)  # fmt: skip
"""Columns of watchdog lines."""


def _stacks(stacks: Sequence[FoldedStack]) -> Iterator[Block]:
    processes = sum(len(stack.ranks) + len(stack.processes) for stack in stacks)
    rows = [StackRow(_who(stack), called_from(stack.frames)) for stack in stacks]
    yield Paragraph(f"Stacks of {number(processes)} processes, the least common first:", Tone.STRONG)
    yield Table(rows, brief=4, thing="stack", most=MOST_STACKS)
    details = [
        Details(f"{_who(stack)} ({stack.program})", [stack_of(stack.frames)])
        for stack in stacks[:MOST_STACKS]
    ]
    yield Only([Medium.HTML], details)


def _who(stack: FoldedStack) -> str:
    return ", ".join([*([ranks_cell(stack.ranks)] if stack.ranks else []), *stack.processes[:MOST_STACKS]])


def _used(used: Sequence[Use]) -> Iterator[Block]:
    """What was read, and what was not used: a line in a terminal."""
    read = [f"{use.what}: {number(use.count)} ({use.purpose})" for use in used if use.purpose]
    left = [f"{use.what}: {number(use.count)}" for use in used if not use.purpose]
    none = "" if any(use.what == "dumps" for use in used) else "No dump. "
    lines = [f"{none}Read: {'; '.join(read)}."] + ([f"Not used: {'; '.join(left)}."] if left else [])
    yield Only([Medium.TERMINAL, Medium.MARKDOWN], [Paragraph(line) for line in lines])
    yield Only([Medium.HTML], [Table(used, "Files", thing="kind of file", things="kinds of files")])
