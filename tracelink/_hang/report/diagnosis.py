"""The document of a diagnosis: the verdict first, below it the evidence, what to do next, and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import Annotated

import numpy as np
from msgspec.structs import asdict

from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import (
    Category,
    Diagnosis,
    Evidence,
    Problem,
    Role,
    Sighting,
    Stage,
    Standing,
    Stretch,
)
from tracelink._hang.facts.sets import movement_in_words
from tracelink._model.columns import NO_TIME
from tracelink._model.fields import Row, Shown
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink._model.records import Entry, Frame, line_in_words, readable_name
from tracelink._model.text import (
    clipped,
    counted,
    duration,
    group_label,
    lowered,
    moment,
    number,
    operation_in_words,
    ranks_cell,
    ranks_in_words,
    shortened,
    time_of_day,
)
from tracelink._model.witnesses import FoldedStack, Witnesses
from tracelink._show.document import (
    Block,
    Details,
    Frames,
    Heading,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
    Tone,
)

MOST_PROBLEMS, BRIEF = 10, 3
"""Problems that -q lists, and that a terminal lists above the first one's explanation without -v."""
MOST_NOTES = 3
"""Notes that a terminal shows of a job without problems; next to a problem they are only counted."""
SELECTION = frozenset({"attempts", "generations"})
"""The reasons of findings on dumps that were not diagnosed because there are newer ones."""
WRAPPED = "wrapped"
"""The reason of the finding that a ring buffer has overwritten its first entries."""
LATE = "Ranks that arrived last, and how long the other ranks waited for them"
TONES = {"ok": Tone.GOOD, "in_flight": Tone.WARNING, "problem": Tone.PROBLEM}


def report_of(
    diagnosis: Diagnosis,
    journal: Journal | None = None,
    *,
    limited: bool = False,
    of_other_jobs: Sequence[Journal] = (),
) -> Report:
    """The document of a diagnosis.

    Args:
        diagnosis: The result.
        journal: The entries that it is based on: a page shows the calls around the problem, and the files.
        limited: Whether all of its problems are listed in a terminal, because their number was chosen.
        of_other_jobs: The same entries of each other job.
    """
    headline, *others = verdict_of(diagnosis)
    jobs = [
        report_of(other, own)
        for other, own in zip_longest(diagnosis.other_jobs, of_other_jobs[: len(diagnosis.other_jobs)])
    ]
    brief = None if limited else BRIEF - 1
    return Report(
        "diagnose",
        headline,
        TONES[diagnosis.verdict],
        summary=[
            Items(others, brief, "problem"),
            *_movement(diagnosis),
            Items([job.headline for job in jobs], BRIEF, "job"),
        ],
        sections=[
            *_problem_sections(diagnosis, journal),
            *_standings(diagnosis),
            *(_witness_sections(diagnosis.witnesses) if diagnosis.witnesses else ()),
            Section(LATE, [Table(diagnosis.lateness, thing="rank")], "lateness", verbose=True, titled=True),
            Section("Dumps", [*_dumps(diagnosis, journal), *_notes(diagnosis)], anchor="dumps"),
            *(
                Section(f"Job {other.job}", [*_of_job(job)], f"job-{index}", verbose=True, titled=True)
                for index, (other, job) in enumerate(zip(diagnosis.other_jobs, jobs, strict=True), 2)
            ),
        ],
        findings=_findings(diagnosis),
    )


def _of_job(report: Report) -> Iterator[Block]:
    """All of the report of another job, as blocks of a section."""
    yield Paragraph(report.headline, Tone.STRONG)
    yield from report.summary
    for section in report.sections:
        if section.blocks:
            yield Heading(section.title)
            yield from section.blocks
    yield Items([finding.message for finding in report.findings])


def verdict_of(diagnosis: Diagnosis) -> list[str]:
    """A sentence for each problem, numbered if there are several; or that there is none; of which of several jobs."""
    first, *others = _verdict(diagnosis)
    return [f"Job {diagnosis.job}: {first}" if diagnosis.job else first, *others]


def _verdict(diagnosis: Diagnosis) -> list[str]:
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


# Of each problem why it is believed, what to do next, and below it all evidence.


