"""Tracks, counters, slices in halves, and flows."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.data import plain
from builders.inputs import reasons
from builders.kineto import (
    counter,
    cpu_op,
    flow_end,
    half,
    instant,
    kernel,
    memory,
    metadata,
    read,
    seen,
    slice_,
    trace,
    tracks,
)
from tracelink._link.rank import link_rank
from tracelink._model.events import BYTES, EventKind, Key, Relation, Track, TrackKind
from tracelink._model.trace import RankTrace
from tracelink.converters.kineto.columns import ElementColumns, join
from tracelink.converters.kineto.elements import ElementDecoder
from tracelink.converters.kineto.tracks import Names, counters_of


def samples(result: RankTrace) -> dict[tuple[str, str], list[tuple[int, float]]]:
    """Every sample, by process and counter."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for track, time, value in zip(
        result.counters.track.tolist(),
        result.counters.time.tolist(),
        result.counters.value.tolist(),
        strict=True,
    ):
        of = result.tracks[track]
        assert of.kind == TrackKind.COUNTER
        found.setdefault((of.process, of.identity), []).append((time, value))
    return found


def units(result: RankTrace) -> set[str]:
    """What the values of counters are in."""
    return {track.unit for track in result.tracks if track.kind == TrackKind.COUNTER}


def test_threads_and_streams_are_called_what_the_metadata_says() -> None:
    result = read(
        trace(
            metadata("process_name", 10, name="python"),
            metadata("process_labels", 10, labels="CPU"),
            metadata("process_sort_index", 10, sort_index=10),
            metadata("thread_name", 10, 11, name="first name"),
            metadata("thread_name", 10, 11, name="pt_main_thread"),
            metadata("thread_sort_index", 10, 11, sort_index=5),
            metadata("thread_name", 0, 7, name="stream 7 "),
            cpu_op(pid=10, tid=11),
            cpu_op(pid=10, tid=12),
            kernel(device=0, stream=7),
            kernel(device=0, stream=20),
            slice_("cuda_sync", "Stream Sync", pid=0, tid=1_000_007),
            slice_("cuda_sync", "Context Sync", pid=0, tid=-1),
        )
    )
    assert tracks(result) == [
        Track(TrackKind.THREAD, "10", "11", "pt_main_thread", sort=5, process_label="python"),
        Track(TrackKind.THREAD, "10", "12", "thread 12", sort=12, process_label="python"),
        Track(TrackKind.STREAM, "0", "7", "stream 7", sort=7),
        Track(TrackKind.STREAM, "0", "20", "stream 20", sort=20),
        Track(TrackKind.STREAM, "0", "1000007", "stream 7 synchronisation", sort=1_000_007),
        Track(TrackKind.STREAM, "0", "-1", "stream -1", sort=-1),
    ]


def test_a_process_and_a_device_of_the_same_number_are_two_places() -> None:
    result = read(trace(cpu_op(pid=0, tid=7), kernel(device=0, stream=7), cpu_op(pid=0, tid=7)))
    assert tracks(result) == [
        Track(TrackKind.THREAD, "0", "7", "thread 7", sort=7),
        Track(TrackKind.STREAM, "0", "7", "stream 7", sort=7),
        Track(TrackKind.THREAD, "0", "7", "thread 7", sort=7),
    ]
    assert len(result.tracks) == 2


def test_ids_that_are_texts() -> None:
    result = read(
        trace(
            slice_("Operator", "aten::add", pid=10, tid="3340707648"),
            slice_("Kernel", "add", pid=0, tid="stream 7"),
            slice_("Trace", "PyTorch Profiler (0)", pid="Spans", tid="PyTorch Profiler"),
            instant("Iteration Start: PyTorch Profiler", 1, pid="Traces", tid="Trace PyTorch Profiler"),
            instant("Record Window End", 2, pid="", tid=""),
            slice_("overhead", "Buffer Flush", pid=-1, tid=0),
            cpu_op(pid=10, tid=12),
        )
    )
    assert tracks(result) == [
        Track(TrackKind.THREAD, "10", "3340707648", "thread 3340707648"),
        Track(TrackKind.STREAM, "0", "stream 7", "stream 7"),
        Track(TrackKind.PROCESS, "Spans", "PyTorch Profiler", "PyTorch Profiler"),
        Track(TrackKind.PROCESS, "Traces", "Trace PyTorch Profiler", "Trace PyTorch Profiler"),
        Track(TrackKind.PROCESS, "", "", ""),
        Track(TrackKind.PROCESS, "-1", "0", "0"),
        Track(TrackKind.THREAD, "10", "12", "thread 12", sort=12),
    ]


