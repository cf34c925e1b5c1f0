"""Callers and callees by nesting of intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import foreign, plain
from builders.kineto import read
from builders.trace import TraceBuilder, column, pairs
from tracelink._link.nesting import link_calls, nest, sort_outer_first
from tracelink._model.columns import NO_TIME
from tracelink._model.events import EventKind, Key, TrackKind

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

    links = link_calls(build.trace())

    assert pairs(links.edges) == [(outer, inner), (inner, launch)]
    assert (links.report.linked, links.report.candidates) == (2, 2)
    assert links.report.notes == {"outermost": 2}
    assert later not in links.edges.target


def test_events_that_touch_do_not_call_each_other() -> None:
    build = TraceBuilder()
    build.op("first", 0, 10)
    build.op("second", 10, 20)
    assert pairs(link_calls(build.trace()).edges) == []


def test_a_shorter_event_of_the_same_start_is_inside() -> None:
    build = TraceBuilder()
    child = build.op("child", 0, 5)
    parent = build.op("parent", 0, 9)
    assert pairs(link_calls(build.trace()).edges) == [(parent, child)]


def test_of_equal_intervals_python_is_outside_annotations_outside_operators() -> None:
    build = TraceBuilder()
    operator = build.op("aten::mm", 0, 5)
    annotation = build.event(EventKind.ANNOTATION, "step", 0, 5)
    frame = build.event(EventKind.PYTHON, "train.py(3): step", 0, 5)
    assert pairs(link_calls(build.trace()).edges) == sorted([(frame, annotation), (annotation, operator)])


def test_threads_do_not_nest_in_each_other() -> None:
    build = TraceBuilder()
    other = build.lane(TrackKind.THREAD, "101")
    build.op("main", 0, 100)
    build.op("worker", 10, 20, track=other)
    assert pairs(link_calls(build.trace()).edges) == []


def test_a_crossing_event_goes_to_what_encloses_both_and_is_counted() -> None:
    build = TraceBuilder()
    outer = build.op("outer", 0, 100)
    first = build.op("first", 10, 50)
    crossing = build.op("crossing", 40, 60)
    inside = build.op("inside", 41, 45)

    links = link_calls(build.trace())

    assert pairs(links.edges) == [(outer, first), (outer, crossing), (crossing, inside)]
    assert links.report.notes == {"outermost": 1, "overlapping": 1}


def test_a_crossing_event_without_anything_around_it_is_not_linked_and_says_why() -> None:
    build = TraceBuilder()
    build.op("first", 0, 50)
    build.op("crossing", 40, 60)
    report = link_calls(build.trace()).report
    assert (report.linked, report.candidates) == (0, 1)
    assert report.unlinked == {"overlaps the event it starts in": 1}


# Python functions: ids name the callers.


def test_a_nearer_function_inside_the_named_caller_is_the_caller() -> None:
    build = TraceBuilder()
    outer = build.event(EventKind.PYTHON, "a.py(1): f", 0, 50, python_id=1)
    nearer = build.event(EventKind.PYTHON, "a.py(9): g", 5, 40, python_id=2, python_parent=1)
    callee = build.event(EventKind.PYTHON, "a.py(5): h", 10, 30, python_id=3, python_parent=1)
    links = link_calls(build.trace())
    assert pairs(links.edges) == [(outer, nearer), (nearer, callee)]
    assert links.report.notes == {"outermost": 1}


def test_a_function_whose_return_was_missed_calls_nothing_after_its_caller_ended() -> None:
    build = TraceBuilder()
    run = build.event(EventKind.PYTHON, "run", 0, 100, python_id=1)
    enter = build.event(EventKind.PYTHON, "__enter__", 10, 30, python_id=2, python_parent=1)
    unclosed = build.event(
        EventKind.PYTHON, "<built-in function next>", 11, 100, python_id=3, python_parent=2
    )
    inside = build.op("aten::empty", 12, 20)
    later = build.event(EventKind.PYTHON, "forward", 40, 60, python_id=4, python_parent=1)
    operator = build.op("aten::mm", 45, 50)
    links = link_calls(build.trace())
    expected = [(run, enter), (run, later), (enter, unclosed), (unclosed, inside), (later, operator)]
    assert pairs(links.edges) == expected
    assert links.report.notes == {"outermost": 1, "Python functions without an end": 1}


def test_the_named_caller_decides_if_the_function_around_the_callee_ends_after_it() -> None:
    build = TraceBuilder()
    caller = build.event(EventKind.PYTHON, "caller", 0, 50, python_id=1)
    build.event(EventKind.PYTHON, "of no known caller", 10, 70, python_id=2)
    callee = build.event(EventKind.PYTHON, "callee", 20, 30, python_id=3, python_parent=1)
    links = link_calls(build.trace())
    assert pairs(links.edges) == [(caller, callee)]
    assert links.report.notes["Python parent by id instead of by time"] == 1


def test_a_function_that_begins_an_annotation_calls_its_own_functions() -> None:
    build = TraceBuilder()
    step = build.event(EventKind.PYTHON, "step", 0, 100, python_id=1)
    enter = build.event(EventKind.PYTHON, "__enter__", 10, 20, python_id=2, python_parent=1)
    annotation = build.annotation("## forward ##", 12, 90)
    within = build.event(EventKind.PYTHON, "is_scripting", 14, 15, python_id=3, python_parent=2)
    later = build.event(EventKind.PYTHON, "forward", 30, 80, python_id=4, python_parent=1)
    edges = link_calls(build.trace()).edges
    assert pairs(edges) == [(step, enter), (step, annotation), (enter, within), (annotation, later)]


def test_the_named_caller_decides_where_a_function_begins_as_another_ends() -> None:
    build = TraceBuilder()
    caller = build.event(EventKind.PYTHON, "caller", 0, 50, python_id=1)
    first = build.event(EventKind.PYTHON, "first", 10, 20, python_id=2, python_parent=1)
    second = build.event(EventKind.PYTHON, "second", 20, 20, python_id=3, python_parent=1)
    inside = build.event(EventKind.PYTHON, "inside", 20, 20, python_id=4, python_parent=3)
    edges = link_calls(build.trace()).edges
    assert pairs(edges) == [(caller, first), (caller, second), (second, inside)]


def test_of_equal_intervals_the_function_with_the_smaller_id_is_outside() -> None:
    build = TraceBuilder()
    inner = build.event(EventKind.PYTHON, "inner", 0, 10, python_id=2, python_parent=1)
    outer = build.event(EventKind.PYTHON, "outer", 0, 10, python_id=1)
    assert pairs(link_calls(build.trace()).edges) == [(outer, inner)]


@pytest.mark.parametrize(
    ("start", "end", "track"), [(0, 5, 0), (8, 9, 0), (0, 50, 1)], ids=["ended", "later", "other thread"]
)
def test_a_named_caller_that_does_not_run_on_the_thread_is_out_of_date(
    start: int, end: int, track: int
) -> None:
    build = TraceBuilder()
    build.lane(TrackKind.THREAD, "101")
    build.event(EventKind.PYTHON, "named", start, end, track, python_id=1)
    build.event(EventKind.PYTHON, "callee", 6, 7, python_id=2, python_parent=1)
    assert pairs(link_calls(build.trace()).edges) == []


def test_functions_that_name_each_other_are_no_circle() -> None:
    build = TraceBuilder()
    first = build.event(EventKind.PYTHON, "first", 0, 10, python_id=1, python_parent=2)
    second = build.event(EventKind.PYTHON, "second", 0, 10, python_id=2, python_parent=1)
    assert pairs(link_calls(build.trace()).edges) == [(first, second)]


# Profiles in whole microseconds: numbers of the profiler decide among equal starts.


def test_a_short_operator_that_began_first_is_not_inside_the_long_one() -> None:
    build = TraceBuilder()
    item = build.op("aten::item", 9, 10, event_index=1)
    select = build.op("aten::select", 10, 12, event_index=3)
    scalar = build.op("aten::_local_scalar_dense", 10, 10, event_index=2)
    strided = build.op("aten::as_strided", 10, 10, event_index=4)
    assert pairs(link_calls(build.trace()).edges) == [(item, scalar), (select, strided)]


def test_of_equal_intervals_the_one_with_the_smaller_number_is_outside() -> None:
    build = TraceBuilder()
    annotation = build.annotation("nccl:all_reduce", 0, 5, event_index=2)
    operator = build.op("record_param_comms", 0, 5, event_index=1)
    call = build.event(EventKind.RUNTIME, "cudaLaunchKernel", 0, 5)
    assert pairs(link_calls(build.trace()).edges) == [(annotation, call), (operator, annotation)]


def test_numbers_decide_only_if_all_events_that_begin_together_have_one() -> None:
    build = TraceBuilder()
    outer = build.op("outer", 0, 9)
    short = build.op("short", 0, 0, event_index=1)
    assert pairs(link_calls(build.trace()).edges) == [(outer, short)]


@pytest.mark.parametrize(("start", "end"), [(5, 10), (10, 15), (10, 10)], ids=["ends", "begins", "empty"])
def test_a_call_without_a_duration_is_not_inside_a_call_that_it_touches(start: int, end: int) -> None:
    build = TraceBuilder()
    operator = build.op("aten::mm", 0, 20)
    call = build.event(EventKind.RUNTIME, "cudaLaunchKernel", start, end)
    touching = [build.event(EventKind.RUNTIME, "cudaPeekAtLastError", 10, 10) for _ in range(5)]
    edges = link_calls(build.trace()).edges
    assert pairs(edges) == [(operator, callee) for callee in (call, *touching)]


def test_a_call_without_a_duration_is_inside_a_call_around_it() -> None:
    build = TraceBuilder()
    outer = build.event(EventKind.RUNTIME, "run graph", 0, 20)
    inner = build.event(EventKind.RUNTIME, "recordEvent", 10, 10)
    assert pairs(link_calls(build.trace()).edges) == [(outer, inner)]


# Whole threads, of which the truth is known.


@dataclass
class Called:
    """An event of a call tree; its number is its index in the order in which events begin."""

    caller: int
    kind: EventKind
    start: int
    end: int = 0


KINDS = st.sampled_from([EventKind.PYTHON, EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.RUNTIME])
STEPS = st.lists(st.tuples(st.integers(1, 900), st.none() | KINDS), min_size=1, max_size=40)


def called(steps: list[tuple[int, EventKind | None]]) -> list[Called]:
    """The events of one thread: each step waits some nanoseconds, then begins an event or ends the innermost one.

    Calls of the runtime call nothing.
    """
    thread: list[Called] = []
    open_: list[int] = []
    time = 0
    for wait, kind in steps:
        time += wait
        if open_ and (kind is None or thread[open_[-1]].kind == EventKind.RUNTIME):
            thread[open_.pop()].end = time
        elif kind is not None:
            thread.append(Called(open_[-1] if open_ else -1, kind, time))
            open_.append(len(thread) - 1)
    for row in reversed(open_):
        time += 1
        thread[row].end = time
    return thread


def callers(build: TraceBuilder) -> list[int]:
    """The caller of each event, or -1."""
    edges = link_calls(build.trace()).edges
    known = dict(zip(edges.target.tolist(), edges.source.tolist(), strict=True))
    return [known.get(row, -1) for row in range(len(build.rows))]


@given(STEPS, st.data())
def test_in_whole_microseconds_every_event_with_a_duration_has_its_caller(
    steps: list[tuple[int, EventKind | None]], data: st.DataObject
) -> None:
    thread = called(steps)
    order = data.draw(st.permutations(range(len(thread))))
    build, row_of = TraceBuilder(), {}
    for number in order:
        event = thread[number]
        numbers = {} if event.kind == EventKind.RUNTIME else {"event_index": number}
        row_of[number] = build.event(event.kind, "event", event.start // 1000, event.end // 1000, **numbers)
    found = callers(build)
    for number, event in enumerate(thread):
        start, end, caller = event.start // 1000, event.end // 1000, found[row_of[number]]
        if start < end:
            assert caller == (row_of[event.caller] if event.caller >= 0 else -1)
        elif caller >= 0:
            outer = thread[order[caller]]
            assert outer.start // 1000 <= start <= outer.end // 1000
            if EventKind.RUNTIME not in (event.kind, outer.kind):
                assert order[caller] < number


@given(STEPS, st.data())
def test_functions_that_never_end_and_ids_of_callers_further_out_change_no_caller(
    steps: list[tuple[int, EventKind | None]], data: st.DataObject
) -> None:
    thread = called([(wait, kind and EventKind.PYTHON) for wait, kind in steps])
    unclosed = data.draw(st.booleans())
    build = TraceBuilder()
    last = max((event.end for event in thread), default=0)
    for number, event in enumerate(thread):
        named, end = event.caller, event.end
        if unclosed and named >= 0 and thread[named].end < last and data.draw(st.booleans()):
            end = last
        while not unclosed and named >= 0 and data.draw(st.booleans()):
            named = thread[named].caller
        keys = {"python_parent": named} if named >= 0 else {}
        build.event(EventKind.PYTHON, "frame", event.start, end, python_id=number, **keys)
    assert callers(build) == [event.caller for event in thread]


SHARED = (("kineto/resnet_act_checkpoint.json.gz", 34405), ("kineto/h100_qwen.json.gz", 4262))


@pytest.mark.parametrize(
    ("path", "frames"),
    [("cpu_job/kineto_0.json.gz", 1224), ("gpu_pair/kineto_0.json.gz", 33), *foreign(*SHARED)],
)
def test_the_nearest_function_up_from_each_function_is_the_innermost_around_it(
    path: str, frames: int
) -> None:
    trace = read(plain(path))
    events, edges = trace.events, link_calls(trace).edges
    caller = dict(zip(edges.target.tolist(), edges.source.tolist(), strict=True))
    functions = np.flatnonzero(events.kind == EventKind.PYTHON)
    keys = (-events.end[functions], events.start[functions], events.track[functions])
    around: list[int] = []
    for row in functions[np.lexsort(keys)].tolist():
        while around and (
            events.end[around[-1]] < events.end[row] or events.track[around[-1]] != events.track[row]
        ):
            around.pop()
        nearest = caller.get(row, -1)
        while nearest >= 0 and events.kind[nearest] != EventKind.PYTHON:
            nearest = caller.get(nearest, -1)
        assert nearest == (around[-1] if around else -1)
        around.append(row)
    assert len(functions) == frames


@pytest.mark.filterwarnings("error")
def test_intervals_without_a_start_are_sorted_too() -> None:
    start = column([1_740_816_360_000_000_000, NO_TIME, 5])
    assert sort_outer_first(column([0, 0, 0]), start, start, column([0, 0, 0])).tolist() == [1, 2, 0]


SHARED_2023 = (
    "kineto/resnet50_2021",
    "kineto/cuda_graphs",
    "pairs/dlrm8/device.4",
    "pairs/param_linear/device.0",
)


@pytest.mark.parametrize(
    "path",
    [
        *("gpu_2021/kineto_0.json", "gpu_2023/kineto_0.json", "one_iteration/kineto_0.json"),
        *foreign(*(f"{path}.json.gz" for path in SHARED_2023)),
    ],
)
def test_in_profiles_in_whole_microseconds_no_caller_begins_after_its_callee(path: str) -> None:
    trace = read(plain(path))
    events, edges = trace.events, link_calls(trace).edges
    number = trace.key(Key.EVENT_INDEX).dense(len(events), -1)
    caller, callee = edges.source, edges.target
    together = events.start[caller] == events.start[callee]
    numbered = together & (number[caller] >= 0) & (number[callee] >= 0)
    touched = (events.duration[callee] == 0) & (together | (events.end[caller] == events.start[callee]))
    assert not (events.start % 1000).any()
    assert (events.start[caller] <= events.start[callee]).all()
    assert (events.end[callee] <= events.end[caller]).all()
    assert (number[caller][numbered] < number[callee][numbered]).all()
    assert not (touched & (events.kind[caller] == EventKind.RUNTIME)).any()


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
