"""The report of `tracelink validate`: the verdict, and each broken rule with examples and advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracelink._model.ranges import Numbers
from tracelink._model.text import counted, number
from tracelink._show.document import Block, Medium, Only, Paragraph, Report, Section, Table, Tone
from tracelink._show.terminal import GAP, more
from tracelink.converters.chakra.validation.rules import BrokenRule, Validation, Violation

EXAMPLES = 5
"""Violations of each rule that a terminal shows without -v; the rest are counted."""
ON_A_PAGE = (Medium.HTML, Medium.MARKDOWN)


def report_of(validation: Validation, *, examples: int | None = EXAMPLES, verbose: bool = False) -> Report:
    """The document of a verdict.

    Args:
        validation: The verdict.
        examples: How many violations of each rule a terminal shows; None: all that are listed.
        verbose: Whether a terminal shows examples of warnings, and advice.
    """
    broken = [rule for rule in validation.rules if rule.severity == "violation"]
    warned = [rule for rule in validation.rules if rule.severity == "warning"]
    violated = [
        Section(rule.rule, list(_rule(rule, validation.violations, examples, Tone.PROBLEM)))
        for rule in broken
    ]
    warnings = [
        block
        for rule in warned
        for block in (
            _rule(rule, validation.warnings, examples, Tone.WARNING)
            if verbose
            else _warning(rule, validation.warnings)
        )
    ]
    files = Only(ON_A_PAGE, [Table(validation.files, thing="file")])
    return Report(
        "validate",
        _verdict(validation),
        Tone.GOOD if validation.valid else Tone.PROBLEM,
        sections=[*violated, Section("Warnings", warnings), Section("Files", [files])],
    )


def _verdict(validation: Validation) -> str:
    seen = f"{counted(len(validation.files), 'file')}, {counted(validation.nodes, 'node')}"
    if validation.valid:
        return f"valid: {seen}"
    return f"invalid: {counted(sum(validation.counts.values()), 'violation')} ({seen})"


def _rule(
    rule: BrokenRule, violations: Sequence[Violation], examples: int | None, tone: Tone
) -> Iterator[Block]:
    listed = [violation for violation in violations if violation.rule is rule.rule]
    yield Paragraph(f"{_head(rule, listed)} {rule.advice}", tone)
    lines = [_example(violation) for violation in listed[:examples]]
    if (rest := rule.count - len(lines)) > 0:
        lines.append(f"\N{HORIZONTAL ELLIPSIS} {more(rest, 'violation')}")
    yield Only((Medium.TERMINAL,), [Paragraph(line, indent=GAP) for line in lines])
    yield Only(ON_A_PAGE, [Table(listed, thing="violation")])


def _warning(rule: BrokenRule, violations: Sequence[Violation]) -> Iterator[Block]:
    listed = [violation for violation in violations if violation.rule is rule.rule]
    yield Paragraph(f"warning: {_head(rule, listed)} For example: {listed[0].message}", Tone.WARNING)


def _head(rule: BrokenRule, listed: Sequence[Violation]) -> str:
    times = "once" if rule.count == 1 else f"{number(rule.count)} times"
    ranks = Numbers.of({violation.rank for violation in listed if violation.rank is not None})
    where = f" on {ranks.called('rank')}" if ranks else ""
    return f"{rule.rule.value} ({', '.join(rule.invariants)}), {times}{where}: {rule.breaks}."


def _example(violation: Violation) -> str:
    rank = f"rank {violation.rank}"
    named = violation.rank is None or violation.message.startswith(f"{rank} ")
    return violation.message if named else f"{rank}: {violation.message}"
