"""What a thread did for most of a stretch of time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.trace import TraceBuilder
from tracelink.diagnosis.model import Stretch
from tracelink.diagnosis.profiles import MOST_TRACKS, Surroundings, stretches_of
from tracelink.linking.rank import link_rank
from tracelink.model.events import EventKind, TrackKind
from tracelink.pipeline.gathering import graph_of_rank

MAIN = "thread 100"
NOBODY = np.empty(0, np.int64)


def seen(
    builder: TraceBuilder, first: int, last: int, track: int = 0, without: tuple[int, ...] = ()
) -> tuple[Stretch, ...]:
    around = Surroundings(graph_of_rank(link_rank(builder.build())))
    return stretches_of(around, first, last, track, np.array(without, np.int64))


def told(stretches: tuple[Stretch, ...]) -> dict[str, list[tuple[str, int]]]:
    return {one.where: [(each.name, each.duration_ns) for each in one.running] for one in stretches}


def test_the_calls_that_took_more_than_half_of_it_outermost_first() -> None:
    built = TraceBuilder()
    built.op("step", 0, 1000)
    built.op("load", 200, 900)
    built.op("before", 0, 150)
    built.op("open", 300, 310)
    built.op("read", 320, 890)
    assert told(seen(built, 100, 900)) == {MAIN: [("step", 800), ("load", 700), ("read", 570)]}


def test_many_short_calls_are_told_by_what_they_were_called_in() -> None:
    built = TraceBuilder()
    built.op("epoch", 0, 1000)
    for start in range(0, 1000, 10):
        built.op("next", start, start + 9)
    assert told(seen(built, 0, 1000)) == {MAIN: [("epoch", 1000)]}


def test_other_threads_and_streams_come_after_the_one_that_called() -> None:
    built = TraceBuilder()
    stream, other = built.track(TrackKind.STREAM, "7"), built.track(TrackKind.THREAD, "101")
    built.kernel("gemm", 0, 900, stream)
    built.op("load", 0, 1000, other)
    built.op("wait", 100, 1000)
    assert told(seen(built, 0, 1000)) == {
        MAIN: [("wait", 900)],
        "thread 101": [("load", 1000)],
        "stream 7": [("gemm", 900)],
    }
    assert [one.where for one in seen(built, 0, 1000)] == [MAIN, "thread 101", "stream 7"]


def test_of_many_threads_a_few_are_told() -> None:
    built = TraceBuilder()
    for number in range(5):
        built.op("spin", number, 1000, built.track(TrackKind.THREAD, str(200 + number)))
    assert len(seen(built, 0, 1000)) == MOST_TRACKS


def test_what_has_not_ended_goes_on_to_the_end() -> None:
    built = TraceBuilder()
    built.event(EventKind.OPERATOR, "hang", 200, 199)
    assert told(seen(built, 100, 900)) == {MAIN: [("hang", 700)]}


def test_the_profiler_at_the_end_and_what_is_left_out_tell_nothing() -> None:
    built = TraceBuilder()
    work = built.op("gloo:all_reduce", 0, 1000, built.track(TrackKind.THREAD, "101"))
    built.event(EventKind.PYTHON, "train.py(5): main", 0, 1000)
    built.event(EventKind.PYTHON, "torch/profiler/profiler.py(700): stop", 10, 1000)
    built.event(EventKind.PYTHON, "torch/autograd/profiler.py(300): __exit__", 20, 1000)
    assert told(seen(built, 0, 1000, without=(work,))) == {MAIN: [("train.py(5): main", 1000)]}


def test_what_starts_a_program_and_what_is_of_torch_is_left_out() -> None:
    built = TraceBuilder()
    for depth, name in enumerate(
        ["runpy.py(88): run", "train.py(5): main", "torch/nn/modules/x.py(9): f", "queue.py(3): get"]
    ):
        built.event(EventKind.PYTHON, name, depth, 1000)
    assert [name for name, _ in told(seen(built, 0, 1000))[MAIN]] == ["train.py(5): main", "queue.py(3): get"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=12), st.integers(1, 60))
def test_what_is_told_never_takes_longer_than_the_stretch(spans: list[tuple[int, int]], last: int) -> None:
    built = TraceBuilder()
    for start, length in spans:
        built.op(f"op{start}", start, start + length)
    for stretch in seen(built, 0, last):
        times = [one.duration_ns for one in stretch.running]
        assert all(last < 2 * time <= 2 * last for time in times)
