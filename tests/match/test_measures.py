"""Skew, wait, bytes and bandwidth of collectives; crossings for clock estimation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tracelink
from builders.calls import call, group, rank, recv, send, whole
from builders.calls import linked as matched
from builders.data import foreign, traces
from tracelink._match.clock import Crossings
from tracelink._match.collectives import match_collectives, verdicts_of
from tracelink._match.job import JobTables
from tracelink._match.measures import crossings_of_collectives, crossings_of_messages
from tracelink._match.messages import match_messages
from tracelink._match.outlines import outlined, roster_of
from tracelink._match.parts import coded, plan_of, stacked
from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.communications import Evidence, RankCalls

# What collectives took: who came last, how long others waited, bytes and bandwidth as nccl-tests has them.


def linked(*ranks: RankCalls) -> JobTables:
    return matched(ranks, ClockMode.NONE)


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
    clocks = Clocks.of([Clock(0), Clock(1, offset_ns=1000)])
    ranks = [
        rank(r, call(sequence=1, start=1000 * r + 10, end=1000 * r + 20), groups=[group("0", 0, 1)])
        for r in (0, 1)
    ]
    tables = matched(ranks, clocks)
    assert tables.participations.start.tolist() == [10, 10]
    assert (tables.collectives.skew.item(), tables.clocks.by_rank) == (0, clocks.by_rank)


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


# What each rank gives and gets in a collective, in bytes, and who its root is.


def together(*members: int, operation: str = "all_reduce", **said: object) -> JobTables:
    return linked(
        *(
            rank(number, call(operation, 1, 0, 10, **said), groups=[group("0", *members)])
            for number in members
        )
    )


def test_bytes_are_elements_of_their_type() -> None:
    parts = together(0, 1, operation="all_gather", elements=(8, 16), type="Half").participations
    assert (parts.bytes_in.tolist(), parts.bytes_out.tolist()) == ([16, 16], [32, 32])


def test_every_rank_has_its_own() -> None:
    tables = linked(
        *(
            rank(number, call("all_to_all", 1, 0, 10, elements=(8 * number, 4)), groups=[group("0", 0, 1)])
            for number in (0, 1)
        )
    )
    assert tables.participations.bytes_in.tolist() == [0, 32]
    assert tables.participations.bytes_out.tolist() == [16, 16]


@pytest.mark.parametrize(
    ("said", "given", "gotten"),
    [
        ({"elements": (-1, 8)}, UNKNOWN, 32),
        ({"elements": (8, 8), "type": "Unheard"}, UNKNOWN, UNKNOWN),
        ({"elements": (0, 0), "type": "Unheard"}, 0, 0),
        ({"elements": (0, 8), "type": "Unheard"}, 0, UNKNOWN),
    ],
)
def test_what_is_not_known(said: dict[str, object], given: int, gotten: int) -> None:
    parts = together(0, 1, **said).participations
    assert (parts.bytes_in.tolist(), parts.bytes_out.tolist()) == ([given] * 2, [gotten] * 2)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "gather", "scatter"])
def test_a_root_is_a_rank_of_the_job_whichever_way_it_is_said(operation: str) -> None:
    assert together(4, 5, 6, operation=operation, source=1).collectives.root.tolist() == [5]
    of_job = together(4, 5, 6, operation=operation, source=5, global_ranks=True)
    assert of_job.collectives.root.tolist() == [5]


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "barrier"])
def test_where_all_do_the_same_there_is_none(operation: str) -> None:
    assert together(4, 5, operation=operation, source=1).collectives.root.tolist() == [UNKNOWN]


def test_a_root_that_nobody_says_or_that_is_no_member_is_unknown() -> None:
    assert together(4, 5, operation="broadcast").collectives.root.tolist() == [UNKNOWN]
    assert together(4, 5, operation="broadcast", source=7).collectives.root.tolist() == [UNKNOWN]


def test_messages_know_the_nodes_that_ask_for_them() -> None:
    tables = linked(
        rank(0, send(1, 1, node=7), groups=[group("0", 0, 1)]),
        rank(1, recv(0, 1, node=3, operator=9), groups=[group("0", 0, 1)]),
    )
    messages = tables.messages
    assert (messages.send_node.tolist(), messages.receive_node.tolist()) == ([7], [3])
    assert (messages.send.tolist(), messages.receive.tolist()) == ([UNKNOWN], [9])


def test_the_node_of_an_end_that_is_missing_is_unknown() -> None:
    tables = linked(rank(0, send(1, 1, node=7), groups=[group("0", 0, 1)]))
    assert (tables.messages.send_node.tolist(), tables.messages.receive_node.tolist()) == ([7], [UNKNOWN])


# Crossings: who waits for whom in what, and what of it is known by which clock.


PAIR = [group("0", 0, 1)]


def crossed(*ranks: RankCalls) -> Crossings:
    """Messages are numbered after the collectives."""
    plan = plan_of(roster_of([outlined(rank) for rank in ranks]), 1 << 18)
    calls, groups = stacked([coded(rank, plan) for rank in ranks], plan), plan.groups
    matching = match_collectives(calls, groups)
    collectives = crossings_of_collectives(calls, groups, matching, verdicts_of(calls, groups, matching))
    messages = crossings_of_messages(plan.strings, match_messages(calls, groups).messages)
    return Crossings.concatenate([collectives, replace(messages, meeting=messages.meeting + len(matching))])


def roles(found: Crossings) -> list[tuple[int, int, bool, bool]]:
    """Meeting, rank, whether it waits, whether it is awaited."""
    columns = (found.meeting, found.rank, found.waits, found.awaited)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_in_a_synchronizing_collective_all_wait_for_all() -> None:
    found = crossed(*whole(2, call(sequence=1, start=10, end=20)))
    assert roles(found) == [(0, 0, True, True), (0, 1, True, True)]
    assert (found.entered.tolist(), found.left.tolist()) == ([10, 10], [20, 20])
    assert found.together.all()


def test_only_the_root_of_a_broadcast_is_awaited() -> None:
    found = crossed(*whole(3, call("broadcast", 1, 10, 20, source=2)))
    assert roles(found) == [(0, 0, True, False), (0, 1, True, False), (0, 2, False, True)]
    assert not found.together.any()


def test_only_the_root_of_a_reduction_waits() -> None:
    found = crossed(*whole(2, call("reduce", 1, 10, 20, source=0)))
    assert roles(found) == [(0, 0, True, False), (0, 1, False, True)]


def test_a_root_is_a_rank_of_its_group_unless_said_to_be_of_the_job() -> None:
    stages = [group("pp", 4, 6)]
    for root, of_job in ((1, False), (6, True)):
        ranks = [
            rank(r, call("broadcast", 1, 10, 20, group="pp", source=root, global_ranks=of_job), groups=stages)
            for r in (4, 6)
        ]
        assert roles(crossed(*ranks)) == [(0, 4, True, False), (0, 6, False, True)]


def test_what_makes_nobody_wait_says_nothing() -> None:
    assert len(crossed(*whole(2, call("broadcast", 1, 10, 20)))) == 0
    assert len(crossed(*whole(2, call("all_reduce", 1, 10, 20, elements=0)))) == 0
    uneven = [rank(r, call("all_to_all", 1, 10, 20, elements=(4 + r, 9)), groups=PAIR) for r in (0, 1)]
    assert len(crossed(*uneven)) == 0
    different = [rank(r, call("all_reduce", 1, 10, 20, elements=4 + r), groups=PAIR) for r in (0, 1)]
    assert len(crossed(*different)) == 0


def test_a_barrier_makes_wait_without_any_element() -> None:
    assert len(crossed(*whole(2, call("barrier", 1, 10, 20, elements=0)))) == 2


def test_a_recorder_tells_when_something_was_asked_for_and_had_ended() -> None:
    found = crossed(*whole(2, call(sequence=1, start=50, end=90, enqueued=10, evidence=Evidence.RECORDER)))
    assert (found.entered.tolist(), found.left.tolist()) == ([10, 10], [90, 90])
    assert not found.together.any()


def test_without_evidence_nobody_is_known_to_have_left() -> None:
    found = crossed(*whole(2, call(sequence=1, enqueued=10)))
    assert (found.entered.tolist(), found.left.tolist()) == ([10, 10], [NO_TIME, NO_TIME])


def test_what_could_be_several_says_nothing() -> None:
    def same(count: int) -> list[dict[str, Any]]:
        return [call() for _ in range(count)]

    assert len(crossed(rank(0, *same(3), groups=PAIR), rank(1, *same(2), groups=PAIR))) == 0


def test_the_receiver_of_a_message_waits_for_its_sender() -> None:
    found = crossed(rank(0, send(1, start=10, end=11), groups=PAIR), rank(1, recv(0, end=15), groups=PAIR))
    assert roles(found) == [(0, 0, False, True), (0, 1, True, False)]
    assert (found.entered.tolist(), found.left.tolist()) == ([10, NO_TIME], [NO_TIME, 15])


# The rates that are known for traces.


RATES = [
    ("gpu_pair", {"launches": (66, 66), "backward_of": (20, 20), "same.et_kineto": (192, 192)}),
    ("cpu_job", {"same.et_kineto": (533, 533), "same.recorder_kineto": (8, 8)}),
    ("gpu_2023", {"launches": (66, 66), "same.et_kineto": (192, 193)}),
    ("gpu_rocm", {"launches": (61, 66), "backward_of": (15, 20)}),
    ("one_iteration", {"same.et_kineto": (77, 77)}),
    *foreign(
        ("kineto/nccl_data.json.gz", {"launches": (3774, 3774), "backward_of": (543, 543)}),
        ("kineto/cuda_graphs.json.gz", {"launches": (6875, 7747)}),
        ("kineto/h100_qwen.json.gz", {"launches": (1198, 1707)}),
        ("kineto/mi300_resnet.json.gz", {"launches": (2685, 3653)}),
        ("matched8", {"same.et_kineto": (1436, 1436), "same.recorder_kineto": (46, 46)}),
        ("pairs/resnet_110_nccl", {"same.et_kineto": (14388, 14389)}),
        ("pairs/simple_add", {"same.et_kineto": (36, 36)}),
        ("pairs/dlrm8", {"same.et_kineto": (1672, 1672)}),
        ("pairs/param_linear", {"same.et_kineto": (928, 928)}),
    ),
]
"""Of each rank, how many are linked of how many; of an execution trace, its node of groups has no operator."""


@pytest.mark.parametrize(("path", "rates"), RATES)
def test_rates(path: str, rates: dict[str, tuple[int, int]]) -> None:
    reports = tracelink.load(traces(path), jobs=1).reports
    assert reports
    for of_rank in reports.values():
        found = {report.relation: (report.linked, report.candidates) for report in of_rank}
        assert {relation: found[relation] for relation in rates} == rates
