"""Lanes of slices that partly overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.perfetto.timeline import drawing as lanes
from tracelink.converters.perfetto.timeline.drawing import assign_lanes, in_half_nanoseconds
from tracelink.converters.perfetto.timeline.schema import MAX_DEPTH

Slice = tuple[int, int, int]
"""Track, start, duration."""

SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 20)), max_size=40)


def lanes_of(slices: list[Slice]) -> list[int]:
    track, start, duration = np.array(slices, np.int64).reshape(-1, 3).T
    return assign_lanes(track, *in_half_nanoseconds(start, duration)).lane.tolist()


def of_one_track(*spans: tuple[int, int]) -> list[int]:
    return lanes_of([(0, start, end - start) for start, end in spans])


def crosses(one: Slice, other: Slice) -> bool:
    (_, start, length), (_, later, reach) = sorted([one, other], key=lambda s: (s[1], -s[2]))
    return start < later < start + length < later + reach


@given(SLICES)
def test_slices_of_one_lane_nest_or_are_disjoint(slices: list[Slice]) -> None:
    lane = lanes_of(slices)
    assert len(lane) == len(slices)
    for index, one in enumerate(slices):
        for place, other in enumerate(slices[:index]):
            if one[0] == other[0] and lane[index] == lane[place]:
                assert not crosses(one, other)


@given(SLICES)
def test_lanes_of_a_track_are_numbered_without_gaps(slices: list[Slice]) -> None:
    used = {(track, lane) for (track, _, _), lane in zip(slices, lanes_of(slices), strict=True)}
    assert all(lane == 0 or (track, lane - 1) in used for track, lane in used)


@given(SLICES)
def test_slices_that_cross_nothing_stay_with_what_they_are_in(slices: list[Slice]) -> None:
    """Whoever crosses no one shares the lane of the innermost slice around, or has the first."""
    lane = lanes_of(slices)
    distinct = {one for one in slices if slices.count(one) == 1}
    for index, one in enumerate(slices):
        track, start, length = one
        alike = [other for other in slices if other[0] == track and other != one]
        if one not in distinct or any(crosses(one, other) for other in alike):
            continue
        if any(crosses(a, b) for a in alike for b in alike if touches(a, one) and touches(b, one)):
            continue
        around = [o for o in alike if o[1] <= start < o[1] + o[2] and start + length <= o[1] + o[2]]
        inner = min(around, key=lambda o: (o[2], -o[1]), default=None)
        if inner is not None and inner not in distinct:
            continue
        assert lane[index] == (0 if inner is None else lane[slices.index(inner)])


def touches(one: Slice, other: Slice) -> bool:
    return one[1] <= other[1] + other[2] and other[1] <= one[1] + one[2]


def test_what_nests_or_touches_shares_the_lane() -> None:
    assert of_one_track((0, 10), (0, 4), (4, 10), (10, 20), (10, 20)) == [0, 0, 0, 0, 0]


def test_an_overlap_of_one_nanosecond_parts_two_slices() -> None:
    assert of_one_track((0, 11), (10, 20), (19, 30), (29, 40)) == [0, 1, 0, 1]


def test_kernels_that_overlap_in_a_long_chain_take_turns_on_two_lanes() -> None:
    chain = np.arange(100_000) * 20
    lane = assign_lanes(np.zeros(len(chain), np.int64), chain, chain + 24).lane
    assert lane.tolist() == [0, 1] * 50_000


def test_a_slice_without_length_inside_another_is_no_overlap() -> None:
    assert of_one_track((0, 10), (5, 5), (10, 10), (0, 0)) == [0, 0, 0, 0]


def test_the_lighter_of_two_makes_way_with_all_that_is_in_it() -> None:
    frame_enters, inside_frame, annotation = (0, 12), (2, 4), (10, 90)
    children = [(20, 30), (40, 50), (60, 70)]
    frame_exits, inside_exit = (85, 95), (91, 93)
    assert of_one_track(frame_enters, inside_frame, annotation, *children, frame_exits, inside_exit) == [
        1,
        1,
        0,
        0,
        0,
        0,
        1,
        1,
    ]


def test_other_tracks_are_left_alone() -> None:
    assert lanes_of([(0, 0, 10), (1, 5, 10), (0, 5, 10)]) == [0, 0, 1]


def test_one_that_moves_onto_the_lane_of_a_follower_makes_all_choose() -> None:
    spans = [(0, 24), (2, 20), (4, 28), (4, 24), (6, 26), (16, 34), (20, 40)]
    lane = of_one_track(*spans)
    slices = [(0, start, end - start) for start, end in spans]
    assert not any(crosses(slices[i], slices[j]) for i in range(7) for j in range(i) if lane[i] == lane[j])


def test_slices_too_deep_for_the_engine_go_on_in_a_further_lane() -> None:
    depth = 2 * MAX_DEPTH + 1
    spans = [(index, 5000 - index) for index in range(depth)]
    assert of_one_track(*spans) == [index // MAX_DEPTH for index in range(depth)]


def test_spans_too_long_to_share_a_line_are_compared_by_order() -> None:
    far = 1 << 60
    assert lanes_of([(7, 0, far), (7, far - 1, 2), (7, 5, 10)]) == [0, 1, 0]


def test_nothing_has_no_lanes() -> None:
    assert lanes.assign_lanes(*np.empty((3, 0), np.int64)).lane.tolist() == []
