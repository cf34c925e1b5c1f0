"""The part of the document for each problem: why it is believed, what to do next, and below it all calls and stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from tracelink.diagnosis.explain import compiled_in_words, how_long, which_time
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import (
    CallSeen,
    Category,
    Diagnosis,
    Evidence,
    Kind,
    Link,
    Problem,
    Role,
    Sighting,
    Stretch,
)
from tracelink.diagnosis.verdicts import CATEGORY_IN_WORDS
from tracelink.model.fields import FrozenRanks, Row, Shown
from tracelink.model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.model.records import Entry, Frame, line_in_words, readable_name
from tracelink.model.text import (
    clipped,
    counted,
    duration,
    group_cell,
    group_in_words,
    group_name,
    number,
    numbered,
    operation_in_words,
    rank_list,
    shortened,
    time_of_day,
)
from tracelink.model.witnesses import Compiling
from tracelink.show.document import (
    Block,
    Facts,
    Frames,
    Heading,
    Items,
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
PAGE, TEXT = (Medium.HTML,), (Medium.TERMINAL, Medium.MARKDOWN)
DRAWN = (Medium.HTML, Medium.MARKDOWN)
UNDECIDED = frozenset({Category.IN_FLIGHT, Category.UNKNOWN})
"""Classes that name nothing to look at; the first line says it."""


def problem_sections(diagnosis: Diagnosis, journal: Journal | None) -> Iterator[Section]:
    """Of each of the first problems why it is believed, what to do next, and all calls and stacks that show it."""
    several = len(diagnosis.problems) + diagnosis.more_problems > 1
    descriptions = {item.group: item.description for item in diagnosis.standings}
    for index, problem in enumerate(diagnosis.problems[:MOST_IN_FULL], 1):
        later = index > 1
        named = f"Problem {index}: " if several else "Problem: "
        heading = [Heading(f"{index}. {problem.message}")] if several else []
        why = [*(heading if later else [Only(PAGE, heading)]), *_why(problem)]
        yield Section(named + problem.kind.replace("_", " "), why, anchor=f"problem-{index}", verbose=later)
        yield Section(f"Next {index}" if several else "Next", [*_next(problem)], verbose=later)
        shown = [
            *_cycle(problem.cycle, descriptions),
            *(each for one in problem.evidence for each in _calls(one)),
        ]
        yield Section(f"Calls of problem {index}" if several else "Calls", shown, verbose=True)
        if journal and not later:
            around = [Only(PAGE, lambda: _around(diagnosis, journal))]
            yield Section("Calls around the problem", around, anchor="recent")


def _around(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    from tracelink.diagnosis.report.recent import recent_chart

    return recent_chart(diagnosis, journal)


def _why(problem: Problem) -> Iterator[Block]:
    yield Only(PAGE, [_facts(problem)])
    yield Items([_in_short(one, problem) for one in _by_weight(problem.evidence)], MOST_CALLS, "call")
    for sighting in problem.sightings:
        yield from _sighting(sighting, problem)
    for compiling in problem.compiling[:MOST_OTHERS]:
        yield from _compiling(compiling)
    yield from _more(len(problem.compiling) - MOST_OTHERS, "compile log")
    for stack in problem.stacks[:MOST_OTHERS]:
        yield Heading(f"The stack of rank {stack.rank} ({stack.program}, {stack.thread}):")
        yield stack_of(stack.frames, brief=2 * MOST_FRAMES)
    yield from _more(len(problem.stacks) - MOST_OTHERS, "stack")


def _next(problem: Problem) -> Iterator[Block]:
    """What went wrong in a word, and what to do."""
    if problem.advice:
        if problem.category not in UNDECIDED:
            yield Only(TEXT, [Paragraph(f"Class: {CATEGORY_IN_WORDS[problem.category]}.", Tone.STRONG)])
        yield Paragraph(f"Next: {problem.advice}")


def _more(count: int, thing: str) -> list[Block]:
    return (
        [Paragraph(f"{counted(count, f'more {thing}')} (--json has all).", Tone.ASIDE)] if count > 0 else []
    )


def _facts(problem: Problem) -> Facts:
    tie = "; they differ, and it is unknown which of them is wrong" if problem.tie else ""
    tie += "" if problem.proven else "; known only from the dumps of other ranks"
    where = group_name(problem.group, problem.description)
    facts = {
        "Class": CATEGORY_IN_WORDS[problem.category],
        "Culprits": _ranks(problem.culprits, "unknown") + tie,
        "Waiting": _ranks(problem.waiting, "no rank"),
        "For": f"at least {duration(problem.waited_ns)}" if problem.waited_ns is not None else "",
        "Where": f"{numbered(problem.operation, problem.sequence)} of {where}",
        "Shown by": counted(problem.count, "collective") if problem.count > 1 else "",
    }
    return Facts({name: text for name, text in facts.items() if text})


def _ranks(ranks: Sequence[int], nothing: str) -> str:
    if not ranks:
        return nothing
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}"


# The cycle of a deadlock.


class LinkRow(Row, frozen=True):
    """Ranks that wait in a collective of a cycle."""

    node: int
    ranks: FrozenRanks
    call: Annotated[str, Shown("are in", longest=120)]
    waits_for: Annotated[FrozenRanks, Shown("wait for ranks")]
    nodes: Annotated[str, Shown("which are in node")]


def _cycle(cycle: Sequence[Link], descriptions: dict[str, str]) -> Iterator[Block]:
    """The cycle as a picture and as a table; a terminal has it in the message."""
    if not cycle:
        return
    next_nodes = [followers(cycle, index) for index in range(len(cycle))]
    names = [group_name(link.group, descriptions.get(link.group, "")) for link in cycle]
    rows = [
        LinkRow(
            index + 1,
            link.ranks,
            f"{numbered(link.operation, link.sequence)} of {names[index]}",
            link.waits_for,
            ", ".join(f"{other + 1}" for other in next_nodes[index]),
        )
        for index, link in enumerate(cycle[:MOST_LINKS])
    ]
    yield Only(DRAWN, [Heading("Cycle of waits")])
    yield Only(PAGE, lambda: _cycle_chart(cycle, names, next_nodes))
    table = Table(rows, "Each node waits for the next one", thing="node")
    yield Only(DRAWN, [table, *_more(len(cycle) - MOST_LINKS, "node")])


def _cycle_chart(
    cycle: Sequence[Link], names: Sequence[str], next_nodes: Sequence[Sequence[int]]
) -> Iterator[Block]:
    from tracelink.diagnosis.report.pictures import cycle_chart

    return cycle_chart(cycle, names, next_nodes)


def followers(cycle: Sequence[Link], index: int) -> list[int]:
    """The links that the ranks of a link wait for."""
    awaited = set(cycle[index].waits_for)
    return [other for other, link in enumerate(cycle) if other != index and awaited & set(link.ranks)]


# Evidence: the last calls of the culprits, and where the other ranks wait.


MOST_CALLS = 3
"""Ranks whose calls a terminal shows without -v."""
MOST_CALLERS = 2
MOST_FRAMES = 4
"""Frames of a stack that a terminal shows without -v."""
LONGEST_STACK = 40
LONGEST_FRAME = 300
"""Characters of the name of a file or a function in a stack."""
LONGEST_FUNCTION = 60
"""The same where several are in a line."""
MOST_NAMES = 2
"""Operations, and tensors, that are named of calls that were issued as one."""
LONGEST_NAME = 24
LONGEST_TENSORS = 40
"""Characters of the name of an operation, and of the tensors of a call."""
NOT_OF_PROGRAM = ("torch/", "threading.py", "selectors.py")
"""Parts of the names of files that are not of the program."""
VERBS = {Kind.SKIPPED: "continued with", Kind.NEVER_JOINED: "last called", Kind.LAGGING: "last called"}
"""What the newest shown call of a culprit is."""


class CallRow(Row, frozen=True):
    """A call that a rank made: an entry of the flight recorder, or several that were issued as one."""

    time: Annotated[str, Shown("time (UTC)", drop=1)]
    group: str
    call: Annotated[str, Shown(longest=120)]
    tensors: Annotated[str, Shown(drop=3)]
    state: Annotated[str, Shown(drop=4)]
    timeout: Annotated[str, Shown(drop=2)]
    called_at: Annotated[str, Shown(longest=120)]
    function: Annotated[str, Shown(drop=5)]


def _by_weight(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Two culprits and one other rank, then the rest."""
    culprits = [one for one in evidence if one.role is Role.CULPRIT]
    others = [one for one in evidence if one.role is not Role.CULPRIT]
    few = MOST_CALLS - 1
    return [*culprits[:few], *others[:1], *culprits[few:], *others[1:]]


