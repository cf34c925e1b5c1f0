"""Inputs to a job: ranks gathered, matched with each other, on one clock, and cut to what is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.apart import Span, recorded_apart
from tracelink.assembly import KeptPart
from tracelink.clock import ClockMode, Clocks
from tracelink.cutting import cut
from tracelink.engine import Engine
from tracelink.findings import Finding, Severity, in_order
from tracelink.gathering import EVERY_RANK, Gathered, GatheredRank, gather
from tracelink.graph import Rank
from tracelink.job import Job
from tracelink.linking.across import JobTables, link_ranks
from tracelink.ranges import Numbers
from tracelink.selection import Selection
from tracelink.sources import Discovery


def read_job(
    discovery: Discovery,
    engine: Engine,
    *,
    clock: ClockMode | Clocks = ClockMode.HOST,
    selection: Selection | None = None,
    with_events: bool = True,
) -> Job:
    """Everything that the inputs tell of one job; its events stay where the workers left them."""
    wanted = (selection.ranks if selection else None) or EVERY_RANK
    gathered = gather(discovery, engine, wanted=wanted, with_events=with_events)
    tables = link_ranks([rank.calls for rank in gathered.ranks], clock)
    job = _job(gathered, tables)
    if selection is None or not selection.cuts or not with_events:
        return job
    return cut(job, selection, engine, gathered.keeper)


def _job(gathered: Gathered, tables: JobTables) -> Job:
    ranks = [
        Rank.with_clock(tables.clocks.clocks[rank.rank], rank.calls.world_size) for rank in gathered.ranks
    ]
    parts = [
        KeptPart(row, tables.clocks.clocks[row.rank], tables.groups, gathered.keeper, rank.graph)
        for row, rank in zip(ranks, gathered.ranks, strict=True)
    ]
    findings = [*gathered.findings, *(finding for rank in gathered.ranks for finding in rank.findings)]
    clocks = [tables.clocks.clocks[rank.rank] for rank in gathered.ranks]
    firsts, lasts = (
        [clock.corrected_time(time) for clock, time in zip(clocks, times, strict=True) if time is not None]
        for times in (
            [rank.first_ns for rank in gathered.ranks],
            [rank.last_ns for rank in gathered.ranks],
        )
    )
    return Job(
        parts=parts,
        ranks=ranks,
        sources=[source for rank in gathered.ranks for source in rank.sources],
        strings=tables.strings,
        groups=tables.groups,
        collectives=tables.collectives,
        participations=tables.participations,
        messages=tables.messages,
        findings=in_order([*findings, *tables.findings, *_job_findings(ranks, gathered.ranks)]),
        reports={rank.rank: rank.reports for rank in gathered.ranks},
        first_ns=min(firsts, default=None),
        last_ns=max(lasts, default=None),
        events=sum(rank.events for rank in gathered.ranks),
    )


def _job_findings(ranks: Sequence[Rank], gathered: Sequence[GatheredRank]) -> list[Finding]:
    return [*_missing_ranks(ranks), *recorded_apart(_spans(gathered), "Merge each by itself.")]


def _missing_ranks(ranks: Sequence[Rank]) -> list[Finding]:
    sizes = {rank.world_size for rank in ranks if rank.world_size}
    if len(sizes) > 1:
        message = (
            f"The sources disagree on the world size: {', '.join(map(str, sorted(sizes)))}. Is this one job?"
        )
        return [Finding(Severity.WARNING, "world_size", message, len(sizes))]
    size = max(sizes, default=0)
    present = {rank.rank for rank in ranks if rank.rank < size}
    if len(present) == size:
        return []
    missing = Numbers(((0, size - 1),)).without(present)
    some = ", ".join(str(missing).split(", ")[:8]) + (", …" if len(missing.ranges) > 8 else "")
    count = size - len(present)
    return [
        Finding(Severity.INFO, "missing_ranks", f"{count} of {size} ranks have no source: {some}.", count)
    ]


def _spans(ranks: Sequence[GatheredRank]) -> list[Span]:
    """When each rank was recorded."""
    spans = []
    for rank in ranks:
        times = [(info.start_ns, info.end_ns) for info in rank.sources if info.start_ns and info.end_ns]
        if times:
            spans.append((min(start for start, _ in times), max(end for _, end in times), rank.rank))
    return spans
