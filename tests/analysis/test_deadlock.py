"""Rings of waits: who waits for whom, and who left the order that others keep."""

from __future__ import annotations

from string import ascii_lowercase
from time import process_time

from builders.journal import journal
from builders.recorder import collective, dump, process_group
from builders.told import diagnosed, problems
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.model import Kind, Link

TP = {"b": "tp", "c": "tp", "d": "tp"}
SIX = [0, 1, 2, 3, 4, 5]


def test_one_that_began_with_its_pair_where_all_others_began_with_the_whole() -> None:
    found = problems(
        {0: "a1~", 1: "a1~", 2: "a1~", 3: "b1~"}, descriptions=TP, a=[0, 1, 2, 3], b=[2, 3], c=[0, 1]
    )
    assert found == ["deadlock a1 by 3, for 0 1 2"]


def test_one_that_began_with_the_whole_where_all_others_did_their_pairs_first() -> None:
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    found = problems(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5])
    assert found == ["deadlock c1 by 3, for 0 1 2 4 5"]


def test_two_that_wait_for_each_other_and_nothing_tells_who_is_wrong() -> None:
    found = problems({0: "a1!", 1: "b1!"}, a=[0, 1], b=[0, 1])
    assert found == ["deadlock a1 by 0 1 (tie), for 0 1"]


def test_the_ring_link_by_link() -> None:
    (problem,) = diagnosed({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[1, 2], c=[2, 0]).problems
    assert set(problem.cycle) == {
        Link("a", 1, "nccl:all_reduce", (0,), (1,)),
        Link("b", 1, "nccl:all_reduce", (1,), (2,)),
        Link("c", 1, "nccl:all_reduce", (2,), (0,)),
    }


def test_all_queued_everything_and_one_device_is_in_the_second() -> None:
    found = problems({0: "a1^ b1!", 1: "a1^ b1!", 2: "b1^ a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_without_states_the_order_in_which_they_were_asked_for_tells() -> None:
    found = problems({0: "a1! b1!", 1: "a1! b1!", 2: "b1! a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_who_waits_for_the_ring_is_no_part_of_it() -> None:
    (problem,) = diagnosed({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[0, 1], c=[1, 2]).problems
    assert (problem.culprits, problem.waiting) == ((0, 1), (0, 1, 2))


def test_a_ring_with_a_way_out_is_the_fault_of_the_one_outside() -> None:
    ranks = {0: "a1! d1!", 1: "b1!", 2: "", 3: "d1!"}
    found = problems(ranks, a=[0, 1], b=[0, 1], d=[0, 2, 3])
    assert found == ["never_joined d1 by 2, for 0 1 3"]


def test_of_a_long_ring_the_message_tells_the_first_links_and_the_cycle_all() -> None:
    groups = {name: [rank, (rank + 1) % 20] for rank, name in enumerate(ascii_lowercase[:20])}
    (problem,) = diagnosed({rank: f"{name}1!" for rank, name in enumerate(groups)}, **groups).problems
    assert len(problem.cycle) == 20
    assert problem.message.count(" waits for rank ") == 6
    assert problem.message.endswith("; and 14 more waits.")


def test_a_ring_of_very_many_groups_takes_no_long_time() -> None:
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
    assert (problem.kind, len(problem.cycle)) == (Kind.DEADLOCK, 150)
    assert process_time() - began < 5
