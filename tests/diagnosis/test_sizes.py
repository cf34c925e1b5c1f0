"""Sizes that have to fit together: split sizes of all-to-alls, and what ranks gather or scatter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.dumps import recorded
from builders.recorder import CREATED, collective
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.model import Category, Diagnosis, Kind, Problem

# All-to-alls: split sizes of senders and receivers.


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


# Gathers and scatters: what a rank passes has to fit to the number of ranks.


GATHERS = [
    "nccl:all_gather",
    "nccl:_all_gather_base",
    "gloo:all_gather",
    "nccl:all_gather_into_tensor_coalesced",
]
SCATTERS = ["nccl:reduce_scatter", "nccl:_reduce_scatter_base", "nccl:reduce_scatter_tensor_coalesced"]
DONE = CREATED + 1


def call(
    name: str, given: Sequence[int], received: Sequence[int], sequence: int = 1, **fields: Any
) -> dict[str, Any]:
    """One entry with the elements of its input and output tensors."""
    return collective(
        name,
        sequence,
        input_sizes=[[size] for size in given],
        output_sizes=[[size] for size in received],
        input_dtypes=["Float"] * len(given),
        output_dtypes=["Float"] * len(received),
        **fields,
    )


def of_calls(*calls: dict[str, Any], **how: Any) -> Diagnosis:
    """The diagnosis of a job in which each rank made one call."""
    return diagnosis_of(recorded({rank: [own] for rank, own in enumerate(calls)}, **how))


def kinds(diagnosis: Diagnosis) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(problem.kind.value, problem.culprits, problem.tie) for problem in diagnosis.problems]


@pytest.mark.parametrize("name", GATHERS)
def test_the_misfit_of_one_rank_decides_a_tie(name: str) -> None:
    found = of_calls(call(name, [8], [16]), call(name, [8], [15]))
    assert kinds(found) == [("size_mismatch", (1,), False)]


@pytest.mark.parametrize("name", SCATTERS)
def test_a_scatter_that_does_not_fit(name: str) -> None:
    found = of_calls(call(name, [16], [8]), call(name, [15], [8]))
    assert kinds(found) == [("size_mismatch", (1,), False)]


def test_the_misfit_is_in_the_message() -> None:
    right, wrong = call("nccl:all_gather", [8], [32]), call("nccl:all_gather", [8], [30])
    (problem,) = of_calls(right, right, wrong, right).problems
    assert (problem.message, problem.category, problem.waiting) == (
        "Rank 2 called all_gather #1 of group 0 (default_pg) with 8 elements of input and 30 of output, but 4 ranks of "
        "8 elements each give 32; 3 ranks wait.",
        Category.WRONG_ARGUMENTS,
        (0, 1, 3),
    )
    right, wrong = call("nccl:reduce_scatter", [32], [8]), call("nccl:reduce_scatter", [32], [1])
    (problem,) = of_calls(right, right, wrong, right).problems
    assert problem.message == (
        "Rank 2 called reduce_scatter #1 of group 0 (default_pg) with 32 elements of input and 1 of output, but "
        "4 ranks of 1 element each need 4; 3 ranks wait."
    )


def test_ranks_that_fit_are_no_culprits_if_they_are_few() -> None:
    right, wrong = call("nccl:all_gather", [8], [24]), call("nccl:all_gather", [8], [20])
    assert kinds(of_calls(wrong, right, wrong)) == [("size_mismatch", (0, 2), False)]


def test_two_sizes_that_both_fit_are_a_tie() -> None:
    found = of_calls(call("nccl:all_gather", [8], [16]), call("nccl:all_gather", [9], [18]))
    assert kinds(found) == [("size_mismatch", (0, 1), True)]


def test_sizes_of_several_tensors_are_added() -> None:
    listed = call("nccl2:all_gather", [8], [8, 8])
    assert kinds(of_calls(listed, listed)) == [("in_flight", (), False)]
    coalesced = call("nccl:all_gather_into_tensor_coalesced", [8, 4], [16, 8])
    assert kinds(of_calls(coalesced, coalesced)) == [("in_flight", (), False)]


@pytest.mark.parametrize(
    "name",
    ["nccl:all_gather_v", "nccl:reduce_scatter_v", "mccl:allgatherv", "nccl:all_reduce", "nccl:gather"],
)
def test_operations_whose_ranks_pass_other_sizes(name: str) -> None:
    found = of_calls(call(name, [8], [15]), call(name, [8], [15]))
    assert kinds(found) == [("in_flight", (), False)]


def test_uneven_lists_are_broadcasts_that_one_entry_closes() -> None:
    parts = [call("nccl:_broadcast_oop", [size], [size]) for size in (8, 7)]
    closing = call("nccl:ALLGATHER_coalesced", [], [])
    found = diagnosis_of(recorded({0: [*parts, closing], 1: [*parts, closing]}))
    assert kinds(found) == [("in_flight", (), False)]


@pytest.mark.parametrize(
    "own",
    [
        call("nccl:all_gather", [0], [8]),
        call("nccl:all_gather", [8], [0]),
        call("nccl:all_gather", [], [8]),
        call("nccl:all_gather", [8], []),
        call("nccl:all_gather", [8], [8]),
        call("nccl:all_gather", [8], [15]) | {"output_dtypes": ["Byte"]},
    ],
    ids=["no input", "no output", "unknown input", "unknown output", "one tensor of several", "another type"],
)
def test_sizes_that_are_not_compared(own: dict[str, Any]) -> None:
    assert kinds(of_calls(own, own)) == [("in_flight", (), False)]


def test_all_ranks_pass_the_same_sizes_that_do_not_fit() -> None:
    own = call("nccl:all_gather", [8], [15])
    (problem,) = of_calls(own, own).problems
    assert (problem.kind, problem.culprits) == (Kind.SIZE_MISMATCH, (0, 1))
    assert problem.message == (
        "Ranks 0 and 1 called all_gather #1 of group 0 (default_pg) with 8 elements of input and 15 of output, but "
        "2 ranks of 8 elements each give 16."
    )


def test_finished_calls_that_do_not_fit_are_a_problem_if_others_fit() -> None:
    own = [
        call("nccl:all_gather", [8], [16], 1, completed=DONE),
        call("nccl:all_gather", [8], [15], 2, completed=DONE),
        call("nccl:all_gather", [8], [15], 3, completed=DONE),
    ]
    (problem,) = diagnosis_of(recorded({0: own, 1: own})).problems
    assert (problem.kind, problem.sequence, problem.count) == (Kind.SIZE_MISMATCH, 2, 2)


def test_a_finished_call_that_fits_to_other_members_is_of_an_earlier_group() -> None:
    own = [
        call("nccl:all_gather", [8], [32], 1, completed=DONE),
        call("nccl:all_gather", [8], [16], 2, completed=DONE),
    ]
    assert kinds(diagnosis_of(recorded({0: own, 1: own}))) == []
    unfinished = call("nccl:all_gather", [8], [32])
    assert kinds(of_calls(unfinished, unfinished)) == [("size_mismatch", (0, 1), False)]


def test_an_operation_that_never_fits_and_finishes_is_a_note() -> None:
    own = call("hccl:all_gather", [8], [15], completed=DONE)
    found = of_calls(own, own)
    assert (found.problems, found.notes) == (
        [],
        [
            "Sizes fit in none of 2 calls of all_gather, some of which finished: all_gather #1 of group 0 (default_pg) "
            "has 8 elements of input and 15 of output, but 2 ranks of 8 elements each give 16."
        ],
    )
    own = call("hccl:all_gather", [8], [8], completed=DONE)
    found = of_calls(own, own)
    assert (found.problems, found.notes) == ([], [])


def test_groups_without_a_list_of_members_are_not_compared() -> None:
    own = call("gloo:all_gather", [8], [15])
    unaided = {"": {"name": "", "desc": "", "ranks": "[]"}}
    assert kinds(of_calls(own, own, pg_config=unaided)) == [("in_flight", (), False)]


def test_a_misfit_within_a_coalesced_call() -> None:
    def coalesced(*outputs: int) -> list[dict[str, Any]]:
        members = [call("nccl:_all_gather_base", [8], [size]) for size in outputs]
        return [*members, call("nccl:coalesced", [], [])]

    (problem,) = diagnosis_of(recorded({0: coalesced(16, 16), 1: coalesced(16, 12)})).problems
    assert (problem.kind, problem.culprits) == (Kind.SIZE_MISMATCH, (1,))
    assert problem.message == (
        "Rank 1 called _all_gather_base #1 of group 0 (default_pg) with 8 elements of input and 12 of output, but "
        "2 ranks of 8 elements each give 16 (call 2 of 2); rank 0 waits."
    )


def test_another_operation_is_worse_than_sizes_that_do_not_fit() -> None:
    other = call("nccl:broadcast", [8], [8])
    found = of_calls(other, other, call("nccl:all_gather", [8], [15]))
    assert kinds(found) == [("operation_mismatch", (2,), False)]


@settings(max_examples=40)
@given(
    st.sampled_from([*GATHERS, *SCATTERS]),
    st.integers(2, 6),
    st.integers(1, 99),
    st.integers(1, 50),
    st.data(),
)
def test_any_rank_with_another_size_is_the_culprit(
    name: str, ranks: int, size: int, more: int, data: st.DataObject
) -> None:
    culprit = data.draw(st.integers(0, ranks - 1))
    gathers = name in GATHERS

    def of_sizes(small: int, large: int) -> dict[str, Any]:
        return call(name, [small], [large]) if gathers else call(name, [large], [small])

    right = of_sizes(size, size * ranks)
    wrong = of_sizes(size, size * ranks + more)
    calls = [wrong if rank == culprit else right for rank in range(ranks)]
    assert kinds(of_calls(*calls)) == [("size_mismatch", (culprit,), False)]
    assert kinds(of_calls(*[right] * ranks)) == [("in_flight", (), False)]
