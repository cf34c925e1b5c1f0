"""Aligning the calls of several ranks in one group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.calls import call, group, rank, told
from builders.calls import linked as matched
from tracelink._match.job import JobTables
from tracelink._model.clock import ClockMode
from tracelink._model.communications import RankCalls

MS = 1_000_000


def ranks_of(*done: Iterable[dict[str, Any]]) -> list[RankCalls]:
    world = [group("0", *range(len(done)))]
    return [rank(r, *calls, groups=world) for r, calls in enumerate(done)]


def linked(*done: Iterable[dict[str, Any]]) -> JobTables:
    return matched(ranks_of(*done), ClockMode.NONE)


def sized(sizes: str) -> list[dict[str, Any]]:
    """One collective for each letter, told apart by size; nothing says when."""
    return [call(elements=ord(letter)) for letter in sizes]


def timed(
    sizes: str, times: Sequence[int], offset: int = 0, lost: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """One collective for each letter, that ends then; `kernel` is its true place. The clock shows `offset` more."""
    gone = set(lost)
    return [
        call(elements=ord(letter), start=time + offset - 20_000, end=time + offset, kernel=place)
        for place, (letter, time) in enumerate(zip(sizes, times, strict=True))
        if place not in gone
    ]


def members(tables: JobTables) -> list[tuple[list[int], str]]:
    return [(ranks, verdict) for _, _, _, ranks, verdict in told(tables)]


def true_places(tables: JobTables) -> list[list[int]]:
    """The true places of the calls that were taken for one collective."""
    parts = tables.participations
    return [
        sorted(set(parts.kernel[parts.collective == row].tolist())) for row in range(len(tables.collectives))
    ]


def test_what_one_rank_lacks_shifts_nothing() -> None:
    everything, both = ([0, 1, 2], "complete"), [0, 2]
    assert members(linked(sized("abcd"), sized("bcd"), sized("abcd")))[0] == (both, "partial")
    assert members(linked(sized("abcd"), sized("acd"), sized("abcd"))) == [
        everything,
        (both, "missing"),
        everything,
        everything,
    ]
    assert members(linked(sized("abcd"), sized("abc"), sized("abcd")))[3] == (both, "partial")


def test_the_first_rank_can_be_the_one_that_lacks_something() -> None:
    assert [ranks for ranks, _ in members(linked(sized("bd"), sized("abcd"), sized("abc")))] == [
        [1, 2],
        [0, 1, 2],
        [1, 2],
        [0, 1],
    ]


def test_a_rank_can_do_what_no_other_did() -> None:
    assert members(linked(sized("ab"), sized("axb")))[1] == ([1], "missing")


def test_without_times_one_of_a_run_of_equal_ones_is_not_guessed() -> None:
    tables = linked(sized("aabaaa"), sized("aabaa"))
    assert [ranks for ranks, verdict in members(tables) if verdict == "complete"] == [[0, 1]] * 3
    assert [ranks for ranks, verdict in members(tables) if verdict == "unmatched"] == [[1], [1]]
    assert [ranks for ranks, verdict in members(tables) if verdict == "partial"] == [[0]] * 3
    (finding,) = tables.findings
    assert (finding.reason, finding.count) == ("ambiguous_collectives", 2)
    assert "Group 0" in finding.message
    assert "rank 1" in finding.message


IRREGULAR = [10, 13, 19, 22, 31, 33, 42, 47, 55, 61, 62, 70]


def test_times_tell_which_one_of_a_run_of_equal_ones_is_missing() -> None:
    times = [time * MS for time in IRREGULAR]
    for lost in range(12):
        tables = linked(timed("a" * 12, times), timed("a" * 12, times, 40 * MS, [lost]))
        assert true_places(tables) == [[place] for place in range(12)]
        assert [len(ranks) for ranks, _ in members(tables)] == [2 - (place == lost) for place in range(12)]


def test_a_profile_that_began_a_step_later_is_not_taken_for_one_that_did_not() -> None:
    times = [time * MS for time in IRREGULAR]
    tables = linked(
        timed("abc" * 4, times, lost=(9, 10, 11)), timed("abc" * 4, times, 7 * MS, lost=(0, 1, 2))
    )
    assert true_places(tables) == [[place] for place in range(12)]
    assert [len(ranks) for ranks, _ in members(tables)] == [1] * 3 + [2] * 6 + [1] * 3


def test_steps_as_regular_as_a_clock_are_those_of_the_clocks_that_agree_best() -> None:
    times = [place * MS for place in range(24)]
    tables = linked(timed("abc" * 8, times), timed("abc" * 8, times, 5 * MS))
    assert true_places(tables) == [[place] for place in range(24)]


def test_what_cannot_have_been_at_the_same_time_is_not_the_same() -> None:
    times = [time * MS for time in IRREGULAR]
    tables = linked(timed("abc" * 4 + "x", [*times, 100 * MS]), timed("abc" * 4 + "x", [*times, 300 * MS]))
    assert [ranks for ranks, _ in members(tables)] == [[0, 1]] * 12 + [[0], [1]]


def test_numbers_that_some_ranks_have_order_all() -> None:
    numbered = [call(elements=size, sequence=number) for number, size in enumerate(b"aabba", 4)]
    tables = linked(numbered[1:], sized("aabba"), numbered[:4])
    assert [(number, len(ranks)) for _, number, _, ranks, _ in told(tables)] == [
        (4, 2),
        (5, 3),
        (6, 3),
        (7, 3),
        (8, 2),
    ]


def test_calls_between_numbered_ones_are_those_between() -> None:
    mixed = sized("aaaa")
    mixed[1] |= {"sequence": 2}
    mixed[2] |= {"sequence": 3}
    numbered = [call(elements=ord("a"), sequence=number) for number in (1, 2, 3, 4)]
    assert [ranks for ranks, _ in members(linked(numbered, mixed))] == [[0, 1]] * 4


def test_what_most_do_under_a_number_is_what_others_are_matched_with() -> None:
    numbered = [call(elements=ord("a"), sequence=1), call(elements=ord("b"), sequence=2)]
    odd = [call("broadcast", elements=ord("c"), sequence=1), call(elements=ord("b"), sequence=2)]
    tables = linked(odd, numbered, numbered, sized("ab"))
    assert members(tables) == [([0, 1, 2, 3], "mismatch"), ([0, 1, 2, 3], "complete")]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, list[int], list[tuple[int, set[int]]]]:
    """Repeated steps with irregular pauses; for each rank what its clock shows more, and what it lost."""
    step = draw(st.text("abc", min_size=3, max_size=5))
    steps = draw(st.integers(4, 8))
    length = len(step) * steps
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    times = np.cumsum(random.integers(MS, 9 * MS, length)).tolist()
    ranks = []
    for _ in range(draw(st.integers(2, 4))):
        begin = draw(st.integers(0, length - 1))
        run = draw(st.integers(0, len(step) + 1))
        single = draw(st.sets(st.integers(0, length - 1), max_size=2))
        ranks.append((draw(st.integers(-50, 50)) * MS, {*range(begin, min(begin + run, length)), *single}))
    return step * steps, times, ranks


@settings(max_examples=200)
@given(jobs())
def test_two_different_collectives_are_never_taken_for_one(
    job: tuple[str, list[int], list[tuple[int, set[int]]]],
) -> None:
    letters, times, ranks = job
    tables = linked(*(timed(letters, times, offset, lost) for offset, lost in ranks))
    assert all(len(places) == 1 for places in true_places(tables))
    kept = sum(len(letters) - len(lost) for _, lost in ranks)
    assert len(tables.participations) == kept


LOST = st.sets(st.integers(0, 19))


@given(st.permutations(range(20)), LOST, LOST)
def test_distinct_collectives_find_each_other_whatever_ranks_lost_if_one_has_all(
    sizes: list[int], some: set[int], others: set[int]
) -> None:
    lost = [some, set(), others]
    tables = linked(
        *(
            [call(elements=size, kernel=size) for place, size in enumerate(sizes) if place not in gone]
            for gone in lost
        )
    )
    assert true_places(tables) == [[size] for size in sizes]
    assert [ranks for ranks, _ in members(tables)] == [
        [rank for rank, gone in enumerate(lost) if place not in gone] for place in range(20)
    ]
