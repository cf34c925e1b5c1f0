"""How much work of each stream has been launched and has not ended."""

from __future__ import annotations

import pytest

from builders import perfetto, perfetto_native
from builders.graph import START, GraphBuilder
from tracelink.converters.perfetto.timeline.derived import with_outstanding
from tracelink.converters.perfetto.timeline.layout import Numbering
from tracelink.model.columns import UNFINISHED
from tracelink.model.events import COUNT, EventKind, Relation, TrackKind
from tracelink.model.graph import EventGraph

Samples = list[tuple[int, float]]
"""Time and value."""


class Streams(GraphBuilder):
    """A graph in which a thread launches work of streams."""

    def stream(self, identity: str = "7", process: str = "0", label: str = "") -> int:
        return self.track(TrackKind.STREAM, 0, process, identity, label)

    def work(
        self,
        stream: int,
        *launches: int,
        start: int | None,
        end: int | None,
        kind: EventKind = EventKind.KERNEL,
    ) -> None:
        """Work that was launched at these times; without `end` it is not finished."""
        duration = UNFINISHED if end is None else end - (start or 0)
        row = self.add(stream, "work", start, duration, kind)
        for time in launches:
            thread = self.track(identity="thread")
            self.edge(self.add(thread, "launch", time, 1, EventKind.RUNTIME), Relation.LAUNCHES, row)


def shown(graph: EventGraph) -> dict[str, Samples]:
    """The samples of each counter by its name."""
    drawn = with_outstanding(graph, Numbering(digits=2))
    found: dict[str, Samples] = {}
    for track, time, value in zip(
        drawn.counters.track.tolist(),
        drawn.counters.time.tolist(),
        drawn.counters.value.tolist(),
        strict=True,
    ):
        found.setdefault(drawn.tracks[track].label, []).append((time - START, value))
    return found


def one(built: Streams) -> Samples:
    (found,) = shown(built.build()).values()
    return found


def test_work_is_outstanding_from_its_launch_to_its_end() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, 0, start=10, end=50)
    built.work(stream, 5, start=50, end=60, kind=EventKind.MEMCPY)
    assert shown(built.build()) == {
        "rank 00 outstanding kernels, stream 7": [(0, 1), (5, 2), (50, 1), (60, 0)]
    }


@pytest.mark.parametrize(
    ("launches", "since"),
    [((), 10), ((4,), 4), ((2, 6, 4), 6), ((12,), 10)],
    ids=["launched by nothing", "launched", "by the innermost", "by a clock that is ahead"],
)
def test_when_work_was_launched(launches: tuple[int, ...], since: int) -> None:
    built = Streams()
    built.work(built.stream(), *launches, start=10, end=50)
    assert one(built) == [(since, 1), (50, 0)]


def test_work_that_never_ends_stays_outstanding() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, start=0, end=10)
    built.work(stream, start=20, end=None)
    assert one(built) == [(0, 1), (10, 0), (20, 1)]


def test_what_is_no_work_of_a_stream_or_has_no_time_does_not_count() -> None:
    built = Streams()
    stream = built.stream()
    built.work(stream, start=0, end=10, kind=EventKind.SYNCHRONIZATION)
    built.work(stream, start=None, end=None)
    built.work(built.track(), start=0, end=10)
    graph = built.build()
    assert with_outstanding(graph, Numbering()) is graph


def test_each_stream_has_a_counter_of_its_own_however_often_it_is_seen() -> None:
    built = Streams()
    for stream in (built.stream("7"), built.stream("7"), built.stream("9", label="stream 9 (nccl)")):
        built.work(stream, start=0, end=10 * (stream + 1))
    for stream in (built.stream("7", process="1"), built.stream("8", process="1", label="stream 8 ")):
        built.work(stream, start=0, end=10)
    graph = with_outstanding(built.build(), Numbering())
    counters = [track for track in graph.tracks if track.kind == TrackKind.COUNTER]
    assert [(track.process, track.label, track.unit) for track in counters] == [
        ("0", "rank 0 outstanding kernels, stream 7", COUNT),
        ("0", "rank 0 outstanding kernels, stream 9 (nccl)", COUNT),
        ("1", "rank 0 outstanding kernels, stream 7", COUNT),
        ("1", "rank 0 outstanding kernels, stream 8", COUNT),
    ]
    assert graph.counters.value.tolist() == [2, 1, 0, 1, 0, 1, 0, 1, 0]


def test_recorded_counters_stay_what_they_are() -> None:
    built = Streams()
    memory = built.track(TrackKind.COUNTER, 0, "0", "memory", "memory")
    built.sample(memory, 3, 7.0)
    built.work(built.stream(), start=0, end=10)
    assert shown(built.build()) == {
        "memory": [(3, 7)],
        "rank 00 outstanding kernels, stream 7": [(0, 1), (10, 0)],
    }


def test_counters_stand_beside_the_streams_of_their_gpu_in_both_formats() -> None:
    built = Streams()
    built.work(built.stream(), start=0, end=10)
    written, native = perfetto.write(built.build()), perfetto_native.write(built.build())
    name = "rank 0 outstanding kernels, stream 7"
    assert written.samples() == native.samples == [(name, START, 1.0), (name, START + 10, 0.0)]
    assert {written.processes()[event["pid"]] for event in written.events("C")} == {"rank 0 · GPU 0"}
    assert native.outline() == [
        *("rank 0", "  rank 0 · GPU 0", "    rank 0 stream 7 · compute"),
        f"    {name}",
    ]
    (unit,) = (track.counter.unit for track in native.tracks.values() if track.HasField("counter"))
    assert unit == 2
