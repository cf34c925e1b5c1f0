"""Package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.journal import journal, recorded
from builders.recorder import collective, dump, process_group
from builders.told import diagnosed, journal_told
from builders.told import problems as problem_texts
from tracelink.diagnosis.disagreements import Roots, hangs_with_a_root
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis, Kind, Problem

# All-to-alls: what is sent has to be what is expected, cell by cell of the matrix.


Matrix = Sequence[Sequence[int]]


def problems(given: Matrix, expected: Matrix, completed: int | None = None) -> list[Problem]:
    """What is wrong where rank i gives `given[i][j]` numbers to j, and j expects `expected[j][i]`."""
    entries = {
        rank: [
            collective(
                "nccl:all_to_all",
                1,
                input_sizes=[[size] for size in given[rank]],
                output_sizes=[[size] for size in expected[rank]],
                completed=completed,
            )
        ]
        for rank in range(len(given))
    }
    return list(diagnosis_of(recorded(entries)).problems)


def told(given: Matrix, expected: Matrix) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(problem.kind.value, problem.culprits, problem.tie) for problem in problems(given, expected)]


def transposed(matrix: Matrix) -> list[list[int]]:
    return [list(row) for row in zip(*matrix, strict=True)]


UNEVEN = [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_uneven_sizes_that_fit_are_nothing() -> None:
    assert told(UNEVEN, transposed(UNEVEN)) == []


def test_one_that_gives_everybody_something_else() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [1, 1, 9]]
    assert told(wrong, transposed(UNEVEN)) == [("size_mismatch", (2,), False)]


def test_one_that_expects_something_else_of_everybody() -> None:
    wrong = transposed(UNEVEN)
    wrong[1] = [9, 5, 9]
    assert told(UNEVEN, wrong) == [("size_mismatch", (1,), False)]


def test_sizes_that_add_up_and_do_not_fit() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [8, 7, 9]]
    assert told(wrong, transposed(UNEVEN)) == [("size_mismatch", (2,), False)]


def test_one_wrong_cell_can_be_the_fault_of_either() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [7, 1, 9]]
    (problem,) = problems(wrong, transposed(UNEVEN))
    assert (problem.culprits, problem.tie) == ((1, 2), True)
    assert "rank 2 sends 1 element to rank 1, which expects 8" in problem.message


def test_of_one_tensor_only_the_sum_tells() -> None:
    def entry(given: int, expected: int) -> Mapping[str, object]:
        return collective("nccl:all_to_all", 1, input_sizes=[[given]], output_sizes=[[expected]])

    (problem,) = diagnosis_of(recorded({0: [dict(entry(6, 9))], 1: [dict(entry(7, 5))]})).problems
    assert (problem.culprits, problem.tie) == ((0, 1), True)
    assert "all ranks together send 13 elements and expect 14" in problem.message


@given(st.lists(st.lists(st.integers(0, 99), min_size=4, max_size=4), min_size=4, max_size=4), st.data())
def test_whoever_gives_wrong_sizes_to_two_others_is_found(matrix: Matrix, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    wrong = [list(row) for row in matrix]
    for other in data.draw(st.permutations([one for one in range(4) if one != rank]))[:2]:
        wrong[rank][other] += data.draw(st.integers(1, 5))
    assert told(matrix, transposed(matrix)) == []
    assert told(wrong, transposed(matrix)) == [("size_mismatch", (rank,), False)]


@pytest.mark.parametrize("completed", [None, 1_794_983_359_703_435_457])
def test_it_is_found_whether_it_hangs_or_not(completed: int | None) -> None:
    wrong = [[2, 2, 3], [4, 5, 6], [7, 8, 9]]
    wrong[0] = [1, 9, 9]
    (problem,) = problems(wrong, transposed(UNEVEN), completed)
    assert problem.culprits == (0,)


# Ranks that do not do the same under one number: who is alone with it, and what happened.


THREE = [0, 1, 2]


def message(**ranks: str) -> str:
    (problem,) = diagnosed({int(rank[1:]): words for rank, words in ranks.items()}, a=THREE).problems
    return problem.message


def test_another_operation() -> None:
    ranks = {0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}
    assert problem_texts(ranks, a=THREE) == ["operation_mismatch a2 by 2, for 0 1"]


def test_another_type_without_a_hang() -> None:
    assert problem_texts({0: "a1", 1: "a1.Int", 2: "a1"}, a=THREE) == ["dtype_mismatch a1 by 1, for nobody"]


def test_another_size() -> None:
    found = problem_texts({0: "a1:8", 1: "a1:8", 2: "a1:9"}, a=THREE)
    assert found == ["size_mismatch a1 by 2, for nobody"]


def test_the_same_twice_under_one_number_is_not_told_as_another_call() -> None:
    told = message(_0="a1 a2", _1="a1 a1 a2", _2="a1 a2")
    assert (
        told
        == "Rank 1 did not call all_reduce #1 of group a as often as the others under this sequence number."
    )


def test_of_two_nobody_says_which_called_it_too_often() -> None:
    (problem,) = diagnosed({0: "a1 a2", 1: "a1 a1 a2"}, a=[0, 1]).problems
    assert (
        problem.message
        == "Ranks 0 and 1 did not call all_reduce #1 of group a equally often under this sequence number."
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
    assert problem_texts(words, a=THREE) == [f"operation_mismatch a1 by {order[2]}, for nobody"]


def test_of_two_nobody_is_in_the_majority() -> None:
    found = problem_texts({0: "a1!", 1: "a1=broadcast!"}, a=[0, 1])
    assert found == ["operation_mismatch a1 by 0 1 (tie), for nobody"]


def test_of_two_the_one_is_right_that_does_what_like_groups_do() -> None:
    ranks = {0: "b1 b2:8!", 1: "b1 b2:9!", 2: "c1 c2:8", 3: "c1 c2:8"}
    found = problem_texts(ranks, descriptions={"b": "tp", "c": "tp"}, b=[0, 1], c=[2, 3])
    assert found == ["size_mismatch b2 by 1, for 0"]


def test_of_two_the_one_is_right_that_does_what_was_done_before() -> None:
    steps = "a1:1 a2:2 a3:3 a4:4 a5:1 a6:2 a7:3 a8:4 a9:1"
    found = problem_texts({0: f"{steps} a10:2!", 1: f"{steps} a10:7!"}, a=[0, 1])
    assert found == ["size_mismatch a10 by 1, for 0"]


def test_what_shows_again_and_again_is_one_problem() -> None:
    (problem,) = diagnosed({0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1.Int a2.Int a3.Int"}, a=THREE).problems
    assert (problem.sequence, problem.count) == (1, 3)


def test_who_waits_elsewhere_because_of_it_waits_because_of_it() -> None:
    ranks = {0: "a1! b1!", 1: "a1!", 2: "a1=broadcast!", 3: "b1!"}
    found = problem_texts(ranks, a=THREE, b=[0, 3])
    assert found == ["operation_mismatch a1 by 2, for 0 1"]


class TestLeftOut:
    def test_what_follows_agrees_when_moved_by_one(self) -> None:
        others = "a1:1 a2:2! a3:3! a4:4!"
        found = problem_texts({0: others, 1: others, 2: "a1:1 a2:3! a3:4!"}, a=THREE)
        assert found == ["skipped a2 by 2, for 0 1"]

    def test_two_in_a_row(self) -> None:
        others = "a1:1! a2:2! a3:3! a4:4!"
        (problem,) = diagnosed({0: others, 1: others, 2: "a1:3! a2:4!"}, a=THREE).problems
        assert problem.message == (
            "Rank 2 skipped all_reduce #1 of group a and the 1 after it and continued with all_reduce of 3 Float "
            "(2 collectives show it); 2 ranks wait."
        )

    def test_where_the_others_stopped_at_once_what_they_did_before_tells(self) -> None:
        steps = "a1:1 a2:2 a3:3 a4:1 a5:2 a6:3 a7:1"
        ranks = {0: f"{steps} a8:2!", 1: f"{steps} a8:2!", 2: f"{steps} a8:3!"}
        assert problem_texts(ranks, a=THREE) == ["skipped a8 by 2, for 0 1"]

    def test_it_is_alone_again_at_the_end_and_that_is_no_other_problem(self) -> None:
        ranks = {0: "a1:1 a2:2 a3:3!", 1: "a1:1 a2:2 a3:3!", 2: "a1:2 a2:3"}
        assert problem_texts(ranks, a=THREE) == ["skipped a1 by 2, for 0 1"]


def test_one_collective_too_many() -> None:
    others = "a1:1 a2:2! a3:3!"
    (problem,) = diagnosed({0: others, 1: others, 2: "a1:1 a2:9! a3:2! a4:3!"}, a=THREE).problems
    assert (problem.kind, problem.sequence, problem.culprits) == ("size_mismatch", 2, (2,))
    assert problem.message.startswith("Rank 2 called 1 extra collective, all_reduce of 9 Float")


def test_messages_say_what_differs_and_nothing_else() -> None:
    assert [
        message(r0="a1", r1="a1", r2="a1.Int"),
        message(r0="a1:8", r1="a1:8", r2="a1:9"),
        message(r0="a1", r1="a1", r2="a1=broadcast"),
    ] == [
        "Rank 2 called all_reduce #1 of group a with Int, the others with Float.",
        "Rank 2 called all_reduce #1 of group a with 9 elements, the others with 8.",
        "Rank 2 called broadcast of 1,024 Float instead of all_reduce #1 of group a, "
        "the others called all_reduce of 1,024 Float.",
    ]


# Who names another root than the others; one who says nothing agrees with everybody.


WORLD = [0, 1, 2, 3]


def broadcasts(ranks: Mapping[int, str], **groups: list[int]) -> Journal:
    return journal_told(ranks, **(groups or {"a": WORLD}))


def named(journal: Journal, roots: Mapping[int, int], number: int = 1, group: str = "a") -> Roots:
    """What ranks said of one broadcast."""
    rows = {name: row for (_, name), row in journal.group_rows.items()}
    return Roots.of_rows([(rows[group], number, rank, root) for rank, root in roots.items()])


def root_messages(diagnosis: Diagnosis) -> list[tuple[Kind, int | None, tuple[int, ...], str]]:
    return [(one.kind, one.sequence, one.culprits, one.message) for one in diagnosis.problems]


ALL_IN = broadcasts(dict.fromkeys(WORLD, "a1=broadcast!"))


def test_the_one_who_names_another_root_is_to_blame() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 0, 2: 3, 3: 0}))
    message = "Rank 2 called broadcast #1 of group a with root 3, the others with root 0; 3 ranks wait."
    assert root_messages(diagnosis) == [(Kind.PEER_MISMATCH, 1, (2,), message)]
    assert diagnosis.problems[0].waiting == (0, 1, 3)


def test_as_many_for_one_as_for_another_is_a_tie() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 1, 1: 1, 2: 0, 3: 0}))
    ((kind, _, culprits, message),) = root_messages(diagnosis)
    assert (kind, culprits, diagnosis.problems[0].tie) == (Kind.PEER_MISMATCH, (0, 1, 2, 3), True)
    assert message.startswith(
        "Ranks 0-3 do not agree in broadcast #1 of group a: root 1 or root 0. It is unknown which rank is wrong."
    )


def test_roots_are_told_by_their_ranks_in_the_job() -> None:
    journal = broadcasts({4: "a1=broadcast!", 5: "a1=broadcast!", 7: "a1=broadcast!"}, a=[4, 5, 7])
    diagnosis = diagnosis_of(journal, roots=named(journal, {4: 0, 5: 2, 7: 0}))
    ((_, _, culprits, message),) = root_messages(diagnosis)
    assert culprits == (5,)
    assert "with root 7, the others with root 4" in message


def test_who_finished_can_still_have_got_the_wrong_data() -> None:
    journal = broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2"))
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 1, 2: 0}))
    assert [(one.kind, one.culprits, one.waiting) for one in diagnosis.problems] == [
        (Kind.PEER_MISMATCH, (1,), ())
    ]


def test_another_operation_explains_another_root() -> None:
    journal = broadcasts({0: "a1=broadcast!", 1: "a1=broadcast!", 2: "a1=reduce!", 3: "a1=broadcast!"})
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 0, 2: 3, 3: 0}))
    assert [(one.kind, one.culprits) for one in diagnosis.problems] == [(Kind.OPERATION_MISMATCH, (2,))]


def test_old_profiles_that_name_the_rank_itself_disagree_on_nothing() -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: rank for rank in WORLD}))) == []


def test_roots_of_collectives_that_no_dump_holds_any_more_are_left_out() -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 2}, number=7))) == []


@given(st.dictionaries(st.sampled_from(WORLD), st.just(2)))
def test_the_same_root_is_no_problem_however_few_say_it(roots: dict[int, int]) -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, roots))) == []


def test_the_culprit_does_not_depend_on_who_is_told_first() -> None:
    said = {0: 0, 1: 0, 2: 3, 3: 0}
    found = {
        tuple(root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: said[rank] for rank in order}))))
        for order in permutations(WORLD)
    }
    assert len(found) == 1


def test_who_waits_in_something_with_a_root() -> None:
    assert hangs_with_a_root(ALL_IN)
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast")))
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2!")))
    assert not hangs_with_a_root(broadcasts({0: "", 1: "a1"}))
