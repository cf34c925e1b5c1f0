"""Process groups by number: 0 is all ranks, a name that is a number stays, the others get what is free."""

from __future__ import annotations

import pytest

from builders.job import JobBuilder
from tracelink.converters.chakra.communications import GroupNumbers, everybody, group_numbers
from tracelink.model.trace import ProcessGroup

EVERYBODY = (0, 1, 2, 3)


def numbered(
    *groups: tuple[str, tuple[int, ...]], seen: dict[int, tuple[int, ...]] | None = None
) -> GroupNumbers:
    builder = JobBuilder()
    for name, ranks in groups:
        builder.group(name, ranks, description=f"of {name}")
    job = builder.build()
    return group_numbers(job, seen or {})


@pytest.mark.parametrize("name", ["0", "default_pg", "", "abc"])
def test_the_group_of_all_ranks_is_0(name: str) -> None:
    assert numbered((name, EVERYBODY)).numbers == [0]


def test_a_name_that_is_a_number_stays() -> None:
    assert numbered(("0", EVERYBODY), ("7", (0, 1)), ("2", (2, 3)), ("5", EVERYBODY)).numbers == [0, 7, 2, 5]


def test_other_names_get_the_first_number_that_nobody_has() -> None:
    groups = (("0", EVERYBODY), ("abc", (0, 1)), ("1", (2, 3)), ("def", (1, 2)), ("3", (0, 3)))
    assert numbered(*groups).numbers == [0, 2, 1, 4, 3]


@pytest.mark.parametrize("name", ["2001", "999999999999", "01", "-1", "1.5", "٣", "0"])
def test_a_name_that_simulators_would_not_keep_gets_another_number(name: str) -> None:
    """ASTRA-sim counts a million on from each, in 32 bits."""
    assert numbered(("default", EVERYBODY), (name, (0, 1))).numbers == [0, 1]


def test_two_groups_of_one_name_are_two() -> None:
    assert numbered(("0", EVERYBODY), ("1", (0, 1)), ("1", (2, 3))).numbers == [0, 1, 2]


def test_members_that_no_source_lists_are_those_who_are_seen() -> None:
    groups = numbered(("0", EVERYBODY), ("5", ()), ("6", ()), seen={1: (0, 2)})
    assert groups.members == [EVERYBODY, (0, 2), ()]


def test_the_file_has_all_but_the_group_of_all_ranks_in_order() -> None:
    groups = numbered(("0", EVERYBODY), ("7", (0, 1)), ("2", (2, 3)))
    assert list(groups.members_by_number.items()) == [(2, (2, 3)), (7, (0, 1))]


def test_what_is_in_no_known_group_is_among_all() -> None:
    groups = numbered(("7", (0, 1)))
    assert (groups.number(-1), groups.number(0)) == (0, 7)


def test_descriptions_by_number() -> None:
    assert numbered(("0", EVERYBODY), ("7", (0, 1))).described == {
        0: {"name": "0", "description": "of 0", "ranks": [0, 1, 2, 3]},
        7: {"name": "7", "description": "of 7", "ranks": [0, 1]},
    }


class TestAmong:
    """Groups of a simulation: 0 is safe only where no other group has collectives."""

    GROUPS = (("0", EVERYBODY), ("7", (0, 1)), ("alone", (2,)), ("again", EVERYBODY))

    @pytest.mark.parametrize("rows", [[], [0], [0, 2, 3]])
    def test_all_ranks_are_0_where_no_other_group_of_several_communicates(self, rows: list[int]) -> None:
        assert numbered(*self.GROUPS).among(rows).numbers == [0, 7, 1, 0]

    @pytest.mark.parametrize("rows", [[1], [0, 1, 2]])
    def test_else_they_have_one_number_of_their_own(self, rows: list[int]) -> None:
        groups = numbered(*self.GROUPS).among(rows)
        assert groups.numbers == [2, 7, 1, 2]
        assert groups.members_by_number == {1: (2,), 2: EVERYBODY, 7: (0, 1)}


class TestEverybody:
    def test_the_world_as_ranks_say_it(self) -> None:
        builder = JobBuilder()
        builder.collective(builder.group("0", (0, 1)), {0: (0, 1), 1: (0, 1)})
        assert everybody(builder.build()) == (0, 1)

    def test_a_group_can_have_more_than_those_who_are_there(self) -> None:
        builder = JobBuilder()
        builder.groups.append(ProcessGroup("0", size=8))
        assert everybody(builder.build()) == tuple(range(8))

    def test_a_rank_alone_of_which_nothing_is_said(self) -> None:
        builder = JobBuilder()
        builder.unmatched(builder.group("1", ()), 5)
        assert everybody(builder.build()) == tuple(range(6))

    def test_nobody(self) -> None:
        assert everybody(JobBuilder().build()) == ()
