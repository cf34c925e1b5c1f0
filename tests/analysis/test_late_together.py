"""Ranks that come late together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders.journal import MS, together
from tracelink.diagnosis.lateness import LateTogether, late_together, rounds_of
from tracelink.diagnosis.participation import parts_of


def found(lags: Sequence[float], count: int = 30) -> LateTogether | None:
    """Of ranks that come so many ms after each step of 100 ms begins, and in turn a little later."""
    at = [
        [100 * step + lag + 0.1 * ((step + rank) % len(lags)) for rank, lag in enumerate(lags)]
        for step in range(count)
    ]
    journal = together(at=at)
    parts = parts_of(journal)
    return late_together(journal, parts, rounds_of(journal, parts, parts.created))


def test_ranks_of_a_slow_host_come_late_together() -> None:
    late = found([0, 1, 0, 1, 40, 41])
    assert late is not None
    assert late.ranks == (4, 5)
    assert late.lag_ns == pytest.approx(40 * MS, abs=MS)


@pytest.mark.parametrize(
    "lags",
    [
        pytest.param([0, 0, 0, 0, 0, 40], id="one alone is a straggler"),
        pytest.param([0, 0, 40, 40, 40, 40], id="most are what is usual"),
        pytest.param([0, 8, 16, 24, 32, 40], id="they come one after the other"),
        pytest.param([0, 0, 0, 0, 4, 4], id="it costs little"),
        pytest.param([0, 40], id="there are but two"),
    ],
)
def test_nobody_comes_late_together_where(lags: list[float]) -> None:
    assert found(lags) is None


def test_few_collectives_show_no_habit() -> None:
    assert found([0, 0, 0, 40, 40], count=10) is None
