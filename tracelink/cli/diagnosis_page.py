"""The page of `tracelink diagnose`: the verdict first, below it the evidence, what to do next, and notes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tracelink.cli.terminal import EMPTY, Page, more, show_findings
from tracelink.diagnosis.dumps.movement import movement_in_words
from tracelink.diagnosis.explain import compiled_in_words, how_long, which_time
from tracelink.diagnosis.model import (
    CallSeen,
    Diagnosis,
    Evidence,
    Kind,
    Lateness,
    Problem,
    Role,
    Sighting,
    Stage,
    Standing,
    Stretch,
    Verdict,
)
from tracelink.diagnosis.verdicts import CATEGORY_IN_WORDS
from tracelink.model.columns import SECOND
from tracelink.model.findings import Finding
from tracelink.model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.model.records import Entry, Frame, line_in_words, readable_name
from tracelink.model.text import (
    LONGEST_GROUP,
    counted,
    duration,
    group_cell,
    group_in_words,
    lowered,
    number,
    operation_in_words,
    ranks_cell,
    ranks_in_words,
    shortened,
    time_of_day,
)

if TYPE_CHECKING:
    from tracelink.diagnosis.witnesses.model import Compiling, Stack

MOST_PROBLEMS = 10
MOST_EXPLAINED = 3
"""Problems that are listed, and those of them that are explained, without -v."""

HEADLINE: Mapping[Verdict, str] = {"ok": "bold green", "in_flight": "bold yellow", "problem": "bold red"}
"""The style of the first lines."""

MOST_NOTES = 3
"""Notes that are shown for a job without problems; next to a problem they are only counted."""

SELECTION = frozenset({"attempts", "generations"})
"""The reasons of findings on dumps that were not diagnosed because there are newer ones."""

WRAPPED = "wrapped"
"""The reason of the finding that a ring buffer has overwritten its first entries."""


def diagnosis_page(diagnosis: Diagnosis, *, verbose: bool, limit: int | None = None) -> str:
    """The diagnosis on one screen; at most `limit` problems, 0 for all."""
    page = Page()
    shown = _most_problems(diagnosis, limit, verbose=verbose)
    for line in _headlines(diagnosis, shown) or [_healthy(diagnosis)]:
        page.line(line, HEADLINE[diagnosis.verdict])
    _show_selection(page, diagnosis)
    if diagnosis.problems or verbose:
        page.gap()
        _show_standings(page, diagnosis, verbose=verbose)
    _explain(page, diagnosis.problems[:shown], verbose=verbose)
    if diagnosis.witnesses:
        from tracelink.cli.witnesses_page import show_uses, show_witnesses

        show_witnesses(page, diagnosis.witnesses, verbose=verbose)
        page.gap()
        show_uses(page, diagnosis.witnesses.used)
    page.gap()
    _show_absent(page, diagnosis, verbose=verbose)
    _show_lateness(page, diagnosis.lateness, verbose=verbose)
    page.gap()
    _show_wrapped(page, diagnosis.findings)
    without_option = 0 if diagnosis.problems else MOST_NOTES
    _show_notes(page, diagnosis.notes, len(diagnosis.notes) if verbose else without_option)
    _show_findings(page, diagnosis, verbose=verbose)
    return page.text


def verdict(diagnosis: Diagnosis, limit: int | None = None) -> list[str]:
    """A line for each problem; for at most `limit` of them, 0 for all."""
    return _headlines(diagnosis, _most_problems(diagnosis, limit, verbose=False))


def _most_problems(diagnosis: Diagnosis, limit: int | None, *, verbose: bool) -> int:
    total = len(diagnosis.problems)
    if limit is None:
        return total if verbose else MOST_PROBLEMS
    return limit or total


def _headlines(diagnosis: Diagnosis, most: int) -> list[str]:
    messages = [problem.message for problem in diagnosis.problems]
    if len(messages) < 2:
        return messages
    lines = [f"{index}. {message}" for index, message in enumerate(messages[:most], 1)]
    rest = len(messages) - most
    return lines + ([more(rest, "problem", "--limit 0")] if rest > 0 else [])


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
    return (
        f"No problem found: {ranks}, {counted(checked.groups, 'group')}, {' and '.join(operations)}, "
        f"{counted(checked.entries, 'entry')}. {_compared(checked.ranks, total)}"
    )


def _compared(ranks: int, total: int) -> str:
    if ranks == 1 < total:
        return "There is no dump of another rank to compare with."
    return "All ranks joined; operations, types and sizes agree."


def _show_selection(page: Page, diagnosis: Diagnosis) -> None:
    """Which of several dumps of a rank were diagnosed, and what ranks did since earlier ones."""
    for finding in diagnosis.findings:
        if finding.reason in SELECTION:
            page.line(finding.message)
    if diagnosis.movement:
        page.line(movement_in_words(diagnosis.movement))


def _explain(page: Page, problems: Sequence[Problem], *, verbose: bool) -> None:
    """The evidence for each problem and what to do about it; equal advice only once."""
    given = set()
    for index, problem in enumerate(problems[: None if verbose else MOST_EXPLAINED], 1):
        if len(problems) > 1:
            page.gap()
            page.line(f"{index}. {problem.message}", "bold")
        _show_evidence(page, problem, verbose=verbose)
        _show_sightings(page, problem, verbose=verbose)
        _show_compiling(page, problem.compiling, verbose=verbose)
        _show_stacks(page, problem.stacks, verbose=verbose)
        if problem.advice:
            page.gap()
            page.line(f"Class: {CATEGORY_IN_WORDS[problem.category]}.")
        if problem.advice and problem.advice not in given:
            page.line(f"Next: {problem.advice}")
        given.add(problem.advice)


def _show_wrapped(page: Page, findings: Sequence[Finding]) -> None:
    if count := sum(finding.reason == WRAPPED for finding in findings):
        buffers, have = (
            (f"buffers of {number(count)} ranks", "have") if count > 1 else ("buffer of 1 rank", "has")
        )
        page.line(f"Note: The ring {buffers} {have} wrapped: the first entries are lost.")


def _show_notes(page: Page, notes: Sequence[str], most: int) -> None:
    for note in notes[:most]:
        page.line(f"Note: {note}")
    if (rest := len(notes) - most) > 0:
        page.line(more(rest, "note"), "dim")


def _show_findings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """The findings that nothing above reports."""
    reported = set(diagnosis.unreadable.values())
    others = [
        finding
        for finding in diagnosis.findings
        if finding.message not in reported
        and finding.reason not in SELECTION
        and (verbose or finding.reason != WRAPPED)
    ]
    show_findings(page, others, verbose=verbose)


# Standings: the last collective of each rank in each group, and its state.


STANDINGS = ("group", "ranks", "last collective", "state")
MOST_GROUPS = 8
"""Groups that are shown without -v: those of the problems first."""


def _show_standings(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """The groups in which ranks are at different collectives, or that a problem names."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for standing in diagnosis.standings:
        groups.setdefault((standing.group, standing.description), []).append(standing)
    named = _groups_of_problems(diagnosis)
    relevant = [
        group
        for group, standings in groups.items()
        if _differ(standings)
        or (group[0] in named and any(standing.sequence is not None for standing in standings))
    ]
    shown = list(groups) if verbose else relevant
    shown.sort(
        key=lambda group: (named.index(group[0]) if group[0] in named else len(named), _natural(*group))
    )
    shown = shown if verbose else shown[:MOST_GROUPS]
    rows = [row for group in shown for row in _standing_rows(group, groups[group])]
    if rows:
        page.table(STANDINGS, rows)
    if verbose:
        return
    if rest := len(relevant) - len(shown):
        page.line(more(rest, "group", "-v", where="with ranks at different collectives"), "dim")
    if equal := len(groups) - len(relevant):
        others = "other " if rows else ""
        page.line(f"{counted(equal, f'{others}group')}: all ranks are at the same collective.", "dim")


