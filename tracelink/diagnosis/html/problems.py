"""Problems on the page: message, culprits, waiting ranks, advice, cycle, evidence, and what profiles show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tracelink.diagnosis.explain import compiled_in_words, how_long, which_time
from tracelink.diagnosis.html.pictures import followers, ring_drawing
from tracelink.diagnosis.model import CallSeen, Evidence, Link, Problem, Role, Sighting, Stretch
from tracelink.diagnosis.verdicts import CATEGORY_IN_WORDS
from tracelink.model.records import Entry, Frame, line_in_words, readable_name
from tracelink.model.text import (
    clipped,
    counted,
    duration,
    group_name,
    name_in_words,
    numbered,
    rank_list,
    sizes,
    time_of_day,
)
from tracelink.show.markup import Child, Markup, element, table

if TYPE_CHECKING:
    from tracelink.diagnosis.witnesses.model import Compiling, Stack

MOST_RANKS = 8
MOST_CALLS = 12
MOST_FRAMES = 40
LONGEST_FRAME = 300
"""Characters of the name of a file or a function in a stack."""
MOST_NAMES = 40
LONGEST_NAME = 200
"""Characters of the name of an operator, a function or a kernel."""
MOST_IN_FULL = 10
MOST_IN_BRIEF = 200
MOST_LINKS = 100
ROLES = {Role.CULPRIT: "culprit", Role.WAITING: "waits"}


# Problems.


def problems_section(problems: Sequence[Problem], descriptions: Mapping[str, str]) -> Child:
    """The problems, the worst first; the less important ones of very many in a line each."""
    brief = problems[MOST_IN_FULL:MOST_IN_BRIEF]
    hidden = len(problems) - MOST_IN_BRIEF
    return [
        [
            _problem(number, problem, len(problems), descriptions)
            for number, problem in enumerate(problems[:MOST_IN_FULL], 1)
        ],
        element("ul", (element("li", kind_badge(problem), " ", problem.message) for problem in brief))
        if brief
        else None,
        element("p", f"{counted(hidden, 'more problem')} are not shown.") if hidden > 0 else None,
    ]


def kind_badge(problem: Problem) -> Markup:
    """The kind of a problem."""
    return element("span", problem.kind.value.replace("_", " "), class_="kind")


def _problem(number: int, problem: Problem, of: int, descriptions: Mapping[str, str]) -> Markup:
    anchor = f"problem-{number}"
    title = f"Problem {number} of {of} " if of > 1 else "Problem "
    return element(
        "section",
        element("h2", title, kind_badge(problem), id=anchor),
        element("p", problem.message, class_="message") if of > 1 else None,
        element("div", _advice(problem), _problem_facts(problem), class_="sides"),
        _cycle(problem.cycle, descriptions) if problem.cycle else None,
        evidence_section(problem.evidence),
        sightings_section(problem.sightings),
        [_compiling(one) for one in problem.compiling[:MOST_RANKS]],
        [_stack_file(stack) for stack in problem.stacks[:MOST_RANKS]],
        class_="problem",
        aria_labelledby=anchor,
    )


def _advice(problem: Problem) -> Child:
    if not problem.advice:
        return None
    return element("div", element("strong", "Next"), element("p", problem.advice), class_="advice")


def _problem_facts(problem: Problem) -> Markup:
    facts = [
        ("Class", CATEGORY_IN_WORDS[problem.category]),
        ("Culprits", _ranks(problem.culprits) + _uncertainty(problem)),
        ("Waiting", _ranks(problem.waiting, "no rank")),
        ("For", f"at least {duration(problem.waited_ns)}" if problem.waited_ns is not None else ""),
        ("Where", f"{numbered(problem.operation, problem.sequence)} of {_group(problem)}"),
        ("Shown by", counted(problem.count, "collective") if problem.count > 1 else ""),
    ]
    terms = [(element("dt", name), element("dd", text)) for name, text in facts if text]
    return element("dl", terms)


def _ranks(ranks: Sequence[int], none: str = "unknown") -> str:
    if not ranks:
        return none
    first = f"rank {ranks[0]}"
    return first if len(ranks) == 1 else f"{counted(len(ranks), 'rank')}: {rank_list(ranks)}"


def _uncertainty(problem: Problem) -> str:
    tie = "; they differ, and it is unknown which of them is wrong" if problem.tie else ""
    return tie + ("" if problem.proven else "; known only from the dumps of other ranks")


def _group(problem: Problem) -> str:
    return group_name(problem.group, problem.description)


def _cycle(cycle: Sequence[Link], descriptions: Mapping[str, str]) -> Child:
    """The cycle as a drawing and as a table."""
    rows = [
        (
            f"{number + 1}",
            rank_list(link.ranks),
            f"{numbered(link.operation, link.sequence)} of {group_name(link.group, descriptions.get(link.group, ''))}",
            rank_list(link.waits_for),
            ", ".join(f"{other + 1}" for other in followers(cycle, number)),
        )
        for number, link in enumerate(cycle[:MOST_LINKS])
    ]
    hidden = len(cycle) - MOST_LINKS
    header = "node", "ranks", "are in", "wait for ranks", "which are in node"
    more = element("p", f"{counted(hidden, 'more node')} are not shown.") if hidden > 0 else None
    drawn = ring_drawing(cycle, descriptions)
    return [
        element("h3", "Cycle of waits"),
        element("div", drawn, class_="picture") if drawn else None,
        table("Each node waits for the next one", header, rows),
        more,
    ]


# Evidence: the last calls of ranks, and their stacks.


def evidence_section(evidence: Sequence[Evidence]) -> Child:
    """The calls and stacks of each rank."""
    hidden = len(evidence) - MOST_RANKS
    more = element("p", f"{counted(hidden, 'more rank')} with entries are not shown.") if hidden > 0 else None
    return [*(_rank_evidence(shown) for shown in evidence[:MOST_RANKS]), more]


def _rank_evidence(evidence: Evidence) -> Child:
    heading = element("h3", f"Rank {evidence.rank} ", element("small", f"({ROLES[evidence.role]})"))
    if not evidence.entries:
        return [heading, element("p", "Its dump has no entries.")]
    frames = evidence.entries[-1].frames
    frames_or_note = stack(frames) if frames else element("p", "No stack was recorded.", class_="aside")
    return [heading, _calls(evidence.entries), frames_or_note]


def _calls(entries: Sequence[Entry]) -> Markup:
    """A row for each call; a coalesced call has several entries."""
    calls = [[entry for _, entry in call] for _, call in groupby(enumerate(entries), key=_call)]
    header = ("call", "called at", "group", "in", "out", "state", "created (UTC)", "timeout")
    rows = [_row(call) for call in calls[-MOST_CALLS:]]
    return element("div", table("Last calls, the newest last", header, rows), class_="calls")


def _call(numbered_entry: tuple[int, Entry]) -> tuple[str, int | None, int]:
    """Equal for consecutive entries of one call."""
    index, entry = numbered_entry
    return entry.group, entry.sequence, index if entry.sequence is None else 0


def _row(call: Sequence[Entry]) -> tuple[Child, ...]:
    first, last = call[0], call[-1]
    more = f" ({counted(len(call), 'entry')})" if len(call) > 1 else ""
    return (
        numbered(first.operation, first.sequence) + more,
        _line(last.frames[0]) if last.frames else "no stack",
        group_name(first.group, first.description).removeprefix("group "),
        sizes(first.input_sizes, first.input_types),
        sizes(first.output_sizes, first.output_types),
        _state(last),
        "unknown" if first.created_ns is None else time_of_day(first.created_ns),
        "unknown" if first.timeout_ms is None else f"{first.timeout_ms / 1000:,.0f} s",
    )


def _state(entry: Entry) -> str:
    retired = {True: ", retired", False: ", not retired", None: ""}[entry.retired]
    return f"{name_in_words(entry.state)}{retired}"


def _line(frame: Frame) -> Markup:
    """Short; the stack of the newest call shows the complete path."""
    return element("span", name_in_words(line_in_words(frame)), title=_complete_frame(frame))


def stack(frames: Sequence[Frame]) -> Markup:
    """A Python stack, innermost call first."""
    lines = [element("li", element("code", _complete_frame(frame))) for frame in frames[:MOST_FRAMES]]
    hidden = len(frames) - MOST_FRAMES
    more = element("p", f"{counted(hidden, 'outer frame')} not shown.") if hidden > 0 else None
    label = element("p", "Stack of the newest, innermost call first:", class_="aside")
    return element("div", label, element("ol", lines, class_="stack"), more)


def _complete_frame(frame: Frame) -> str:
    file, name = (clipped(text, LONGEST_FRAME) for text in (frame.filename, frame.name))
    return f"{name} at {file}:{frame.line}"


# What profiles show.


def sightings_section(sightings: Sequence[Sighting]) -> Child:
    """What the profiles of each rank show."""
    return [_rank_sightings(sighting) for sighting in sightings[:MOST_RANKS]]


def _rank_sightings(sighting: Sighting) -> Child:
    what = "profile" if sighting.end_ns is not None else "execution trace"
    role = element("small", f"({ROLES[sighting.role]})")
    heading = element("h3", f"In the {what} of rank {sighting.rank} ", role)
    note = element("p", f"Note: {sighting.note}.", class_="aside") if sighting.note else None
    facts = [*(_call_facts(sighting.call) if sighting.call else []), *map(_stretch_fact, sighting.stretches)]
    if sighting.later:
        what = numbered(sighting.later.operation, sighting.later.sequence)
        text = f"{what}: the profile continues after the dump was written"
        facts.append(("Then", text))
    if sighting.end_ns is not None:
        facts.append(("It ends at", f"{time_of_day(sighting.end_ns)} UTC"))
    terms = [(element("dt", name), element("dd", text)) for name, text in facts]
    return [heading, note, element("dl", terms)]


def _call_facts(call: CallSeen) -> list[tuple[str, Child]]:
    before = f" ({call.before} before this one)" if call.before else ""
    facts: list[tuple[str, Child]] = [
        ("Call", f"{numbered(call.operation, call.sequence)}{before}"),
        ("Operators", [_chain([*call.around, call.operator]), f" on {_name(call.thread)}"]),
    ]
    if call.frames:
        names = [f"{frame.name} ({frame.filename}:{frame.line})" for frame in reversed(call.frames)]
        facts.append(("Functions", _chain(names)))
    if call.work:
        length = "no end" if call.work.duration_ns is None else duration(call.work.duration_ns)
        facts.append(("Carried out by", f"{_name(call.work.name)} on {_name(call.work.where)}, {length}"))
    elif call.launched is not None:
        ends = "a kernel that did not end within the profile"
        facts.append(("Carried out by", ends if call.launched else "no kernel was launched"))
    if call.node is not None:
        facts.append(("Node", f"{call.node} of the execution trace"))
    return facts


def _stretch_fact(stretch: Stretch) -> tuple[str, Child]:
    part, total = duration(stretch.running[-1].duration_ns), duration(stretch.duration_ns)
    time = f"for {total} " if part == total else f"for {part} of {total} "
    return "Then", [
        time,
        _chain([readable_name(event.name) for event in stretch.running]),
        f" on {_name(stretch.where)}",
    ]


def _chain(names: Sequence[str]) -> Markup:
    """The innermost last."""
    return element("code", " \N{RIGHTWARDS ARROW} ".join(_name(name) for name in names[-MOST_NAMES:]))


def _name(name: str) -> str:
    return clipped(readable_name(name), LONGEST_NAME)


# What compile logs and files with stacks show.


def _compiling(compiling: Compiling) -> Child:
    facts: list[tuple[str, Child]] = [
        ("Compiling", _name(compiled_in_words(compiling))),
        ("Since", f"{time_of_day(compiling.since_ns)} UTC, {how_long(compiling)}"),
        ("For the", which_time(compiling)),
        ("Phases", _chain(compiling.phases)),
    ]
    terms = [(element("dt", name), element("dd", text)) for name, text in facts if text]
    return [element("h3", f"In the compile log of rank {compiling.rank}"), element("dl", terms)]


def _stack_file(stack: Stack) -> Child:
    heading = element(
        "h3", f"The stack of rank {stack.rank} ({stack.program}, {clipped(stack.thread, LONGEST_NAME)})"
    )
    return [heading, stack_list(stack.frames)]


def stack_list(frames: Sequence[Frame]) -> Markup:
    """Frames, innermost first."""
    lines = [element("li", element("code", _complete_frame(frame))) for frame in frames[:MOST_FRAMES]]
    return element("ol", lines, class_="stack")