def test_a_number_written_as_text_is_another_lane_than_the_number() -> None:
    result = read(trace(cpu_op(tid="7"), cpu_op(tid=7), cpu_op(tid="7")))
    first, second, third = result.events.track.tolist()
    assert first == third != second
    assert len(result.tracks) == 2


@pytest.mark.parametrize("pid", [2**31, 2**63 - 1, -5, -(2**40), -(2**63)])
def test_process_ids_of_any_size(pid: int) -> None:
    result = read(trace(cpu_op(pid=pid, tid=7), cpu_op(pid=pid, tid=7)))
    assert {track.process for track in tracks(result)} == {str(pid)}


def test_memory_events_become_counters_of_each_device() -> None:
    result = read(
        trace(
            memory(1, 512, 2048),
            memory(2, 1024, 2048),
            memory(3, 64, device_type=0, device=-1),
            memory(4, 5, 6, device=1),
            memory(5, 7, 8, device_type=20, device=2),
            memory(6, 9, 10, device_type=13),
            memory(7, 11, 12, device_type=99),
        )
    )
    assert samples(result) == {
        ("", "GPU 0 allocated"): [(1000, 512), (2000, 1024)],
        ("", "GPU 0 reserved"): [(1000, 2048), (2000, 2048)],
        ("", "CPU allocated"): [(3000, 64)],
        ("", "GPU 1 allocated"): [(4000, 5)],
        ("", "GPU 1 reserved"): [(4000, 6)],
        ("", "GPU 2 allocated"): [(5000, 7)],
        ("", "GPU 2 reserved"): [(5000, 8)],
        ("", "MPS 0 allocated"): [(6000, 9)],
        ("", "MPS 0 reserved"): [(6000, 10)],
        ("", "device type 99 0 allocated"): [(7000, 11)],
        ("", "device type 99 0 reserved"): [(7000, 12)],
    }
    assert units(result) == {BYTES}
    assert {one.kind for one in seen(result)} == {EventKind.MEMORY}


def test_memory_events_of_2021_have_no_category() -> None:
    old = memory(1, 512)
    del old["cat"]
    result = read(trace(old, memory(2, 1024), cpu_op(ts=3)))
    assert samples(result)["", "GPU 0 allocated"] == [(1000, 512), (2000, 1024)]
    assert [one.kind for one in seen(result)] == [EventKind.MEMORY, EventKind.MEMORY, EventKind.OPERATOR]


def test_counters_that_the_producer_sampled() -> None:
    result = read(
        trace(
            counter("sm__cycles", 1, {"": 5}),
            counter("sm__cycles", 2.5, {"": 6.5}),
            counter("Bandwidth", 3, {"read": 1, "written": "2"}, pid=0),
            counter("Bandwidth", 4, {"read": "no number", "written": "NaN", "lost": 10**400}, pid=0),
            cpu_op(ts=9),
            baseTimeNanoseconds=1_000_000_000,
        )
    )
    assert samples(result) == {
        ("GPU 0 Counters", "sm__cycles"): [(1_000_001_000, 5), (1_000_002_500, 6.5)],
        ("0", "Bandwidth read"): [(1_000_003_000, 1)],
        ("0", "Bandwidth written"): [(1_000_003_000, 2)],
    }
    assert units(result) == {""}
    assert reasons(result) == {"unusable_sample": 3}


def test_the_allocator_of_cpus_reserves_nothing() -> None:
    result = read(
        trace(memory(1, 512, 0, device_type=0, device=-1), memory(2, 64, 0, device_type=0, device=-1))
    )
    assert samples(result) == {("", "CPU allocated"): [(1000, 512), (2000, 64)]}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["GPU 0 Counters", 0, 1]), st.floats(0, 9))))
def test_samples_of_a_file_in_parts_are_those_of_the_whole(drawn: list[tuple[str, str | int, float]]) -> None:
    elements = [counter(name, time, {"": value}, pid=pid) for time, (name, pid, value) in enumerate(drawn)]
    half = len(elements) // 2
    parts = []
    for elements_of_part in (elements[:half], elements[half:]):
        decoder = ElementDecoder()
        columns = ElementColumns(decoder.shapes, decoder.names, decoder.lanes)
        columns.add(0, decoder.decode(memoryview(json.dumps(elements_of_part).encode())))
        columns.compact()
        parts.append(columns)
    whole = join(parts)
    counters, tracks = counters_of(whole, Names(whole.lanes.texts()), 0, 0)
    found = [
        (tracks[track].identity, tracks[track].process, value)
        for track, value in zip(counters.track.tolist(), counters.value.tolist(), strict=True)
    ]
    assert sorted(found) == sorted((name, str(pid), value) for name, pid, value in drawn)


