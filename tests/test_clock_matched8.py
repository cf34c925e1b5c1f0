"""A real job of eight ranks on one host, whose clocks are put wrong on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from builders.crossings import MS, earliest_leaving
from builders.data import shared
from tracelink.api import load
from tracelink.clocks.clock import Crossings, estimate_clocks
from tracelink.linking import job as across
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.columns import NO_TIME


@pytest.fixture(scope="module")
def met() -> Crossings:
    """What the job's collectives and messages say of its clocks."""
    seen: list[Crossings] = []

    def watched(crossings: Crossings, hosts: Mapping[int, str], mode: ClockMode) -> Clocks:
        seen.append(crossings)
        return estimate_clocks(crossings, hosts, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(across, "estimate_clocks", watched)
        load(shared("matched8"), jobs=1)
    (crossings,) = seen
    return crossings


def put_wrong(met: Crossings, offset: Any, drift: Any) -> tuple[Crossings, int]:
    """The crossings by clocks that are wrong by an offset in ns and a drift in ppm, and since when they drift."""
    start = min(int(time[time != NO_TIME].min()) for time in (met.entered, met.left))
    columns = met.columns()
    for name in ("entered", "left"):
        time = columns[name]
        wrong = time + offset[met.rank] + np.rint((time - start) * drift[met.rank] * 1e-6).astype(np.int64)
        columns[name] = np.where(time == NO_TIME, NO_TIME, wrong)
    return Crossings(**columns), start


def error(clock: Clock, offset: Any, drift: Any, start: int) -> float:
    """By how much the offset is wrong, in ns; outside its interval, infinitely much."""
    since = (clock.reference_ns - start - offset[0]) / (1 + drift[0] * 1e-6)
    truth = offset[clock.rank] - offset[0] + since * (drift[clock.rank] - drift[0]) * 1e-6
    assert clock.low_ns is not None
    assert clock.high_ns is not None
    return abs(clock.offset_ns - truth) if clock.low_ns <= truth <= clock.high_ns else float("inf")


@pytest.mark.parametrize("seed", range(8))
def test_wrong_clocks_are_found_within_300_microseconds(met: Crossings, seed: int) -> None:
    random = np.random.default_rng(seed)
    offset, drift = random.integers(-50 * MS, 50 * MS, 8), random.uniform(-50, 50, 8)
    recorded, start = put_wrong(met, offset, drift)
    found = estimate_clocks(recorded, dict.fromkeys(range(8), "vm"), ClockMode.COLLECTIVES)
    errors = [error(clock, offset, drift, start) for clock in found.clocks.values() if clock.rank]
    assert np.median(errors) < 0.3 * MS
    assert max(errors) < MS
    assert earliest_leaving(recorded, found.clocks) >= 0
    assert found.findings == []


def test_right_clocks_stay_right_within_what_is_reported(met: Crossings) -> None:
    found = estimate_clocks(met, dict.fromkeys(range(8), "vm"), ClockMode.COLLECTIVES)
    for clock in found.clocks.values():
        assert clock.drift_ppm == 0
        assert clock.uncertainty_ns is not None
        assert abs(clock.offset_ns) <= clock.uncertainty_ns < 2 * MS


def test_one_host_needs_no_correction(met: Crossings) -> None:
    found = estimate_clocks(met, dict.fromkeys(range(8), "vm"), ClockMode.HOST)
    assert [clock.offset_ns for clock in found.clocks.values()] == [0] * 8
    assert found.findings == []
