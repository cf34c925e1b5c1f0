"""Logs, stacks and NCCL's monitor on the page of a diagnosis, and what was read."""

from __future__ import annotations

from tracelink.diagnosis.html.problems import stack_list
from tracelink.diagnosis.witnesses.model import FoldedStack, RankReport, Witnesses
from tracelink.model.columns import MILLISECOND
from tracelink.model.text import counted, duration, group_name, name_in_words, numbered, ranks_in_words
from tracelink.show.markup import Child, Markup, element, table

MOST_STACKS = 16
MOST_REPORTS = 200
MOST_CONFLICTS = 50
REPORTS = ("rank", "line", "group", "collective", "elements", "timeout", "enqueued", "completed")


def stacks_section(witnesses: Witnesses | None) -> Child:
    """The stacks of all processes, equal ones once; None if there are none."""
    if not witnesses or not witnesses.stacks:
        return None
    rest = len(witnesses.stacks) - MOST_STACKS
    hidden = element("p", f"{counted(rest, 'more stack')} not shown.") if rest > 0 else None
    return [*(_stack(stack) for stack in witnesses.stacks[:MOST_STACKS]), hidden]


def _stack(stack: FoldedStack) -> Child:
    who = [*([ranks_in_words(stack.ranks)] if stack.ranks else []), *stack.processes[:MOST_STACKS]]
    heading = element("h3", f"{name_in_words(', '.join(who))} ", element("small", f"({stack.program})"))
    return [heading, stack_list(stack.frames)]


def conflicts_section(witnesses: Witnesses | None) -> Child:
    """Where sources contradict each other; None if they do not."""
    if not witnesses or not witnesses.conflicts:
        return None
    return element(
        "ul",
        [
            element(
                "li",
                f"{conflict.message} ",
                element("small", ", ".join(map(name_in_words, conflict.sources))),
            )
            for conflict in witnesses.conflicts[:MOST_CONFLICTS]
        ],
    )


def reports_section(witnesses: Witnesses | None) -> Child:
    """Lines of watchdogs; None if there are none."""
    if not witnesses or not witnesses.reports:
        return None
    rest = len(witnesses.reports) - MOST_REPORTS
    hidden = element("p", f"{counted(rest, 'more line')} not shown.") if rest > 0 else None
    rows = [_report(one) for one in witnesses.reports[:MOST_REPORTS]]
    return [table("Watchdog lines", REPORTS, rows), hidden]


def _report(one: RankReport) -> tuple[str, ...]:
    line = one.report
    return (
        _number(one.rank),
        line.sign.value.replace("_", " "),
        group_name(line.group, line.description).removeprefix("group ") if line.group else "",
        numbered(line.operation, line.sequence)
        if line.operation
        else f"#{line.sequence}"
        if line.sequence
        else "",
        _number(line.elements_in),
        "" if line.timeout_ms is None else duration(line.timeout_ms * MILLISECOND),
        _number(line.enqueued),
        _number(line.completed),
    )


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def inputs_section(witnesses: Witnesses | None) -> Child:
    """What was read, and what was not used; None if there were only dumps."""
    if not witnesses or not witnesses.used:
        return None
    rows: list[tuple[str, str, str | Markup]] = [
        (f"{use.what}: {use.count:,}", use.purpose or "not used", name_in_words(use.example))
        for use in witnesses.used
    ]
    return table("Files", ("files", "used for", "such as"), rows)
