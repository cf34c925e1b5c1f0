"""Split sizes of all-to-alls: what senders and receivers expect of each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.dumps import diagnosis_of, recorded
from builders.recorder import collective
from tracelink._hang.facts.model import Category, Problem
from tracelink._hang.verdicts.mismatches import ExtraCall
from tracelink._model.trace import ProcessGroup

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


def test_matching_split_sizes() -> None:
    assert told(UNEVEN, transposed(UNEVEN)) == [("in_flight", (), False)]


def test_wrong_sender() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [1, 1, 9]]
    assert told(wrong, transposed(UNEVEN)) == [("size_mismatch", (2,), False)]


def test_wrong_receiver() -> None:
    wrong = transposed(UNEVEN)
    wrong[1] = [9, 5, 9]
    assert told(UNEVEN, wrong) == [("size_mismatch", (1,), False)]


def test_equal_sums_with_wrong_pairs() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [8, 7, 9]]
    assert told(wrong, transposed(UNEVEN)) == [("size_mismatch", (2,), False)]


def test_one_wrong_pair_is_a_tie() -> None:
    wrong = [[1, 2, 3], [4, 5, 6], [7, 1, 9]]
    (problem,) = problems(wrong, transposed(UNEVEN))
    assert (problem.culprits, problem.tie) == ((1, 2), True)
    assert "rank 2 sends 1 element to rank 1, which expects 8" in problem.message


def test_single_tensor_shows_only_the_sum() -> None:
    def entry(given: int, expected: int) -> Mapping[str, object]:
        return collective("nccl:all_to_all", 1, input_sizes=[[given]], output_sizes=[[expected]])

    (problem,) = diagnosis_of(recorded({0: [dict(entry(6, 9))], 1: [dict(entry(7, 5))]})).problems
    assert (problem.culprits, problem.tie) == ((0, 1), True)
    assert "all ranks together send 13 elements and expect 14" in problem.message


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 99), min_size=4, max_size=4), min_size=4, max_size=4), st.data())
def test_any_rank_with_two_wrong_sizes_is_found(matrix: Matrix, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    wrong = [list(row) for row in matrix]
    for other in data.draw(st.permutations([one for one in range(4) if one != rank]))[:2]:
        wrong[rank][other] += data.draw(st.integers(1, 5))
    assert told(matrix, transposed(matrix)) == [("in_flight", (), False)]
    assert told(wrong, transposed(matrix)) == [("size_mismatch", (rank,), False)]


@pytest.mark.parametrize("completed", [None, 1_794_983_359_703_435_457])
def test_finished_or_hanging(completed: int | None) -> None:
    wrong = [[2, 2, 3], [4, 5, 6], [7, 8, 9]]
    wrong[0] = [1, 9, 9]
    (problem,) = problems(wrong, transposed(UNEVEN), completed)
    assert problem.culprits == (0,)


def made(number: int) -> ExtraCall:
    group = ProcessGroup("0", "tp")
    return ExtraCall.of_call(
        group, 31, "gloo:all_gather", culprits=(0,), waiting=(1, 2, 3), number=number, other=1
    )


def test_several_calls() -> None:
    problem = made(3).settled()
    assert (problem.message, problem.advice, problem.category) == (
        "Rank 0 made 3 calls that rank 1 did not make: all_gather #31 of group 0 (tp) and the 2 calls after it; "
        "3 ranks wait.",
        "Look for the branch or the loop that only rank 0 takes, or make the call on all ranks.",
        Category.CODE_PATH,
    )


def test_one_call() -> None:
    assert made(1).claim() == "Rank 0 made a call that rank 1 did not make: all_gather #31 of group 0 (tp)"
