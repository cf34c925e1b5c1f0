"""Deadlocks: cycles of waits, and their culprits."""

from __future__ import annotations

from string import ascii_lowercase
from time import process_time

import pytest

from builders.dumps import diagnosis_of, journal
from builders.programs import diagnosis_of_programs, problems
from builders.recorder import collective, dump, process_group
from tracelink._hang.facts.model import Kind, Link

TP = {"b": "tp", "c": "tp", "d": "tp"}
TWO, THREE, FOUR, SIX = list(range(2)), list(range(3)), list(range(4)), list(range(6))


def test_deadlock_by_pair_first() -> None:
    found = problems(
        {0: "a1~", 1: "a1~", 2: "a1~", 3: "b1~"}, descriptions=TP, a=[0, 1, 2, 3], b=[2, 3], c=[0, 1]
    )
    assert found == ["deadlock a1 by 3, for 0 1 2"]


def test_deadlock_by_all_ranks_first() -> None:
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    found = problems(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5])
    assert found == ["deadlock c1 by 3, for 0 1 2 4 5"]


def test_deadlock_of_two_is_a_tie() -> None:
    found = problems({0: "a1!", 1: "b1!"}, a=[0, 1], b=[0, 1])
    assert found == ["deadlock a1 by 0 1 (tie), for 0 1"]


def test_links_of_a_deadlock() -> None:
    (problem,) = diagnosis_of_programs({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[1, 2], c=[2, 0]).problems
    assert set(problem.cycle) == {
        Link("a", 1, "nccl:all_reduce", (0,), (1,)),
        Link("b", 1, "nccl:all_reduce", (1,), (2,)),
        Link("c", 1, "nccl:all_reduce", (2,), (0,)),
    }


def test_device_starts_in_another_order() -> None:
    found = problems({0: "a1^ b1!", 1: "a1^ b1!", 2: "b1^ a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_order_of_entries_without_states() -> None:
    found = problems({0: "a1! b1!", 1: "a1! b1!", 2: "b1! a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


PIPELINES = {"b": "tp", "c": "tp", "p": "pp", "q": "pp"}


def test_deadlock_behind_queued_messages() -> None:
    """Rank 1 skipped a collective of its pair; the message of rank 0 is queued behind it."""
    ranks = {
        0: "b1 b2^ p>1! a1!",
        1: "b1 q>1 a1^",
        2: "c1 p<0^ c2! a1!",
        3: "c1 q<0 c2^ a1!",
    }
    groups = {"a": FOUR, "b": TWO, "c": [2, 3], "p": [0, 2], "q": [1, 3]}
    found = problems(ranks, descriptions=PIPELINES, **groups)
    assert found == ["deadlock b2 by 1, for 0 2 3"]


def test_messages_in_flight_are_no_deadlock() -> None:
    ranks = {0: "b1 b2^ p>1! a1!", 1: "b1 b2^ q>1! a1!", 2: "c1 p<0^ c2! a1!", 3: "c1 q<0^ c2! a1!"}
    groups = {"a": FOUR, "b": TWO, "c": [2, 3], "p": [0, 2], "q": [1, 3]}
    assert problems(ranks, hung=False, descriptions=PIPELINES, **groups) == [
        "in_flight b2 by nobody, for 0 1 2 3"
    ]


def test_culprit_of_a_deadlock_and_its_shortest_cycle_are_named() -> None:
    """Ranks 4 and 5 wait for others of the cycle; they are not part of what is shown."""
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    (problem,) = diagnosis_of_programs(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5]).problems
    assert problem.message == (
        "Rank 3 deadlocks: rank 2 in all_reduce #1 of group c (tp) waits for rank 3; "
        "ranks 0-1, 3-5 in all_reduce #1 of group a wait for rank 2."
    )


def test_ends_of_a_message_with_different_numbers() -> None:
    ranks = {0: "r>2 a1^ r>1!", 1: "r<0^ a1!", 2: "r<0 a1^"}
    assert problems(ranks, a=THREE, r=THREE) == ["deadlock r2 by 0 1 (tie), for 0 1 2"]


RING = {
    0: "[r>1 r<3]! [r>1 r<3]! a1!",
    1: "[r>2 r<0] [r>2 r<0]! a1!",
    2: "[r>3 r<1] [r>3 r<1]! a1!",
    3: "[r>0 r<2]! [r>0 r<2]! a1!",
}


@pytest.mark.parametrize(
    ("rank", "batch"),
    [(3, "[r>1 r<2]! [r>0 r<2]! a1!"), (0, "[r>1 r<2]! [r>1 r<3]! a1!")],
    ids=["send", "receive"],
)
def test_wrong_peer_in_a_ring(rank: int, batch: str) -> None:
    """Its first message has no other end, and its right neighbour has one message too many, or too few."""
    (problem,) = diagnosis_of_programs(RING | {rank: batch}, a=FOUR, r=FOUR).problems
    assert (problem.kind, problem.group, problem.sequence) == (Kind.DEADLOCK, "r", 1)
    assert (problem.culprits, problem.waiting, problem.tie) == (
        (rank,),
        tuple(other for other in FOUR if other != rank),
        False,
    )


def test_sizes_of_messages_after_a_wrong_peer() -> None:
    """They say nothing: the second send of rank 3 is the first one to rank 0, and is paired with its first receive."""
    ranks = {
        0: "[r>1:8 r<3:8]! [r>1:9 r<3:9]! a1!",
        1: "[r>2:8 r<0:8] [r>2:9 r<0:9]! a1!",
        2: "[r>3:8 r<1:8] [r>3:9 r<1:9]! a1!",
        3: "[r>1:8 r<2:8]! [r>0:9 r<2:9]! a1!",
    }
    assert problems(ranks, a=FOUR, r=FOUR) == ["deadlock r1 by 3, for 0 1 2"]


def test_ranks_waiting_for_a_cycle() -> None:
    (problem,) = diagnosis_of_programs({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[0, 1], c=[1, 2]).problems
    assert (problem.culprits, problem.waiting) == ((0, 1), (0, 1, 2))


def test_cycle_waiting_for_an_outside_rank() -> None:
    ranks = {0: "a1! d1!", 1: "b1!", 2: "", 3: "d1!"}
    found = problems(ranks, a=[0, 1], b=[0, 1], d=[0, 2, 3])
    assert found == ["never_joined d1 by 2, for 0 1 3"]


def test_message_of_a_long_cycle() -> None:
    groups = {name: [rank, (rank + 1) % 20] for rank, name in enumerate(ascii_lowercase[:20])}
    (problem,) = diagnosis_of_programs(
        {rank: f"{name}1!" for rank, name in enumerate(groups)}, **groups
    ).problems
    assert len(problem.cycle) == 20
    assert problem.message.count(" waits for rank ") == 6
    assert problem.message.endswith("; and 14 more waits.")


def test_cycle_of_many_groups_is_fast() -> None:
    names = [str(number) for number in range(150)]
    dumps = {
        rank: dump(
            *(collective("nccl:all_reduce", group=(name, "dp")) for name in names if (int(name) + rank) % 4),
            pg_config={
                key: value for name in names for key, value in process_group(name, [0, 1, 2, 3], "dp").items()
            },
        )
        for rank in range(4)
    }
    recorded = journal(dumps)
    began = process_time()
    (problem,) = diagnosis_of(recorded).problems
    assert (problem.kind, len(problem.cycle)) == (Kind.DEADLOCK, 3)
    assert process_time() - began < 5
