"""All-to-alls: what is sent has to be what is expected, cell by cell of the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.journal import recorded
from builders.recorder import collective
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.model import Problem

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
