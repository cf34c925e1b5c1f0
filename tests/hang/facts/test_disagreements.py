"""Mismatches: operations, dtypes, sizes and roots that ranks do not agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import diagnosis_of, journal, recorded
from builders.programs import diagnosis_of_programs, journal_of_programs
from builders.programs import problems as problem_texts
from builders.recorder import collective, dump, process_group
from tracelink._hang.facts.disagreements import Roots, hangs_with_a_root
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Diagnosis, Kind, Problem

# Ranks that call different things under one sequence number.


THREE = [0, 1, 2]


def message(**ranks: str) -> str:
    (problem,) = diagnosis_of_programs(
        {int(rank[1:]): words for rank, words in ranks.items()}, a=THREE
    ).problems
    return problem.message


def test_operation_mismatch() -> None:
    ranks = {0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}
    assert problem_texts(ranks, a=THREE) == ["operation_mismatch a2 by 2, for 0 1"]


def test_dtype_mismatch_without_a_hang() -> None:
    assert problem_texts({0: "a1", 1: "a1.Int", 2: "a1"}, a=THREE) == ["dtype_mismatch a1 by 1, for nobody"]


def test_size_mismatch() -> None:
    found = problem_texts({0: "a1:8", 1: "a1:8", 2: "a1:9"}, a=THREE)
    assert found == ["size_mismatch a1 by 2, for nobody"]


def test_repeated_call_under_one_number() -> None:
    told = message(_0="a1 a2", _1="a1 a1 a2", _2="a1 a2")
    assert (
        told
        == "Rank 1 did not call all_reduce #1 of group a as often as the others under this sequence number."
    )


def test_repeated_call_is_a_tie_of_two() -> None:
    (problem,) = diagnosis_of_programs({0: "a1 a2", 1: "a1 a1 a2"}, a=[0, 1]).problems
    assert (
        problem.message
        == "Ranks 0 and 1 did not call all_reduce #1 of group a equally often under this sequence number."
    )


def test_output_dtype_mismatch() -> None:
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


def coalesced_call(tensors: Sequence[str]) -> list[dict[str, object]]:
    """One coalesced call of NCCL: an entry for each tensor (`8`, `8 Int`), and one that closes it."""
    entries = []
    for tensor in tensors:
        size, _, dtype = tensor.partition(" ")
        sizes, types = [[int(size)]], [dtype or "Float"]
        entries.append(
            collective(
                "nccl:all_reduce",
                input_sizes=sizes,
                output_sizes=sizes,
                input_dtypes=types,
                output_dtypes=types,
                retired=False,
            )
        )
    closing = collective("nccl:coalesced", input_sizes=[], output_sizes=[], input_dtypes=[], output_dtypes=[])
    return [*entries, closing | {"state": "started"}]


def coalesced_problem(*ranks: Sequence[str]) -> Problem:
    (problem,) = diagnosis_of(
        recorded({rank: coalesced_call(own) for rank, own in enumerate(ranks)})
    ).problems
    return problem


USUAL = ("8", "16", "24", "32")


def test_size_within_a_coalesced_call() -> None:
    problem = coalesced_problem(USUAL, ("8", "16", "24", "31"), USUAL)
    assert (problem.kind, problem.culprits, problem.waiting) == ("size_mismatch", (1,), (0, 2))
    assert problem.message == (
        "Rank 1 called all_reduce #1 of group 0 (default_pg) with 31 elements in tensor 4 of 4, "
        "the others with 32; 2 ranks wait."
    )
    assert problem.rows == {0: 3, 1: 8}


def test_type_within_a_coalesced_call() -> None:
    assert coalesced_problem(USUAL, USUAL, ("8", "16 Int", "24", "32")).message == (
        "Rank 2 called all_reduce #1 of group 0 (default_pg) with Int in tensor 2 of 4, "
        "the others with Float; 2 ranks wait."
    )


def test_order_within_a_coalesced_call() -> None:
    problem = coalesced_problem(("8", "16"), ("16", "8"))
    assert problem.message == (
        "Ranks 0 and 1 do not agree in all_reduce #1 of group 0 (default_pg): 8 elements or 16 in tensor 1 of 2. "
        "It is unknown which rank is wrong."
    )


def test_number_of_tensors_within_a_coalesced_call() -> None:
    assert coalesced_problem(USUAL, USUAL, USUAL[:3]).message == (
        "Rank 2 did not call all_reduce #1 of group 0 (default_pg) as often as the others "
        "under this sequence number; 2 ranks wait."
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
def test_majority_in_any_order(order: tuple[int, int, int]) -> None:
    words = dict(zip(order, ("a1", "a1", "a1=broadcast"), strict=True))
    assert problem_texts(words, a=THREE) == [f"operation_mismatch a1 by {order[2]}, for nobody"]


def test_two_ranks_are_a_tie() -> None:
    found = problem_texts({0: "a1!", 1: "a1=broadcast!"}, a=[0, 1])
    assert found == ["operation_mismatch a1 by 0 1 (tie), for nobody"]


def test_similar_groups_break_a_tie() -> None:
    ranks = {0: "b1 b2:8!", 1: "b1 b2:9!", 2: "c1 c2:8", 3: "c1 c2:8"}
    found = problem_texts(ranks, descriptions={"b": "tp", "c": "tp"}, b=[0, 1], c=[2, 3])
    assert found == ["size_mismatch b2 by 1, for 0"]


def test_earlier_steps_break_a_tie() -> None:
    steps = "a1:1 a2:2 a3:3 a4:4 a5:1 a6:2 a7:3 a8:4 a9:1"
    found = problem_texts({0: f"{steps} a10:2!", 1: f"{steps} a10:7!"}, a=[0, 1])
    assert found == ["size_mismatch a10 by 1, for 0"]


def test_repeated_mismatch_is_one_problem() -> None:
    (problem,) = diagnosis_of_programs(
        {0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1.Int a2.Int a3.Int"}, a=THREE
    ).problems
    assert (problem.sequence, problem.count) == (1, 3)


def test_indirect_waits_are_added() -> None:
    ranks = {0: "a1! b1!", 1: "a1!", 2: "a1=broadcast!", 3: "b1!"}
    found = problem_texts(ranks, a=THREE, b=[0, 3])
    assert found == ["operation_mismatch a1 by 2, for 0 1 3"]


class TestSkipped:
    def test_skipped_collective(self) -> None:
        others = "a1:1 a2:2! a3:3! a4:4!"
        found = problem_texts({0: others, 1: others, 2: "a1:1 a2:3! a3:4!"}, a=THREE)
        assert found == ["skipped a2 by 2, for 0 1"]

    def test_two_skipped_collectives(self) -> None:
        others = "a1:1! a2:2! a3:3! a4:4!"
        (problem,) = diagnosis_of_programs({0: others, 1: others, 2: "a1:3! a2:4!"}, a=THREE).problems
        assert problem.message == (
            "Rank 2 skipped all_reduce #1 of group a and the call after it and continued with all_reduce #1 of "
            "group a; 2 ranks wait."
        )

    def test_skipped_just_before_the_hang(self) -> None:
        steps = "a1:1 a2:2 a3:3 a4:1 a5:2 a6:3 a7:1"
        ranks = {0: f"{steps} a8:2!", 1: f"{steps} a8:2!", 2: f"{steps} a8:3!"}
        assert problem_texts(ranks, a=THREE) == ["skipped a8 by 2, for 0 1"]

    def test_shifted_end_is_not_another_problem(self) -> None:
        ranks = {0: "a1:1 a2:2 a3:3!", 1: "a1:1 a2:2 a3:3!", 2: "a1:2 a2:3"}
        assert problem_texts(ranks, a=THREE) == ["skipped a1 by 2, for 0 1"]


def test_extra_collective() -> None:
    others = "a1:1 a2:2! a3:3!"
    (problem,) = diagnosis_of_programs({0: others, 1: others, 2: "a1:1 a2:9! a3:2! a4:3!"}, a=THREE).problems
    assert (problem.kind, problem.sequence, problem.culprits) == ("extra_call", 2, (2,))
    assert (
        problem.message
        == "Rank 2 made a call that rank 0 did not make: all_reduce #2 of group a; 2 ranks wait."
    )


def test_call_in_place_of_another_one() -> None:
    """The calls after it agree: it is neither extra nor skipped, although all others are alike."""
    ranks = {0: "a1 a2 a3 a4", 1: "a1 a2 a3 a4", 2: "a1 a2.Int a3 a4"}
    assert problem_texts(ranks, a=THREE) == ["dtype_mismatch a2 by 2, for nobody"]


def test_mismatch_messages() -> None:
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


# Roots; an unknown root agrees with all.


WORLD = [0, 1, 2, 3]


def broadcasts(ranks: Mapping[int, str], **groups: list[int]) -> Journal:
    return journal_of_programs(ranks, **(groups or {"a": WORLD}))


def named(journal: Journal, roots: Mapping[int, int], number: int = 1, group: str = "a") -> Roots:
    """What ranks said of one broadcast."""
    rows = {name: row for (_, name), row in journal.group_rows.items()}
    return Roots.of_rows([(rows[group], number, rank, root) for rank, root in roots.items()])


def root_messages(diagnosis: Diagnosis) -> list[tuple[Kind, int | None, tuple[int, ...], str]]:
    return [
        (one.kind, one.sequence, one.culprits, one.message)
        for one in diagnosis.problems
        if one.kind is not Kind.IN_FLIGHT
    ]


ALL_IN = broadcasts(dict.fromkeys(WORLD, "a1=broadcast!"))


def test_root_mismatch() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 0, 2: 3, 3: 0}))
    message = "Rank 2 called broadcast #1 of group a with root 3, the others with root 0; 3 ranks wait."
    assert root_messages(diagnosis) == [(Kind.PEER_MISMATCH, 1, (2,), message)]
    assert diagnosis.problems[0].waiting == (0, 1, 3)


def test_root_tie() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 1, 1: 1, 2: 0, 3: 0}))
    ((kind, _, culprits, message),) = root_messages(diagnosis)
    assert (kind, culprits, diagnosis.problems[0].tie) == (Kind.PEER_MISMATCH, (0, 1, 2, 3), True)
    assert message.startswith(
        "Ranks 0-3 do not agree in broadcast #1 of group a: root 1 or root 0. It is unknown which rank is wrong."
    )


def test_roots_are_named_by_job_rank() -> None:
    journal = broadcasts({4: "a1=broadcast!", 5: "a1=broadcast!", 7: "a1=broadcast!"}, a=[4, 5, 7])
    diagnosis = diagnosis_of(journal, roots=named(journal, {4: 0, 5: 2, 7: 0}))
    ((_, _, culprits, message),) = root_messages(diagnosis)
    assert culprits == (5,)
    assert "with root 7, the others with root 4" in message


def test_root_mismatch_of_finished_calls() -> None:
    journal = broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2"))
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 1, 2: 0}))
    assert [(one.kind, one.culprits, one.waiting) for one in diagnosis.problems] == [
        (Kind.PEER_MISMATCH, (1,), ())
    ]


def test_operation_mismatch_explains_root_mismatch() -> None:
    journal = broadcasts({0: "a1=broadcast!", 1: "a1=broadcast!", 2: "a1=reduce!", 3: "a1=broadcast!"})
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 0, 2: 3, 3: 0}))
    assert [(one.kind, one.culprits) for one in diagnosis.problems] == [(Kind.OPERATION_MISMATCH, (2,))]


def test_old_profiles_name_the_rank_itself() -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: rank for rank in WORLD}))) == []


def test_roots_without_entries_are_ignored() -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 2}, number=7))) == []


@given(st.dictionaries(st.sampled_from(WORLD), st.just(2)))
def test_equal_roots(roots: dict[int, int]) -> None:
    assert root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, roots))) == []


def test_root_culprit_in_any_order() -> None:
    said = {0: 0, 1: 0, 2: 3, 3: 0}
    found = {
        tuple(root_messages(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: said[rank] for rank in order}))))
        for order in permutations(WORLD)
    }
    assert len(found) == 1


def test_hangs_with_a_root() -> None:
    assert hangs_with_a_root(ALL_IN)
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast")))
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2!")))
    assert not hangs_with_a_root(broadcasts({0: "", 1: "a1"}))
