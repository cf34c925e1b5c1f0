"""What a user is told of a selection."""

from __future__ import annotations

import pytest

from builders.graph import START, GraphBuilder
from tracelink.errors import Finding, Severity, UsageError
from tracelink.model.events import EventKind, TrackKind
from tracelink.pipeline.selection import Selection, Stock, outcome
from tracelink.ranges import Numbers

WHOLE = Stock(0, 10, 10, 0, Numbers.of([3, 4, 5]), START, START + 2_500_000_000)
STEPS = Selection.parse(steps="3")


def stock(rank: int, kept: int, *steps: int) -> Stock:
    return Stock(rank, 1000, kept, 0, Numbers.of(steps), START + 1_000_000_000, START + 2_500_000_000)


def test_a_stock_is_what_there_was_and_what_is_left() -> None:
    built = GraphBuilder()
    track, counter = built.track(), built.track(TrackKind.COUNTER)
    built.add(track, "step 7", 10, 5, EventKind.ANNOTATION)
    built.add(track, "op", 11, 30)
    built.sample(counter, 5, 1.0)
    whole = built.build()
    nothing = GraphBuilder(tracks=list(whole.tracks)).build()
    assert Stock.of(3, whole, whole) == Stock(3, 2, 2, 1, Numbers.of([7]), START + 10, START + 41)
    assert Stock.of(3, whole, nothing) == Stock(3, 2, 0, 0, Numbers.of([7]), START + 10, START + 41)
    assert Stock.of(3, nothing, nothing) == Stock(3)


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    assert outcome(Selection.parse(window="0.."), [WHOLE], START) == []


def test_how_many_events_of_the_job_are_left_out() -> None:
    assert outcome(STEPS, [stock(0, 300, 3), stock(1, 200, 3)], START) == [
        Finding(Severity.INFO, "left_out", "1,500 of 2,000 events are outside the selection.", 1500)
    ]


def test_steps_that_no_rank_has_and_those_there_are() -> None:
    absent, _ = outcome(Selection.parse(steps="1,3-9"), [stock(0, 5, 3, 4), stock(1, 5, 4, 5)], START)
    assert absent == Finding(
        Severity.WARNING, "no_such_step", "No rank has steps 1, 6-9; there are steps 3-5."
    )


def test_ranks_of_which_nothing_is_left_and_what_they_have() -> None:
    empty, _ = outcome(STEPS, [stock(0, 5, 3), stock(1, 0), stock(2, 0)], START)
    assert empty == Finding(
        Severity.WARNING,
        "nothing_selected",
        "Nothing is selected on ranks 1-2 with no annotation of a step, from 1.000000s to 2.500000s.",
        2,
    )


def test_a_rank_of_which_only_samples_are_left_is_not_empty() -> None:
    assert [found.reason for found in outcome(STEPS, [Stock(0, 10, 0, 1, Numbers.of([3]))], START)] == [
        "left_out"
    ]


@pytest.mark.parametrize(
    ("stocks", "supply"),
    [
        ([stock(0, 0, 4, 5), stock(1, 0, 5)], "ranks 0-1 with steps 4-5, from 1.000000s to 2.500000s"),
        ([Stock(4, 10)], "rank 4 with no annotation of a step and no times"),
    ],
)
def test_a_selection_of_nothing_is_refused_with_what_there_is(stocks: list[Stock], supply: str) -> None:
    with pytest.raises(UsageError) as error:
        outcome(STEPS, stocks, START)
    assert str(error.value) == f"nothing is selected. There is: {supply}."
