"""Link_rank: every relation within one rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.linking.calls import calls_of
from tracelink.linking.execution import link_execution
from tracelink.linking.launch import link_annotations, link_backward, link_launches
from tracelink.linking.links import Links, scoped_pair
from tracelink.linking.nesting import link_calls
from tracelink.linking.recorder import link_recorder, link_recorder_kernels
from tracelink.model.columns import UNKNOWN, Bools, lookup
from tracelink.model.communications import Calls
from tracelink.model.events import Edges, Key, Relation
from tracelink.model.graph import STATED, LinkReport
from tracelink.model.trace import RankTrace

# *depends on*: arrows of other sorts that a producer drew between its own events.


def link_drawn(trace: RankTrace) -> Links:
    """The event at an arrow's end depends on the event at its beginning."""
    starts, ends = trace.key(Key.FLOW_OUT), trace.key(Key.FLOW_IN)
    identity, wanted = scoped_pair(trace, starts, ends)
    found = lookup(identity, wanted)
    linked = found != UNKNOWN
    edges = Edges.of(Relation.DEPENDS_ON, ends.rows[linked], starts.rows[found[linked]])
    missing = len(ends) - len(edges)
    reasons = {"its arrow has no beginning": missing} if missing else {}
    return Links(edges, LinkReport("depends_on.drawn", len(edges), len(ends), reasons))


# What sources state of why events happened, besides callers and launches: those have linkers of their own.


ELSEWHERE = (Relation.CALLS, Relation.LAUNCHES)


def link_stated(trace: RankTrace, found: Edges) -> Links:
    """Each edge that a source states, once, and without those that linkers `found`."""
    stated = _chosen(trace.edges, ~np.isin(trace.edges.relation, ELSEWHERE))
    found = _chosen(found, np.isin(found.relation, stated.relation))
    both = Edges.concatenate([found, stated])
    order = np.lexsort((both.target, both.source, both.relation))
    repeats = np.zeros(len(both), np.bool_)
    repeats[order[1:]] = (
        (np.diff(both.relation[order].astype(np.int64)) == 0)
        & (np.diff(both.source[order]) == 0)
        & (np.diff(both.target[order]) == 0)
    )
    edges = _chosen(both, ~repeats & (np.arange(len(both)) >= len(found)))
    return Links(
        edges, LinkReport("stated", len(edges), len(edges), notes={STATED: len(edges)} if len(edges) else {})
    )


def _chosen(edges: Edges, keep: Bools) -> Edges:
    return Edges(edges.source[keep], edges.target[keep], edges.relation[keep])


# Linking within a rank: all relations of its events, and the calls that they are parts of.


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
