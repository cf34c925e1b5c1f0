"""Crossings: who waits for whom in what, and what of it is known by which clock."""

from __future__ import annotations

from typing import Any

from builders.calls import call, group, rank, recv, send, whole
from tracelink.clocks.clock import Crossings
from tracelink.linking.collectives import judge, match_collectives
from tracelink.linking.groups import resolve_groups
from tracelink.linking.measures import crossings
from tracelink.linking.messages import match_messages
from tracelink.linking.stack import stack
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import NO_TIME
from tracelink.model.communications import Evidence

PAIR = [group("0", 0, 1)]


def crossed(*ranks: RankCalls) -> Crossings:
    calls, _ = stack(ranks)
    groups = resolve_groups(calls)
    matching = match_collectives(calls, groups)
    judged = judge(calls, groups, matching)
    return crossings(calls, groups, matching, judged, match_messages(calls, groups).messages)


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
