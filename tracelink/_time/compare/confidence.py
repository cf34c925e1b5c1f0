"""How certain a change of an average is, by the variation between steps (Welch's interval)."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from tracelink._model.columns import Float64s

LEAST_STEPS = 3
"""Steps on each side below which the variation is not known."""
CONFIDENCE = 0.95


def change_interval(before: Float64s, after: Float64s) -> tuple[float, float] | None:
    """Between which values the change of the mean is; None with too few values."""
    if min(len(before), len(after)) < LEAST_STEPS:
        return None
    delta = float(after.mean() - before.mean())
    parts = [float(values.var(ddof=1)) / len(values) for values in (before, after)]
    variance = sum(parts)
    if variance <= 0:
        return delta, delta
    freedom = variance**2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (before, after), strict=True)
    )
    reach = student_quantile((1 + CONFIDENCE) / 2, max(freedom, 1.0)) * math.sqrt(variance)
    return delta - reach, delta + reach


def student_quantile(share: float, freedom: float) -> float:
    """A quantile of Student's t distribution, by bisection of its distribution function."""
    low, high = 0.0, 1.0
    while _student(high, freedom) < share:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, freedom) < share else (low, middle)
    return high


POINTS = 2001
NORMAL_FROM = 200.0
"""Degrees of freedom from which the normal distribution is as good."""


def _student(value: float, freedom: float) -> float:
    """The distribution function for values from 0, by Simpson's rule over the angle."""
    if freedom > NORMAL_FROM:
        return NormalDist().cdf(value)
    angle = np.linspace(0.0, math.atan(value / math.sqrt(freedom)), POINTS)
    weights = np.ones(POINTS)
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    density = np.cos(angle) ** (freedom - 1)
    area = float((weights * density).sum() * (angle[1] - angle[0]) / 3)
    logs = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return 0.5 + area * math.exp(logs) / math.sqrt(math.pi)
