"""Findings: what did not fit. Nothing is dropped without one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from tracelink.model.fields import Doc, Positive, Row, Shown, Text


class Severity(StrEnum):
    """How much a finding matters to the person who reads it."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Finding(Row, frozen=True):
    """One kind of problem or note in one source: how often, and an example."""

    severity: Severity
    reason: Annotated[Text, Doc("The kind of finding, for programs.")]
    message: Text
    count: Positive = 1
    source: Annotated[str, Doc("Path of the source; empty if it is about all of them."), Shown(drop=1)] = ""
    example: Annotated[str, Doc("One of the places; empty if there is none to show."), Shown(drop=2)] = ""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of severity."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))
