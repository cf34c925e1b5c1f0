"""What counters show, out of changes; and which samples are kept of too many."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.timeline import derived as module
from tracelink.converters.perfetto.timeline.derived import FEW, Levels, levels_of, thinned

Samples = list[tuple[int, int, int]]
"""Counter, time and value."""

CHANGES = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), st.integers(-2, 2)), max_size=30)


def columns(samples: Samples) -> Any:
    return np.array(samples, np.int64).reshape(-1, 3).T


def samples(levels: Levels) -> Samples:
    return list(zip(levels.counter.tolist(), levels.time.tolist(), levels.value.tolist(), strict=True))


def shown(changes: Samples) -> Samples:
    """What counters show after these changes."""
    return samples(levels_of(*columns(changes)))


def test_a_counter_shows_the_sum_of_its_changes() -> None:
    assert shown([(0, 10, 1), (1, 15, 5), (0, 20, 1), (0, 30, -1), (0, 40, -1)]) == [
        *((0, 10, 1), (0, 20, 2), (0, 30, 1), (0, 40, 0)),
        (1, 15, 5),
    ]


def test_of_changes_at_one_time_only_the_sum_is_seen() -> None:
    assert shown([(0, 10, 1), (0, 20, -1), (0, 20, 1), (0, 30, -1), (1, 30, 1), (1, 30, -1)]) == [
        *((0, 10, 1), (0, 30, 0)),
    ]


@given(CHANGES)
def test_every_sample_is_a_sum_and_none_repeats_what_is_shown(changes: Samples) -> None:
    expected = []
    for counter in range(4):
        value = 0
        for time in range(-5, 6):
            change = sum(by for of, at, by in changes if (of, at) == (counter, time))
            value += change
            if change:
                expected.append((counter, time, value))
    assert shown(changes) == expected


def zigzag(count: int, counter: int = 0) -> Samples:
    """Every sample is higher or lower than those before and after it."""
    return [(counter, time, 1 + time * 7919 % 1000 + 1000 * (time % 2)) for time in range(count)]


def fewer(given: Samples, events: int = 0) -> Samples:
    return samples(thinned(Levels(*columns(given)), events))


@pytest.mark.parametrize(("count", "events"), [(0, 0), (FEW, 0), (FEW + 1, 32 * (FEW + 1))])
def test_few_samples_beside_many_events_are_all_kept(count: int, events: int) -> None:
    assert fewer(zigzag(count), events) == zigzag(count)


def test_of_too_many_no_more_are_kept_than_are_worth_it_and_they_span_the_same() -> None:
    given = zigzag(100_000)
    kept = fewer(given)
    assert FEW // 2 < len(kept) <= FEW
    assert set(kept) <= set(given)
    assert kept[-1] == given[-1]
    values = [value for *_, value in given]
    assert {min(values), max(values)} <= {value for *_, value in kept}


def test_a_counter_with_few_samples_keeps_them_beside_one_with_many() -> None:
    kept = fewer(zigzag(10) + zigzag(100_000, counter=1))
    assert [one for one in kept if one[0] == 0] == zigzag(10)
    assert len(kept) <= FEW


def test_counters_for_which_there_is_no_room_keep_where_they_end() -> None:
    given = [one for counter in range(FEW) for one in zigzag(4, counter)]
    kept = fewer(given)
    assert [one for one in kept if one[1] == 3] == [one for one in given if one[1] == 3]
    assert len(kept) <= 3 * FEW


@given(CHANGES, st.integers(1, 12))
def test_a_thinned_counter_ends_as_before_with_its_extremes_and_without_repeats(
    changes: Samples, room: int
) -> None:
    given = shown(changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", room)
        kept = fewer(given)
    assert set(kept) <= set(given)
    for counter, some in groupby(given, key=lambda one: one[0]):
        whole, left = list(some), [one for one in kept if one[0] == counter]
        values, left_values = ([0, *(value for *_, value in those)] for those in (whole, left))
        assert (min(left_values), max(left_values)) == (min(values), max(values))
        assert left_values[-1] == values[-1]
        assert all(one != other for one, other in pairwise(left_values))
