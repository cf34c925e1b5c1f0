"""Linking across ranks: the communication calls of all ranks in; collectives, messages and clocks out."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from tracelink.clock.clock import estimate_clocks
from tracelink.linking.collectives import match_collectives, verdicts_of
from tracelink.linking.groups import resolve_groups
from tracelink.linking.measures import crossings, measure
from tracelink.linking.messages import match_messages
from tracelink.linking.stack import corrected, stack
from tracelink.model.clock import ClockMode, Clocks
from tracelink.model.collectives import Collectives, Messages, Participations, RankCalls
from tracelink.model.errors import Finding
from tracelink.model.trace import ProcessGroup


class JobTables(Struct, frozen=True):
    """What all ranks did together, with times on the reference clock."""

    strings: Sequence[str]
    """Texts by the codes in the tables."""
    groups: Sequence[ProcessGroup]
    collectives: Collectives
    participations: Participations
    messages: Messages
    clocks: Clocks
    findings: Sequence[Finding] = field(default_factory=list)


def link_ranks(ranks: Sequence[RankCalls], clock: ClockMode | Clocks = ClockMode.HOST) -> JobTables:
    """Resolves groups, matches calls, estimates clocks (or uses those given), and measures the collectives.

    Matching comes first and uses each rank's own clock: clocks are estimated from what is matched.
    """
    calls, duplicates = stack(ranks)
    groups = resolve_groups(calls)
    matching = match_collectives(calls, groups)
    verdicts = verdicts_of(calls, groups, matching)
    matched = match_messages(calls, groups)
    hosts = {rank.rank: rank.host for rank in calls.ranks}
    if isinstance(clock, Clocks):
        clocks = clock.for_ranks(hosts)
    else:
        clocks = estimate_clocks(crossings(calls, groups, matching, verdicts, matched.messages), hosts, clock)
    collectives, participations = measure(
        calls, groups, matching, verdicts, corrected(matching.calls, matching.rank, clocks)
    )
    return JobTables(
        calls.strings.texts(),
        groups.rows,
        collectives,
        participations,
        matched.clocked(corrected(calls.calls, calls.rank, clocks)),
        clocks,
        [
            *duplicates,
            *groups.findings,
            *matching.findings,
            *verdicts.findings,
            *matched.findings,
            *clocks.findings,
        ],
    )
