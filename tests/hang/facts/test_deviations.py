"""Deviations: skipped, extra and exchanged calls in the programs of ranks, over all of their groups."""

from __future__ import annotations

import pytest

from builders.programs import diagnosis_of_programs, problems

FOUR = [0, 1, 2, 3]
TP = {"b": "tp", "c": "tp"}


def of_two_pairs(culprit: str, partner: str, others: str) -> dict[int, str]:
    """Programs of ranks 0 to 3: a pair in group b, the first of which is the culprit, and a pair in group c."""
    return {0: culprit, 1: partner, **dict.fromkeys((2, 3), others.replace("b", "c"))}


def of_pairs(culprit: str, partner: str, others: str) -> list[str]:
    return problems(of_two_pairs(culprit, partner, others), descriptions=TP, a=FOUR, b=[0, 1], c=[2, 3])


def test_skipped_call_of_a_pair() -> None:
    """All later numbers of the group are one behind; the last one is awaited."""
    found = of_pairs("b1 b2 a1! b3! a2!", "b1 b2 b3! a1! b4! a2!", "b1 b2 b3 a1! b4! a2!")
    assert found == ["skipped b3 by 0, for 1 2 3"]


def test_skipped_call_in_words() -> None:
    programs = of_two_pairs("b1 b2 a1! b3! a2!", "b1 b2 b3! a1! b4! a2!", "b1 b2 b3 a1! b4! a2!")
    (problem,) = diagnosis_of_programs(programs, descriptions=TP, a=FOUR, b=[0, 1], c=[2, 3]).problems
    assert problem.message.partition(";")[0] == (
        "Rank 0 skipped all_reduce #3 of group b (tp) and continued with all_reduce #1 of group a"
    )


def test_extra_call_of_a_pair() -> None:
    found = of_pairs("b1 b2 b3! a1! b4! a2!", "b1 b2 a1! b3! a2!", "b1 b2 a1! b3! a2!")
    assert found == ["extra_call b3 by 0, for 1 2 3"]


def test_calls_in_another_order_are_a_deadlock() -> None:
    found = of_pairs("b1 a1! b2! a2! b3!", "b1 b2! a1! a2! b3!", "b1 b2 a1! a2! b3!")
    assert found == ["deadlock b2 by 0, for 1 2 3"]


def test_a_single_call_after_it_may_be_another_order() -> None:
    assert of_pairs("b1 a1!", "b1 b2!", "b1 b2 a1!") == ["deadlock b2 by 0, for 1 2 3"]


@pytest.mark.parametrize("forgotten", [0, 1, 2])
def test_ring_buffers_are_compared_from_the_first_common_collective(forgotten: int) -> None:
    programs = of_two_pairs("b1 a1 b2 a2! b3! a3!", "b1 a1 b2 b3! a2! b4! a3!", "b1 a1 b2 b3 a2! b4! a3!")
    lost = dict.fromkeys((1, 2), forgotten)
    found = problems(programs, descriptions=TP, forgotten=lost, a=FOUR, b=[0, 1], c=[2, 3])
    assert found == ["skipped b3 by 0, for 1 2 3"]


def test_stages_run_other_programs() -> None:
    """The first stage sends what the second receives; the program of rank 2 is stuck."""
    ranks = {0: "b1 p>1 b2!", 1: "b1 p<0 b2!", 2: "b1 q>1", 3: "b1 q<0 b2!"}
    descriptions = {"p": "pp", "q": "pp"}
    found = problems(ranks, descriptions=descriptions, b=FOUR, p=[0, 1], q=[2, 3])
    assert found == ["never_joined b2 by 2, for 0 1 3"]


def test_calls_in_a_group_of_its_own_are_not_extra() -> None:
    """Rank 2 never joins; ranks 0 and 1 have a group that the others do not have."""
    programs = {0: "b1 a1!", 1: "b1 a1!", 2: "", 3: "a1!"}
    assert problems(programs, a=FOUR, b=[0, 1]) == ["never_joined a1 by 2, for 0 1 3"]


def test_member_of_more_groups_is_stuck() -> None:
    """Rank 3 is stuck; rank 2, which is in no pair, waits as well."""
    programs = {0: "a1 b1 a2! b2! a3!", 1: "a1 b1 a2! b2! a3!", 2: "a1 a2! a3!", 3: "a1"}
    assert problems(programs, a=FOUR, b=[0, 1]) == ["lagging a2 by 3, for 0 1 2"]


# Call sites: calls that request the same differ by their lines.


THREE = [0, 1, 2]


def of_lines(others: str, culprit: str) -> list[str]:
    return problems({0: others, 1: others, 2: culprit}, a=THREE)


def test_earlier_skip_that_shows_later() -> None:
    others = "a1@5 a2@6 a3@5 a4@6 a5@5! a6=broadcast@9!"
    assert of_lines(others, "a1@5 a2@6 a3@6 a4@5 a5=broadcast@9!") == ["skipped a3 by 2, for 0 1"]


def test_earlier_skip_that_nothing_else_shows() -> None:
    """All calls request the same, and the rank is one behind."""
    found = of_lines("a1@5 a2@6 a3@5 a4@6 a5@5 a6@6!", "a1@5 a2@6 a3@6 a4@5 a5@6")
    assert found == ["skipped a3 by 2, for 0 1"]


def test_extra_calls_that_show_later_as_a_skipped_one() -> None:
    others = "a1@5 a2@6 a3@6 a4@6 a5=broadcast@9!"
    assert of_lines(others, "a1@5 a2@7 a3@7 a4@6 a5@6!") == ["extra_call a2 by 2, for 0 1"]


def test_lines_tell_a_skipped_call_from_the_next() -> None:
    ranks = dict.fromkeys((0, 1), "a1@5 a2@6 a3@7 a4@8 a5@9!") | {2: "a1@5 a2@7 a3@8 a4@9"}
    assert diagnosis_of_programs(ranks, a=THREE).problems[0].message.partition(";")[0] == (
        "Rank 2 skipped all_reduce #2 of group a at train.py:6 and continued with all_reduce #2 of group a at "
        "train.py:7"
    )


def test_ranks_may_call_the_same_from_different_lines() -> None:
    """Rank 2 has a branch of its own, and stops later."""
    found = of_lines("a1@5 a2@6 a3@6 a4@7! a5@7!", "a1@5 a2@8 a3@8")
    assert found == ["lagging a4 by 2, for 0 1"]


def test_skip_of_a_step_that_the_others_have_not_begun() -> None:
    """Rank 2 is a step ahead: it left out the last call of a step, which comes again at the end of the next."""
    step = "a1 a2:2 a3:3 b1"
    ranks = {0: f"{step} a4 a5:2 a6:3 b2!", 1: f"{step} a4 a5:2 a6:3 b2!"}
    ranks[2] = f"{step} a4 a5:2 a6:3 a7! a8:2! a9:3! b2!"
    assert problems(ranks, a=THREE, b=THREE) == ["skipped b2 by 2, for 0 1"]
