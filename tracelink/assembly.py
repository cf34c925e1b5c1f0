"""Linked ranks to one event graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracelink.events import Edges
from tracelink.findings import Finding, Severity
from tracelink.graph import EventGraph, Rank, source_bounds
from tracelink.linking import LinkedRank
from tracelink.trace import ProcessGroup, combine


def assemble(ranks: Sequence[tuple[int, LinkedRank]], findings: Sequence[Finding]) -> EventGraph:
    """One graph of all ranks: rows renumbered, edges with them."""
    whole = combine([linked.trace for _, linked in ranks])
    offsets = np.cumsum([0, *(len(linked.trace.events) for _, linked in ranks)])
    edges = [
        linked.edges.shifted(int(offset)) for (_, linked), offset in zip(ranks, offsets[:-1], strict=True)
    ]
    rows = [_rank(rank, linked) for rank, linked in ranks]
    every_finding = [*findings, *(finding for _, linked in ranks for finding in linked.findings)]
    return EventGraph(
        strings=whole.strings.texts(),
        events=whole.events,
        edges=edges[0] if len(edges) == 1 else Edges.concatenate(edges),
        tracks=whole.tracks,
        ranks=rows,
        sources=whole.sources,
        bounds=source_bounds(whole.events.source, len(whole.sources)),
        keys=whole.keys,
        counters=whole.counters,
        groups=_distinct(whole.groups),
        payloads=whole.payloads,
        findings=in_order(every_finding) + _missing_ranks(rows),
        reports={rank: linked.reports for rank, linked in ranks},
    )


def _rank(rank: int, linked: LinkedRank) -> Rank:
    sources = linked.trace.sources
    host = next((source.host for source in sources if source.host), "")
    world_size = next((source.world_size for source in sources if source.world_size), None)
    return Rank(rank, host, world_size)


def _distinct(groups: Sequence[ProcessGroup]) -> list[ProcessGroup]:
    return list(dict.fromkeys(groups))


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Findings in the order of severity."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _missing_ranks(ranks: Sequence[Rank]) -> list[Finding]:
    sizes = {rank.world_size for rank in ranks if rank.world_size}
    if len(sizes) > 1:
        message = (
            f"The sources disagree on the world size: {', '.join(map(str, sorted(sizes)))}. Is this one job?"
        )
        return [Finding(Severity.WARNING, "world_size", message, len(sizes))]
    size = max(sizes, default=0)
    missing = sorted(set(range(size)) - {rank.rank for rank in ranks})
    if not missing:
        return []
    some = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
    message = f"{len(missing)} of {size} ranks have no source: {some}."
    return [Finding(Severity.INFO, "missing_ranks", message, len(missing))]
