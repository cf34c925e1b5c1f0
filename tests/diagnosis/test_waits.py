"""Package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from builders.told import diagnosed

THREE = [0, 1, 2]


def standings(ranks: Mapping[int, str], **how: Sequence[int]) -> list[str]:
    return [
        f"{one.group}{one.sequence or ''} {one.stage}: {' '.join(map(str, one.ranks))}"
        for one in diagnosed(ranks, **how).standings
    ]


def test_all_finished_the_same() -> None:
    assert standings({0: "a1", 1: "a1", 2: "a1"}, a=THREE) == ["a1 finished: 0 1 2"]


def test_one_did_not_join_the_next() -> None:
    assert standings({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=THREE) == ["a1 finished: 2", "a2 waiting: 0 1"]


def test_whoever_queued_more_stands_at_the_first_that_is_not_finished() -> None:
    assert standings({0: "a1 a2! a3! a4!", 1: "a1 a2! a3!", 2: "a1"}, a=THREE) == [
        "a1 finished: 2",
        "a2 waiting: 0 1",
    ]


def test_one_took_no_part_and_of_one_there_is_no_dump() -> None:
    assert standings({0: "a1!", 1: "b1"}, a=THREE, b=[1]) == [
        "a never_joined: 1",
        "a unknown: 2",
        "a1 waiting: 0",
        "b1 finished: 1",
    ]


def test_on_gloo_what_was_retired_while_somebody_was_missing_is_waited_in() -> None:
    assert standings({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=THREE) == [
        "a1 finished: 2",
        "a2 waiting: 0 1",
    ]
