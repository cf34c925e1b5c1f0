"""Members of groups that no dump lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from builders.dumps import journal
from builders.recorder import collective, dump
from tracelink._hang.journal import Journal
from tracelink._hang.participation import Knowledge, parts_of, positions_of

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
