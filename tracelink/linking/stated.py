"""What sources state of why events happened, besides callers and launches: those have linkers of their own."""

from __future__ import annotations

import numpy as np

from tracelink.events import Bools, Edges, Relation
from tracelink.linking.report import STATED, LinkReport, Links
from tracelink.trace import RankTrace

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
