"""Process groups from the sources of all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from builders.calls import Call, call, group, rank
from tracelink._match.groups import resolve_groups
from tracelink._match.outlines import outlined, references_of, roster_of
from tracelink._model.columns import UNKNOWN, Int32s
from tracelink._model.communications import RankCalls
from tracelink._model.findings import Finding
from tracelink._model.trace import ProcessGroup

ALL = "[0, 1, 2, 3]"


class Resolved(Struct):
    """The groups of a job, and the row of each call of all ranks."""

    rows: Sequence[ProcessGroup]
    of_call: Int32s
    default: int
    findings: Sequence[Finding]


def resolved(*ranks: RankCalls) -> Resolved:
    groups, of_reference = resolve_groups(roster_of([outlined(one) for one in ranks]))
    ordered = sorted(ranks, key=lambda one: one.rank)
    of_call = [
        rows_of_rank[references_of(one)]
        for one, rows_of_rank in zip(ordered, of_reference, strict=True)
        if len(one.calls)
    ]
    return Resolved(
        groups.rows, np.concatenate([[], *of_call]).astype(np.int32), groups.default, groups.findings
    )


def rows(groups: Resolved) -> list[tuple[str, tuple[int, ...]]]:
    return [(row.name, tuple(row.ranks)) for row in groups.rows]


def reasons(groups: Resolved) -> dict[str, int]:
    return {finding.reason: finding.count for finding in groups.findings}


def test_a_group_that_ranks_name_differently_is_one_row() -> None:
    groups = resolved(
        rank(0, call(group="12"), groups=[group("12", 0, 1)]),
        rank(1, call(group="7"), groups=[group("7", 0, 1)]),
    )
    assert rows(groups) == [("12", (0, 1))]
    assert groups.of_call.tolist() == [0, 0]


def test_two_groups_of_one_name_are_two_rows() -> None:
    groups = resolved(
        *(rank(r, call(group="1"), groups=[group("1", r // 2 * 2, r // 2 * 2 + 1)]) for r in range(4))
    )
    assert rows(groups) == [("1", (0, 1)), ("1", (2, 3))]
    assert groups.of_call.tolist() == [0, 0, 1, 1]


def test_groups_of_the_same_ranks_are_told_apart_by_name() -> None:
    mine = [group("0", 0, 1), group("3", 0, 1)]
    groups = resolved(
        rank(0, call(group="3"), call(group="0"), groups=mine),
        rank(1, call(group="0"), call(group="3"), groups=mine[::-1]),
    )
    assert rows(groups) == [("0", (0, 1)), ("3", (0, 1))]
    assert groups.of_call.tolist() == [1, 0, 0, 1]


def test_where_names_differ_the_description_tells_groups_of_the_same_ranks_apart() -> None:
    groups = resolved(
        rank(
            0,
            call(group="a"),
            groups=[group("0", 0, 1), group("a", 0, 1, description="dp"), group("b", 0, 1, description="ep")],
        ),
        rank(
            1,
            call(group="y"),
            groups=[group("0", 0, 1), group("x", 0, 1, description="ep"), group("y", 0, 1, description="dp")],
        ),
    )
    assert len(groups.rows) == 3
    assert groups.of_call[0] == groups.of_call[1]


def test_where_nothing_else_differs_their_order_does() -> None:
    groups = resolved(
        rank(0, call(group="a"), groups=[group("0", 0, 1), group("a", 0, 1), group("b", 0, 1)]),
        rank(1, call(group="x"), groups=[group("0", 0, 1), group("x", 0, 1), group("y", 0, 1)]),
    )
    assert len(groups.rows) == 3
    assert groups.of_call[0] == groups.of_call[1]


def test_the_default_group_has_all_ranks_where_no_list_says_so() -> None:
    listless = group("0", size=4, description="default_pg")
    groups = resolved(
        rank(0, call(), groups=[listless], world=4), rank(2, call(), groups=[listless], world=4)
    )
    assert rows(groups) == [("0", (0, 1, 2, 3))]
    assert groups.default == 0


def test_a_list_that_was_cut_is_completed_by_a_rank_that_knows_all() -> None:
    everybody = tuple(range(0, 80, 2))
    cut = f"[{', '.join(map(str, everybody[:30]))}, ...]"
    groups = resolved(
        rank(0, call(group="5", members=cut, size=40)),
        rank(78, call(group="5"), groups=[group("5", *everybody)]),
    )
    assert rows(groups) == [("5", everybody)]


def test_a_rank_that_lists_nothing_is_in_the_group_of_this_name_that_lists_it() -> None:
    groups = resolved(
        rank(0, call(group="1"), groups=[group("1", 0, 1)]),
        rank(1, call(group="1")),
        rank(2, call(group="1"), groups=[group("1", 2, 3)]),
        rank(3, call(group="1")),
    )
    assert rows(groups) == [("1", (0, 1)), ("1", (2, 3))]
    assert groups.of_call.tolist() == [0, 0, 1, 1]


def test_where_nobody_lists_ranks_those_that_use_the_name_are_the_group() -> None:
    nothing = group("")
    groups = resolved(
        *(rank(r, call(group="0"), call(group=f"tp{r // 2}"), groups=[nothing]) for r in range(4))
    )
    assert rows(groups) == [("0", (0, 1, 2, 3)), ("tp0", (0, 1)), ("tp1", (2, 3))]


def test_the_only_address_of_each_rank_is_the_group_of_all() -> None:
    groups = resolved(*(rank(r, call(group=f"9459410828444{r}"), world=2) for r in range(2)))
    assert rows(groups) == [("default_pg", (0, 1))]
    assert reasons(groups) == {"group_taken_as_default": 2}


def test_an_address_beside_the_only_group_that_is_described_is_that_group() -> None:
    groups = resolved(
        rank(0, call(group="94594108284448"), groups=[group("tp", 0, 1)]),
        rank(1, call(group="tp"), groups=[group("tp", 0, 1)]),
    )
    assert rows(groups) == [("tp", (0, 1))]
    assert groups.of_call.tolist() == [0, 0]


def test_several_addresses_on_a_rank_cannot_be_told_from_those_of_others() -> None:
    groups = resolved(
        *(
            rank(r, call(group=f"9459410828444{r}"), call(group=f"8459410828444{r}"), world=2)
            for r in range(2)
        )
    )
    assert len(set(groups.of_call.tolist())) == 4
    assert reasons(groups) == {"group_unknown": 4}


def test_a_rank_without_any_group_takes_part_in_the_group_of_all() -> None:
    groups = resolved(*(rank(r, call(group=None)) for r in range(3)))
    assert rows(groups) == [("default_pg", (0, 1, 2))]
    assert reasons(groups) == {"group_taken_as_default": 3}


def test_calls_without_a_name_are_of_the_only_group_of_their_rank_that_fits() -> None:
    mine = [group("0", 0, 1, 2, 3), group("1", 0, 1), group("2", 0, 2)]
    groups = resolved(
        rank(
            0,
            call(group=None, members="[0, 2]"),
            call(group=None, size=4),
            call(group=None, size=2),
            groups=mine,
        )
    )
    assert [groups.rows[row].name if row != UNKNOWN else "" for row in groups.of_call] == ["2", "0", ""]
    assert reasons(groups) == {"collectives_without_group": 1}


def test_a_group_that_nobody_names_is_known_by_its_ranks() -> None:
    def nameless(*members: int) -> Call:
        return call(group=None, members=str(list(members)))

    groups = resolved(
        rank(0, nameless(0, 1), nameless(0, 2)),
        rank(1, call(group="1"), groups=[group("1", 0, 1)]),
        rank(2, nameless(0, 2)),
    )
    assert rows(groups) == [("1", (0, 1)), ("", (0, 2))]
    assert groups.of_call.tolist() == [0, 1, 0, 1]


def test_waits_are_of_no_group() -> None:
    groups = resolved(rank(0, call("wait", group="", size=1), call(), groups=[group("0", 0, 1)]))
    assert groups.of_call.tolist() == [UNKNOWN, 0]


def test_what_contradicts_itself_is_told() -> None:
    groups = resolved(
        rank(0, call(members="[0, 1]"), groups=[group("0", 0, 1, 2), group("1", 0, 1, size=3)]),
        rank(3, call(group="0", members="[0, 1, 2]")),
    )
    assert reasons(groups) == {
        "group_members_differ": 1,
        "group_size_differs": 1,
        "group_without_its_rank": 1,
    }
    assert rows(groups)[0] == ("0", (0, 1, 2))


@given(st.permutations(range(6)), st.booleans())
def test_neither_the_order_of_ranks_nor_their_names_for_groups_matter(
    order: list[int], renamed: bool
) -> None:
    def one(r: int) -> RankCalls:
        own = f"{r}:" if renamed else ""
        mine = [group(f"{own}0", *range(6)), group(f"{own}1", r % 2, r % 2 + 2, r % 2 + 4)]
        return rank(r, call(group=f"{own}0"), call(group=f"{own}1"), groups=mine)

    groups = resolved(*(one(r) for r in order))
    assert [row.ranks for row in groups.rows] == [(0, 1, 2, 3, 4, 5), (0, 2, 4), (1, 3, 5)]
    assert np.array_equal(groups.of_call, [0, 1, 0, 2] * 3)
