"""Messages: pairing sends and receives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.calls import call, group, messages, rank, recv, send
from builders.calls import linked as matched
from builders.inputs import reasons
from tracelink._match.job import JobTables
from tracelink._model.clock import ClockMode
from tracelink._model.columns import NO_TIME
from tracelink._model.communications import Evidence, RankCalls

MS = 1_000_000
PAIR = [group("0", 0, 1)]


def linked(*ranks: RankCalls) -> JobTables:
    return matched(ranks, ClockMode.NONE)


def pairs(tables: JobTables) -> list[tuple[int, int, str]]:
    """The records of both ends, and the verdict."""
    return [row[2:] for row in messages(tables)]


def both(*sends: dict[str, Any], receives: list[dict[str, Any]]) -> JobTables:
    numbered = [[one | {"record": place} for place, one in enumerate(side)] for side in (sends, receives)]
    return linked(rank(0, *numbered[0], groups=PAIR), rank(1, *numbered[1], groups=PAIR))


def test_the_kth_send_is_the_kth_receive() -> None:
    tables = both(
        send(1, elements=8), send(1, elements=4), receives=[recv(0, elements=8), recv(0, elements=4)]
    )
    assert messages(tables) == [(0, 1, 0, 0, "complete"), (0, 1, 1, 1, "complete")]
    assert tables.messages.bytes.tolist() == [32, 16]
    assert tables.messages.order.tolist() == [0, 1]


def test_tags_and_directions_have_nothing_to_do_with_each_other() -> None:
    tables = both(
        send(1, tag=1, elements=1),
        recv(1, tag=9, elements=3),
        send(1, tag=2, elements=2),
        receives=[recv(0, tag=2, elements=2), recv(0, tag=1, elements=1), send(0, tag=9, elements=3)],
    )
    assert messages(tables) == [(0, 1, 0, 1, "complete"), (0, 1, 2, 0, "complete"), (1, 0, 2, 1, "complete")]
    assert tables.messages.tag.tolist() == [1, 2, 9]


def test_ranks_are_those_of_the_group_unless_said_to_be_of_the_job() -> None:
    stages = [group("pp", 3, 7)]
    tables = linked(
        rank(3, send(1, group="pp"), send(7, group="pp", global_ranks=True), groups=stages),
        rank(7, recv(0, group="pp"), recv(3, group="pp", global_ranks=True), groups=stages),
    )
    assert [(source, target, verdict) for source, target, _, _, verdict in messages(tables)] == [
        (3, 7, "complete")
    ] * 2


def test_the_order_within_a_batch_counts_only_between_two_ranks() -> None:
    ring = [group("0", 0, 1, 2)]
    tables = linked(
        *(
            rank(
                r,
                *([send((r + 1) % 3, 1), recv((r - 1) % 3, 1)] if r else [recv(2, 1), send(1, 1)]),
                call("coalesced", 1, point_to_point=True, elements=0),
                groups=ring,
            )
            for r in range(3)
        )
    )
    assert [row[:2] for row in messages(tables)] == [(0, 1), (1, 2), (2, 0)]
    assert {row[-1] for row in messages(tables)} == {"complete"}
    assert len(tables.collectives) == 0


def test_one_that_is_missing_shifts_nothing() -> None:
    sends = [send(1, elements=size) for size in (1, 2, 3, 4)]
    receives = [recv(0, elements=size) for size in (2, 3, 4)]
    tables = both(*sends, receives=receives)
    assert pairs(tables) == [(0, -1, "unmatched"), (1, 0, "complete"), (2, 1, "complete"), (3, 2, "complete")]
    assert reasons(tables) == {"messages_unmatched": 1}


def test_times_tell_which_of_equal_ones_is_missing() -> None:
    ends = [time * MS for time in (10, 13, 19, 22, 31, 33, 42)]
    for lost in range(7):
        sends = [send(1, start=end - 50, end=end) for end in ends]
        receives = [recv(0, end=end + 30 * MS) for end in ends]
        del receives[lost]
        expected = [(k, k - (k > lost), "complete") if k != lost else (k, -1, "unmatched") for k in range(7)]
        assert pairs(both(*sends, receives=receives)) == expected


def test_as_many_sends_as_receives_are_not_the_same_if_times_say_that_two_are_lost() -> None:
    ends = [time * MS for time in (10, 13, 19, 22, 31, 33, 42)]
    sends = [send(1, start=end - 50, end=end) for end in ends[:-1]]
    receives = [recv(0, end=end) for end in ends[1:]]
    assert sorted(pairs(both(*sends, receives=receives))) == [
        (-1, 5, "unmatched"),
        (0, -1, "unmatched"),
        *((k, k - 1, "complete") for k in range(1, 6)),
    ]


def test_without_times_one_of_equal_ones_is_not_guessed() -> None:
    tables = both(*[send(1)] * 3, receives=[recv(0)] * 2)
    assert reasons(tables) == {"messages_unmatched": 5}


def test_different_sizes_at_one_place_are_a_mismatch() -> None:
    tables = both(
        *(send(1, elements=size) for size in (1, 2, 3)), receives=[recv(0, elements=s) for s in (1, 9, 3)]
    )
    assert [verdict for *_, verdict in pairs(tables)] == ["complete", "mismatch", "complete"]


def test_a_peer_without_any_source_is_nobodys_fault() -> None:
    tables = linked(rank(0, send(1), groups=PAIR))
    assert messages(tables) == [(0, 1, -1, -1, "partial")]
    assert reasons(tables) == {}


def test_a_receive_from_anybody_is_of_the_only_one_who_sent() -> None:
    three = [group("0", 0, 1, 2)]
    one = linked(rank(0, send(2), groups=three), rank(2, recv(-1), groups=three), rank(1, groups=three))
    two = linked(
        rank(0, send(2), groups=three), rank(1, send(2), groups=three), rank(2, recv(-1), groups=three)
    )
    assert [row[-1] for row in messages(one)] == ["complete"]
    assert [row[-1] for row in messages(two)] == ["unmatched"] * 3


def test_messages_that_name_no_group_are_of_the_group_of_all() -> None:
    mine = [group("0", 0, 1, description="default_pg"), group("1", 0, 1)]
    tables = linked(rank(0, send(1, group=None), groups=mine), rank(1, recv(0, group=None), groups=mine))
    assert messages(tables) == [(0, 1, -1, -1, "complete")]
    assert tables.groups[tables.messages.group[0]].description == "default_pg"


def test_a_message_begins_with_its_send_and_ends_with_its_receive() -> None:
    tables = linked(
        rank(
            0,
            send(1, start=10, end=12, enqueued=5, kernel=1, record=2),
            send(1, enqueued=20, record=3),
            groups=PAIR,
        ),
        rank(1, recv(0, end=15, operator=4), recv(0), groups=PAIR),
    )
    table = tables.messages
    assert (table.sent.tolist(), table.received.tolist()) == ([10, 20], [15, NO_TIME])
    assert (table.send.tolist(), table.receive.tolist()) == ([1, 3], [4, -1])


def test_what_a_recorder_saw_begin_was_asked_for_earlier() -> None:
    tables = linked(
        rank(0, send(1, start=90, enqueued=5, evidence=Evidence.RECORDER), groups=PAIR),
        rank(1, recv(0), groups=PAIR),
    )
    assert tables.messages.sent.tolist() == [5]


@given(st.lists(st.integers(1, 3), max_size=14), st.sets(st.integers(0, 13)), st.integers(0, 1 << 32))
def test_two_different_messages_are_never_taken_for_one(sizes: list[int], lost: set[int], seed: int) -> None:
    ends = np.cumsum(np.random.default_rng(seed).integers(MS, 9 * MS, len(sizes))).tolist()
    sends = [
        send(1, start=e - 50, end=e, elements=s, kernel=k)
        for k, (s, e) in enumerate(zip(sizes, ends, strict=True))
    ]
    receives = [
        recv(0, end=e + 3 * MS, elements=s, kernel=k)
        for k, (s, e) in enumerate(zip(sizes, ends, strict=True))
        if k not in lost
    ]
    found = messages(linked(rank(0, *sends, groups=PAIR), rank(1, *receives, groups=PAIR)))
    assert all(sent == received for _, _, sent, received, _ in found if -1 not in (sent, received))