# Arrows of other categories: the events at which they start and end.


def arrows(*elements: object) -> tuple[list[tuple[str, str]], int]:
    """The names of the events at the two ends of each arrow that is linked, and how many ends are at no event."""
    result = read(trace(*elements))
    texts, names = result.strings.texts(), result.events.name.tolist()
    drawn = link_rank(result).edges.where(Relation.DEPENDS_ON)
    pairs = zip(drawn.target.tolist(), drawn.source.tolist(), strict=True)
    linked = [(texts[names[cause]], texts[names[effect]]) for cause, effect in pairs]
    return sorted(linked), reasons(result).get("loose_flow", 0)


OUTER, FIRST, LAST = cpu_op("outer", 0, 100.5), cpu_op("first", 10, 10.5), cpu_op("last", 30, 10)


@pytest.mark.parametrize(
    ("start", "bound"),
    [
        (10, "first"),
        (15, "first"),
        (20.5, "first"),
        (20.499, "first"),
        (20.501, "outer"),
        (25, "outer"),
        (30, "last"),
        (100.5, "outer"),
        (100.499, "outer"),
        (100.501, None),
    ],
)
def test_an_arrow_starts_at_the_slice_that_starts_or_ends_there_or_is_around_it(
    start: float, bound: str | None
) -> None:
    effect = cpu_op("effect", 200, 5, tid=8)
    result = arrows(OUTER, FIRST, LAST, effect, flow_end("s", 1, start), flow_end("f", 1, 200, tid=8))
    assert result == ([(bound, "effect")] if bound else [], 0 if bound else 1)


@pytest.mark.parametrize(
    ("end", "bp", "bound"),
    [
        (10, "e", "first"),
        (20.5, "e", "first"),
        (25, "e", "outer"),
        (100.501, "e", None),
        (10, None, "first"),
        (5, None, "first"),
        (20.5, None, "last"),
        (31, None, None),
    ],
)
def test_an_arrow_ends_at_the_slice_around_it_or_at_the_next_one(
    end: float, bp: str | None, bound: str | None
) -> None:
    cause = cpu_op("cause", 0, 1, tid=8)
    ends = flow_end("s", 1, 0, tid=8), flow_end("f", 1, end, bp=bp)
    result = arrows(OUTER, FIRST, LAST, cause, *ends)
    assert result == ([("cause", bound)] if bound else [], 0 if bound else 1)


def test_an_arrow_starts_at_the_slice_that_ends_there_although_one_that_overlaps_is_nearer() -> None:
    wait = slice_("cuda_sync", "wait", 15, 20, pid=0, tid=7)
    work, effect = kernel("work", 10, 10), cpu_op("effect", 40, 1)
    for start in (20, 19):
        ends = flow_end("s", 1, start, pid=0, tid=7), flow_end("f", 1, 40)
        assert arrows(wait, work, effect, *ends) == ([("work", "effect")], 0)


def test_steps_of_an_arrow_are_arrows_from_slice_to_slice() -> None:
    ends = [flow_end(phase, 1, ts) for phase, ts in [("f", 35), ("t", 15), ("s", 0)]]
    assert arrows(OUTER, FIRST, LAST, *ends) == ([("first", "last"), ("outer", "first")], 0)


def test_ids_count_within_a_category_and_can_be_used_again() -> None:
    pairs = [("drawn", 0, 10), ("drawn", 12, 30), ("other", 10, 30)]
    ends = [
        end
        for category, start, stop in pairs
        for end in (flow_end("s", 1, start, category), flow_end("f", 1, stop, category))
    ]
    linked = [("first", "last"), ("first", "last"), ("outer", "first")]
    assert arrows(OUTER, FIRST, LAST, *ends) == (linked, 0)


def test_arrows_of_an_unexpected_file_bind_alike() -> None:
    ends = flow_end("s", 1, 20.5), flow_end("f", 1, 25, bp=None)
    assert arrows(OUTER, FIRST, LAST, None, *ends) == ([("first", "last")], 0)


