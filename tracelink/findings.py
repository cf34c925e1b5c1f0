"""Findings: what did not fit. Nothing is dropped without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters to the person who reads it."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of thing that did not fit in one source: how often, and an example."""

    severity: Severity
    reason: str
    message: str
    count: int = 1
    source: str = ""
    example: str = ""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of severity."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))
