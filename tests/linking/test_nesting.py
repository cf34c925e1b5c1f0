"""Callers and callees by nesting of intervals."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders.trace import TraceBuilder, column, pairs
from tracelink.linking.nesting import link_calls, nest, sort_outer_first
from tracelink.model.events import EventKind, TrackKind

INTERVALS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6)).map(
        lambda t: (t[0], t[1], t[1] + t[2])
    )
)


def test_the_innermost_event_around_another_calls_it() -> None:
    build = TraceBuilder()
    outer = build.op("aten::linear", 0, 100)
    inner = build.op("aten::addmm", 10, 90)
    launch = build.event(EventKind.RUNTIME, "cudaLaunchKernel", 20, 30)
    later = build.op("aten::relu", 100, 120)

    links = link_calls(build.build())

    assert pairs(links.edges) == [(outer, inner), (inner, launch)]
    assert (links.report.linked, links.report.candidates) == (2, 2)
    assert links.report.notes == {"outermost": 2}
    assert later not in links.edges.target


def test_events_that_touch_do_not_call_each_other() -> None:
    build = TraceBuilder()
    build.op("first", 0, 10)
    build.op("second", 10, 20)
    assert pairs(link_calls(build.build()).edges) == []


def test_a_shorter_event_of_the_same_start_is_inside() -> None:
    build = TraceBuilder()
    child = build.op("child", 0, 5)
    parent = build.op("parent", 0, 9)
    assert pairs(link_calls(build.build()).edges) == [(parent, child)]


def test_of_equal_intervals_python_is_outside_annotations_outside_operators() -> None:
    build = TraceBuilder()
    operator = build.op("aten::mm", 0, 5)
    annotation = build.event(EventKind.ANNOTATION, "step", 0, 5)
    frame = build.event(EventKind.PYTHON, "train.py(3): step", 0, 5)
    assert pairs(link_calls(build.build()).edges) == sorted([(frame, annotation), (annotation, operator)])


def test_threads_do_not_nest_in_each_other() -> None:
    build = TraceBuilder()
    other = build.track(TrackKind.THREAD, "101")
    build.op("main", 0, 100)
    build.op("worker", 10, 20, track=other)
    assert pairs(link_calls(build.build()).edges) == []


def test_a_crossing_event_goes_to_what_encloses_both_and_is_counted() -> None:
    build = TraceBuilder()
    outer = build.op("outer", 0, 100)
    first = build.op("first", 10, 50)
    crossing = build.op("crossing", 40, 60)
    inside = build.op("inside", 41, 45)

    links = link_calls(build.build())

    assert pairs(links.edges) == [(outer, first), (outer, crossing), (crossing, inside)]
    assert links.report.notes == {"outermost": 1, "overlapping": 1}


def test_a_crossing_event_without_anything_around_it_is_not_linked_and_says_why() -> None:
    build = TraceBuilder()
    build.op("first", 0, 50)
    build.op("crossing", 40, 60)
    report = link_calls(build.build()).report
    assert (report.linked, report.candidates) == (0, 1)
    assert report.unlinked == {"overlaps the event it starts in": 1}


def test_python_frames_follow_their_ids() -> None:
    build = TraceBuilder()
    caller = build.event(EventKind.PYTHON, "a.py(1): f", 0, 50, python_id=1)
    build.event(EventKind.PYTHON, "a.py(9): sibling", 5, 40, python_id=2, python_parent=1)
    callee = build.event(EventKind.PYTHON, "a.py(5): g", 10, 30, python_id=3, python_parent=1)
    links = link_calls(build.build())
    assert (caller, callee) in pairs(links.edges)
    assert links.report.notes["Python parent by id instead of by time"] == 1


@given(INTERVALS)
def test_nesting_is_what_comparing_every_pair_gives(intervals: list[tuple[int, int, int]]) -> None:
    track, start, end = (column([interval[part] for interval in intervals]) for part in range(3))
    order = sort_outer_first(track, start, end, column([0] * len(intervals)))
    expected_order = sorted(range(len(intervals)), key=lambda i: (track[i], start[i], -end[i], i))
    assert order.tolist() == expected_order

    track, start, end = track[order], start[order], end[order]
    nesting = nest(track, start, end)

    for i in range(len(intervals)):
        before = [j for j in range(i) if track[j] == track[i]]
        parent = max((j for j in before if end[j] >= end[i]), default=-1)
        assert nesting.parent[i] == parent
        assert nesting.overlaps[i] == any(end[j] > start[i] for j in before if j > parent)