MOST_IN_FULL = 10
"""Problems that are explained at all: others are consequences more often than causes."""
MOST_LINKS = 100
MOST_STACKS = 16
LONGEST_OPERATOR = 72
"""Characters of the name of an operator or a kernel."""


def _problem_sections(diagnosis: Diagnosis, journal: Journal | None) -> Iterator[Section]:
    """Of each of the first problems why it is believed, what to do next, and all calls and stacks that show it."""
    several = len(diagnosis.problems) + diagnosis.more_problems > 1
    for index, problem in enumerate(diagnosis.problems[:MOST_IN_FULL], 1):
        later = index > 1
        named = f" {index}" if several else ""
        heading = [Heading(f"{index}. {problem.message}")] if later else []
        why = Table(_why(problem, diagnosis.missing, journal), columns=_columns_of(problem))
        kind = problem.kind.replace("_", " ")
        yield Section(f"Problem{named}: {kind}", [*heading, why], anchor=f"problem-{index}", verbose=later)
        advice = [Paragraph(f"Next: {problem.advice}")] if problem.advice else []
        yield Section(f"What to do{named}", advice, verbose=later)
        yield Section(f"Evidence{named}", [*_evidence(problem)], verbose=True)
        if journal and not later:
            around = Only([Medium.HTML], partial(_around, diagnosis, journal))
            yield Section("Calls around the problem", [around], anchor="recent")


