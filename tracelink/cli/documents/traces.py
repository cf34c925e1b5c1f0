"""What `validate --json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tracelink.cli.documents.results import (
    Count,
    Positive,
    RankNumber,
    Text,
)
from tracelink.converters.chakra.schema import Variant
from tracelink.converters.chakra.validation import rules
from tracelink.converters.chakra.validation.rules import RULES, Rule

# validate


class CheckedFile(Struct, frozen=True):
    """A file that was checked."""

    path: str
    rank: RankNumber
    nodes: Count
    variant: Variant
    bytes: Count


class Violation(Struct, frozen=True, forbid_unknown_fields=True):
    """One place where a rule is broken."""

    rule: Rule
    rank: Annotated[RankNumber | None, Meta(description="Null if it is about all ranks.")]
    node: Annotated[Count | None, Meta(description="Id of the node; null if it is about a file or a rank.")]
    message: Text
    file: Annotated[str, Meta(description="Empty if it is about a missing file.")]


class BrokenRule(Struct, frozen=True):
    """A rule that is broken, and how often."""

    rule: Rule
    severity: Literal["violation", "warning"]
    count: Annotated[Positive, Meta(description="Number of violations, listed or not.")]
    invariants: Annotated[
        Sequence[str], Meta(description="What it checks: M within a file, X across ranks, S recommended.")
    ]
    breaks: str
    advice: str


class Validate(Struct, frozen=True):
    """Result of `tracelink validate --json`."""

    valid: Annotated[bool, Meta(description="True if there is no violation; warnings do not count.")]
    files: Sequence[CheckedFile]
    violations: Annotated[Sequence[Violation], Meta(description="The first ones of each rule and rank.")]
    warnings: Sequence[Violation]
    rules: Annotated[Sequence[BrokenRule], Meta(description="Each rule that is broken.")]


def validate_document(validation: rules.Validation) -> Validate:
    """The verdict, the files, each violation that is listed, and how often each rule is broken."""
    return Validate(
        valid=validation.valid,
        files=[
            CheckedFile(file.path, file.rank, file.nodes, file.variant, file.bytes)
            for file in validation.files
        ],
        violations=[_violation(violation) for violation in validation.violations],
        warnings=[_violation(violation) for violation in validation.warnings],
        rules=[
            *(_broken(rule, count, "violation") for rule, count in validation.counts.items()),
            *(_broken(rule, count, "warning") for rule, count in validation.warning_counts.items()),
        ],
    )


def _violation(violation: rules.Violation) -> Violation:
    return Violation(violation.rule, violation.rank, violation.node, violation.message, violation.file)


def _broken(rule: Rule, count: int, severity: Literal["violation", "warning"]) -> BrokenRule:
    text = RULES[rule]
    return BrokenRule(rule, severity, count, text.ids.split(", "), text.breaks, text.advice)
