"""What recorders hold of a problem: the last calls of a rank, and where in the program it stands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tracelink.analysis.advice import place_of
from tracelink.converters.html_report.markup import Child, Markup, clipped, element
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import (
    counted,
    group_name,
    name_in_words,
    numbered,
    sizes,
    time_of_day,
)
from tracelink.diagnosis import Entry, Evidence, Frame, Role

MOST_RANKS = 8
MOST_CALLS = 12
MOST_FRAMES = 40
LONGEST_PLACE = 300
"""Characters of the name of a file or a function in a stack."""

ROLES = {Role.CULPRIT: "culprit", Role.WAITING: "waits"}


def evidence_section(evidence: Sequence[Evidence]) -> Child:
    """The calls and stacks of each rank."""
    hidden = len(evidence) - MOST_RANKS
    more = element("p", f"{counted(hidden, 'more rank')} with entries are not shown.") if hidden > 0 else None
    return [*(_of_rank(one) for one in evidence[:MOST_RANKS]), more]


def _of_rank(evidence: Evidence) -> Child:
    heading = element("h3", f"Rank {evidence.rank} ", element("small", f"({ROLES[evidence.role]})"))
    if not evidence.entries:
        return [heading, element("p", "Its dump holds no entry.")]
    frames = evidence.entries[-1].frames
    where = stack(frames) if frames else element("p", "No stack was recorded.", class_="aside")
    return [heading, _calls(evidence.entries), where]


def _calls(entries: Sequence[Entry]) -> Markup:
    """What was issued as one stands in one row."""
    calls = [[one for _, one in call] for _, call in groupby(enumerate(entries), key=_call)]
    header = ("call", "called at", "group", "in", "out", "state", "created (UTC)", "timeout")
    rows = [_row(call) for call in calls[-MOST_CALLS:]]
    return element("div", table("Last calls, the newest last", header, rows), class_="calls")


def _call(numbered_entry: tuple[int, Entry]) -> tuple[str, int | None, int]:
    """Equal for neighbours that were issued as one."""
    place, entry = numbered_entry
    return entry.group, entry.sequence, place if entry.sequence is None else 0


def _row(call: Sequence[Entry]) -> tuple[Child, ...]:
    first, last = call[0], call[-1]
    more = f" ({counted(len(call), 'entry')})" if len(call) > 1 else ""
    return (
        numbered(first.operation, first.sequence) + more,
        _place(last.frames[0]) if last.frames else "no stack",
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


def _place(frame: Frame) -> Markup:
    """Short; the whole path stands in the stack of the newest call."""
    return element("span", name_in_words(place_of(frame)), title=_in_full(frame))


def stack(frames: Sequence[Frame]) -> Markup:
    """A Python stack, the innermost call first."""
    lines = [element("li", element("code", _in_full(one))) for one in frames[:MOST_FRAMES]]
    hidden = len(frames) - MOST_FRAMES
    more = element("p", f"{counted(hidden, 'outer frame')} not shown.") if hidden > 0 else None
    label = element("p", "Stack of the newest, innermost call first:", class_="aside")
    return element("div", label, element("ol", lines, class_="stack"), more)


def _in_full(frame: Frame) -> str:
    file, name = (clipped(text, LONGEST_PLACE) for text in (frame.filename, frame.name))
    return f"{name} at {file}:{frame.line}"
