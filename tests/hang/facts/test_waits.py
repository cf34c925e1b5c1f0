"""Standings of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from builders.programs import diagnosis_of_programs

THREE = [0, 1, 2]


def standings(ranks: Mapping[int, str], **how: Sequence[int]) -> list[str]:
    return [
        f"{one.group}{one.sequence or ''} {one.stage}: {' '.join(map(str, one.ranks))}"
        for one in diagnosis_of_programs(ranks, **how).standings
    ]


def test_all_finished() -> None:
    assert standings({0: "a1", 1: "a1", 2: "a1"}, a=THREE) == ["a1 finished: 0 1 2"]


def test_one_missing_rank() -> None:
    assert standings({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=THREE) == ["a1 finished: 2", "a2 waiting: 0 1"]


def test_first_unfinished_collective_counts() -> None:
    assert standings({0: "a1 a2! a3! a4!", 1: "a1 a2! a3!", 2: "a1"}, a=THREE) == [
        "a1 finished: 2",
        "a2 waiting: 0 1",
    ]


def test_never_joined_and_missing_dump() -> None:
    assert standings({0: "a1!", 1: "b1"}, a=THREE, b=[1]) == [
        "a never_joined: 1",
        "a unknown: 2",
        "a1 waiting: 0",
        "b1 finished: 1",
    ]


def test_gloo_retired_with_a_missing_rank() -> None:
    assert standings({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=THREE) == [
        "a1 finished: 2",
        "a2 waiting: 0 1",
    ]


def test_a_rank_about_to_leave_a_collective_waits_if_it_has_called_the_next_one() -> None:
    assert standings({0: "a1! a2!", 1: "a1!", 2: "a1"}, a=THREE) == [
        "a1 ending: 1",
        "a1 finished: 2",
        "a1 waiting: 0",
    ]
