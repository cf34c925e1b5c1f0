"""The last calls of those to blame, and where the others wait, with their stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelink.analysis.advice import place_of
from tracelink.analysis.wording import group_in_words, operation_in_words
from tracelink.cli.listing import moment
from tracelink.cli.page import NOTHING, Page, counted
from tracelink.diagnosis import Entry, Evidence, Frame, Problem, Role

HEADER = ("time (UTC)", "group", "call", "sizes", "type", "state", "called at")
OPTIONAL = ("time (UTC)", "type", "state")
"""What is left out where there is no room, the first of them first."""
AGAIN = 2
"""Entries of each culprit after the first."""
MOST_FRAMES = 4
MOST_TENSORS = 1
LONGEST = 24
"""Letters of a cell."""
OF_PYTHON = re.compile(r"/python3(?:\.\d+)?/(?!.*(?:site|dist)-packages)|^<")
"""Files that come with Python: they start a program and tell nothing of it."""


def show_evidence(page: Page, problem: Problem, *, verbose: bool) -> None:
    """The culprits first."""
    for place, one in enumerate(problem.evidence):
        page.line()
        if one.role is Role.CULPRIT:
            _show_culprit(page, one, len(one.entries) if verbose or not place else AGAIN, verbose=verbose)
        else:
            _show_other(page, one, problem, verbose=verbose)


def _show_culprit(page: Page, evidence: Evidence, most: int, *, verbose: bool) -> None:
    page.line(f"What rank {evidence.rank} did last:", "bold")
    entries = evidence.entries[-most:]
    rows = [_cells(entry) for entry in entries]
    known = [
        place
        for place in range(len(HEADER))
        if any(row[place] != NOTHING for row in rows) or HEADER[place] == "call"
    ]
    page.table(
        [HEADER[place] for place in known],
        [[row[place] for place in known] for row in rows],
        optional=[name for name in OPTIONAL if HEADER.index(name) in known],
    )
    _show_stack(page, entries[-1].frames, verbose=verbose)


def _show_other(page: Page, evidence: Evidence, problem: Problem, *, verbose: bool) -> None:
    entry = evidence.entries[-1]
    waits = evidence.rank in problem.waiting
    more = len(problem.waiting) - 1 if waits else 0
    others = f" (one of {more + 1} that wait)" if more > 0 else ""
    verb = "waits in" if waits else "called"
    page.line(
        f"Rank {evidence.rank}{others} {verb} {_call(entry)} of {group_in_words(entry.group, entry.description)}:",
        "bold",
    )
    _show_stack(page, entry.frames, verbose=verbose)


def _show_stack(page: Page, frames: Sequence[Frame], *, verbose: bool) -> None:
    shown = frames if verbose else _of_program(frames)[:MOST_FRAMES]
    page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in shown])


def _of_program(frames: Sequence[Frame]) -> Sequence[Frame]:
    return [frame for frame in frames if not OF_PYTHON.search(frame.filename)] or frames


def _cells(entry: Entry) -> list[str]:
    label = (
        f"{entry.group} ({entry.description})" if entry.description not in ("", entry.group) else entry.group
    )
    return [
        NOTHING if entry.created_ns is None else moment(entry.created_ns).partition(" ")[2],
        _cut(label) or NOTHING,
        _call(entry),
        _sizes(entry),
        _types(entry),
        _state(entry),
        place_of(entry) or NOTHING,
    ]


def _call(entry: Entry) -> str:
    number = "" if entry.sequence is None else f" #{entry.sequence}"
    return f"{operation_in_words(entry.operation)}{number}"


def _sizes(entry: Entry) -> str:
    given, got = _listed(entry.input_sizes), _listed(entry.output_sizes)
    return given if given == got or got == NOTHING else got if given == NOTHING else f"{given} → {got}"


def _listed(sizes: Sequence[Sequence[int]]) -> str:
    if not sizes:
        return NOTHING
    more = f" + {counted(len(sizes) - MOST_TENSORS, 'more')}" if len(sizes) > MOST_TENSORS else ""
    return f"{_cut(str(list(sizes[0])))}{more}"


def _types(entry: Entry) -> str:
    return _cut(", ".join(dict.fromkeys([*entry.input_types, *entry.output_types]))) or NOTHING


def _state(entry: Entry) -> str:
    if entry.retired and entry.state != "completed":
        return "retired"
    return entry.state or NOTHING


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