def _around(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    from tracelink._hang.report.entries import show_calls_around

    return show_calls_around(diagnosis, journal)


# Why it is believed: a row for each rank, in one table.


MOST_REASONS = 4
"""Rows of a problem: with their heading five lines."""
MOST_CALLS = 3


def _columns_of(problem: Problem) -> Sequence[str]:
    tensors = ["tensors"] if problem.category is Category.WRONG_ARGUMENTS else []
    return "rank", "call", "group", *tensors, "state", "called_from"


def _why(problem: Problem, missing: Sequence[int], journal: Journal | None) -> list[CallRow]:
    """The last calls of two culprits and of another rank, then what stacks and profiles show of culprits."""
    empty = journal.ranks[np.diff(journal.bounds) == 0].tolist() if journal else []
    culprits = [one for one in problem.evidence if one.role is Role.CULPRIT]
    others = [one for one in problem.evidence if one.role is not Role.CULPRIT]
    ranks = [*culprits[: MOST_CALLS - 1], *others[:1], *culprits[MOST_CALLS - 1 :], *others[1:]]
    calls = (call_row(*_last_of(one, problem)) for one in ranks[:MOST_CALLS])
    unseen = [
        CallRow(ranks_cell(some), state=state)
        for ranks_without, state in ((missing, "no dump"), (empty, "no call in its dump"))
        if (some := [rank for rank in problem.culprits if rank in ranks_without])
    ]
    stacks = (
        CallRow(f"{one.rank}", call=f"stack ({one.program})", called_from=describe_caller(one.frames))
        for one in problem.stacks
    )
    stretches = (_then(one.rank, stretch) for one in problem.sightings for stretch in one.stretches)
    return [*unseen, *calls, *stacks, *stretches][:MOST_REASONS]


def _last_of(evidence: Evidence, problem: Problem) -> tuple[str, Sequence[Entry], str]:
    """The rank, its last call, and that it waits there."""
    call = group_calls(evidence.entries)[-1]
    waits = evidence.rank in problem.waiting and call_row("", call).state not in (DONE, RETIRED)
    count = len(problem.waiting) if waits and evidence.role is Role.WAITING else 1
    others = f" (of {number(count)} waiting)" if count > 1 else ""
    return f"{evidence.rank}{others}", call, WAITS if waits else ""


def _then(rank: int, stretch: Stretch) -> CallRow:
    names = [readable_name(running.name) for running in reversed(stretch.running)]
    return CallRow(
        f"{rank}",
        call="then (profile)",
        state=duration(stretch.running[-1].duration_ns),
        called_from=" < ".join(shortened(name, LONGEST_OPERATOR) for name in names),
    )


# All evidence: the problem as a row, the cycle of a deadlock, calls, stacks, profiles, compile logs.


FIELDS = ("category", "culprits", "waiting", "waited_ns", "count", "proven", "tie")
LINK = ("ranks", "operation", "sequence", "group", "waits_for")


def _evidence(problem: Problem) -> Iterator[Block]:
    yield Table([problem], columns=FIELDS)
    if problem.cycle:
        yield Heading("Cycle of waits:")
        yield Table(problem.cycle, columns=LINK, thing="link", brief=MOST_LINKS, most=MOST_LINKS)
    if rows := [
        call_row(f"{one.rank}", call) for one in problem.evidence for call in group_calls(one.entries)
    ]:
        yield Heading("Last calls:")
        yield Table(rows, thing="call")
    for one in problem.evidence:
        yield from _stack(f"the last call of rank {one.rank}", one.entries[-1].frames)
    recorded = {one.rank for one in problem.evidence if one.entries[-1].frames}
    for sighting in problem.sightings:
        yield from _sighting(sighting, recorded)
    if problem.compiling:
        yield Heading("In compile logs:")
        yield Table(problem.compiling, thing="compilation")
    for stack in problem.stacks[:MOST_STACKS]:
        yield from _stack(f"rank {stack.rank} ({stack.program}, {stack.thread})", stack.frames)


def _stack(of: str, frames: Sequence[Frame]) -> list[Block]:
    return [Heading(f"Stack of {of}:"), stack_of(frames)] if frames else []


def _sighting(sighting: Sighting, recorded: Collection[int]) -> Iterator[Block]:
    """What profiles show of the call of a problem, and of what a rank did after it."""
    source = "profile" if sighting.end_ns is not None else "execution trace"
    note = f" ({sighting.note})" if sighting.note else ""
    yield Heading(f"In the {source} of rank {sighting.rank}{note}:")
    calls = [call for call in (sighting.call, sighting.later) if call]
    yield Table(calls, thing="call")
    yield Table([call.work for call in calls if call.work], thing="kernel")
    if sighting.call and sighting.rank not in recorded:
        yield from _stack(f"this call of rank {sighting.rank}", sighting.call.frames)
    for stretch in sighting.stretches:
        names = [f"{duration(one.duration_ns)} {readable_name(one.name)}" for one in stretch.running]
        yield Paragraph(f"Then, {duration(stretch.duration_ns)} on {stretch.where}: {' > '.join(names)}.")
    if sighting.end_ns is not None:
        yield Paragraph(f"The profile ends at {moment(sighting.end_ns)}.")


# How far each rank got in each group.


BRIEF_ROWS = 4
"""Rows that a terminal shows without -v: those of the problems first."""
MOST_ROWS = 200
"""Rows of a table on a page."""
STANDING = ("group", "description", "ranks", "operation", "sequence", "stage")


def _standings(diagnosis: Diagnosis) -> list[Section]:
    """The groups in which ranks differ, those of problems first; then those whose ranks are all at one collective."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for standing in diagnosis.standings:
        groups.setdefault((standing.group, standing.description), []).append(standing)
    problems = ((one.group, *(link.group for link in one.cycle)) for one in diagnosis.problems)
    named = list(dict.fromkeys(chain.from_iterable(problems)))
    differ = [group for group, standings in groups.items() if _differ(standings, group[0] in named)]
    differ.sort(
        key=lambda group: (named.index(group[0]) if group[0] in named else len(named), len(group[0]), group)
    )
    same = [group for group in groups if group not in differ]
    rows, others = ([one for group in some for one in groups[group]] for some in (differ, same))
    what = "with ranks at different collectives"
    blocks: list[Block] = [
        Table(
            rows, "", STANDING, brief=BRIEF_ROWS, most=MOST_ROWS, thing=f"row {what}", things=f"rows {what}"
        )
    ]
    if same:
        count = counted(len(same), "other group" if rows else "group")
        blocks.append(Paragraph(f"{count}: all ranks are at the same collective.", Tone.ASIDE))
    table = Table(others, "", STANDING, thing="row", most=MOST_ROWS)
    return [
        Section("How far each rank got", blocks, anchor="standings", verbose=not diagnosis.problems),
        Section("Groups whose ranks are all at the same collective", [table], verbose=True, titled=True),
    ]


def _differ(standings: Sequence[Standing], named: bool) -> bool:
    """True if ranks differ; not knowing where a rank is makes a difference in the groups of problems."""
    known = (one for one in standings if named or one.stage is not Stage.UNKNOWN)
    return len({(one.stage, one.sequence, one.operation) for one in known}) > 1


# Which dumps were diagnosed, and which are missing or damaged.


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
        yield Only([Medium.HTML], partial(_files, diagnosis, journal))


def _files(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    from tracelink._hang.report.database import rank_rows

    last = int(journal.records.created.max()) if len(journal) else NO_TIME
    created = f" The last entry was created at {moment(last)}." if last != NO_TIME else ""
    counts = ", ".join(f"{number(count)} {name}" for name, count in asdict(diagnosis.checked).items())
    yield Paragraph(f"Checked: {counts}.{created}", Tone.ASIDE)
    yield Table(rank_rows(journal, diagnosis), "Dumps", most=MOST_ROWS, thing="rank")


# Logs, stacks and NCCL's monitor, and what was read.


REPORTS = (
    "rank", "sign", "group", "description", "operation", "sequence", "elements_in", "timeout_ms", "enqueued",
    "completed",
)  # fmt: skip
"""Columns of watchdog lines."""


def _witness_sections(witnesses: Witnesses) -> Iterator[Section]:
    conflicts = [f"{one.message} ({', '.join(one.sources)})" for one in witnesses.conflicts]
    title = "Sources that contradict each other"
    yield Section(title, [Items(conflicts, 3, "contradiction")], anchor="conflicts", titled=True)
    yield Section("Stacks", [*_stacks(witnesses.stacks)])
    table = Table(witnesses.reports, columns=REPORTS, brief=100, most=MOST_ROWS, thing="line")
    yield Section("Watchdog lines", [table], anchor="watchdog", verbose=True, titled=True)
    files = Table(witnesses.used, thing="kind of file", things="kinds of files")
    yield Section("Files", [files], verbose=any(use.what == "dumps" for use in witnesses.used))


def _stacks(stacks: Sequence[FoldedStack]) -> Iterator[Block]:
    processes = sum(len(stack.ranks) + len(stack.processes) for stack in stacks)
    if processes < 2:
        return
    yield Paragraph(f"Stacks of {number(processes)} processes, the least common first:", Tone.STRONG)
    rows = [CallRow(_who(stack), called_from=describe_caller(stack.frames)) for stack in stacks]
    yield Table(rows, brief=4, thing="stack", most=MOST_STACKS)
    shown = stacks[:MOST_STACKS]
    whole = [Details(f"{_who(stack)} ({stack.program})", [stack_of(stack.frames)]) for stack in shown]
    yield Only([Medium.HTML], whole)


def _who(stack: FoldedStack) -> str:
    return ", ".join([*([ranks_cell(stack.ranks)] if stack.ranks else []), *stack.processes[:MOST_STACKS]])


DONE, STARTED, QUEUED, RETIRED, WAITS = "done", "started", "queued", "retired", "waits"
STATES = {"completed": DONE, "started": STARTED, "scheduled": QUEUED}
"""What people read for the states that recorders write."""

MOST_FRAMES = 20
"""Frames of a stack that a terminal shows without -v."""
LONGEST_STACK = 40
LONGEST_FRAME = 300
"""Characters of the name of a file or a function in a stack."""
LONGEST_FUNCTION = 60
LONGEST_CHAIN = 60
"""The same where several are in a line, and the lines together: a row of a problem fits on 118 characters."""
MOST_NAMES = 2
"""Operations, and tensors, that are named of calls that were issued as one."""
LONGEST_NAME = 24
LONGEST_TENSORS = 40
"""Characters of the name of an operation, and of the tensors of a call."""
NOT_OF_PROGRAM = ("torch/", "threading.py", "selectors.py")
"""Parts of the names of files that are not of the program."""


class CallRow(Row, frozen=True):
    """A call that a rank made: an entry of the flight recorder, or several that were issued as one."""

    rank: str
    time: Annotated[str, Shown("time (UTC)", drop=1)] = ""
    call: Annotated[str, Shown(longest=120)] = ""
    group: Annotated[str, Shown(longest=48)] = ""
    tensors: Annotated[str, Shown(drop=3)] = ""
    state: str = ""
    timeout: Annotated[str, Shown(drop=2)] = ""
    called_from: Annotated[str, Shown(longest=100)] = ""


def call_row(rank: str, call: Sequence[Entry], state: str = "") -> CallRow:
    """The row of a call of a rank; `state` if it is not what was recorded."""
    first, last = call[0], call[-1]
    retired = last.retired and last.state != "completed"
    return CallRow(
        rank,
        "" if first.created_ns is None else time_of_day(first.created_ns, digits=3),
        _call_name(call),
        group_label(first.group, first.description),
        tensors_in_words(call),
        state or (RETIRED if retired else STATES.get(last.state, "")),
        "" if first.timeout_ms is None else f"{first.timeout_ms / 1000:,.0f} s",
        describe_caller(last.frames),
    )


def group_calls(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries, with those that were issued as one call together."""
    calls: list[list[Entry]] = []
    for entry in entries:
        if not calls or not _issued_together(entry, calls[-1][0]):
            calls.append([])
        calls[-1].append(entry)
    return calls


def _issued_together(entry: Entry, first: Entry) -> bool:
    """Messages and collectives are numbered separately, so equal numbers are not enough."""
    same = entry.sequence is not None and (entry.group, entry.sequence) == (first.group, first.sequence)
    closes = operation_of(entry.operation) == Operation.COALESCED
    return same and (closes or _is_message(entry) == _is_message(first))


def _is_message(entry: Entry) -> bool:
    return operation_of(entry.operation) in POINT_TO_POINT


def _call_name(call: Sequence[Entry]) -> str:
    """`all_reduce #9`; of entries without a name of their own, `send 0->1, recv 0<-1 + 2 more #4`."""
    last = call[-1]
    coalesced = len(call) > 1 and operation_of(last.operation) == Operation.COALESCED
    names = list(dict.fromkeys(operation_in_words(one.operation) for one in call[: -1 if coalesced else 1]))
    if not coalesced:
        names = [operation_in_words(last.operation)]
    rest = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    sequence = "" if last.sequence is None else f" #{last.sequence}"
    return ", ".join(shortened(name, LONGEST_NAME) for name in names[:MOST_NAMES]) + rest + sequence


def tensors_in_words(call: Sequence[Entry], *, message: bool = False) -> str:
    """`Float 64x16`, `Float 64x16 -> 128x16`; of a message only what is sent, which is equal on both sides."""
    kinds = dict.fromkeys(kind for entry in call for kind in (*entry.input_types, *entry.output_types))
    given = _sizes([sizes for entry in call for sizes in entry.input_sizes])
    got = _sizes([sizes for entry in call for sizes in entry.output_sizes])
    sizes = f"{given} -> {got}" if given and got and got != given and not message else given or got
    return shortened(f"{'/'.join(kinds)} {sizes}".strip(), LONGEST_TENSORS)


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    shown = ", ".join("x".join(map(str, sizes)) or "scalar" for sizes in tensors[:MOST_NAMES])
    rest = len(tensors) - MOST_NAMES
    return f"{shown} + {rest} more" if rest > 0 else shown


# Stacks.


def describe_caller(frames: Sequence[Frame]) -> str:
    """The line of a call, and those of the program that led to it: `step (train.py:20) < main (train.py:80)`."""
    chain = ""
    for frame in (*frames[:1], *filter(_is_of_program, frames[1:])):
        line = f"{shortened(frame.name, LONGEST_FUNCTION)} ({line_in_words(frame)})"
        if chain and len(chain) + len(line) > LONGEST_CHAIN:
            break
        chain += f" < {line}" if chain else line
    return chain


def _is_of_program(frame: Frame) -> bool:
    other = any(part in frame.filename for part in NOT_OF_PROGRAM) or _is_of_python(frame)
    return frame.line > 0 and frame.name != "<module>" and not other


def _is_of_python(frame: Frame) -> bool:
    name = frame.filename
    return name.startswith("<") or ("/python3" in name and "-packages" not in name)


def stack_of(frames: Sequence[Frame]) -> Frames:
    """A stack, the innermost frame first; a terminal begins with frames of the program only."""
    shown = [
        (f"{clipped(frame.filename, LONGEST_FRAME)}:{frame.line}", clipped(frame.name, LONGEST_FRAME))
        for frame in frames[:LONGEST_STACK]
    ]
    inner = [index for index, frame in enumerate(frames) if not _is_of_python(frame)]
    return Frames(shown, min(MOST_FRAMES, inner[-1] + 1) if inner else MOST_FRAMES)
