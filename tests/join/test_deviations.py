"""`tracelink._join.deviations`: synthetic GPUs, of which some are slow, hot or idle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._join.deviations import deviating
from tracelink._model.columns import SECOND
from tracelink._model.events import Counters, Track, TrackKind

CLOCK, POWER, TEMPERATURE = "clocks.current.sm", "power.draw", "temperature.gpu"


def job(
    levels: dict[str, list[float]], noise: float = 0.0, samples: int = 60
) -> tuple[list[Track], Counters]:
    """A sample of each GPU each second: the level of its rank, with noise and some dips."""
    random = np.random.default_rng(7)
    tracks: list[Track] = []
    parts = []
    for name, of_ranks in levels.items():
        for rank, level in enumerate(of_ranks):
            values = level * (1 + noise * random.uniform(-1, 1, samples))
            values[:: samples // 4] = 0
            time = 1_800_000_000 * SECOND + np.arange(samples) * SECOND
            parts.append(Counters(np.full(samples, len(tracks), np.int32), time, values))
            tracks.append(Track(TrackKind.COUNTER, str(rank), name, name, rank))
    return tracks, Counters.concatenate(parts)


def messages(levels: dict[str, list[float]], noise: float = 0.0) -> list[str]:
    return [finding.message for finding in deviating(*job(levels, noise))]


def test_a_slow_gpu_among_eight_is_named_with_both_clocks() -> None:
    assert messages({CLOCK: [1980, 1980, 1980, 1100, 1980, 1980, 1980, 1980]}) == [
        "Rank 3's GPU runs at 1,100 MHz, the others at 1,980 MHz (medians)."
    ]


def test_several_slow_gpus_are_one_finding() -> None:
    assert messages({CLOCK: [1100, 1110, *[1980] * 6]}) == [
        "The GPUs of ranks 0 and 1 run at 1,100 to 1,110 MHz, the others at 1,980 MHz (medians)."
    ]


def test_a_hot_gpu_that_draws_less_power_and_runs_slower() -> None:
    assert messages({CLOCK: [1980, 1980, 1410], POWER: [640, 650, 400], TEMPERATURE: [61, 63, 92]}) == [
        "Rank 2's GPU runs at 1,410 MHz, the others at 1,980 MHz (medians).",
        "Rank 2's GPU draws 400 W, the others 640 to 650 W (medians).",
        "Rank 2's GPU is at 92 °C, the others at 61 to 63 °C (medians).",
    ]


@pytest.mark.parametrize(
    "clocks",
    [
        [1980] * 8,
        [1980, 1900, 1850, 1800],
        [1980, 1790],
        [1100],
        [1980, 1700, 1400, 1100],
        [1100, 1100, 1980, 1980],
        [2400, *[1980] * 7],
    ],
    ids=["equal", "near", "two near", "alone", "spread", "halves", "one faster"],
)
def test_no_gpu_is_named_that_is_within_the_spread_of_the_others(clocks: list[float]) -> None:
    assert messages({CLOCK: clocks}) == []


def test_of_two_gpus_the_slower_one_is_named() -> None:
    assert messages({CLOCK: [1100, 1980]}) == [
        "Rank 0's GPU runs at 1,100 MHz, the other at 1,980 MHz (medians)."
    ]


@given(
    slow=st.integers(0, 15),
    share=st.floats(0.3, 0.8),
    noise=st.floats(0, 0.04),
    ranks=st.integers(3, 16),
)
def test_the_generated_slow_gpu_is_the_one_that_is_found(
    slow: int, share: float, noise: float, ranks: int
) -> None:
    levels = [1980.0] * ranks
    levels[slow % ranks] *= share
    (finding,) = deviating(*job({CLOCK: levels}, noise))
    assert finding.message.startswith(f"Rank {slow % ranks}'s GPU runs at ")


def test_only_the_time_of_the_events_counts() -> None:
    tracks, counters = job({CLOCK: [1980, 1980, 1980]})
    late = counters.time > 1_800_000_030 * SECOND
    values = np.where(late & (counters.track == 1), 300, counters.value)
    counters = Counters(counters.track, counters.time, values)
    before = (1_800_000_000 * SECOND, 1_800_000_029 * SECOND)
    after = (1_800_000_031 * SECOND, 1_800_000_060 * SECOND)
    assert deviating(tracks, counters, before) == []
    assert [finding.count for finding in deviating(tracks, counters, after)] == [1]