def _groups_of_problems(diagnosis: Diagnosis) -> list[str]:
    names: dict[str, None] = {}
    for problem in diagnosis.problems:
        names.update(dict.fromkeys([problem.group, *(link.group for link in problem.cycle)]))
    return list(names)


def _natural(name: str, description: str) -> tuple[int, str, str]:
    """A sort key that puts 9 before 10."""
    return len(name) if name.isdigit() else LONGEST_GROUP, name, description


def _differ(standings: Sequence[Standing]) -> bool:
    """True if ranks whose last collective is known are at different collectives."""
    return sum(standing.stage is not Stage.UNKNOWN for standing in standings) > 1


def _standing_rows(group: tuple[str, str], standings: Sequence[Standing]) -> list[tuple[str, ...]]:
    """The rows of a group, the ranks that are furthest behind first."""
    front = max(standing.sequence or 0 for standing in standings)
    return [
        (
            "" if index else group_cell(*group),
            ranks_cell(standing.ranks),
            _last(standing),
            _stage(standing, front),
        )
        for index, standing in enumerate(standings)
    ]


def _last(standing: Standing) -> str:
    if standing.sequence is None:
        return EMPTY
    operation = operation_in_words(standing.operation) if standing.operation else ""
    return f"{operation} #{standing.sequence}".strip()


