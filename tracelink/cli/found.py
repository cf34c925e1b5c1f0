"""Findings and exit codes that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tracelink.cli.failures import FINE, NO, UNREADABLE
from tracelink.cli.page import Page, number
from tracelink.cli.voice import Voice
from tracelink.findings import Finding, Severity

if TYPE_CHECKING:
    from tracelink.trace import SourceInfo

STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: ""}
SHOWN = 3
"""Findings of one reason that are shown before the rest of them is only counted."""


def exit_code(sources: Sequence[SourceInfo], findings: Sequence[Finding]) -> int:
    """What a shell is told about a job."""
    if not sources:
        return UNREADABLE
    return NO if any(finding.severity is Severity.ERROR for finding in findings) else FINE


def complain_of_errors(voice: Voice, findings: Sequence[Finding]) -> None:
    """Says what even a quiet user must know."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            voice.complain(paragraph(finding))


def show_findings(page: Page, findings: Sequence[Finding], *, verbose: bool) -> None:
    """One paragraph for each finding, errors first; infos only if `verbose`."""
    for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO):
        reasons: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.severity is severity:
                reasons.setdefault(finding.reason, []).append(finding)
        if severity is Severity.INFO and not verbose:
            if infos := sum(map(len, reasons.values())):
                page.line(f"{severity}: {number(infos)} more to know; -v shows it.", "dim")
            continue
        for alike in reasons.values():
            _show_alike(page, alike, SHOWN if not verbose else len(alike))


def _show_alike(page: Page, findings: Sequence[Finding], shown: int) -> None:
    style = STYLES[findings[0].severity]
    for finding in findings[:shown]:
        page.line(paragraph(finding), style)
    if (rest := len(findings) - shown) > 0:
        page.line(f"{findings[0].severity}: {number(rest)} more of the same sort; -v shows them.", style)


def paragraph(finding: Finding) -> str:
    """A finding in words."""
    where = f"{finding.source}: " if finding.source and finding.source not in finding.message else ""
    times = f" ({number(finding.count)} times)" if finding.count > 1 else ""
    example = f" For example: {finding.example}" if finding.example else ""
    message = " ".join(finding.message.split())
    return f"{finding.severity}: {where}{message}{times}{example}"
