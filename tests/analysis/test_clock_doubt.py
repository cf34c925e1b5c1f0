"""How much of being late may be a clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.journal import MS, together
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.lateness import Attendance, attendances, by_one_clock, possibly_ahead, rounds_of
from tracelink.diagnosis.participation import parts_of

NCCL = "nccl:all_reduce"
EVERY_100_MS = [[100 * number] * 3 for number in range(30)]


def attendance(journal: Journal, rank: int = 1) -> Attendance:
    parts = parts_of(journal)
    rounds = rounds_of(journal, parts, parts.created)
    (seen,) = attendances(journal, parts, rounds, parts.created, rank)
    return seen


def doubt(at: Sequence[Sequence[float]], **how: Any) -> tuple[float, bool]:
    """In ms, of rank 1."""
    ahead, surely = possibly_ahead(attendance(together(at=at, **how)))
    return round(ahead / MS, 2), surely


def late_by(delay: float, at: Sequence[Sequence[float]] = EVERY_100_MS) -> list[list[float]]:
    return [[times[0], times[1] + delay, *times[2:]] for times in at]


def moved(journal: Journal) -> list[float] | None:
    """By how much the times of each rank are corrected, in ms; from those of rank 0."""
    parts = parts_of(journal)
    created = by_one_clock(journal, parts, rounds_of(journal, parts, parts.created))
    if created is None:
        return None
    shift = [float((created - parts.created)[parts.rank == rank][0]) / MS for rank in journal.ranks.tolist()]
    return [round(one - shift[0], 2) for one in shift]


def test_a_rank_that_is_not_late_has_no_clock_that_is_ahead() -> None:
    assert doubt(EVERY_100_MS) == (0, False)
    assert doubt(late_by(-3)) == (0, False)


def test_what_is_so_in_every_round_may_be_the_clock() -> None:
    assert doubt(late_by(30)) == (30, False)


def test_what_is_so_in_most_rounds_is_not() -> None:
    at = [row for number, row in enumerate(late_by(30)) if number % 5] + EVERY_100_MS[::5]
    assert doubt(sorted(at)) == (0, False)


def test_that_others_go_on_at_once_when_it_comes_is_no_accident() -> None:
    at = [[31 * number, 31 * number + 30, 31 * number + 0.5] for number in range(30)]
    assert doubt(at) == (1, False)


def test_a_short_while_can_be_an_accident() -> None:
    at = [[9 * number, 9 * number + 8.75, 9 * number + 0.25] for number in range(30)]
    assert doubt(at) == (8.62, False)


def test_where_all_leave_at_once_by_their_clocks_these_agree() -> None:
    assert doubt(late_by(30), done=[row[0] + 31 for row in EVERY_100_MS], name=NCCL) == (0, True)


def test_where_one_leaves_later_its_clock_is_ahead() -> None:
    done = [row[0] + 50 for row in EVERY_100_MS]
    assert doubt(EVERY_100_MS, done=done, ahead={1: 30}, name=NCCL) == (30, True)


def test_few_looks_of_a_watchdog_tell_nothing() -> None:
    """All is seen at two looks, and these are not at the same time on all ranks."""
    done = [[1500 + 1500 * (number > 14) + rank * 20 for rank in range(3)] for number in range(30)]
    assert doubt(late_by(30), done=done, name=NCCL) == (30, False)


def test_clocks_that_may_agree_are_left_alone() -> None:
    assert moved(together(at=EVERY_100_MS)) is None
    assert moved(together(at=late_by(30))) is None
    assert moved(together(at=late_by(30), done=[row[0] + 31 for row in EVERY_100_MS], name=NCCL)) is None


@pytest.mark.parametrize("how", [{}, {"done": [row[0] + 50 for row in EVERY_100_MS], "name": NCCL}])
def test_clocks_by_which_ranks_leave_before_others_come_are_corrected(how: dict[str, Any]) -> None:
    assert moved(together(at=EVERY_100_MS, ahead={1: 700, 2: -9000}, **how)) == [0, -700, 9000]


def test_ranks_that_do_not_wait_for_the_end_need_no_other_clock() -> None:
    at = [
        [100 * number + 3 * burst + rank for rank in (0, 5, 1)] for number in range(10) for burst in range(6)
    ]
    assert moved(together(at=at)) is None


def test_a_single_contradiction_is_an_exception_where_recorders_see_nothing() -> None:
    at = [list(row) for row in EVERY_100_MS]
    at[7] = [700, 850, 700]
    at[8] = [800, 860, 800]
    assert moved(together(at=at)) is None


@given(st.floats(0, 200), st.floats(-200, 200))
def test_a_clock_is_never_thought_less_ahead_than_it_is(delay: float, offset: float) -> None:
    """Where recorders see the end, however late the rank comes."""
    at = [[1000 * number, 1000 * number + delay * (number % 3 > 0), 1000 * number] for number in range(30)]
    done = [max(row) + 1 for row in at]
    ahead, _ = doubt(at, done=done, ahead={1: offset}, name=NCCL)
    assert ahead >= min(offset, 0) - 0.01
    assert ahead <= max(offset, 0) + 0.01
