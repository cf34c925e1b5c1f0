"""Who arrived last, and what that cost the others."""

from __future__ import annotations

from builders.job import JobBuilder
from tracelink._model.columns import UNKNOWN
from tracelink._model.job import LinkedJob
from tracelink._time.collectives.listing import arrivals, lost_time


def job() -> LinkedJob:
    """Three ranks: 2 comes last twice, 1 once, nobody once; and a call of which nothing is known."""
    built = JobBuilder()
    world, pair = built.group(0, 1, 2, name="world"), built.group(0, 1, name="pair")
    built.collective(world, {0: (0, 50), 1: (10, 50), 2: (30, 50)})
    built.collective(world, {0: (100, 150), 1: (100, 150), 2: (105, 150)})
    built.collective(pair, {0: (200, 250), 1: (207, 250)})
    built.collective(pair, {0: (300, 350), 1: (300, 350)})
    built.unmatched(world, 2)
    return built.job()


def test_arrivals() -> None:
    made = job()
    counted = arrivals(made.collectives, made.participations)
    assert {name: column.tolist() for name, column in counted.columns().items()} == {
        "rank": [0, 1, 2],
        "collectives": [3, 3, 2],
        "last": [0, 1, 2],
        "waited": [30 + 5 + 7, 20 + 5 + 0, 0],
        "waited_for": [0, 7, 30 + 20 + 5 + 5],
    }


def test_lost_time() -> None:
    made = job()
    assert lost_time(made.collectives, made.participations).tolist() == [50, 10, 7, 0, UNKNOWN]


def test_no_collectives() -> None:
    nothing = JobBuilder().job()
    assert len(arrivals(nothing.collectives, nothing.participations)) == 0
    assert len(lost_time(nothing.collectives, nothing.participations)) == 0
