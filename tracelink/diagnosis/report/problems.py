"""The part of the document for each problem: why it is believed, what to do next, and below it all evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import (
    CallSeen,
    Category,
    Diagnosis,
    Evidence,
    Link,
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
from tracelink.diagnosis.verdicts.base import CATEGORY_IN_WORDS
from tracelink.diagnosis.verdicts.compilations import compiled_in_words, how_long, which_time
from tracelink.model.fields import FrozenRanks, Row, Shown
from tracelink.model.records import Entry, line_in_words, readable_name
from tracelink.model.text import (
    counted,
    duration,
    group_name,
    number,
    numbered,
    rank_list,
    shortened,
    time_of_day,
)
from tracelink.model.witnesses import Compiling
from tracelink.show.document import (
    Block,
    Facts,
    Heading,
    Medium,
    Only,
    Paragraph,
    Section,
    Table,
    Tone,
)

MOST_IN_FULL = 10
"""Problems that are explained at all: others are consequences more often than causes."""
MOST_LINKS = 100
MOST_OTHERS = 4
"""Compile logs and stacks of culprits."""


def problem_sections(diagnosis: Diagnosis, journal: Journal | None) -> Iterator[Section]:
    """Of each of the first problems why it is believed, what to do next, and all calls and stacks that show it."""
    several = len(diagnosis.problems) + diagnosis.more_problems > 1
    descriptions = {item.group: item.description for item in diagnosis.standings}
    for index, problem in enumerate(diagnosis.problems[:MOST_IN_FULL], 1):
        later = index > 1
        named = f" {index}" if several else ""
        heading = [Heading(f"{index}. {problem.message}")] if later else []
        why = Table(_why(problem), columns=_columns_of(problem))
        kind = problem.kind.replace("_", " ")
        yield Section(f"Problem{named}: {kind}", [*heading, why], anchor=f"problem-{index}", verbose=later)
        advice = [Paragraph(f"Next: {problem.advice}")] if problem.advice else []
        yield Section(f"Next{named}", advice, verbose=later)
        yield Section(f"Evidence{named}", [*_evidence(problem, descriptions)], verbose=True)
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


# All evidence: facts, the cycle of a deadlock, calls, stacks, profiles, compile logs.


def _evidence(problem: Problem, descriptions: dict[str, str]) -> Iterator[Block]:
    yield _facts(problem)
    yield from _cycle(problem.cycle, descriptions)
    rows = [call_row(f"{one.rank}", call) for one in problem.evidence for call in together(one.entries)]
    if rows:
        yield Heading("Last calls:")
        yield Table(rows, thing="call")
    for one in problem.evidence:
        if frames := one.entries[-1].frames:
            yield Heading(f"Stack of the last call of rank {one.rank}:")
            yield stack_of(frames)
    for sighting in problem.sightings:
        yield from _sighting(sighting, problem)
    for compiling in problem.compiling[:MOST_OTHERS]:
        yield from _compiling(compiling)
    yield from _more(len(problem.compiling) - MOST_OTHERS, "compile log")
    for stack in problem.stacks[:MOST_OTHERS]:
        yield Heading(f"Stack of rank {stack.rank} ({stack.program}, {stack.thread}):")
        yield stack_of(stack.frames)
    yield from _more(len(problem.stacks) - MOST_OTHERS, "stack")


def _more(count: int, thing: str) -> list[Block]:
    return (
        [Paragraph(f"{counted(count, f'more {thing}')} (--json has all).", Tone.ASIDE)] if count > 0 else []
    )


def _facts(problem: Problem) -> Facts:
    tie = "; they differ, and it is unknown which of them is wrong" if problem.tie else ""
    tie += "" if problem.proven else "; known only from the dumps of other ranks"
    where = group_name(problem.group, problem.description)
    return _known(
        {
            "Class": CATEGORY_IN_WORDS[problem.category],
            "Culprits": _ranks(problem.culprits, "unknown") + tie,
            "Waiting": _ranks(problem.waiting, "no rank"),
            "For": f"at least {duration(problem.waited_ns)}" if problem.waited_ns is not None else "",
            "Where": f"{numbered(problem.operation, problem.sequence)} of {where}",
            "Shown by": counted(problem.count, "collective") if problem.count > 1 else "",
        }
    )


def _known(values: dict[str, str]) -> Facts:
    return Facts({name: text for name, text in values.items() if text})


def _ranks(ranks: Sequence[int], nothing: str) -> str:
    if not ranks:
        return nothing
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}"


class LinkRow(Row, frozen=True):
    """Ranks that wait in a collective of a cycle."""

    ranks: FrozenRanks
    call: Annotated[str, Shown("are in", longest=120)]
    waits_for: Annotated[FrozenRanks, Shown("wait for ranks")]


def _cycle(cycle: Sequence[Link], descriptions: dict[str, str]) -> Iterator[Block]:
    rows = [
        LinkRow(
            link.ranks,
            f"{numbered(link.operation, link.sequence)} of "
            f"{group_name(link.group, descriptions.get(link.group, ''))}",
            link.waits_for,
        )
        for link in cycle
    ]
    if rows:
        yield Heading("Cycle of waits:")
        yield Table(rows, thing="link", brief=MOST_LINKS, most=MOST_LINKS)


# Sightings: what profiles show of the call of a problem, and of what a rank did after it.


MOST_NESTED = 16
"""Names of nested operators and functions, the innermost ones."""
MOST_FRAMES = 4
LONGEST_OPERATOR = 72
"""Characters of the name of an operator or a kernel."""
WITHIN = " > "


def _sighting(sighting: Sighting, problem: Problem) -> Iterator[Block]:
    source = "profile" if sighting.end_ns is not None else "execution trace"
    note = f" ({sighting.note})" if sighting.note else ""
    yield Heading(f"In the {source} of rank {sighting.rank}{note}:")
    facts = _call_facts(sighting.call, problem, sighting.rank) if sighting.call else {}
    facts |= {f"then, on {stretch.where}": _stretch(stretch) for stretch in sighting.stretches}
    if sighting.later:
        facts["next call"] = f"{_call_seen(sighting.later)}: the profile continues after the dump was written"
    if sighting.end_ns is not None:
        facts["it ends at"] = f"{time_of_day(sighting.end_ns)} UTC"
    yield _known(facts)


def _call_facts(call: CallSeen, problem: Problem, rank: int) -> dict[str, str]:
    work = ""
    if call.work:
        length = "did not end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        work = f"{shortened(call.work.name, LONGEST_OPERATOR)} on {call.work.where}, {length}"
    elif call.launched is not None:
        work = "did not end within the profile" if call.launched else "none was launched"
    recorded = any(one.rank == rank and one.entries[-1].frames for one in problem.evidence)
    frames = [f"{frame.name} ({line_in_words(frame)})" for frame in call.frames[:MOST_FRAMES]]
    return {
        _call_seen(call): f"{_nested([*call.around, call.operator])}, on {call.thread}",
        "in": "" if recorded else ", ".join(frames),
        "kernel": work,
        "node": "" if call.node is None else f"{call.node} of the execution trace",
    }


def _call_seen(call: CallSeen) -> str:
    before = f", {counted(call.before, 'call')} earlier" if call.before else ""
    return f"{numbered(call.operation, call.sequence)}{before}"


def _nested(names: Sequence[str]) -> str:
    """Nested names, the innermost last."""
    shown = [shortened(readable_name(name), LONGEST_OPERATOR) for name in names[-MOST_NESTED:]]
    return WITHIN.join([*(["…"] if len(shown) < len(names) else []), *shown])


def _stretch(stretch: Stretch) -> str:
    names = _nested([running.name for running in stretch.running])
    part, total = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    return f"for {total} {names}" if part == total else f"for {part} of {total} {names}"


def _compiling(one: Compiling) -> Iterator[Block]:
    yield Heading(f"In the compile log of rank {one.rank}:")
    yield _known(
        {
            "compiling": compiled_in_words(one),
            "since": f"{time_of_day(one.since_ns)} UTC, {how_long(one)}",
            "for the": which_time(one) if one.cold is not None else "",
            "within": WITHIN.join(one.phases) if len(one.phases) > 1 else "",
        }
    )
