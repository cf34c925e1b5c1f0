"""Tests of tracelink._time.compare.confidence."""

from __future__ import annotations

import numpy as np
import pytest

from tracelink._time.compare.confidence import change_interval, student_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (100, 1.984), (1000, 1.960)],
)
def test_quantiles_of_tables(freedom: float, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=6e-4)


def test_interval_by_hand() -> None:
    before, after = np.array([10.0, 11.0, 12.0]), np.array([20.0, 22.0, 24.0])
    # variances 1 and 4: error sqrt(5/3) = 1.291; Welch's freedom (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.941
    assert change_interval(before, after) == pytest.approx((11 - 4.155, 11 + 4.155), abs=0.01)


def test_unknown_with_two_steps() -> None:
    assert change_interval(np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0])) is None


def test_steps_without_variation_are_certain() -> None:
    assert change_interval(np.full(3, 5.0), np.full(4, 7.0)) == (2.0, 2.0)
