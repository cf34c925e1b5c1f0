"""What each rank gives and gets in a collective, in bytes, and who its root is."""

from __future__ import annotations

import pytest

from builders.calls import call, group, rank, recv, send
from tracelink.linking.job import JobTables, link_ranks
from tracelink.model.clock import ClockMode
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN


def linked(*ranks: RankCalls) -> JobTables:
    return link_ranks(ranks, ClockMode.NONE)


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
