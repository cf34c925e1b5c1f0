"""Members of groups that no dump lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import diagnosis_of, journal, recorded
from builders.programs import diagnosis_of_programs, dumps_of, problems
from builders.recorder import CREATED, collective, dump
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.participation import Knowledge, parts_of, positions_of
from tracelink._hang.facts.stalls import Clues

WORLD = ("0", "default_pg")
UNLISTED = {"": {"name": "", "desc": "", "ranks": "[]"}}
Mesh = Mapping[str, Sequence[Sequence[int]]]

SQUARE: Mesh = {
    "default_pg": [range(8)],
    "mesh_tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "mesh_dp": [[0, 2], [1, 3], [4, 6], [5, 7]],
}


def unlisted(mesh: Mesh, absent: Sequence[int], name: str = "gloo:all_reduce", gathers: int = 0) -> Journal:
    """The journal of ranks that use each of their groups once; `gathers` is by how much outputs exceed inputs."""
    first = 0 if "default_pg" in mesh else 1
    groups = [(str(number), what, ranks) for number, (what, ranks) in enumerate(_flat(mesh), first)]
    world = {rank for _, _, ranks in groups for rank in ranks}
    outputs = [[gathers, 8]] if gathers else [[8]]
    return journal(
        {
            rank: dump(
                *(
                    collective(name, group=(group, what), input_sizes=[[8]], output_sizes=outputs)
                    for group, what, ranks in groups
                    if rank in ranks
                ),
                pg_config=UNLISTED,
            )
            for rank in sorted(world - set(absent))
        }
    )


def _flat(mesh: Mesh) -> list[tuple[str, Sequence[int]]]:
    return [(what, ranks) for what, groups in mesh.items() for ranks in groups]


def members(journal: Journal) -> dict[str, list[int]]:
    return {group.name: list(group.ranks) for group in journal.groups}


def all_members(mesh: Mesh) -> dict[str, list[int]]:
    return {str(number): list(ranks) for number, (_, ranks) in enumerate(_flat(mesh))}


def test_no_absent_rank() -> None:
    assert members(unlisted(SQUARE, [])) == all_members(SQUARE)


@pytest.mark.parametrize("rank", range(8))
def test_absent_rank_is_in_the_groups_that_lack_a_member(rank: int) -> None:
    """Even the last rank: three groups of two and one of one are a job of eight ranks."""
    assert members(unlisted(SQUARE, [rank])) == all_members(SQUARE)


def test_several_absent_ranks_fit_in_by_the_stride_of_the_mesh() -> None:
    mesh = {"default_pg": [range(12)], "mesh_tp": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]}
    assert members(unlisted(mesh, [4, 11])) == all_members(mesh)


def test_groups_without_a_survivor_are_unknown() -> None:
    """Nothing but the gap shows the ranks of a whole host."""
    found = members(unlisted(SQUARE, [2, 3]))
    assert found == {key: ranks for key, ranks in all_members(SQUARE).items() if key != "2"}


def test_absent_rank_is_not_put_into_groups_of_different_sizes() -> None:
    mesh: Mesh = {"default_pg": [range(3)], "some": [[0, 1], [2]]}
    assert members(unlisted(mesh, [])) == all_members(mesh)
    mesh = {"default_pg": [range(5)], "undefined": [[0, 1], [2, 3], [4]]}
    assert members(unlisted(mesh, [3])) == {"0": [0, 1, 2, 3, 4], "1": [0, 1], "2": [2], "3": [4]}
    mesh = {"default_pg": [range(5)], "some": [[0, 2, 3], [1, 2, 3]]}
    assert members(unlisted(mesh, [4])) == {"0": [0, 1, 2, 3], "1": [0, 2, 3], "2": [1, 2, 3]}


def test_gathered_tensors_show_the_size_of_a_group() -> None:
    mesh = {"default_pg": [range(4)]}
    assert members(unlisted(mesh, [3], "gloo:all_gather", gathers=4)) == {"0": [0, 1, 2, 3]}
    mesh = {"some": [[0, 2, 5], [0, 1, 2, 3, 4]]}
    assert members(unlisted(mesh, [5], "gloo:all_gather", gathers=3)) == {"1": [0, 2], "2": [0, 1, 2, 3, 4]}


def test_absent_rank_has_no_known_position() -> None:
    found = unlisted({"default_pg": [range(4)]}, [2])
    positions = positions_of(found, parts_of(found), [])
    assert dict(zip(positions.rank.tolist(), positions.knowledge.tolist(), strict=True)) == {
        0: Knowledge.EXACT,
        1: Knowledge.EXACT,
        2: Knowledge.ABSENT,
        3: Knowledge.EXACT,
    }


def test_huge_gap_is_a_wrong_rank() -> None:
    rows = collective(group=WORLD)
    found = journal({rank: dump(rows, pg_config=UNLISTED) for rank in (0, 1, 20250)})
    assert len(found.groups[0].ranks) == 20251
    found = journal({rank: dump(rows, pg_config=UNLISTED) for rank in (0, 1, 202501)})
    assert found.groups[0].ranks == (0, 1, 202501)


def test_listed_members_stay() -> None:
    listed = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 3]"}}
    found = journal({rank: dump(collective(group=WORLD), pg_config=listed) for rank in (0, 3)})
    assert members(found) == {"0": [0, 3]}


# Torch on gloo: a process describes its last group only, and lists members of its first one only.


def gloo(made: Mapping[int, Mapping[str, int]]) -> Journal:
    """Ranks that each wait in groups, by name and by their number among the groups that the process made."""
    first = {"": {"name": "", "desc": "", "ranks": str(sorted(made))}}
    return journal(
        {
            rank: dump(
                *(collective(group=(name, "undefined"), pg_id=number) for name, number in numbers.items()),
                pg_config=UNLISTED if numbers else first,
            )
            for rank, numbers in made.items()
        }
    )


def test_number_of_a_group_shows_that_the_process_made_those_before_it() -> None:
    """The group 2 is the third one of rank 1, so it is in 1, too; ranks 2 and 3 are in none, so 2 has rank 0."""
    found = gloo({0: {"1": 1}, 1: {"2": 2}, 2: {}, 3: {}})
    assert {group.name: (group.ranks, group.size) for group in found.groups if group.ranks} == {
        "0": ((0, 1, 2, 3), 4),
        "1": ((0, 1), 2),
        "2": ((0, 1), 2),
    }


def test_rank_that_waits_in_a_group_is_not_its_only_member() -> None:
    found = gloo({0: {"1": 1}, 1: {"3": 2}, 2: {"3": 1}, 3: {}})
    assert {group.name: (group.ranks, group.size) for group in found.groups if group.name != "0"} == {
        "1": ((0,), 2),
        "3": ((1, 2), 2),
    }


def test_number_below_the_largest_rank_without_a_dump_is_absent() -> None:
    mesh = {"mesh_dp": [[3, 5]], "mesh_tp": [[3], [5]]}
    assert unlisted(mesh, []).absent == (0, 1, 2, 4)
    assert unlisted(SQUARE, [2, 7]).absent == (2, 7)
    listed = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 3]"}}
    assert journal({rank: dump(collective(group=WORLD), pg_config=listed) for rank in (0, 3)}).absent == ()


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