def _stage(standing: Standing, front: int) -> str:
    match standing.stage:
        case Stage.NEVER_JOINED:
            return "never joined" if front else "no collectives"
        case Stage.WAITING:
            return "joined, not finished"
        case Stage.ENDING:
            return "joined, others have finished"
        case Stage.FINISHED:
            sequence = standing.sequence or 0
            return f"finished, did not join #{sequence + 1}" if sequence < front else "finished"
        case Stage.UNKNOWN:
            return "unknown" if standing.sequence is None else "joined, unknown after that"


# Evidence: the last calls of the culprits, and where the other ranks wait, with their stacks.


CALLS = ("time (UTC)", "group", "call", "sizes", "type", "state", "called at", "function")
OPTIONAL = ("time (UTC)", "type", "state", "function")
"""Columns that are left out of a narrow terminal, in this order."""

MOST_CALLS = 2
"""Calls of each culprit but the first."""

MOST_FRAMES = 4
MOST_NAMES = 2
"""Operations that are named of calls that were issued as one."""

LONGEST_CELL = 24
"""Characters of a cell."""

OF_PYTHON = re.compile(r"/python3(?:\.\d+)?/(?!.*(?:site|dist)-packages)|^<")
"""Files of Python itself: they start every program."""


def _show_evidence(page: Page, problem: Problem, *, verbose: bool) -> None:
    for index, evidence in enumerate(problem.evidence):
        page.gap()
        if evidence.role is Role.CULPRIT:
            calls = _calls(evidence.entries)
            recent = calls if verbose or not index else calls[-MOST_CALLS:]
            _show_culprit(page, evidence.rank, recent, until=_until(problem), verbose=verbose)
        else:
            _show_waiting(page, evidence, problem, verbose=verbose)


def _until(problem: Problem) -> str:
    """Which call is the last one that is shown, if it is not the last one of the dump."""
    return " until its longest delay" if problem.kind is Kind.STRAGGLER else ""


def _calls(entries: Sequence[Entry]) -> list[list[Entry]]:
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


def _show_culprit(
    page: Page, rank: int, calls: Sequence[Sequence[Entry]], *, until: str, verbose: bool
) -> None:
    page.line(f"Last calls of rank {rank}{until}:", "bold")
    rows = [_call_row(call) for call in calls]
    known = [
        column
        for column, name in enumerate(CALLS)
        if name == "call" or any(row[column] != EMPTY for row in rows)
    ]
    page.table(
        [CALLS[column] for column in known],
        [[row[column] for column in known] for row in rows],
        optional=[name for name in OPTIONAL if CALLS.index(name) in known],
    )
    _show_stack(page, calls[-1][-1].frames, verbose=verbose)


