"""What the page of `tracelink diagnose` shows of logs, stacks and NCCL's monitor, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.cli.terminal import EMPTY, Page, more
from tracelink.diagnosis.witnesses.model import FoldedStack, RankReport, Use, Witnesses
from tracelink.model.columns import MILLISECOND
from tracelink.model.records import Frame, line_in_words
from tracelink.model.text import (
    counted,
    duration,
    group_cell,
    number,
    operation_in_words,
    ranks_cell,
    shortened,
)

MOST_STACKS = 4
MOST_CONFLICTS = 3
MOST_REPORTS = 100
MOST_FRAMES = 3
LONGEST_FUNCTION = 60
"""Characters of the name of a function."""
STACKS = ("ranks", "innermost call", "called from")
REPORTS = ("rank", "line", "group", "collective", "elements", "timeout", "enqueued", "completed")
SIGNS = {
    "timed_out": "timed out",
    "status": "last collectives",
    "heartbeat": "watchdog stuck",
    "gave_up": "gave up (gloo)",
    "lost": "connection lost (gloo)",
    "barrier": "barrier not passed (gloo)",
    "passed": "barrier passed (gloo)",
}
NOT_OF_PROGRAM = ("torch/", "threading.py", "selectors.py")
"""Parts of the names of files that are not of the program."""


def show_witnesses(page: Page, witnesses: Witnesses, *, verbose: bool) -> None:
    """The stacks, folded; the contradictions; with `verbose` all lines of watchdogs."""
    _show_conflicts(page, witnesses, verbose=verbose)
    _show_stacks(page, witnesses.stacks, verbose=verbose)
    if verbose:
        _show_reports(page, witnesses.reports)


def _show_conflicts(page: Page, witnesses: Witnesses, *, verbose: bool) -> None:
    if not witnesses.conflicts:
        return
    page.gap()
    page.line("Sources that contradict each other:", "bold")
    shown = witnesses.conflicts if verbose else witnesses.conflicts[:MOST_CONFLICTS]
    for conflict in shown:
        page.line(f"{conflict.message} ({', '.join(conflict.sources)})", indent=2)
    if rest := len(witnesses.conflicts) - len(shown):
        page.line(more(rest, "contradiction", "-v"), "dim")


def _show_stacks(page: Page, stacks: Sequence[FoldedStack], *, verbose: bool) -> None:
    processes = sum(len(stack.ranks) + len(stack.processes) for stack in stacks)
    if processes < 2:
        return
    page.gap()
    page.line(f"Stacks of {number(processes)} processes, the least common first:", "bold")
    shown = stacks if verbose else stacks[:MOST_STACKS]
    page.table(STACKS, [_stack_row(stack) for stack in shown])
    if rest := len(stacks) - len(shown):
        page.line(more(rest, "stack", "-v"), "dim")


def _stack_row(stack: FoldedStack) -> tuple[str, str, str]:
    who = ", ".join([*([ranks_cell(stack.ranks)] if stack.ranks else []), *stack.processes[:MOST_STACKS]])
    callers = [frame for frame in stack.frames[1:] if _of_program(frame)][:MOST_FRAMES]
    return who, _frame(stack.frames[0]), " < ".join(map(_frame, callers)) or EMPTY


def _of_program(frame: Frame) -> bool:
    return frame.line > 0 and not any(part in frame.filename for part in NOT_OF_PROGRAM)


def _frame(frame: Frame) -> str:
    return f"{shortened(frame.name, LONGEST_FUNCTION)} ({line_in_words(frame)})"


def _show_reports(page: Page, reports: Sequence[RankReport]) -> None:
    if not reports:
        return
    page.gap()
    page.line("Watchdog lines:", "bold")
    page.table(REPORTS, [_report_row(one) for one in reports[:MOST_REPORTS]])
    if (rest := len(reports) - MOST_REPORTS) > 0:
        page.line(f"{counted(rest, 'more line')} (--json has more).", "dim")


def _report_row(one: RankReport) -> tuple[str, ...]:
    line = one.report
    collective = operation_in_words(line.operation) if line.operation else ""
    if line.sequence is not None:
        collective = f"{collective} #{line.sequence}".strip()
    return (
        _number(one.rank),
        SIGNS[line.sign.value],
        group_cell(line.group, line.description) if line.group else EMPTY,
        collective or EMPTY,
        _number(line.elements_in),
        EMPTY if line.timeout_ms is None else duration(line.timeout_ms * MILLISECOND),
        _number(line.enqueued),
        _number(line.completed),
    )


def _number(value: int | None) -> str:
    return EMPTY if value is None else number(value)


def show_uses(page: Page, used: Sequence[Use]) -> None:
    """One line: what was read, and what was not used."""
    read = [f"{use.what}: {number(use.count)} ({use.purpose})" for use in used if use.purpose]
    left = [f"{use.what}: {number(use.count)}" for use in used if not use.purpose]
    none = "" if any(use.what == "dumps" for use in used) else "No dump. "
    page.line(f"{none}Read: {'; '.join(read)}.")
    if left:
        page.line(f"Not used: {'; '.join(left)}.")
