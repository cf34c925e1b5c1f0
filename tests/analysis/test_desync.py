"""Who did not join what others wait in: from the entries of all ranks to the one cause."""

from __future__ import annotations

from builders.told import diagnosed, problems

TWO, THREE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]


def test_everybody_finished_everything() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2"}, a=TWO) == []


def test_one_is_in_no_collective_and_the_others_wait() -> None:
    found = problems({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_one_that_never_took_part_in_a_group() -> None:
    assert problems({0: "a1!", 1: "a1!", 2: "b1"}, a=THREE, b=[2]) == ["never_joined a1 by 2, for 0 1"]


def test_others_that_queued_more_are_ahead_and_the_first_counts() -> None:
    found = problems({0: "a1 a2! a3! a4!", 1: "a1 a2! a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a2 by 2, for 0 1"]


def test_two_that_are_missing() -> None:
    found = problems({0: "a1!", 1: "b1", 2: "a1!", 3: "b1"}, a=FOUR, b=[1, 3])
    assert found == ["never_joined a1 by 1 3, for 0 2"]


def test_two_groups_that_hang_by_themselves_are_two_problems() -> None:
    found = problems({0: "a1!", 1: "c1", 2: "b1!", 3: "c1"}, a=TWO, b=[2, 3], c=[1, 3])
    assert found == ["never_joined a1 by 1, for 0", "never_joined b1 by 3, for 2"]


def test_who_waits_for_one_that_waits_is_no_cause() -> None:
    found = problems({0: "a1!", 1: "b1!", 2: "c1!", 3: ""}, a=TWO, b=[1, 2], c=[2, 3])
    assert found == ["never_joined c1 by 3, for 0 1 2"]


def test_of_several_that_it_did_not_join_the_first_in_its_program() -> None:
    """Ranks 1 and 2 show that the pair comes before the group of all."""
    ranks = {0: "b1! a1!", 1: "c1 a1!", 2: "c1 a1!", 3: ""}
    found = problems(ranks, descriptions={"b": "tp", "c": "tp"}, a=FOUR, b=[0, 3], c=[1, 2])
    assert found == ["never_joined b1 by 3, for 0 1 2"]


def test_on_gloo_what_was_retired_is_not_finished_while_somebody_is_missing() -> None:
    found = problems({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_who_finished_proves_that_all_had_joined() -> None:
    """The dump of rank 2 was made before those of the others."""
    assert problems({0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1"}, a=THREE) == []


def test_a_broadcast_can_be_over_before_all_have_joined() -> None:
    found = problems({0: "a1 a2=broadcast a3!", 1: "a1 a2=broadcast a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a3 by 2, for 0 1"]


def test_that_some_have_finished_what_others_have_only_started_is_nothing() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2^", 2: "a1 a2!"}, a=THREE) == []


def test_what_all_joined_and_nobody_finished_is_worth_a_note() -> None:
    diagnosis = diagnosed({0: "a1 a2!", 1: "a1 a2!"}, a=TWO)
    assert diagnosis.problems == []
    assert len(diagnosis.notes) == 1


def test_what_all_joined_and_gave_up_has_timed_out() -> None:
    assert problems({0: "a1 a2?", 1: "a1 a2?"}, a=TWO) == ["timed_out a2 by nobody, for 0 1"]


def test_what_all_gave_up_because_one_was_missing_elsewhere_is_a_consequence() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "c1", 3: "b1?"}, a=THREE, b=[0, 3], c=[2])
    assert found == ["never_joined a1 by 2, for 0 1 3"]


def test_who_is_missing_because_it_began_with_what_others_queued_behind_it_is_in_a_ring() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "b1?"}, a=THREE, b=[0, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_of_what_all_gave_up_the_first_is_told() -> None:
    found = problems({0: "a1? b1?", 1: "a1? b1?", 2: "b1?"}, a=TWO, b=THREE)
    assert found == ["timed_out a1 by nobody, for 0 1 2"]


class TestWithoutADump:
    def test_the_others_prove_the_one_that_is_missing(self) -> None:
        (problem,) = diagnosed({0: "a1 a2!", 1: "a1 a2!"}, a=THREE).problems
        assert (problem.culprits, problem.proven) == ((2,), False)

    def test_one_that_has_a_dump_and_is_missing_is_blamed_alone(self) -> None:
        diagnosis = diagnosed({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=FOUR)
        assert [problem.culprits for problem in diagnosis.problems] == [(2,)]
        assert list(diagnosis.missing) == [3]

    def test_of_several_it_is_one_of_them(self) -> None:
        (problem,) = diagnosed({0: "a1 a2!"}, a=THREE).problems
        assert problem.culprits == (1, 2)
        assert problem.message.startswith("At least one of ranks 1 and 2, whose dumps do not tell")

    def test_beside_one_that_is_proven_it_may_be_waiting_itself(self) -> None:
        diagnosis = diagnosed({0: "a1!", 1: "b1", 2: "c1!"}, a=TWO, b=[1], c=[2, 3])
        assert [problem.culprits for problem in diagnosis.problems] == [(1,)]
        assert diagnosis.notes == [
            "Others wait for rank 3 too, whose dumps do not tell: it may well wait because of what is said above."
        ]

    def test_without_anybody_waiting_nothing_is_said_of_it(self) -> None:
        assert problems({0: "a1", 1: "a1"}, a=THREE) == []


class TestWrapped:
    def test_a_ring_that_begins_later_misses_nothing(self) -> None:
        found = problems({0: "a3 a4", 1: "a1 a2 a3 a4"}, forgotten={0: 2}, a=TWO)
        assert found == []

    def test_a_group_that_was_forgotten_is_unknown_and_not_unused(self) -> None:
        (problem,) = diagnosed({0: "a1 b1! b2!", 1: "a1 a2 a3"}, forgotten={1: 5}, a=TWO, b=TWO).problems
        assert (problem.culprits, problem.proven) == ((1,), False)

    def test_the_last_entries_tell_who_is_missing(self) -> None:
        found = problems({0: "a8 a9!", 1: "a8 a9!", 2: "a7 a8"}, forgotten={0: 7, 1: 7, 2: 6}, a=THREE)
        assert found == ["never_joined a9 by 2, for 0 1"]
