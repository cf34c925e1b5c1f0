"""What `tracelink summary` shows of causes across ranks: the critical path, late ranks, and what-if answers."""

from __future__ import annotations

from collections.abc import Mapping

from tracelink.answers.model.communication import Pattern
from tracelink.answers.model.results import Summary, WhatIf
from tracelink.answers.model.words import percent
from tracelink.cli.terminal import Page
from tracelink.model.text import counted, fine_span, number

SHOWN = 4
"""Ranks that are shown without -v."""
LEAST = 0.005
"""Smaller shares of the critical path are shown with -v only."""
NOTICEABLE = 0.01
"""Others wait for a rank for so much of the time of all ranks, or it is shown with -v only."""


def show_path(page: Page, result: Summary, *, verbose: bool) -> None:
    """Adds the critical path: what it consists of, and on which ranks it is."""
    path = result.critical_path
    if path is None:
        return
    least = 0 if verbose else LEAST
    page.line(f"Critical path, {fine_span(path.length_ns)}: {_shares(path.by_kind, path.length_ns, least)}.")
    if len(path.by_rank) > 1:
        longest = sorted(path.by_rank.items(), key=lambda item: -item[1])
        shown = dict(longest[: None if verbose else SHOWN])
        page.line(f"{_on_ranks(shown, path.length_ns, least)}.")
    if path.uncertainty_ns != 0 and len(path.by_rank) > 1:
        bound = "unknown" if path.uncertainty_ns is None else f"±{fine_span(path.uncertainty_ns)}"
        page.line(f"Where it changes ranks, clock uncertainty is {bound}.")
    page.gap()


def _on_ranks(parts: Mapping[str, int], whole: int, least: float) -> str:
    """`Most of it is on rank 1: 60 %, 0: 40 %`; `It is 30 % on rank 2, 25 % on rank 0` if no rank has most of it."""
    if max(parts.values()) > whole / 2:
        return f"Most of it is on rank {_shares(parts, whole, least)}"
    listed = [
        f"{percent(part, whole)} on rank {rank}" for rank, part in parts.items() if part >= least * whole
    ]
    return f"It is {', '.join(listed)}"


def _shares(parts: Mapping[str, int], whole: int, least: float) -> str:
    """`compute 60 %, host 20 %`; what is smaller than `least` is left out."""
    shown = [
        f"{name.replace('_', ' ')}{':' if name.isdecimal() else ''} {percent(part, whole)}"
        for name, part in parts.items()
        if part >= least * whole
    ]
    return ", ".join(shown)


def show_late_ranks(page: Page, result: Summary, *, verbose: bool) -> None:
    """Adds the ranks that others wait for in collectives, and the groups in which it is always the same one."""
    time = sum(step.duration_ns for rank in result.ranks for step in rank.steps)
    least = 0 if verbose else NOTICEABLE * time
    late = [row for row in result.communication.late if row.own_ns > least]
    if not late:
        return
    header = ("late rank", "last", "of", "others waited", "inherited", "waited itself")
    rows = [
        [
            str(row.rank),
            number(row.last),
            number(row.collectives),
            fine_span(row.own_ns),
            fine_span(row.inherited_ns),
            fine_span(row.waited_ns),
        ]
        for row in late[: None if verbose else SHOWN]
    ]
    page.table(header, rows, numbers=header)
    for pattern in result.communication.patterns:
        if pattern.pattern is Pattern.CONSTANT:
            page.line(
                f"Group {pattern.group_name}: rank {pattern.rank} causes {pattern.share * 100:.0f} % of the waits in "
                f"{counted(pattern.collectives, 'collective')}."
            )
    page.gap()


def show_what_if(page: Page, result: Summary, *, verbose: bool) -> None:
    """Adds the answers to what-if questions."""
    for answer in result.what_if:
        page.line(_in_words(answer))
        for note in answer.notes if verbose else ():
            page.line(note, indent=2)
    page.gap()


def _in_words(answer: WhatIf) -> str:
    if answer.expected_ns is None:
        return f"What if {answer.question}: no answer. {answer.why_not}"
    change = -(answer.share or 0.0)
    return (
        f"What if {answer.question}: {fine_span(answer.recorded_ns)} would be {fine_span(answer.expected_ns)} "
        f"({change * 100:+.1f} %). Error of the replay: {answer.error * 100:.2f} %."
    )