def _in_short(evidence: Evidence, problem: Problem) -> str:
    """`Rank 3 last called all_reduce #4 of group 0, Float [4], completed: train.py:20 (step) < train.py:80 (main)`."""
    call = _together(evidence.entries)[-1]
    row, last = _call_row(call), call[-1]
    waits = evidence.rank in problem.waiting and row.state not in ("completed", "retired")
    one_of = (
        f" (one of {number(len(problem.waiting))} waiting ranks)"
        if waits and len(problem.waiting) > 1
        else ""
    )
    verb = VERBS.get(problem.kind, "called") if evidence.role is Role.CULPRIT else "called"
    what = f"{row.call} of {group_in_words(last.group, last.description)}"
    of = "" if waits else "".join(f", {part}" for part in (row.tensors, row.state) if part)
    where = f": {called_from(last.frames)}" if last.frames else ""
    return f"Rank {evidence.rank}{one_of} {'waits in' if waits else verb} {what}{of}{where}."


def called_from(frames: Sequence[Frame], callers: int = MOST_CALLERS) -> str:
    """The line of a call, and those of the program that led to it: `step (train.py:20) < main (train.py:80)`."""
    own = [frame for frame in frames[1:] if _is_of_program(frame)]
    return " < ".join(
        f"{shortened(frame.name, LONGEST_FUNCTION)} ({line_in_words(frame)})"
        for frame in (*frames[:1], *own[:callers])
    )


