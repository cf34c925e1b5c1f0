"""Ranks that do not do the same under one number: who is alone with it, and what happened."""

from __future__ import annotations

import pytest

from builders.journal import journal
from builders.recorder import collective, dump, process_group
from builders.told import diagnosed, problems
from tracelink.diagnosis.examine import diagnosis_of

THREE = [0, 1, 2]


def message(**ranks: str) -> str:
    (problem,) = diagnosed({int(rank[1:]): words for rank, words in ranks.items()}, a=THREE).problems
    return problem.message


def test_another_operation() -> None:
    ranks = {0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}
    assert problems(ranks, a=THREE) == ["operation_mismatch a2 by 2, for 0 1"]


def test_another_type_without_a_hang() -> None:
    assert problems({0: "a1", 1: "a1.Int", 2: "a1"}, a=THREE) == ["dtype_mismatch a1 by 1, for nobody"]


def test_another_size() -> None:
    found = problems({0: "a1:8", 1: "a1:8", 2: "a1:9"}, a=THREE)
    assert found == ["size_mismatch a1 by 2, for nobody"]


def test_the_same_twice_under_one_number_is_not_told_as_another_call() -> None:
    told = message(_0="a1 a2", _1="a1 a1 a2", _2="a1 a2")
    assert told == "Rank 1 did not call all_reduce #1 of group a as often as the others under that number."


def test_of_two_nobody_says_which_called_it_too_often() -> None:
    (problem,) = diagnosed({0: "a1 a2", 1: "a1 a1 a2"}, a=[0, 1]).problems
    assert (
        problem.message
        == "Ranks 0 and 1 did not call all_reduce #1 of group a equally often under that number."
    )


def test_another_type_of_what_comes_out_alone() -> None:
    group = {"pg_config": process_group("0", THREE)}
    dumps = {
        rank: dump(collective("nccl:all_reduce", output_dtypes=["Int" if rank == 1 else "Float"]), **group)
        for rank in THREE
    }
    (problem,) = diagnosis_of(journal(dumps)).problems
    assert problem.message == (
        "Rank 1 called all_reduce #1 of group 0 (default_pg) with output of Int, the others with Float; "
        "2 ranks wait."
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_the_majority_is_right_wherever_the_odd_one_stands(order: tuple[int, int, int]) -> None:
    words = dict(zip(order, ("a1", "a1", "a1=broadcast"), strict=True))
    assert problems(words, a=THREE) == [f"operation_mismatch a1 by {order[2]}, for nobody"]


def test_of_two_nobody_is_in_the_majority() -> None:
    found = problems({0: "a1!", 1: "a1=broadcast!"}, a=[0, 1])
    assert found == ["operation_mismatch a1 by 0 1 (tie), for nobody"]


def test_of_two_the_one_is_right_that_does_what_like_groups_do() -> None:
    ranks = {0: "b1 b2:8!", 1: "b1 b2:9!", 2: "c1 c2:8", 3: "c1 c2:8"}
    found = problems(ranks, descriptions={"b": "tp", "c": "tp"}, b=[0, 1], c=[2, 3])
    assert found == ["size_mismatch b2 by 1, for 0"]


def test_of_two_the_one_is_right_that_does_what_was_done_before() -> None:
    steps = "a1:1 a2:2 a3:3 a4:4 a5:1 a6:2 a7:3 a8:4 a9:1"
    found = problems({0: f"{steps} a10:2!", 1: f"{steps} a10:7!"}, a=[0, 1])
    assert found == ["size_mismatch a10 by 1, for 0"]


def test_what_shows_again_and_again_is_one_problem() -> None:
    (problem,) = diagnosed({0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1.Int a2.Int a3.Int"}, a=THREE).problems
    assert (problem.sequence, problem.count) == (1, 3)


def test_who_waits_elsewhere_because_of_it_waits_because_of_it() -> None:
    ranks = {0: "a1! b1!", 1: "a1!", 2: "a1=broadcast!", 3: "b1!"}
    found = problems(ranks, a=THREE, b=[0, 3])
    assert found == ["operation_mismatch a1 by 2, for 0 1"]


class TestLeftOut:
    def test_what_follows_agrees_when_moved_by_one(self) -> None:
        others = "a1:1 a2:2! a3:3! a4:4!"
        found = problems({0: others, 1: others, 2: "a1:1 a2:3! a3:4!"}, a=THREE)
        assert found == ["skipped a2 by 2, for 0 1"]

    def test_two_in_a_row(self) -> None:
        others = "a1:1! a2:2! a3:3! a4:4!"
        (problem,) = diagnosed({0: others, 1: others, 2: "a1:3! a2:4!"}, a=THREE).problems
        assert problem.message == (
            "Rank 2 skipped all_reduce #1 of group a and the 1 after it, and went on with all_reduce of 3 Float "
            "(2 collectives show it); 2 ranks wait."
        )

    def test_where_the_others_stopped_at_once_what_they_did_before_tells(self) -> None:
        steps = "a1:1 a2:2 a3:3 a4:1 a5:2 a6:3 a7:1"
        ranks = {0: f"{steps} a8:2!", 1: f"{steps} a8:2!", 2: f"{steps} a8:3!"}
        assert problems(ranks, a=THREE) == ["skipped a8 by 2, for 0 1"]

    def test_it_is_alone_again_at_the_end_and_that_is_no_other_problem(self) -> None:
        ranks = {0: "a1:1 a2:2 a3:3!", 1: "a1:1 a2:2 a3:3!", 2: "a1:2 a2:3"}
        assert problems(ranks, a=THREE) == ["skipped a1 by 2, for 0 1"]


def test_one_collective_too_many() -> None:
    others = "a1:1 a2:2! a3:3!"
    (problem,) = diagnosed({0: others, 1: others, 2: "a1:1 a2:9! a3:2! a4:3!"}, a=THREE).problems
    assert (problem.kind, problem.sequence, problem.culprits) == ("size_mismatch", 2, (2,))
    assert problem.message.startswith("Rank 2 did one collective more than the others, all_reduce of 9 Float")


def test_messages_say_what_differs_and_nothing_else() -> None:
    assert [
        message(r0="a1", r1="a1", r2="a1.Int"),
        message(r0="a1:8", r1="a1:8", r2="a1:9"),
        message(r0="a1", r1="a1", r2="a1=broadcast"),
    ] == [
        "Rank 2 called all_reduce #1 of group a with Int, the others with Float.",
        "Rank 2 called all_reduce #1 of group a with 9 elements, the others with 8.",
        "Rank 2 called all_reduce #1 of group a with broadcast of 1,024 Float, "
        "the others with all_reduce of 1,024 Float.",
    ]