def _show_waiting(page: Page, evidence: Evidence, problem: Problem, *, verbose: bool) -> None:
    entry = evidence.entries[-1]
    waits = evidence.rank in problem.waiting
    count = len(problem.waiting)
    one_of = f" (one of {number(count)} waiting ranks)" if waits and count > 1 else ""
    call = f"{_call_name(evidence.entries)} of {group_in_words(entry.group, entry.description)}"
    end = ":" if entry.frames else "."
    page.line(f"Rank {evidence.rank}{one_of} {'waits in' if waits else 'called'} {call}{end}", "bold")
    _show_stack(page, entry.frames, verbose=verbose)


def _show_stack(page: Page, frames: Sequence[Frame], *, verbose: bool) -> None:
    shown = frames if verbose else program_frames(frames)[:MOST_FRAMES]
    page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in shown])


def program_frames(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames that are not Python's own; all if there are no others."""
    return [frame for frame in frames if not OF_PYTHON.search(frame.filename)] or frames


def _call_row(call: Sequence[Entry]) -> list[str]:
    first, last = call[0], call[-1]
    frame = last.frames[0] if last.frames else None
    return [
        EMPTY if first.created_ns is None else time_of_day(first.created_ns, digits=3),
        group_cell(first.group, first.description) or EMPTY,
        _call_name(call),
        _sizes(call),
        _types(first),
        _state(last),
        line_in_words(frame) if frame else EMPTY,
        frame.name if frame else EMPTY,
    ]


def _call_name(call: Sequence[Entry]) -> str:
    """`all_reduce #9`; of entries without a name of their own, `send 0->1, recv 0<-1 + 2 more #4`."""
    last = call[-1]
    sequence = "" if last.sequence is None else f" #{last.sequence}"
    if len(call) < 2 or operation_of(last.operation) != Operation.COALESCED:
        return f"{_cell(operation_in_words(last.operation))}{sequence}"
    names = list(dict.fromkeys(operation_in_words(entry.operation) for entry in call[:-1]))
    rest = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(_cell, names[:MOST_NAMES]))}{rest}{sequence}"


def _sizes(call: Sequence[Entry]) -> str:
    """Sizes of inputs; also of outputs if they differ and fit."""
    inputs = _first_of([sizes for entry in call for sizes in entry.input_sizes])
    outputs = _first_of([sizes for entry in call for sizes in entry.output_sizes])
    both = f"{inputs} → {outputs}"
    if inputs == EMPTY:
        return outputs
    return inputs if outputs in (EMPTY, inputs) or len(both) > LONGEST_CELL else both


def _first_of(sizes: Sequence[Sequence[int]]) -> str:
    if not sizes:
        return EMPTY
    return f"{_cell(str(list(sizes[0])))}{f' + {len(sizes) - 1} more' if len(sizes) > 1 else ''}"


def _types(entry: Entry) -> str:
    return _cell(", ".join(dict.fromkeys([*entry.input_types, *entry.output_types]))) or EMPTY


def _state(entry: Entry) -> str:
    if entry.retired and entry.state != "completed":
        return "retired"
    return entry.state or EMPTY


def _cell(text: str) -> str:
    return shortened(text, LONGEST_CELL)


# Sightings: what profiles show of the call of a problem, and of what a rank did after it.


MOST_AROUND = 4
MOST_RUNNING = 3
LONGEST_OPERATOR = 72
"""Characters of the name of an operator or a kernel."""

CALLS_SIGN = " > "


def _show_sightings(page: Page, problem: Problem, *, verbose: bool) -> None:
    for sighting in problem.sightings:
        page.gap()
        source = "profile" if sighting.end_ns is not None else "execution trace"
        note = f" ({sighting.note})" if sighting.note else ""
        page.line(f"In the {source} of rank {sighting.rank}{note}:", "bold")
        page.beneath(list(_sighting_rows(sighting, problem, verbose=verbose)))


