"""The last calls of those to blame, and where the others wait, with their stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelink.analysis.advice import place_of
from tracelink.analysis.wording import group_in_words, operation_in_words
from tracelink.cli.diagnosis_standings import group_cell
from tracelink.cli.listing import moment
from tracelink.cli.page import NOTHING, Page
from tracelink.diagnosis import Entry, Evidence, Frame, Problem, Role
from tracelink.operations import POINT_TO_POINT, Operation, operation_of

HEADER = ("time (UTC)", "group", "call", "sizes", "type", "state", "called at", "in")
OPTIONAL = ("time (UTC)", "type", "state", "in")
"""What is left out where there is no room, the first of them first."""
AGAIN = 2
"""Calls of each culprit after the first."""
MOST_FRAMES = 4
MOST_NAMES = 2
"""Of calls that were issued as one."""
LONGEST = 24
"""Letters of a cell."""
OF_PYTHON = re.compile(r"/python3(?:\.\d+)?/(?!.*(?:site|dist)-packages)|^<")
"""Files that come with Python: they start a program and tell nothing of it."""


def show_evidence(page: Page, problem: Problem, *, verbose: bool) -> None:
    """The culprits first."""
    for place, one in enumerate(problem.evidence):
        page.gap()
        if one.role is Role.CULPRIT:
            calls = _calls(one.entries)
            _show_culprit(page, one.rank, calls if verbose or not place else calls[-AGAIN:], verbose=verbose)
        else:
            _show_other(page, one, problem, verbose=verbose)


def _calls(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that were issued as one stand together."""
    calls: list[list[Entry]] = []
    for entry in entries:
        if not calls or not _belongs(entry, calls[-1][0]):
            calls.append([])
        calls[-1].append(entry)
    return calls


def _belongs(entry: Entry, first: Entry) -> bool:
    """Whether an entry was issued as one with the one before; messages and collectives have numbers of their own."""
    same = entry.sequence is not None and (entry.group, entry.sequence) == (first.group, first.sequence)
    closes = operation_of(entry.operation) == Operation.COALESCED
    return same and (closes or _is_message(entry) == _is_message(first))


def _is_message(entry: Entry) -> bool:
    return operation_of(entry.operation) in POINT_TO_POINT


def _show_culprit(page: Page, rank: int, calls: Sequence[Sequence[Entry]], *, verbose: bool) -> None:
    page.line(f"What rank {rank} did last:", "bold")
    rows = [_cells(call) for call in calls]
    known = [place for place, name in enumerate(HEADER) if name == "call" or _told(rows, place)]
    page.table(
        [HEADER[place] for place in known],
        [[row[place] for place in known] for row in rows],
        optional=[name for name in OPTIONAL if HEADER.index(name) in known],
    )
    _show_stack(page, calls[-1][-1].frames, verbose=verbose)


def _told(rows: Sequence[Sequence[str]], place: int) -> bool:
    return any(row[place] != NOTHING for row in rows)


def _show_other(page: Page, evidence: Evidence, problem: Problem, *, verbose: bool) -> None:
    entry = evidence.entries[-1]
    waits = evidence.rank in problem.waiting
    more = len(problem.waiting) - 1 if waits else 0
    others = f" (one of {more + 1} that wait)" if more > 0 else ""
    verb = "waits in" if waits else "called"
    where = group_in_words(entry.group, entry.description)
    end = ":" if entry.frames else "."
    page.line(
        f"Rank {evidence.rank}{others} {verb} {_calls_as_one(evidence.entries)} of {where}{end}", "bold"
    )
    _show_stack(page, entry.frames, verbose=verbose)


def _show_stack(page: Page, frames: Sequence[Frame], *, verbose: bool) -> None:
    shown = frames if verbose else _of_program(frames)[:MOST_FRAMES]
    page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in shown])


def _of_program(frames: Sequence[Frame]) -> Sequence[Frame]:
    return [frame for frame in frames if not OF_PYTHON.search(frame.filename)] or frames


def _cells(call: Sequence[Entry]) -> list[str]:
    first, last = call[0], call[-1]
    frame = last.frames[0] if last.frames else None
    return [
        NOTHING if first.created_ns is None else moment(first.created_ns).partition(" ")[2],
        group_cell(first.group, first.description) or NOTHING,
        _calls_as_one(call),
        _sizes(call),
        _types(first),
        _state(last),
        place_of(frame) if frame else NOTHING,
        frame.name if frame else NOTHING,
    ]


def _calls_as_one(call: Sequence[Entry]) -> str:
    """The name of what closes them; where that says nothing, the names of the first of them."""
    last = call[-1]
    if len(call) < 2 or operation_of(last.operation) != Operation.COALESCED:
        return _call(last)
    names = list(dict.fromkeys(operation_in_words(entry.operation) for entry in call[:-1]))
    more = f" + {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    first = ", ".join(map(_cut, names[:MOST_NAMES]))
    return f"{first}{more}{_numbered(last)}"


def _call(entry: Entry) -> str:
    return f"{_cut(operation_in_words(entry.operation))}{_numbered(entry)}"


def _numbered(entry: Entry) -> str:
    return "" if entry.sequence is None else f" #{entry.sequence}"


def _sizes(call: Sequence[Entry]) -> str:
    """What goes in, and what comes out where that is something else and there is room to say it."""
    given = _listed([sizes for entry in call for sizes in entry.input_sizes])
    got = _listed([sizes for entry in call for sizes in entry.output_sizes])
    both = f"{given} → {got}"
    if given == NOTHING:
        return got
    return given if got in (NOTHING, given) or len(both) > LONGEST else both


def _listed(sizes: Sequence[Sequence[int]]) -> str:
    if not sizes:
        return NOTHING
    return f"{_cut(str(list(sizes[0])))}{f' + {len(sizes) - 1} more' if len(sizes) > 1 else ''}"


def _types(entry: Entry) -> str:
    return _cut(", ".join(dict.fromkeys([*entry.input_types, *entry.output_types]))) or NOTHING


def _state(entry: Entry) -> str:
    if entry.retired and entry.state != "completed":
        return "retired"
    return entry.state or NOTHING


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
