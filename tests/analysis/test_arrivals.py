"""Who comes last, counted over a job."""

from __future__ import annotations

from builders.job import JobBuilder
from tracelink.diagnosis.timeline import arrivals, lost_time
from tracelink.model.columns import UNKNOWN
from tracelink.model.job import Job


def job() -> Job:
    """Three ranks: 2 comes last twice, 1 once, nobody once; and a call of which nothing is known."""
    built = JobBuilder()
    world, pair = built.group("world", [0, 1, 2]), built.group("pair", [0, 1])
    built.collective(world, {0: (0, 50), 1: (10, 50), 2: (30, 50)})
    built.collective(world, {0: (100, 150), 1: (100, 150), 2: (105, 150)})
    built.collective(pair, {0: (200, 250), 1: (207, 250)})
    built.collective(pair, {0: (300, 350), 1: (300, 350)})
    built.unmatched(world, 2)
    return built.build()


def test_each_rank_with_how_often_it_came_last_and_who_waited_how_long() -> None:
    made = job()
    counted = arrivals(made.collectives, made.participations)
    assert {name: column.tolist() for name, column in counted.columns().items()} == {
        "rank": [0, 1, 2],
        "collectives": [3, 3, 2],
        "last": [0, 1, 2],
        "waited": [30 + 5 + 7, 20 + 5 + 0, 0],
        "waited_for": [0, 7, 30 + 20 + 5 + 5],
    }


def test_the_time_that_a_collective_costs_all_its_ranks() -> None:
    made = job()
    assert lost_time(made.collectives, made.participations).tolist() == [50, 10, 7, 0, UNKNOWN]


def test_no_collectives() -> None:
    nothing = JobBuilder().build()
    assert len(arrivals(nothing.collectives, nothing.participations)) == 0
    assert len(lost_time(nothing.collectives, nothing.participations)) == 0