def _sighting_rows(sighting: Sighting, problem: Problem, *, verbose: bool) -> Iterator[tuple[str, str]]:
    call = sighting.call
    if call:
        operators = _chain([*call.around, call.operator], MOST_AROUND, verbose=verbose)
        yield _call_seen(call), f"{operators}, on {call.thread}"
        if call.frames and (verbose or not _has_stack(problem, sighting.rank)):
            yield (
                "in",
                ", ".join(f"{frame.name} ({line_in_words(frame)})" for frame in call.frames[:MOST_FRAMES]),
            )
        if work := _work(call):
            yield "kernel", work
        if call.node is not None:
            yield "node", f"{call.node} of the execution trace"
    for stretch in sighting.stretches:
        yield "then", _stretch(stretch, verbose=verbose)
    if sighting.later:
        yield "then", f"{_call_seen(sighting.later)}: the profile continues after the dump was written"


def _has_stack(problem: Problem, rank: int) -> bool:
    """True if the evidence already shows a stack of this rank."""
    return any(evidence.rank == rank and evidence.entries[-1].frames for evidence in problem.evidence)


def _call_seen(call: CallSeen) -> str:
    sequence = "" if call.sequence is None else f" #{call.sequence}"
    before = f", {counted(call.before, 'call')} earlier" if call.before else ""
    return f"{call.operation}{sequence}{before}"


def _chain(names: Sequence[str], most: int, *, verbose: bool) -> str:
    """Nested names, the innermost last."""
    shown = names if verbose else names[-most:]
    dots = ["…"] if len(shown) < len(names) else []
    return CALLS_SIGN.join([*dots, *(shortened(readable_name(name), LONGEST_OPERATOR) for name in shown)])


def _work(call: CallSeen) -> str:
    if call.work:
        length = "did not end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        return f"{shortened(call.work.name, LONGEST_OPERATOR)} on {call.work.where}, {length}"
    if call.launched is None:
        return ""
    return "did not end within the profile" if call.launched else "none was launched"


def _stretch(stretch: Stretch, *, verbose: bool) -> str:
    names = _chain([running.name for running in stretch.running], MOST_RUNNING, verbose=verbose)
    part, total = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    time = f"for {total}" if part == total else f"for {part} of {total}"
    return f"{time} {names}, on {stretch.where}"


# What compile logs and files with stacks show of culprits.


MOST_COMPILING = 3


def _show_compiling(page: Page, compiling: Sequence[Compiling], *, verbose: bool) -> None:
    for one in compiling[: None if verbose else MOST_COMPILING]:
        page.gap()
        page.line(f"In the compile log of rank {one.rank}:", "bold")
        page.beneath(
            [
                ("compiling", compiled_in_words(one)),
                ("since", f"{time_of_day(one.since_ns)} UTC, {how_long(one)}"),
                *([("for the", which_time(one))] if one.cold is not None else []),
                *([("within", CALLS_SIGN.join(one.phases))] if len(one.phases) > 1 else []),
            ]
        )
    if not verbose and (rest := len(compiling) - MOST_COMPILING) > 0:
        page.line(more(rest, "compile log", "-v"), "dim")


MOST_STACKS = 3
MOST_INNERMOST = 8


def _show_stacks(page: Page, stacks: Sequence[Stack], *, verbose: bool) -> None:
    """The innermost frames of each, with the files of torch."""
    for stack in stacks[: None if verbose else MOST_STACKS]:
        page.gap()
        page.line(f"The stack of rank {stack.rank} ({stack.program}, {stack.thread}):", "bold")
        frames = stack.frames if verbose else stack.frames[:MOST_INNERMOST]
        page.beneath([(line_in_words(frame), frame.name) for frame in frames])
    if not verbose and (rest := len(stacks) - MOST_STACKS) > 0:
        page.line(more(rest, "stack", "-v"), "dim")