eighths = st.integers(0, 12)
"""Times as multiples of an eighth of a microsecond."""


@given(
    slices=st.lists(st.tuples(eighths, eighths, st.integers(1, 2)), max_size=12),
    ends=st.lists(st.tuples(eighths, st.integers(1, 2)), min_size=1, max_size=4),
)
@example(slices=[(8, 0, 1)], ends=[(0, 1)])
@example(slices=[(0, 8, 1), (8, 8, 1)], ends=[(0, 1), (8, 1)])
@example(slices=[(0, 16, 1), (0, 9, 2)], ends=[(8, 1)])
@example(slices=[(0, 16, 1)], ends=[(8, 1)])
def test_an_arrow_binds_to_the_slice_that_a_search_through_all_finds(
    slices: list[tuple[int, int, int]], ends: list[tuple[int, int]]
) -> None:
    elements = [cpu_op(str(row), ts / 8, dur / 8, tid=tid) for row, (ts, dur, tid) in enumerate(slices)]
    elements += [flow_end("s", number, ts / 8, tid=tid) for number, (ts, tid) in enumerate(ends)]
    bound = dict(read_keys(read(trace(*elements)), Key.FLOW_OUT))
    tick = 0 if any(ts % 8 or dur % 8 for ts, dur, _ in slices) else 8
    for number, (time, tid) in enumerate(ends):
        lane = [(ts, ts + dur, row) for row, (ts, dur, on) in enumerate(slices) if on == tid]
        around = [(ts, -stop, row) for ts, stop, row in lane if ts <= time <= stop]
        closing = [key for key in around if -key[1] == time]
        closing = closing or [key for key in around if -key[1] == time + tick]
        opening = [(row,) for ts, _, row in lane if ts == time]
        expected = max(opening or closing or around, default=(None,))[-1]
        assert bound.get(number) == expected


def read_keys(result: RankTrace, key: Key) -> list[tuple[int, int]]:
    """(id, row) of each event with this key."""
    column = result.key(key)
    return list(zip(column.values.tolist(), column.rows.tolist(), strict=True))


def overlay() -> bytes:
    """A profile with arrows as HTA draws its critical path: from the end of work to the start of other work."""
    document = json.loads(plain("gpu_2023/kineto_0.json"))
    work = [each for each in document["traceEvents"] if each.get("cat") == "kernel"]
    for number, (one, other) in enumerate(pairwise(work)):
        ends = ("s", one, one["ts"] + one["dur"]), ("f", other, other["ts"])
        document["traceEvents"] += [
            flow_end(phase, number, ts, "critical_path", pid=at["pid"], tid=at["tid"])
            for phase, at, ts in ends
        ]
    return json.dumps(document).encode()


def test_every_arrow_between_slices_is_linked() -> None:
    linked = link_rank(read(overlay()))
    reports = {report.relation: (report.linked, report.candidates) for report in linked.reports}
    assert reports["depends_on.drawn"] == (57, 57)


@pytest.mark.foreign
def test_every_arrow_of_a_critical_path_is_linked() -> None:
    result = read(plain("kineto/hta_overlay.json.gz"))
    linked = link_rank(result)
    reports = {report.relation: (report.linked, report.candidates) for report in linked.reports}
    assert reports["depends_on.drawn"] == (192, 192)
    assert reports["launches.drawn"] == (41, 41)
    assert reasons(result) == {}


# Slices in halves.


@given(st.lists(st.tuples(st.sampled_from("BE"), st.sampled_from(["a", "b", ""]), st.integers(8, 9))))
def test_an_end_closes_the_innermost_begin_of_its_thread_and_name(halves: list[tuple[str, str, int]]) -> None:
    expected, open_slices, unmatched = [], [], 0
    for time, (ph, name, tid) in enumerate(halves):
        candidates = [begin for begin in open_slices if begin[2] == tid and name in ("", begin[1])]
        if ph == "B":
            open_slices.append((time, name, tid))
        elif candidates:
            open_slices.remove(candidates[-1])
            expected.append((candidates[-1][0], candidates[-1][1], (time - candidates[-1][0]) * 1000))
        else:
            unmatched += 1
    expected += [(start, name, -1) for start, name, _ in open_slices]
    result = read(trace(*(half(ph, name, time, tid=tid) for time, (ph, name, tid) in enumerate(halves))))
    assert [(one.start // 1000, one.name, one.duration) for one in seen(result)] == sorted(expected)
    assert reasons(result).get("end_without_begin", 0) == unmatched