def _is_of_program(frame: Frame) -> bool:
    other = any(part in frame.filename for part in NOT_OF_PROGRAM) or _is_of_python(frame)
    return frame.line > 0 and frame.name != "<module>" and not other


def _calls(evidence: Evidence) -> Iterator[Block]:
    culprit = evidence.role is Role.CULPRIT
    yield Heading(f"{'Last calls' if culprit else 'Call'} of rank {evidence.rank}:")
    yield Table([_call_row(call) for call in _together(evidence.entries)])
    yield stack_of(evidence.entries[-1].frames)


def stack_of(frames: Sequence[Frame], brief: int = MOST_FRAMES) -> Frames:
    """A stack, the innermost frame first; a terminal begins with frames of the program only."""
    shown = [
        (f"{clipped(frame.filename, LONGEST_FRAME)}:{frame.line}", clipped(frame.name, LONGEST_FRAME))
        for frame in frames[:LONGEST_STACK]
    ]
    inner = [index for index, frame in enumerate(frames) if not _is_of_python(frame)]
    return Frames(shown, min(brief, inner[-1] + 1) if inner else brief)


def _is_of_python(frame: Frame) -> bool:
    name = frame.filename
    return name.startswith("<") or ("/python3" in name and "-packages" not in name)


def _together(entries: Sequence[Entry]) -> list[list[Entry]]:
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


def _call_row(call: Sequence[Entry]) -> CallRow:
    first, last = call[0], call[-1]
    frame = last.frames[0] if last.frames else None
    return CallRow(
        "" if first.created_ns is None else time_of_day(first.created_ns, digits=3),
        group_cell(first.group, first.description),
        _call_name(call),
        tensors_in_words(call),
        "retired" if last.retired and last.state != "completed" else last.state,
        "" if first.timeout_ms is None else f"{first.timeout_ms / 1000:,.0f} s",
        line_in_words(frame) if frame else "",
        frame.name if frame else "",
    )


