"""`tracelink._join.during`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink._join.during import averages
from tracelink._model.columns import NO_TIME
from tracelink._model.events import Counters, Track, TrackKind

POWER = Track(TrackKind.COUNTER, "0", "power.draw", "power.draw", 0)


def mean(samples: dict[int, float], start: int, end: int, rank: int = 0) -> float:
    """The average over a span, NaN if it is unknown."""
    counters = Counters(
        np.zeros(len(samples), np.int32),
        np.array(list(samples)),
        np.array(list(samples.values()), np.float64),
    )
    found = averages(([POWER], counters), np.array([rank], np.int32), np.array([start]), np.array([end]))
    return float(found["power_w"][0])


def test_samples_hold_until_the_next_one() -> None:
    samples = {0: 100.0, 10: 200.0, 20: 400.0}
    assert mean(samples, 0, 10) == 100
    assert mean(samples, 5, 15) == 150
    assert mean(samples, 0, 20) == 150
    assert mean(samples, 12, 12) == 200
    assert mean(samples, 20, 40) == 400


def test_there_is_no_average_outside_of_the_samples_or_on_another_rank() -> None:
    samples = {100: 100.0, 110: 200.0}
    assert np.isnan(mean(samples, 0, 99))
    assert np.isnan(mean(samples, 131, 140))
    assert np.isnan(mean(samples, 100, 110, rank=1))
    assert np.isnan(mean(samples, NO_TIME, 110))


@given(
    values=st.lists(st.integers(0, 1000), min_size=2, max_size=20),
    start=st.integers(0, 150),
    length=st.integers(1, 100),
)
def test_an_average_is_that_of_every_nanosecond(values: list[int], start: int, length: int) -> None:
    samples = {10 * index: float(value) for index, value in enumerate(values)}
    last = 10 * (len(values) - 1) + 20
    inside = [samples[min(at // 10 * 10, last - 20)] for at in range(start, start + length) if at < last]
    found = mean(samples, start, start + length)
    if inside:
        assert abs(found - np.mean(inside)) < 1e-6
