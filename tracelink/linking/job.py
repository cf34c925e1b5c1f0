"""Link_ranks: everything across ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracelink.clock.clock import estimate_clocks
from tracelink.errors import Finding
from tracelink.linking.collectives import judge, match_collectives
from tracelink.linking.groups import resolve_groups
from tracelink.linking.measures import crossings, measure
from tracelink.linking.messages import match_messages
from tracelink.linking.stack import corrected, stack
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.collectives import Collectives, Messages, Participations, RankCalls
from tracelink.model.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class JobTables:
    """What all ranks did together; times are on the reference clock."""

    strings: Sequence[str]
    """The texts of the tables."""
    groups: Sequence[ProcessGroup]
    collectives: Collectives
    participations: Participations
    messages: Messages
    clocks: Clocks
    findings: Sequence[Finding] = field(default_factory=list)


def link_ranks(ranks: Sequence[RankCalls], clock: ClockMode | Clocks = ClockMode.HOST) -> JobTables:
    """Matches the calls of all ranks, puts them on one clock and measures them."""
    calls, twice = stack(ranks)
    groups = resolve_groups(calls)
    matching = match_collectives(calls, groups)
    judged = judge(calls, groups, matching)
    matched = match_messages(calls, groups)
    hosts = {rank.rank: rank.host for rank in calls.ranks}
    if isinstance(clock, Clocks):
        clocks = clock.for_ranks(hosts)
    else:
        clocks = estimate_clocks(crossings(calls, groups, matching, judged, matched.messages), hosts, clock)
    collectives, participations = measure(
        calls, groups, matching, judged, corrected(matching.calls, matching.rank, clocks)
    )
    return JobTables(
        calls.strings.texts(),
        groups.rows,
        collectives,
        participations,
        matched.clocked(corrected(calls.calls, calls.rank, clocks)),
        clocks,
        [
            *twice,
            *groups.findings,
            *matching.findings,
            *judged.findings,
            *matched.findings,
            *clocks.findings,
        ],
    )
