"""Robust slopes."""

from __future__ import annotations

import numpy as np
import pytest

from tracelink._match.lines import Slopes


def slope_of(time: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    slope, doubt = Slopes(np.zeros(len(time), np.int64), time, 1).of(values)
    return float(slope[0]), float(doubt[0])


def test_outliers_do_not_tilt_a_slope() -> None:
    time = np.arange(200.0)
    values = 3 * time
    values[[7, 60, 61, 150]] = 1e6
    assert slope_of(time, values) == (pytest.approx(3), pytest.approx(0, abs=1e-9))


def test_each_clock_has_its_own_slope_and_none_has_none() -> None:
    clock = np.array([0, 2] * 20)
    time = np.repeat(np.arange(20.0), 2)
    slope, doubt = Slopes(clock, time, 3).of(np.where(clock == 0, 5 * time, -time))
    assert slope.tolist() == [5, 0, -1]
    assert doubt.tolist() == [0, np.inf, 0]


def test_few_points_say_nothing_for_certain() -> None:
    time = np.arange(4.0)
    assert slope_of(time, time) == (1, np.inf)


def test_few_points_scatter_as_those_of_other_clocks() -> None:
    random = np.random.default_rng(1)
    clock = np.repeat([0, 1], [40, 3])
    time = np.concatenate([np.arange(40.0), [0.0, 20.0, 39.0]])
    slope, doubt = Slopes(clock, time, 2).of(2 * time + random.normal(0, 1, len(time)))
    assert (np.abs(slope - 2) < doubt).all()
    assert 0.05 < doubt[1] < 1


def test_bursts_of_points_tell_a_slope_by_their_distance() -> None:
    random = np.random.default_rng(2)
    time = (np.arange(4)[:, None] * 1e9 + np.arange(12) * 1e4).ravel()
    slope, doubt = slope_of(time, 20e-6 * time + random.normal(0, 2000, len(time)))
    assert abs(slope - 20e-6) < doubt < 1.5e-6


def test_the_true_slope_is_within_the_doubt_nearly_always() -> None:
    random = np.random.default_rng(0)
    clock, time = np.repeat(np.arange(400), 60), np.tile(np.arange(60.0), 400)
    slope, doubt = Slopes(clock, time, 400).of(2 * time + random.normal(0, 10, len(time)))
    assert np.count_nonzero(np.abs(slope - 2) > doubt) <= 6
    assert np.median(doubt) < 0.5
