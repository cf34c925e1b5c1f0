"""The part of the document for each problem: why it is believed, what to do next, and below it all evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import (
    Category,
    Diagnosis,
    Evidence,
    Problem,
    Role,
    Sighting,
    Stretch,
)
from tracelink.diagnosis.report.calls import (
    DONE,
    RETIRED,
    WAITS,
    CallRow,
    call_row,
    called_from,
    stack_of,
    together,
)
from tracelink.model.records import Entry, Frame, readable_name
from tracelink.model.text import (
    duration,
    moment,
    number,
    shortened,
)
from tracelink.show.document import (
    Block,
    Heading,
    Medium,
    Only,
    Paragraph,
    Section,
    Table,
)

MOST_IN_FULL = 10
"""Problems that are explained at all: others are consequences more often than causes."""
MOST_LINKS = 100
MOST_STACKS = 4
LONGEST_OPERATOR = 72
"""Characters of the name of an operator or a kernel."""


def problem_sections(diagnosis: Diagnosis, journal: Journal | None) -> Iterator[Section]:
    """Of each of the first problems why it is believed, what to do next, and all calls and stacks that show it."""
    several = len(diagnosis.problems) + diagnosis.more_problems > 1
    for index, problem in enumerate(diagnosis.problems[:MOST_IN_FULL], 1):
        later = index > 1
        named = f" {index}" if several else ""
        heading = [Heading(f"{index}. {problem.message}")] if later else []
        why = Table(_why(problem), columns=_columns_of(problem))
        kind = problem.kind.replace("_", " ")
        yield Section(f"Problem{named}: {kind}", [*heading, why], anchor=f"problem-{index}", verbose=later)
        advice = [Paragraph(f"Next: {problem.advice}")] if problem.advice else []
        yield Section(f"Next{named}", advice, verbose=later)
        yield Section(f"Evidence{named}", [*_evidence(problem)], verbose=True)
        if journal and not later:
            around = Only([Medium.HTML], partial(_around, diagnosis, journal))
            yield Section("Calls around the problem", [around], anchor="recent")


def _around(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    from tracelink.diagnosis.report.table import around

    return around(diagnosis, journal)


# Why it is believed: a row for each rank, in one table.


MOST_REASONS = 4
"""Rows of a problem: with their heading five lines."""
MOST_CALLS = 3


def _columns_of(problem: Problem) -> Sequence[str]:
    tensors = ["tensors"] if problem.category is Category.WRONG_ARGUMENTS else []
    return "rank", "call", "group", *tensors, "state", "called_from"


def _why(problem: Problem) -> list[CallRow]:
    """The last calls of two culprits and of another rank, then what stacks and profiles show of culprits."""
    culprits = [one for one in problem.evidence if one.role is Role.CULPRIT]
    others = [one for one in problem.evidence if one.role is not Role.CULPRIT]
    ranks = [*culprits[: MOST_CALLS - 1], *others[:1], *culprits[MOST_CALLS - 1 :], *others[1:]]
    calls = (call_row(*_last_of(one, problem)) for one in ranks[:MOST_CALLS])
    stacks = (
        CallRow(f"{one.rank}", call=f"stack ({one.program})", called_from=called_from(one.frames))
        for one in problem.stacks
    )
    stretches = (_then(one.rank, stretch) for one in problem.sightings for stretch in one.stretches)
    return [*calls, *stacks, *stretches][:MOST_REASONS]


def _last_of(evidence: Evidence, problem: Problem) -> tuple[str, Sequence[Entry], str]:
    """The rank, its last call, and that it waits there."""
    call = together(evidence.entries)[-1]
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
SEEN = (
    "operation",
    "sequence",
    "before",
    "operator",
    "thread",
    "start_ns",
    "duration_ns",
    "launched",
    "around",
    "node",
)


def _evidence(problem: Problem) -> Iterator[Block]:
    yield Table([problem], columns=FIELDS)
    if problem.cycle:
        yield Heading("Cycle of waits:")
        yield Table(problem.cycle, columns=LINK, thing="link", brief=MOST_LINKS, most=MOST_LINKS)
    if rows := [call_row(f"{one.rank}", call) for one in problem.evidence for call in together(one.entries)]:
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
    yield Table(calls, columns=SEEN, thing="call")
    yield Table([call.work for call in calls if call.work], thing="kernel")
    if sighting.call and sighting.rank not in recorded:
        yield from _stack(f"this call of rank {sighting.rank}", sighting.call.frames)
    for stretch in sighting.stretches:
        names = [f"{duration(one.duration_ns)} {readable_name(one.name)}" for one in stretch.running]
        yield Paragraph(f"Then, {duration(stretch.duration_ns)} on {stretch.where}: {' > '.join(names)}.")
    if sighting.end_ns is not None:
        yield Paragraph(f"The profile ends at {moment(sighting.end_ns)}.")