def _call_name(call: Sequence[Entry]) -> str:
    """`all_reduce #9`; of entries without a name of their own, `send 0->1, recv 0<-1 + 2 more #4`."""
    last = call[-1]
    sequence = "" if last.sequence is None else f" #{last.sequence}"
    if len(call) < 2 or operation_of(last.operation) != Operation.COALESCED:
        return f"{_cell(operation_in_words(last.operation))}{sequence}"
    names = list(dict.fromkeys(operation_in_words(entry.operation) for entry in call[:-1]))
    rest = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(map(_cell, names[:MOST_NAMES]))}{rest}{sequence}"


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


def _cell(text: str) -> str:
    return shortened(text, LONGEST_NAME)


# Sightings: what profiles show of the call of a problem, and of what a rank did after it.


MOST_NESTED, MOST_ON_PAGE = 4, 40
"""Names of nested operators and functions, the innermost ones: of a text, and of a page."""
LONGEST_OPERATOR = 72
"""Characters of the name of an operator or a kernel."""
WITHIN = " > "


def _sighting(sighting: Sighting, problem: Problem) -> Iterator[Block]:
    source = "profile" if sighting.end_ns is not None else "execution trace"
    note = f" ({sighting.note})" if sighting.note else ""
    yield Heading(f"In the {source} of rank {sighting.rank}{note}:")
    yield Only(TEXT, [_seen(sighting, problem, MOST_NESTED)])
    yield Only(PAGE, [_seen(sighting, problem, MOST_ON_PAGE)])


def _seen(sighting: Sighting, problem: Problem, most: int) -> Facts:
    facts = _call_facts(sighting.call, problem, sighting.rank, most) if sighting.call else {}
    facts |= {f"then, on {stretch.where}": _stretch(stretch, most) for stretch in sighting.stretches}
    if sighting.later:
        facts["next call"] = f"{_call_seen(sighting.later)}: the profile continues after the dump was written"
    if sighting.end_ns is not None:
        facts["it ends at"] = f"{time_of_day(sighting.end_ns)} UTC"
    return Facts(facts)


def _call_facts(call: CallSeen, problem: Problem, rank: int, most: int) -> dict[str, str]:
    work = ""
    if call.work:
        length = "did not end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        work = f"{shortened(call.work.name, LONGEST_OPERATOR)} on {call.work.where}, {length}"
    elif call.launched is not None:
        work = "did not end within the profile" if call.launched else "none was launched"
    recorded = any(one.rank == rank and one.entries[-1].frames for one in problem.evidence)
    frames = [f"{frame.name} ({line_in_words(frame)})" for frame in call.frames[:MOST_FRAMES]]
    facts = {
        _call_seen(call): f"{_nested([*call.around, call.operator], most)}, on {call.thread}",
        "in": "" if recorded else ", ".join(frames),
        "kernel": work,
        "node": "" if call.node is None else f"{call.node} of the execution trace",
    }
    return {name: text for name, text in facts.items() if text}


def _call_seen(call: CallSeen) -> str:
    before = f", {counted(call.before, 'call')} earlier" if call.before else ""
    return f"{numbered(call.operation, call.sequence)}{before}"


def _nested(names: Sequence[str], most: int) -> str:
    """Nested names, the innermost last."""
    shown = [shortened(readable_name(name), LONGEST_OPERATOR) for name in names[-most:]]
    return WITHIN.join([*(["…"] if len(shown) < len(names) else []), *shown])


def _stretch(stretch: Stretch, most: int) -> str:
    names = _nested([running.name for running in stretch.running], most)
    part, total = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    return f"for {total} {names}" if part == total else f"for {part} of {total} {names}"


# What compile logs and files with stacks show of culprits.


def _compiling(one: Compiling) -> Iterator[Block]:
    facts = {
        "compiling": compiled_in_words(one),
        "since": f"{time_of_day(one.since_ns)} UTC, {how_long(one)}",
        "for the": which_time(one) if one.cold is not None else "",
        "within": WITHIN.join(one.phases) if len(one.phases) > 1 else "",
    }
    yield Heading(f"In the compile log of rank {one.rank}:")
    yield Facts({name: text for name, text in facts.items() if text})
