"""Links ranks (stub until the matching is there)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracelink.clock import Clock, ClockMode, Clocks
from tracelink.collectives import Collectives, Messages, Participations, RankCalls
from tracelink.findings import Finding
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class JobTables:
    strings: Sequence[str]
    groups: Sequence[ProcessGroup]
    collectives: Collectives
    participations: Participations
    messages: Messages
    clocks: Clocks
    findings: Sequence[Finding] = field(default_factory=list)


def link_ranks(ranks: Sequence[RankCalls], clock: ClockMode | Clocks = ClockMode.HOST) -> JobTables:
    groups = list(dict.fromkeys(group for rank in ranks for group in rank.groups))
    return JobTables(
        (),
        groups,
        Collectives.of(0),
        Participations.of(0),
        Messages.of(0),
        Clocks({r.rank: Clock(r.rank, r.host) for r in ranks}),
    )
