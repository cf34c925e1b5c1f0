"""What collectives took: who came last, how long others waited, bytes and bandwidth as nccl-tests has them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders.calls import call, group, rank, whole
from tracelink.linking.job import JobTables, link_ranks
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import NO_TIME, UNKNOWN
from tracelink.model.communications import Evidence


def linked(*ranks: RankCalls) -> JobTables:
    return link_ranks(ranks, ClockMode.NONE)


def test_everybody_waits_for_the_last_to_enter() -> None:
    starts = [10, 40, 25]
    tables = linked(
        *(
            rank(r, call(sequence=1, start=start, end=100 + r), groups=[group("0", 0, 1, 2)])
            for r, start in enumerate(starts)
        )
    )
    table, parts = tables.collectives, tables.participations
    assert parts.wait.tolist() == [30, 0, 15]
    assert (table.last_rank.item(), table.skew.item()) == (1, 30)
    assert (table.start.item(), table.end.item(), table.duration.item()) == (10, 102, 62)


def test_without_any_start_the_enqueuing_tells_who_was_late() -> None:
    tables = linked(*(rank(r, call(sequence=1, enqueued=5 * r), groups=[group("0", 0, 1)]) for r in (0, 1)))
    table, parts = tables.collectives, tables.participations
    assert (parts.wait.tolist(), parts.start.tolist()) == ([5, 0], [NO_TIME, NO_TIME])
    assert (table.last_rank.item(), table.skew.item(), table.duration.item()) == (1, 5, UNKNOWN)
    assert (table.start.item(), table.end.item()) == (NO_TIME, NO_TIME)
    assert math.isnan(table.bus_gb_s.item())


def test_one_rank_with_weaker_evidence_distorts_nothing() -> None:
    world = [group("0", 0, 1, 2)]
    tables = linked(
        rank(0, call(sequence=1, start=10, end=50), groups=world),
        rank(1, call(sequence=1, start=12, end=50), groups=world),
        rank(2, call(sequence=1, start=900, end=990, evidence=Evidence.RECORDER), groups=world),
    )
    table, parts = tables.collectives, tables.participations
    assert parts.start.tolist() == [10, 12, NO_TIME]
    assert parts.evidence.tolist() == [Evidence.KERNEL, Evidence.KERNEL, Evidence.NONE]
    assert (parts.wait.tolist(), table.last_rank.item(), table.skew.item()) == ([2, 0, UNKNOWN], 1, 2)


def test_one_rank_alone_is_neither_early_nor_late() -> None:
    tables = linked(rank(0, call(sequence=1, start=10, end=50), groups=[group("0", 0, 1)]))
    table = tables.collectives
    assert (table.last_rank.item(), table.skew.item(), table.duration.item()) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert tables.participations.wait.tolist() == [UNKNOWN]


def test_times_are_on_the_reference_clock() -> None:
    clocks = Clocks({0: Clock(0), 1: Clock(1, offset_ns=1000)})
    ranks = [
        rank(r, call(sequence=1, start=1000 * r + 10, end=1000 * r + 20), groups=[group("0", 0, 1)])
        for r in (0, 1)
    ]
    tables = link_ranks(ranks, clocks)
    assert tables.participations.start.tolist() == [10, 10]
    assert (tables.collectives.skew.item(), tables.clocks.clocks) == (0, clocks.clocks)


SIZES = [
    ("all_reduce", (1000, 1000), 4000, 1.5),
    ("all_gather", (1000, 4000), 16000, 0.75),
    ("reduce_scatter", (4000, 1000), 16000, 0.75),
    ("all_to_all", (1000, 1000), 4000, 0.75),
    ("gather", (1000, 0), 16000, 0.75),
    ("scatter", (0, 1000), 16000, 0.75),
    ("broadcast", (1000, 1000), 4000, 1.0),
    ("reduce", (1000, 1000), 4000, 1.0),
]


@pytest.mark.parametrize(("operation", "elements", "size", "factor"), SIZES)
def test_sizes_and_bandwidths_are_those_of_nccl_tests(
    operation: str, elements: tuple[int, int], size: int, factor: float
) -> None:
    tables = linked(*whole(4, call(operation, 1, 0, 2000, elements=elements)))
    table = tables.collectives
    assert table.bytes.tolist() == [size]
    assert table.algorithm_gb_s.tolist() == [size / 2000]
    assert table.bus_gb_s.tolist() == [size / 2000 * factor]


def test_what_one_side_does_not_say_follows_from_the_other() -> None:
    tables = linked(
        *whole(4, call("all_gather", 1, elements=(10, -1)), call("reduce_scatter", 2, elements=(-1, 10)))
    )
    assert tables.collectives.bytes.tolist() == [160, 160]


def test_an_uneven_exchange_moves_what_a_rank_gives_on_average() -> None:
    world = [group("0", 0, 1)]
    given = [(10, 30), (30, 10)]
    ranks = [rank(r, call("all_to_all", 1, 0, 10, elements=given[r]), groups=world) for r in (0, 1)]
    assert linked(*ranks).collectives.bytes.tolist() == [80]
    assert linked(ranks[0], rank(1, call("all_to_all", 1, elements=(-1, -1)))).collectives.bytes.tolist() == [
        UNKNOWN
    ]


def test_a_barrier_moves_nothing() -> None:
    table = linked(*whole(2, call("barrier", 1, 0, 10, elements=1))).collectives
    assert table.bytes.tolist() == [0]
    assert np.isnan(table.bus_gb_s).all()


def test_bytes_of_an_unknown_type_are_unknown() -> None:
    table = linked(*whole(2, call(sequence=1, start=0, end=10, type="Decimal"))).collectives
    assert (table.bytes.tolist(), np.isnan(table.algorithm_gb_s).all()) == ([UNKNOWN], True)
