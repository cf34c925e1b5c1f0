"""Linking within one rank: a rank trace in; its edges, its communication calls and reports out.

`link_rank` applies one linker for each relation, in the order in which they need each other's edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._link.calls import calls_of
from tracelink._link.launch import link_annotations, link_backward, link_calls_by_flows, link_launches
from tracelink._link.nesting import link_calls
from tracelink._link.same import link_execution, link_ranges, link_recorder, link_recorder_kernels
from tracelink._model.columns import UNKNOWN, Bools, lookup, values_at
from tracelink._model.communications import Calls
from tracelink._model.events import PHASE_DATA, Edges, Key, Relation
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import STATED, LinkReport, Links, nonzero
from tracelink._model.trace import RankTrace, scoped_pair
from tracelink.plugins import reader_spec


class LinkedRank(Struct, frozen=True):
    """One rank's events, the edges between them, and the communications that they are part of."""

    trace: RankTrace
    edges: Edges
    reports: Sequence[LinkReport]
    findings: Sequence[Finding]
    calls: Calls = field(default_factory=Calls.empty)


def link_rank(trace: RankTrace) -> LinkedRank:
    """Applies every linker to one rank."""
    whole, links = trace, list[Links]()
    if len(trace.sources) > 1 and any(
        reader_spec(source.format).repeats_profiles for source in trace.sources
    ):
        ranges = link_ranges(trace)
        trace, links = ranges.distinct, [ranges.links]
    launches = link_launches(trace)
    recorder = link_recorder(trace)
    links += [
        launches,
        link_calls(whole),
        link_backward(trace),
        link_execution(trace),
        recorder,
        link_recorder_kernels(trace, recorder.edges, launches.edges),
        _link_flows(trace),
        link_calls_by_flows(trace),
    ]
    if len(trace.key(Key.COMPILE_ID)):
        from tracelink._link.compilation import link_compilation  # most ranks have no compile log

        links += link_compilation(trace, _all_edges(links))
    links.append(_link_stated(trace, _all_edges(links)))
    communication = calls_of(trace, _all_edges(links))
    links.append(link_annotations(trace, communication.calls))
    reports = [link.report for link in links if link.report.candidates or link.report.notes]
    reports += communication.reports
    findings = [finding for report in reports for finding in _unlinked(report)]
    findings += [finding for link in links for finding in link.findings]
    findings += communication.findings
    linked = LinkedRank(whole, _all_edges(links), reports, findings, communication.calls)
    return _with_phase_data_folded(linked)


def _with_phase_data_folded(linked: LinkedRank) -> LinkedRank:
    """The rank after annotations that only state data of a phase of the compiler became arguments."""
    if not any(PHASE_DATA in text for text in linked.trace.strings):
        return linked
    from tracelink._link.phase_data import fold_phase_data  # few profiles have them

    folded = fold_phase_data(linked.trace, linked.edges, linked.calls)
    return replace(
        linked,
        trace=folded.trace,
        edges=folded.edges,
        calls=folded.calls,
        findings=[*linked.findings, *folded.findings],
    )


def _all_edges(links: Sequence[Links]) -> Edges:
    return Edges.concatenate([link.edges for link in links])


def _unlinked(report: LinkReport) -> list[Finding]:
    """One finding for each reason; a relation without any link is worth a warning."""
    severity = Severity.INFO if report.linked else Severity.WARNING
    linked = f"{report.relation}: {report.linked} of {report.candidates} linked"
    return [
        Finding(severity, f"unlinked.{report.relation}", f"{linked}, {count} unmatched: {reason}.", count)
        for reason, count in report.unlinked.items()
    ]


# *depends on*: the flows of other categories that a producer drew between its own events.


def _link_flows(trace: RankTrace) -> Links:
    """The event at a flow's end depends on the event at its start."""
    starts, ends = trace.key(Key.FLOW_OUT), trace.key(Key.FLOW_IN)
    identity, wanted = scoped_pair(trace, starts, ends)
    found = lookup(identity, wanted)
    cause = values_at(starts.rows, found)
    within = cause == ends.rows
    linked = (found != UNKNOWN) & ~within
    edges = Edges.of_relation(Relation.DEPENDS_ON, ends.rows[linked], cause[linked])
    unlinked = {
        "its flow has no start": int(np.count_nonzero(found == UNKNOWN)),
        "its flow starts at the same event": int(np.count_nonzero(within)),
    }
    return Links(edges, LinkReport("depends_on.drawn", len(edges), len(ends), nonzero(unlinked)))


# Edges that sources state themselves, besides calls and launches: those two have linkers of their own.


LINKED_ELSEWHERE = (Relation.CALLS, Relation.LAUNCHES)


def _link_stated(trace: RankTrace, found: Edges) -> Links:
    """Each edge that a source states, once, and without the edges that linkers `found`."""
    stated = _where(trace.edges, ~np.isin(trace.edges.relation, LINKED_ELSEWHERE))
    found = _where(found, np.isin(found.relation, stated.relation))
    both = Edges.concatenate([found, stated])
    order = np.lexsort((both.target, both.source, both.relation))
    duplicate = np.zeros(len(both), np.bool_)
    duplicate[order[1:]] = (
        (np.diff(both.relation[order].astype(np.int64)) == 0)
        & (np.diff(both.source[order]) == 0)
        & (np.diff(both.target[order]) == 0)
    )
    edges = _where(both, ~duplicate & (np.arange(len(both)) >= len(found)))
    notes = nonzero({STATED: len(edges)})
    return Links(edges, LinkReport("stated", len(edges), len(edges), notes=notes))


def _where(edges: Edges, keep: Bools) -> Edges:
    return Edges(edges.source[keep], edges.target[keep], edges.relation[keep])
