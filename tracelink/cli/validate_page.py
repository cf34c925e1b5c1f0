"""What `validate` says to a person: the verdict, then each rule that is broken."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.cli.page import Page, counted, number
from tracelink.converters.chakra.validation import RULES, Rule, Validation, Violation
from tracelink.ranges import Numbers

EXAMPLES = 5
"""Violations of one rule that are shown before the rest of them is only counted."""


def verdict(validation: Validation) -> str:
    """One line."""
    seen = f"{counted(len(validation.files), 'file')}, {counted(validation.nodes, 'node')}"
    if validation.valid:
        return f"valid: {seen}"
    return f"invalid: {counted(sum(validation.counts.values()), 'violation')} ({seen})"


def validate_page(validation: Validation, examples: int | None, *, verbose: bool) -> str:
    """The verdict, violations by rule with examples and what to do, and warnings in a line each."""
    page = Page()
    page.line(verdict(validation), "bold green" if validation.valid else "bold red")
    for rule, count in validation.counts.items():
        page.gap()
        _rule(page, rule, count, [one for one in validation.violations if one.rule is rule], examples)
    if validation.warning_counts:
        page.gap()
    for rule, count in validation.warning_counts.items():
        listed = [one for one in validation.warnings if one.rule is rule]
        if verbose:
            _rule(page, rule, count, listed, examples, "yellow")
        else:
            page.line(f"warning: {_head(rule, count, listed)} For example: {listed[0].message}", "yellow")
    return page.text


def _rule(
    page: Page, rule: Rule, count: int, listed: Sequence[Violation], examples: int | None, style: str = "red"
) -> None:
    page.line(f"{_head(rule, count, listed)} {RULES[rule].advice}", style)
    page.beneath([(_shown(one),) for one in listed[:examples]])
    if (rest := count - len(listed[:examples])) > 0:
        page.beneath([(f"… {number(rest)} more; -v shows them",)])


def _head(rule: Rule, count: int, listed: Sequence[Violation]) -> str:
    text = RULES[rule]
    times = "once" if count == 1 else f"{number(count)} times"
    ranks = Numbers.of({one.rank for one in listed if one.rank is not None})
    where = f" on {ranks.called('rank')}" if ranks else ""
    return f"{rule.value} ({text.ids}), {times}{where}: {text.breaks}."


def _shown(one: Violation) -> str:
    said = one.rank is None or one.message.startswith(f"rank {one.rank} ")
    return one.message if said else f"rank {one.rank}: {one.message}"
