"""Lanes of slices that partly overlap."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import perfetto, perfetto_native
from builders.job import JobBuilder
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink.converters.perfetto.timeline.drawing import assign_lanes, choose_lanes, in_half_nanoseconds
from tracelink.converters.perfetto.timeline.schema import MAX_DEPTH

Slice = tuple[int, int, int]
"""Track, start, duration."""

SLICES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 20)), max_size=40)


def lanes_of(slices: list[Slice], unclosed: Collection[int] = ()) -> list[int]:
    track, start, duration = np.array(slices, np.int64).reshape(-1, 3).T
    mask = np.isin(np.arange(len(slices)), list(unclosed))
    return assign_lanes(track, *in_half_nanoseconds(start, duration), mask).lane.tolist()


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
    none = np.zeros(len(chain), np.bool_)
    lane = assign_lanes(np.zeros(len(chain), np.int64), chain, chain + 24, none).lane
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
    assert lanes_of([]) == []


def test_each_of_many_slices_that_overlap_all_others_has_a_lane() -> None:
    count = 2000
    assert of_one_track(*((start, start + count) for start in range(count))) == list(range(count))


@given(SLICES, st.randoms())
def test_the_first_lane_with_room_is_chosen(slices: list[Slice], random: Random) -> None:
    spans = sorted((start, -start - length) for _, start, length in slices if length)
    starts, ends = [start for start, _ in spans], [-end for _, end in spans]
    gives_way = [random.random() < 0.3 for _ in spans]
    expected: list[int] = []
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        around = [before for before in range(index) if ends[before] >= end]
        number = (expected[around[-1]] if around else 0) + gives_way[index]
        while any(expected[before] == number and start < ends[before] < end for before in range(index)):
            number += 1
        expected.append(number)
    assert choose_lanes(starts, ends, gives_way) == expected


# Slices that never close.


def crossed(one: Slice, slices: list[Slice], others: list[int]) -> bool:
    """True if one of the other slices on the same track partly overlaps this one."""
    return any(one[0] == slices[other][0] and crosses(one, slices[other]) for other in others)


@given(SLICES, st.data())
def test_unclosed_slices_move_alone(slices: list[Slice], data: st.DataObject) -> None:
    closed: list[int] = []
    for index, one in enumerate(slices):
        if data.draw(st.integers(0, 3)) and not crossed(one, slices, closed):
            closed.append(index)
    unclosed = set(range(len(slices))) - set(closed)
    lane = lanes_of(slices, unclosed)
    crossing = {index for index in unclosed if crossed(slices[index], slices, closed)}
    rest = [index for index in range(len(slices)) if index not in crossing]
    assert [lane[index] for index in rest] == lanes_of([slices[index] for index in rest])
    for index in crossing:
        of_track = [other for other in rest if slices[other][0] == slices[index][0]]
        assert lane[index] > max(lane[other] for other in of_track)
        assert not any(
            lane[index] == lane[other]
            and slices[index][0] == slices[other][0]
            and crosses(slices[index], slices[other])
            for other in crossing
        )


def unfinished(built: JobBuilder, thread: int) -> int:
    """A slice without an end."""
    return built.add(thread, "unclosed", 11, UNKNOWN)


def far_beyond(built: JobBuilder, thread: int) -> int:
    """A slice with an end that cannot be right."""
    return built.add(thread, "unclosed", 11, 10**15)


def without_return(built: JobBuilder, thread: int) -> int:
    """A Python function that lasts longer than its caller, 1."""
    row = built.add(thread, "unclosed", 11, 89, EventKind.PYTHON)
    built.edge(1, Relation.CALLS, row)
    return row


@pytest.mark.parametrize("unclosed", [unfinished, far_beyond, without_return])
def test_a_slice_that_never_closes_takes_a_lane_of_its_own(
    unclosed: Callable[[JobBuilder, int], int],
) -> None:
    built = JobBuilder()
    thread = built.track()
    built.add(thread, "run", 0, 100, EventKind.PYTHON)
    built.add(thread, "enter", 10, 20, EventKind.PYTHON)
    unclosed(built, thread)
    built.add(thread, "inside enter", 12, 10)
    for number in range(5):
        built.add(thread, f"forward {number}", 40 + number * 10, 8, EventKind.PYTHON)
        built.add(thread, f"mm {number}", 41 + number * 10, 5)
    names = {built.texts.texts()[row[1]] for row in built.rows}
    expected = dict.fromkeys(names, "rank 0 thread 101") | {"unclosed": "rank 0 thread 101 (2)"}

    as_json = perfetto.write(built.build())
    threads = as_json.threads()
    native = perfetto_native.write(built.build())

    assert {one["name"]: threads[one["pid"], one["tid"]] for one in as_json.slices()} == expected
    lane = {one.name: one.track for one in native.slices}
    assert {name for name in names if lane[name] == lane["run"]} == names - {"unclosed"}
    assert as_json.reasons()["overlap"] == 1


def test_open_slices_of_a_truncated_profile_stay_around_what_they_enclose() -> None:
    built = JobBuilder()
    thread = built.track()
    for name, start, duration in (("run", 0, UNKNOWN), ("step", 10, UNKNOWN), ("mm", 20, 5), ("add", 30, 5)):
        built.add(thread, name, start, duration)
    assert set(perfetto.write(built.build()).threads().values()) == {"rank 0 thread 101"}


# Recorder entries: what is pending at the same time is not nested.


def test_recorder_entries_that_end_together_are_side_by_side() -> None:
    """A watchdog sees the end of several at once: they look like calls of each other if they are nested."""
    built = JobBuilder()
    group = built.track(TrackKind.COMMUNICATOR, 0, "", "0", "0 (dp)")
    for number, start in enumerate((0, 10, 20, 100)):
        built.add(group, f"entry {number}", start, max(100 - start, 20), EventKind.RECORD)
    native = perfetto_native.write(built.build())
    assert [one.parent for one in native.slices] == [""] * 4
    threads = perfetto.write(built.build())
    assert [threads.thread_of(event) for event in threads.slices()] == [
        "rank 0 group 0 (dp)",
        "rank 0 group 0 (dp) (2)",
        "rank 0 group 0 (dp) (3)",
        "rank 0 group 0 (dp)",
    ]


def test_very_many_recorder_entries_at_once_stay_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelink.converters.perfetto.timeline.drawing.MOST_PENDING", 2)
    built = JobBuilder()
    group = built.track(TrackKind.COMMUNICATOR, 0, "", "0")
    for start in (0, 10, 20):
        built.add(group, f"entry {start}", start, 100 - start, EventKind.RECORD)
    native = perfetto_native.write(built.build())
    assert [one.parent for one in native.slices] == ["", "entry 0", "entry 10"]
