"""Lives of groups that were destroyed and made again, and count from 1 again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import journal, recorded
from builders.programs import diagnosis_of_programs, dumps_of, problems
from builders.recorder import CREATED, collective
from tracelink._hang.examine import diagnosis_of
from tracelink._hang.stalls import Clues

THREE = [0, 1, 2]
MS = 1_000_000


def lives(programs: Mapping[int, str]) -> list[list[str]]:
    """For each rank the group and the number of each of its entries: `2:1` is number 1 of life 2."""
    found = journal(dumps_of(programs, a=sorted(programs)))
    names = [group.description.removeprefix("life ") for group in found.groups]
    shown = [
        f"{names[group]}:{number}"
        for group, number in zip(found.records.group.tolist(), found.records.sequence.tolist(), strict=True)
    ]
    return [shown[first:end] for first, end in zip(found.bounds[:-1], found.bounds[1:], strict=True)]


def test_rank_that_never_joined_in_the_second_life() -> None:
    ranks = {0: "a1 a2 a3 a4 a1 a2 a3!", 1: "a1 a2 a3 a4 a1 a2 a3!", 2: "a1 a2 a3 a4 a1 a2"}
    diagnosis = diagnosis_of_programs(ranks, descriptions={"a": "default_pg"}, a=THREE)
    (problem,) = diagnosis.problems
    assert (problem.kind, problem.group, problem.sequence, problem.culprits, problem.waiting) == (
        "never_joined",
        "a",
        3,
        (2,),
        (0, 1),
    )
    assert problem.message == (
        "Rank 2 never joined all_reduce #3 of group a (life 2 of default_pg); 2 ranks wait."
    )
    assert problem.rows == {0: 6, 2: 19}
    assert [
        (item.description, item.sequence, item.stage.value, item.ranks) for item in diagnosis.standings
    ] == [
        ("life 2 of default_pg", 2, "finished", (2,)),
        ("life 2 of default_pg", 3, "waiting", (0, 1)),
    ]
    assert [finding.message for finding in diagnosis.findings] == [
        "Group a (default_pg) was destroyed and made again under the same name, and counts from 1 again: "
        "each life is diagnosed separately."
    ]


def test_rank_that_stays_in_the_first_life() -> None:
    ranks = {0: "a1 a2 a3 a1!", 1: "a1 a2 a3 a1!", 2: "a1 a2 a3"}
    assert problems(ranks, a=THREE) == ["never_joined a1 by 2, for 0 1"]


def test_wait_in_an_earlier_life_is_over() -> None:
    """A call was given up, and the job went on with a new group."""
    ranks = {0: "a1 a2 a3 a4? a1 a2", 1: "a1 a2 a3 a4? a1 a2", 2: "a1 a2 a3 a1 a2"}
    assert problems(ranks, a=THREE) == []


def test_message_in_an_earlier_life_is_over() -> None:
    ranks = {0: "a1 a2 a3 a>1! a1 a2", 1: "a1 a2 a3 a1 a2"}
    assert problems(ranks, hung=False, a=[0, 1]) == []


def test_life_of_one_collective() -> None:
    """The process-local number of the group shows the second life, if the sequence numbers do not fall."""
    entries = {
        rank: [
            collective("nccl:broadcast", 1, pg_id=0, completed=CREATED + MS),
            collective("nccl:all_reduce", 1, pg_id=1, created=CREATED + 2 * MS, completed=CREATED + 3 * MS),
            collective("nccl:all_reduce", 2, pg_id=1, created=CREATED + 4 * MS),
        ][: 2 if rank == 2 else 3]
        for rank in THREE
    }
    (problem,) = diagnosis_of(recorded(entries), clues=Clues(hung=True)).problems
    assert problem.message == (
        "Rank 2 never joined all_reduce #2 of group 0 (life 2 of default_pg); 2 ranks wait."
    )


def test_both_numbers_of_a_group_fall_once() -> None:
    program = "a1 a2 a3 a>1 a>1 a>1 a1 a2"
    entries = dumps_of({0: program, 1: program.replace(">1", "<0")}, a=[0, 1])
    for content in entries.values():
        content["entries"] += [entry | {"p2p_seq_id": 1} for entry in content["entries"][3:4]]
    assert set(journal(entries).records.group[6:9].tolist()) == {0}


def test_neighbours_swapped_by_threads_are_one_life() -> None:
    assert lives({0: "a2 a1 a3 a4", 1: "a1 a2 a4 a3"}) == [[":2", ":1", ":3", ":4"], [":1", ":2", ":4", ":3"]]


def test_coalesced_entries_are_one_life() -> None:
    assert lives({0: "a1 a1 a1 a2", 1: "a1 a1 a1 a2"}) == [[":1", ":1", ":1", ":2"]] * 2


def entries_of(first: Sequence[int], second: Sequence[int]) -> list[dict[str, Any]]:
    """The collectives of two lives; the second begins a second later."""
    return [
        collective("nccl:all_reduce", number, created=CREATED + life * 1000 * MS + number * MS)
        for life, numbers in enumerate((first, second))
        for number in numbers
    ]


def test_rank_without_a_second_life() -> None:
    assert lives({0: "a1 a2 a3 a1", 1: "a1 a2 a3"}) == [["1:1", "1:2", "1:3", "2:1"], ["1:1", "1:2", "1:3"]]


@given(st.integers(3, 9), st.integers(2, 9), st.data())
def test_any_start_of_buffers(before: int, after: int, data: st.DataObject) -> None:
    """Every rank has the same numbers in the same life, whatever its ring buffer lost."""
    whole = entries_of(range(1, before + 1), range(1, after + 1))
    entries = {0: whole}
    for rank in (1, 2):
        lost = data.draw(st.integers(0, before + after - 2))
        entries[rank] = [entry | {"record_id": index + lost} for index, entry in enumerate(whole[lost:])]
    found = recorded(entries)
    named = {
        (int(created), found.groups[group].description)
        for created, group in zip(found.records.created, found.records.group.tolist(), strict=True)
    }
    assert sorted(named) == [
        (entry["time_created_ns"], f"life {1 + (index >= before)} of default_pg")
        for index, entry in enumerate(whole)
    ]
