"""Whether collectives are transfers or waits for late ranks, and how fast they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as some

from builders.data import traces, truth
from builders.job import JobBuilder
from tracelink._api.functions import linked_job
from tracelink._model.clock import Clock
from tracelink._model.communications import Verdict
from tracelink._model.job import LinkedJob
from tracelink._time.collectives.report import collectives_of
from tracelink._time.model.communication import (
    BandwidthRow,
    CollectiveRow,
    CostKind,
    RankWaits,
    Scope,
)

MS = 1_000_000


def job_of(
    *spans: Mapping[int, tuple[int, int]], bounds: int | None = 0, operation: str = "all_reduce"
) -> LinkedJob:
    """Collectives of 1 MB of one group; when each rank entered and left, in ms."""
    ranks = sorted(spans[0])
    low = None if bounds is None else -bounds
    builder = JobBuilder([Clock(rank, host="a", low_ns=low, high_ns=bounds) for rank in ranks])
    group = builder.group(*ranks, name="0")
    for each in spans:
        times = {rank: (start * MS, end * MS) for rank, (start, end) in each.items()}
        builder.collective(group, times, operation, bytes=1 << 20, order=0, bus_gb_s=1.5, algorithm_gb_s=1.0)
    return builder.job()


def row_of(job: LinkedJob) -> CollectiveRow:
    (row,) = collectives_of(job).collectives
    return row


def test_a_late_rank_makes_arrivals_the_cost_and_the_transfer_is_that_of_the_last_rank() -> None:
    row = row_of(job_of({0: (0, 11), 1: (0, 11), 2: (10, 11)}))
    assert row == CollectiveRow(
        group=0,
        group_name="0",
        operation="all_reduce",
        bytes=1 << 20,
        ranks=3,
        scope=Scope.INTRA_HOST,
        count=1,
        measured=1,
        cost=CostKind.ARRIVAL,
        why="",
        residence_ns=23 * MS,
        wait_ns=20 * MS,
        transfer_ns=MS,
        baseline_ns=None,
        excess_ns=0,
        algorithm_gb_s=(1 << 20) / MS,
        bus_gb_s=1.5 * (1 << 20) / MS,
        by_rank=[RankWaits(0, 10 * MS, 0), RankWaits(1, 10 * MS, 0), RankWaits(2, 0, 1)],
        wait_share=20 / 23,
    )


def test_ranks_that_come_together_pay_for_the_transfer() -> None:
    assert row_of(job_of({0: (0, 10), 1: (1, 10)})).cost is CostKind.TRANSFER


def test_half_and_half_is_mixed() -> None:
    assert row_of(job_of({0: (0, 10), 1: (0, 10), 2: (5, 10), 3: (0, 10)})).cost is CostKind.MIXED


def test_stays_tell_waits_apart_where_clocks_do_not() -> None:
    """The clock of rank 1 may be wrong by any amount: its stay is the shortest, so the others waited for it."""
    row = row_of(job_of({0: (0, 11), 1: (3, 4), 2: (0, 11)}, bounds=None))
    assert (row.cost, row.wait_ns, row.transfer_ns) == (CostKind.ARRIVAL, 20 * MS, MS)
    assert [waits.last for waits in row.by_rank] == [0, 1, 0]


def test_an_uncertain_clock_makes_a_broadcast_inconclusive() -> None:
    row = row_of(job_of({0: (0, 11), 1: (10, 11)}, bounds=None, operation="broadcast"))
    assert (row.cost, row.why) == (CostKind.INCONCLUSIVE, "clocks are more uncertain than ranks are late")


def test_the_baseline_is_the_transfer_of_the_quarter_with_the_least_skew() -> None:
    spans = [{0: (0, 2), 1: (0, 2)}, {0: (0, 6), 1: (1, 6)}, {0: (0, 7), 1: (2, 7)}, {0: (0, 9), 1: (3, 9)}]
    row = row_of(job_of(*spans))
    assert (row.baseline_ns, row.transfer_ns, row.excess_ns) == (2 * MS, 5 * MS, 2 * (3 + 3 + 4) * MS)


def test_missing_ranks_are_inconclusive() -> None:
    builder = JobBuilder([Clock(0, low_ns=0, high_ns=0)])
    builder.collective(builder.group(0, 1, name="0"), {0: (0, 5 * MS)}, verdict=Verdict.PARTIAL, order=0)
    row = row_of(builder.job())
    assert (row.cost, row.why, row.measured, row.count) == (CostKind.INCONCLUSIVE, "ranks are missing", 0, 1)


def test_bandwidth_by_size_has_the_groups_of_one_number_of_ranks_together() -> None:
    builder = JobBuilder([Clock(rank, host=f"h{rank // 2}", low_ns=0, high_ns=0) for rank in range(4)])
    for group in (
        builder.group(0, 1, name="1"),
        builder.group(2, 3, name="2"),
        builder.group(1, 2, name="3"),
    ):
        first, second = builder.groups[group].ranks
        span = {first: (0, 2 * MS), second: (MS, 2 * MS)}
        builder.collective(group, span, bytes=1 << 20, order=0, bus_gb_s=2.0, algorithm_gb_s=2.0)
    rate = (1 << 20) / MS
    assert collectives_of(builder.job()).communication.bandwidths == [
        BandwidthRow("all_reduce", 2, Scope.INTRA_HOST, 1 << 20, 2, MS, rate, rate),
        BandwidthRow("all_reduce", 2, Scope.INTER_HOST, 1 << 20, 1, MS, rate, rate),
    ]


spans_of_ranks = some.lists(some.lists(some.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=8)


@given(spans_of_ranks)
def test_waits_and_transfers_fit_into_the_time_that_ranks_spend(entries: list[list[int]]) -> None:
    job = job_of(*({rank: (start, 60) for rank, start in enumerate(starts)} for starts in entries))
    row = row_of(job)
    assert row.residence_ns == sum(60 - start for starts in entries for start in starts) * MS
    assert row.wait_ns == sum(max(starts) - start for starts in entries for start in starts) * MS
    assert row.residence_ns is not None
    assert row.wait_ns is not None
    assert 0 <= row.excess_ns <= row.residence_ns - row.wait_ns
    assert sum(waits.wait_ns for waits in row.by_rank) == row.wait_ns
    assert sum(waits.last for waits in row.by_rank) == row.count


def test_four_ranks_are_late_in_turn_as_they_were_made() -> None:
    report = collectives_of(linked_job(traces("data_parallel")))
    last = {late.rank: late.last for late in report.communication.late}
    assert last == Counter(one["last_rank"] for one in truth("data_parallel")["collectives"])
    costs = {(row.operation, row.cost) for row in report.collectives}
    assert costs == {("all_reduce", CostKind.TRANSFER)}
    assert [row.pattern for row in report.communication.patterns] == ["rotating"]


@pytest.mark.parametrize("bounds", [0, None])
def test_no_collectives_are_no_rows(bounds: int | None) -> None:
    report = collectives_of(JobBuilder([Clock(0, low_ns=bounds, high_ns=bounds)]).job())
    assert (report.collectives, report.communication.late, report.notes) == ([], [], [])
