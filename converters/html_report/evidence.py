"""What recorders hold of a problem: the last entries of a rank, and where in the program it stands."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.converters.html_report.markup import Child, Markup, clipped, element
from tracelink.converters.html_report.tables import table
from tracelink.converters.html_report.texts import counted, group_name, moment, numbered, sizes
from tracelink.diagnosis import Entry, Evidence, Frame, Role

MOST_RANKS = 8
MOST_ENTRIES = 12
MOST_FRAMES = 40
LONGEST_PLACE = 300
"""Characters of the name of a file or a function in a stack."""

ROLES = {Role.CULPRIT: "culprit", Role.WAITING: "waits"}


def evidence_section(evidence: Sequence[Evidence]) -> Child:
    """The entries and stacks of each rank."""
    hidden = len(evidence) - MOST_RANKS
    more = element("p", f"{counted(hidden, 'more rank')} with entries are not shown.") if hidden > 0 else None
    return [*(_of_rank(one) for one in evidence[:MOST_RANKS]), more]


def _of_rank(evidence: Evidence) -> Child:
    heading = element("h3", f"Rank {evidence.rank} ", element("small", f"({ROLES[evidence.role]})"))
    if not evidence.entries:
        return [heading, element("p", "Its dump holds no entry.")]
    shown = evidence.entries[-MOST_ENTRIES:]
    frames = shown[-1].frames
    where = stack(frames) if frames else element("p", "No stack was recorded.", class_="aside")
    return [heading, _entries(shown), where]


def _entries(entries: Sequence[Entry]) -> Markup:
    header = ("collective", "group", "in", "out", "state", "created", "timeout", "called from")
    rows = [
        (
            numbered(entry.operation, entry.sequence),
            group_name(entry.group, entry.description).removeprefix("group "),
            sizes(entry.input_sizes, entry.input_types),
            sizes(entry.output_sizes, entry.output_types),
            _state(entry),
            "unknown" if entry.created_ns is None else moment(entry.created_ns),
            "unknown" if entry.timeout_ms is None else f"{entry.timeout_ms / 1000:,.0f} s",
            _place(entry.frames[0]) if entry.frames else "no stack",
        )
        for entry in entries
    ]
    return table("Last entries, the newest last", header, rows)


def _state(entry: Entry) -> str:
    retired = {True: ", retired", False: ", not retired", None: ""}[entry.retired]
    return f"{clipped(entry.state, LONGEST_PLACE)}{retired}"


def stack(frames: Sequence[Frame]) -> Markup:
    """A Python stack, the innermost call first."""
    lines = [element("li", element("code", _place(one))) for one in frames[:MOST_FRAMES]]
    hidden = len(frames) - MOST_FRAMES
    more = element("p", f"{counted(hidden, 'outer frame')} are not shown.") if hidden > 0 else None
    label = element("p", "Stack of the newest, innermost call first:", class_="aside")
    return element("div", label, element("ol", lines, class_="stack"), more)


def _place(frame: Frame) -> str:
    file, name = (clipped(text, LONGEST_PLACE) for text in (frame.filename, frame.name))
    return f"{name} at {file}:{frame.line}"