# Ranks without a complete dump, and what the dumps of the other ranks show about them.


MOST_COLLECTIVES = 4
"""Collectives that are named of those that absent ranks joined."""


def _show_absent(page: Page, diagnosis: Diagnosis, *, verbose: bool) -> None:
    """A line for missing dumps, and one for damaged dumps; with `verbose` one for each damaged dump."""
    if diagnosis.missing:
        page.line(
            f"No dump of {lowered(ranks_in_words(diagnosis.missing))}. {_reached(diagnosis, diagnosis.missing)}",
            "yellow",
        )
    damaged = list(diagnosis.unreadable)
    if len(damaged) > 1 and not verbose:
        page.line(
            f"The dumps of {lowered(ranks_in_words(damaged))} are damaged. {_reached(diagnosis, damaged)} "
            f"The first: {diagnosis.unreadable[damaged[0]]}",
            "yellow",
        )
        return
    for rank in damaged:
        reason = diagnosis.unreadable[rank]
        page.line(f"The dump of rank {rank} is damaged: {reason} {_reached(diagnosis, [rank])}", "yellow")


def _reached(diagnosis: Diagnosis, ranks: Sequence[int]) -> str:
    """What the dumps of the other ranks show about these."""
    they, them = ("they", "them") if len(ranks) > 1 else ("it", "it")
    if any(not set(problem.culprits).isdisjoint(ranks) for problem in diagnosis.problems):
        return f"See the problem above for what the other dumps show about {them}."
    joined = _joined(diagnosis.standings, ranks)
    if not joined:
        return f"The other dumps do not show how far {they} got."
    return f"The other dumps show that {they} joined {', '.join(joined)}, but not what came after."


def _joined(standings: Sequence[Standing], ranks: Sequence[int]) -> list[str]:
    """The last collectives that these ranks must have joined, because other ranks finished them."""
    last: dict[str, int] = {}
    for standing in standings:
        unknown = standing.stage is Stage.UNKNOWN and not set(standing.ranks).isdisjoint(ranks)
        if unknown and standing.sequence is not None:
            group = group_in_words(standing.group, standing.description)
            last[group] = max(last.get(group, 0), standing.sequence)
    return [f"#{sequence} of {group}" for group, sequence in last.items()][:MOST_COLLECTIVES]


# Lateness: which ranks arrived last in collectives.


LATENESS = ("rank", "last in", "of", "total wait", "longest wait", "at")
STANDS_OUT = 4
"""A rank stands out if the other ranks waited this many times as long for it as for any other."""


def _show_lateness(page: Page, lateness: Sequence[Lateness], *, verbose: bool) -> None:
    """The rank that stands out, if any; with `verbose` a row for each rank."""
    if lateness and verbose:
        page.gap()
        page.line("Ranks that arrived last, and how long the other ranks waited for them:", "bold")
        page.table(LATENESS, [_lateness_row(rank) for rank in lateness], numbers=LATENESS[:-1])
    elif lateness and _stands_out(lateness):
        first = lateness[0]
        page.line(
            f"Straggler: rank {first.rank} arrived last in {number(first.collectives)} of "
            f"{counted(first.of, 'collective')}; the other ranks waited {duration(first.total_ns)} for it in total, "
            f"at most {duration(first.worst_ns)} at once ({_collective(first)})."
        )


def _stands_out(lateness: Sequence[Lateness]) -> bool:
    first, *others = lateness
    return first.total_ns >= SECOND and all(
        first.total_ns >= STANDS_OUT * second.total_ns for second in others[:1]
    )


def _lateness_row(rank: Lateness) -> tuple[str, ...]:
    return (
        str(rank.rank),
        number(rank.collectives),
        number(rank.of),
        duration(rank.total_ns),
        duration(rank.worst_ns),
        _collective(rank),
    )


def _collective(rank: Lateness) -> str:
    return f"#{rank.sequence} of {group_in_words(rank.group, '')}"
