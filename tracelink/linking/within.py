"""Linking within a rank: all relations of its events, and the calls that they are parts of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracelink.communications import Calls
from tracelink.events import Edges
from tracelink.findings import Finding, Severity
from tracelink.linking.autograd import link_backward
from tracelink.linking.calls import calls_of
from tracelink.linking.execution import link_execution
from tracelink.linking.launch import link_annotations, link_launches
from tracelink.linking.nesting import link_calls
from tracelink.linking.other import link_drawn
from tracelink.linking.recorder import link_recorder, link_recorder_kernels
from tracelink.linking.report import LinkReport
from tracelink.linking.stated import link_stated
from tracelink.trace import RankTrace


@dataclass(frozen=True, slots=True)
class LinkedRank:
    """One rank's events with everything that links them."""

    trace: RankTrace
    edges: Edges
    reports: Sequence[LinkReport]
    findings: Sequence[Finding]
    calls: Calls = field(default_factory=Calls.empty)


def link_rank(trace: RankTrace) -> LinkedRank:
    """Applies every linker to one rank."""
    launches = link_launches(trace)
    recorded = link_recorder(trace)
    links = [
        launches,
        link_calls(trace),
        link_backward(trace),
        link_execution(trace),
        recorded,
        link_recorder_kernels(trace, recorded.edges, launches.edges),
        link_drawn(trace),
    ]
    links.append(link_stated(trace, Edges.concatenate([link.edges for link in links])))
    joined = calls_of(trace, Edges.concatenate([link.edges for link in links]))
    links.append(link_annotations(trace, joined.calls))
    reports = [link.report for link in links if link.report.candidates or link.report.notes]
    reports += joined.reports
    findings = [finding for report in reports for finding in _findings(report)]
    findings += [finding for link in links for finding in link.findings]
    findings += joined.findings
    edges = Edges.concatenate([link.edges for link in links])
    return LinkedRank(trace, edges, reports, findings, joined.calls)


def _findings(report: LinkReport) -> list[Finding]:
    """What was not linked, and why; a relation of which nothing was linked is worth a warning."""
    severity = Severity.INFO if report.linked else Severity.WARNING
    of = f"{report.linked} of {report.candidates} linked"
    return [
        Finding(
            severity, f"unlinked.{report.relation}", f"{report.relation}: {of}; {count} not: {why}.", count
        )
        for why, count in report.unlinked.items()
    ]
