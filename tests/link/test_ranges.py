"""Ranges of Nsight Systems and the profiled events that describe the same code."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.data import plain, shared
from builders.nsys import SESSION_NS, Export
from builders.trace import TraceBuilder
from tracelink import samples
from tracelink._link.ranges import link_ranges, nearest
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._model.columns import MICROSECOND, UNKNOWN
from tracelink._model.events import EventKind, Relation, Track, TrackKind
from tracelink._model.trace import RankTrace, combine

US = MICROSECOND


def both(system: TraceBuilder, profile: TraceBuilder) -> RankTrace:
    """One rank that Nsight Systems and a profiler recorded."""
    ranges = system.trace()
    ranges.sources = [replace(ranges.sources[0], format="nsys")]
    ranges.tracks = [Track(TrackKind.THREAD, "100", "100 nsys")]
    return combine([ranges, profile.trace()])


def same(linked: LinkedRank) -> list[tuple[int, int]]:
    edges = linked.edges.where(Relation.SAME)
    return list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))


def test_ids_link_operators_however_far_apart() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    system.op("aten::mul", 0, 5 * US, record_function=9)
    system.op("aten::add", 10 * US, 15 * US, record_function=10)
    profile.op("aten::mul", 7000 * US, 7005 * US, record_function=9)
    profile.op("aten::sub", 10 * US, 15 * US, record_function=10)
    assert same(link_rank(both(system, profile))) == [(0, 2)]


def test_ranges_without_ids_are_linked_to_the_nearest_event_of_their_name() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    for step in range(3):
        system.annotation("step", step * 100 * US, (step * 100 + 80) * US)
    for step in range(1, 4):
        profile.annotation("step", (step * 100 + 6) * US, (step * 100 + 79) * US)
    linked = link_rank(both(system, profile))
    assert same(linked) == [(1, 3), (2, 4)]
    assert [finding.message for finding in linked.findings if finding.reason == "times_of_ranges"] == [
        "built.json: ranges and the same events of the profile start 6.0 µs and end 1.0 µs apart (medians; "
        "at most 6 µs)."
    ]


def test_ranges_of_another_process_are_not_linked() -> None:
    system, profile = TraceBuilder(), TraceBuilder(tracks=[Track(TrackKind.THREAD, "200", "200")])
    system.annotation("step", 0, 80 * US)
    profile.annotation("step", 0, 80 * US)
    assert same(link_rank(both(system, profile))) == []


def test_other_linkers_use_the_profile_of_an_operator_that_both_recorded() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    row = system.op("c10d::allreduce_", 0, 5 * US, record_function=9)
    profile.op("c10d::allreduce_", 1 * US, 5 * US, record_function=9)
    linked = link_rank(both(system, profile))
    assert linked.calls.operator.tolist() == [1]
    assert linked.trace.events.kind[row] == EventKind.OPERATOR


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12),
)
def test_nearest_is_the_least_difference_of_all_pairs(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    columns = [
        np.array([pair[index] for pair in pairs], np.int64) for pairs in (first, second) for index in (0, 1)
    ]
    found = nearest(*columns)
    for (label, time), index in zip(first, found.tolist(), strict=True):
        gaps = [abs(other - time) for other_label, other in second if other_label == label]
        assert (index == UNKNOWN) == (not gaps)
        assert not gaps or (second[index][0], abs(second[index][1] - time)) == (label, min(gaps))


@pytest.fixture(scope="module")
def four_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded job with an export of nsys, whose ranges begin 7 us before the annotations of the profiles."""
    folder = tmp_path_factory.mktemp("job") / "job"
    shutil.copytree(samples.path("cpu_job"), folder)
    export = Export()
    for rank in range(2):
        profile = json.loads(plain(f"cpu_job/kineto_{rank}.json.gz"), parse_float=Decimal)
        base = profile["baseTimeNanoseconds"] - SESSION_NS - 7 * US
        notes = [
            one for one in profile["traceEvents"] if one["name"].startswith(("## step", "## forw", "## back"))
        ]
        export.process(notes[0]["pid"])
        export.mpi_rank(notes[0]["pid"], rank)
        for one in notes:
            start, end = (base + int(1000 * time) for time in (one["ts"], one["ts"] + one["dur"]))
            export.range(one["name"], start, end - start, (one["pid"], one["tid"]))
    export.write(folder / "nsys.sqlite")
    return folder


def test_four_sources_of_one_run_are_one_timeline(four_sources: Path) -> None:
    """nsys, Kineto, execution trace and flight recorder of two ranks."""
    assert_linked(
        four_sources, {"same.nsys": (6, 6), "same.et_kineto": (533, 533), "same.recorder_kineto": (8, 8)}
    )


@pytest.mark.foreign
def test_five_sources_of_one_run_are_one_timeline() -> None:
    """nsys, Kineto, execution trace, flight recorder and compile log of two ranks."""
    expected = {"same.nsys": (15, 15), "same.et_kineto": (1031, 1031), "same.recorder_kineto": (6, 6)}
    assert_linked(shared("nsys/v2023/matched"), expected)


def assert_linked(folder: Path, expected: dict[str, tuple[int, int]]) -> None:
    merged = tracelink.merge(folder, jobs=1)
    linked = {
        of_rank.rank: {
            one.relation: (one.linked, one.candidates)
            for one in of_rank.links.values()
            if one.relation in expected
        }
        for of_rank in merged.ranks
    }
    assert linked == {0: expected, 1: expected}


def test_ranges_and_annotations_keep_their_times(four_sources: Path) -> None:
    assert_apart(four_sources, 12, 7)


@pytest.mark.foreign
def test_nsys_and_profile_start_at_most_ten_microseconds_apart() -> None:
    assert_apart(shared("nsys/v2023/matched"), 30, 7.5)


def assert_apart(folder: Path, count: int, typical: float) -> None:
    graph = tracelink.load(folder, jobs=1)
    events = graph.events
    system = [number for number, source in enumerate(graph.sources) if source.format == "nsys"]
    edges = graph.edges.where("same")
    edges = edges.take(np.isin(events.source[edges.source], system))
    apart = (events.start[edges.target] - events.start[edges.source]) / MICROSECOND
    assert len(apart) == count
    assert np.median(apart) == pytest.approx(typical, abs=2.5)


def test_a_trace_without_ranges_is_left_as_it_is() -> None:
    system, profile = TraceBuilder(), TraceBuilder()
    system.kernel("k", 0, 1, 0)
    profile.op("aten::mul", 0, 1)
    trace = both(system, profile)
    assert link_ranges(trace).distinct is trace
