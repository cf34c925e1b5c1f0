"""Whether the time of collectives is transfer or waiting for ranks that come late, by operation, size and group.

A collective in which every rank waits for all others ends for all at once. So the shortest stay is that of the last
rank to come, which is the transfer. What the others stay longer, they wait. This needs no common clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Float64s, Int64s, distinct, ranges, starts_of
from tracelink._model.communications import Evidence, Verdict
from tracelink._model.job import LinkedJob
from tracelink._model.operations import SYNCHRONIZING, Operation
from tracelink._model.trace import ProcessGroup
from tracelink._time.model.communication import BandwidthRow, CollectiveRow, CostKind, RankWaits, Scope

MOST = 2 / 3
"""The share of the time that makes a class one of transfers or of arrivals."""
FEWEST_FOR_A_BASELINE = 4
LOW_SKEW = 0.25
"""The quantile of collectives, by skew, whose transfers are the baseline."""
SHORTEST_NS = 1000
"""Stays that are shorter on average are within the resolution of times."""
UNBOUNDED = int(np.iinfo(np.int64).max)

Values = npt.NDArray[Any]


class Measured(Struct, frozen=True):
    """What each collective of a job cost, and each participation."""

    job: LinkedJob
    start: Int64s
    """The first participation of each collective."""
    size: Int64s
    """The number of its participations."""
    timed: Bools
    """Collectives that are complete and have times of all ranks."""
    stay: Int64s
    """How long each rank was in it; 0 where that is unknown."""
    wait: Int64s
    """How long each rank waited for the last one, at most its stay; UNKNOWN if that is not known."""
    last: Int64s
    """The participation of the last rank of each collective, or UNKNOWN."""
    transfer: Int64s
    """From the arrival of the last rank to the end, of collectives that are timed."""
    uncertainty: Int64s
    """By how much waits can be wrong because of clocks; 0 where they follow from stays."""
    sizes: Int64s
    """The size by which each collective is compared with others, or UNKNOWN."""

    def sums(self, values: Values) -> Values:
        """The sum over the participations of each collective."""
        return np.add.reduceat(values, self.start) if len(self.start) else values[:0]


def measured(job: LinkedJob) -> Measured:
    """The stays and waits of all participations.

    Waits are differences of arrivals if clocks are certain enough, else of stays where all ranks leave at once.
    """
    parts, table = job.participations, job.collectives
    start = starts_of(parts.collective)
    size = np.diff(np.append(start, len(parts)))
    members = np.array([max(group.size, len(group.ranks)) for group in job.groups] + [0], np.int64)
    complete = (table.verdict == _code(job, Verdict.COMPLETE)) & (size == members[table.group])
    known = (parts.start != NO_TIME) & (parts.end != NO_TIME) & (parts.evidence >= Evidence.ANNOTATION)
    stay = np.where(known, np.maximum(parts.end - parts.start, 0), 0)
    timed = complete & _all(known, start)
    clocks = _most(_uncertainties(job)[parts.rank], start)
    synchronizing = np.isin(table.operation, [_code(job, name) for name in SYNCHRONIZING])
    by_stay = timed & synchronizing & (clocks > np.maximum(table.skew, 0))
    shortest = _least(stay, start)
    of_part = np.repeat(np.arange(len(start)), size)
    wait = np.where(by_stay[of_part], stay - shortest[of_part], parts.wait)
    wait = np.where(timed[of_part] & (wait != UNKNOWN), np.minimum(wait, stay), wait)
    transfer = np.where(by_stay, shortest, np.maximum(table.duration, 0))
    uncertainty = np.where(by_stay, 0, clocks)
    last = _last(wait, parts.rank, start)
    return Measured(job, start, size, timed, stay, wait, last, transfer, uncertainty, _sizes(job))


def _code(job: LinkedJob, text: str) -> int:
    """The code of a text; no code at all if no collective has it."""
    return next((code for code, other in enumerate(job.strings) if other == text), UNKNOWN - 1)


def _uncertainties(job: LinkedJob) -> Int64s:
    """The largest possible error of the clock of each rank, by number."""
    most = max((rank.rank for rank in job.ranks), default=0)
    result = np.full(most + 1, UNBOUNDED, np.int64)
    for rank in job.ranks:
        if rank.clock_uncertainty_ns is not None:
            result[rank.rank] = rank.clock_uncertainty_ns
    return result


def _all(chosen: Bools, start: Int64s) -> Bools:
    result: Bools = np.logical_and.reduceat(chosen, start) if len(start) else chosen
    return result


def _most(values: Int64s, start: Int64s) -> Int64s:
    return np.maximum.reduceat(values, start) if len(start) else values


def _least(values: Int64s, start: Int64s) -> Int64s:
    return np.minimum.reduceat(values, start) if len(start) else values


def _last(wait: Int64s, rank: Values, start: Int64s) -> Int64s:
    """The participation that waits least, of the lowest rank of several; UNKNOWN if no wait is known."""
    if not len(start):
        return start
    key = np.where(wait == UNKNOWN, UNBOUNDED, wait)
    order = np.lexsort((rank, key, np.repeat(np.arange(len(start)), np.diff(np.append(start, len(wait))))))
    first = order[start]
    return np.where(key[first] == UNBOUNDED, UNKNOWN, first)


# Classes of collectives.


def collective_rows(spent: Measured) -> list[CollectiveRow]:
    """A row for each operation, size and group; those that ranks spent most time in first."""
    table = spent.job.collectives
    if not len(table):
        return []
    numbers, _ = distinct(table.operation, spent.sizes, table.group)
    order = np.argsort(numbers, kind="stable")
    classes = np.split(order, starts_of(numbers[order])[1:])
    scopes = [_scope_of(spent.job, group) for group in spent.job.groups]
    rows = [_row(spent, rows, scopes) for rows in classes]
    return sorted(
        rows, key=lambda row: (-(row.residence_ns or 0), -row.count, row.group, row.operation, row.bytes or 0)
    )


def _sizes(job: LinkedJob) -> Int64s:
    """Exact sizes, but the power of two below it for all-to-all, whose sizes vary from call to call."""
    size = job.collectives.bytes
    varies = (job.collectives.operation == _code(job, Operation.ALL_TO_ALL)) & (size > 0)
    power = np.left_shift(1, np.log2(np.maximum(size, 1)).astype(np.int64))
    return np.where(varies, power, size)


def _scope_of(job: LinkedJob, group: ProcessGroup) -> Scope:
    """Whether the ranks of a group are on one host."""
    return scope_of_ranks(job, group.ranks)


def scope_of_ranks(job: LinkedJob, ranks: Sequence[int]) -> Scope:
    """Whether these ranks are on one host."""
    host = {rank.rank: rank.host for rank in job.ranks}
    hosts = {host.get(rank, "") for rank in ranks}
    if len(hosts - {""}) > 1:
        return Scope.INTER_HOST
    return Scope.UNKNOWN if "" in hosts or not hosts else Scope.INTRA_HOST


def _row(spent: Measured, rows: Int64s, scopes: Sequence[Scope]) -> CollectiveRow:
    job, table = spent.job, spent.job.collectives
    group, some = int(table.group[rows[0]]), int(rows[0])
    timed = rows[spent.timed[rows]]
    parts = _parts(spent, timed)
    stay, wait = int(spent.stay[parts].sum()), int(np.maximum(spent.wait[parts], 0).sum())
    transfer = spent.transfer[timed]
    baseline = _baseline(spent, timed)
    above = np.maximum(transfer - baseline, 0) if baseline is not None else np.zeros(len(timed), np.int64)
    excess = min(int((above * spent.size[timed]).sum()), stay - wait)
    cost, why = _cost(spent, rows, timed, stay, wait)
    size = int(spent.sizes[some])
    algorithm, bus = _bandwidths(spent, timed)
    return CollectiveRow(
        group,
        job.groups[group].name,
        job.strings[int(table.operation[some])],
        size if size >= 0 else None,
        max(job.groups[group].size, len(job.groups[group].ranks)),
        scopes[group],
        len(rows),
        len(timed),
        cost,
        why,
        stay if len(timed) else None,
        wait if len(timed) else None,
        int(np.median(transfer)) if len(timed) else None,
        baseline,
        excess,
        _median(algorithm),
        _median(bus),
        _by_rank(spent, timed if len(timed) else rows),
        wait / stay if stay else None,
    )


def _parts(spent: Measured, rows: Int64s) -> Int64s:
    """All participations of these collectives."""
    return ranges(spent.start[rows], spent.size[rows])


def _baseline(spent: Measured, timed: Int64s) -> int | None:
    """The median transfer of those collectives in which ranks came closest together."""
    if len(timed) < FEWEST_FOR_A_BASELINE:
        return None
    skew = spent.sums(np.maximum(spent.wait, 0))[timed]
    few = max(round(LOW_SKEW * len(timed)), 1)
    closest = timed[np.argsort(skew, kind="stable")[:few]]
    return int(np.median(spent.transfer[closest]))


def _cost(spent: Measured, rows: Int64s, timed: Int64s, stay: int, wait: int) -> tuple[CostKind, str]:
    if not len(timed):
        return CostKind.INCONCLUSIVE, _why_not(spent, rows)
    parts = int(spent.size[timed].sum())
    if stay < SHORTEST_NS * parts:
        return CostKind.INCONCLUSIVE, "shorter than the resolution of times"
    if 2 * len(timed) < len(rows):
        return (
            CostKind.INCONCLUSIVE,
            f"{len(rows) - len(timed)} of {len(rows)} are incomplete: {_why_not(spent, rows)}",
        )
    slack = min(float((spent.uncertainty[timed].astype(np.float64) * spent.size[timed]).sum()), stay)
    labels = {_label(max(wait - slack, 0) / stay), _label(min(wait + slack, stay) / stay)}
    if len(labels) > 1:
        return CostKind.INCONCLUSIVE, "clocks are more uncertain than ranks are late"
    return labels.pop(), ""


def _label(share: float) -> CostKind:
    if share >= MOST:
        return CostKind.ARRIVAL
    return CostKind.TRANSFER if share <= 1 - MOST else CostKind.MIXED


def _why_not(spent: Measured, rows: Int64s) -> str:
    table = spent.job.collectives
    complete = table.verdict[rows] == _code(spent.job, Verdict.COMPLETE)
    if not complete.all():
        return "ranks are missing"
    return "no times of entering and leaving were recorded"


def _bandwidths(spent: Measured, timed: Int64s) -> tuple[Float64s, Float64s]:
    """Algorithm and bus bandwidth of each, by its transfer."""
    table = spent.job.collectives
    rated = timed[(table.bytes[timed] > 0) & (spent.transfer[timed] > 0)]
    algorithm = table.bytes[rated] / spent.transfer[rated]
    known = table.algorithm_gb_s[rated]
    factor = np.divide(table.bus_gb_s[rated], known, out=np.full(len(rated), np.nan), where=known > 0)
    return algorithm, algorithm * factor


def _median(values: Float64s) -> float | None:
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None


def _by_rank(spent: Measured, rows: Int64s) -> list[RankWaits]:
    parts = _parts(spent, rows)
    rank = spent.job.participations.rank
    ranks, which = np.unique(rank[parts], return_inverse=True)
    wait = np.zeros(len(ranks), np.int64)
    np.add.at(wait, which, np.maximum(spent.wait[parts], 0))
    last = spent.last[rows]
    arrived = np.bincount(np.searchsorted(ranks, rank[last[last != UNKNOWN]]), minlength=len(ranks))
    return [RankWaits(*row) for row in zip(ranks.tolist(), wait.tolist(), arrived.tolist(), strict=True)]


# Bandwidth by message size.


def bandwidth_rows(spent: Measured) -> list[BandwidthRow]:
    """A row for each operation, size, number of ranks and scope, of collectives that are measured."""
    job, table = spent.job, spent.job.collectives
    members = np.array([max(group.size, len(group.ranks)) for group in job.groups] + [0], np.int64)
    scopes = list(Scope)
    scope = np.array([scopes.index(_scope_of(job, group)) for group in job.groups] + [0], np.int64)
    rated = np.flatnonzero(
        spent.timed & (table.bytes > 0) & (spent.transfer > 0) & np.isfinite(table.bus_gb_s)
    )
    if not len(rated):
        return []
    group = table.group[rated]
    numbers, _ = distinct(table.operation[rated], members[group], scope[group], spent.sizes[rated])
    order = np.argsort(numbers, kind="stable")
    return list(_bandwidth_rows(spent, rated, np.split(order, starts_of(numbers[order])[1:]), members, scope))


def _bandwidth_rows(
    spent: Measured, rated: Int64s, classes: Sequence[Int64s], members: Int64s, scope: Int64s
) -> Iterator[BandwidthRow]:
    job, table = spent.job, spent.job.collectives
    for chosen in classes:
        rows = rated[chosen]
        some, group = int(rows[0]), int(table.group[rows[0]])
        _, bus = _bandwidths(spent, rows)
        yield BandwidthRow(
            job.strings[int(table.operation[some])],
            int(members[group]),
            list(Scope)[int(scope[group])],
            int(spent.sizes[some]),
            len(rows),
            int(np.median(spent.transfer[rows])),
            float(np.median(bus)),
            float(bus.max()),
        )
