"""Profiles in native traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import tracelink
import tracelink._api.functions as api
from builders.data import foreign, traces
from builders.inputs import found
from builders.native_packets import Sequence, head, source
from tracelink import EventGraph, samples
from tracelink._api.inspection import inspect_sources
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.trace import Payloads
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.native_profiles import PerfettoReader

PAIR = samples.path("gpu_pair")
PROFILES = [PAIR / f"kineto_{rank}.json.gz" for rank in (0, 1)]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample of two ranks with all its sources."""
    path = tmp_path_factory.mktemp("merged") / "job.pftrace"
    api.merge([PAIR], output=path)
    return path


def events(graph: EventGraph) -> list[tuple[object, ...]]:
    """Everything that profiles say of events: rank, thread, kind, name, times, arguments."""
    told = [dict(_numbered(payloads)) for payloads in graph.payloads]
    found = []
    columns = graph.events
    for row, (place, of, payload) in enumerate(
        zip(columns.track.tolist(), columns.source.tolist(), columns.payload.tolist(), strict=True)
    ):
        track, kind = graph.tracks[place], EventKind(columns.kind[row])
        thread = (track.process, track.identity) if track.kind != TrackKind.PROCESS else ("", "")
        times = int(columns.start[row]), int(columns.duration[row])
        found.append((track.rank, *thread, kind, graph.name(row), *times, told[of].get(payload, "")))
    return sorted(found)


def _numbered(payloads: Payloads) -> Iterator[tuple[int, str]]:
    for first, texts in payloads.batches():
        for place, said in enumerate(texts, first):
            yield place, json.dumps(json.loads(bytes(said)), sort_keys=True) if said else ""


@pytest.mark.parametrize("jobs", [1, 3])
def test_loading_gives_the_events_of_the_profiles(merged: Path, jobs: int) -> None:
    """With their threads, times and arguments, and linked as they are: the clocks are corrected already."""
    loaded = tracelink.load(merged, jobs=jobs)
    profiles = [
        one for one in events(tracelink.load(PAIR)) if one[3] not in (EventKind.NODE, EventKind.RECORD)
    ]
    assert events(loaded) == profiles
    assert [rank.clock_offset_ns for rank in loaded.ranks] == [0, 0]
    assert [rank.world_size for rank in loaded.ranks] == [2, 2]
    assert [group.ranks for group in loaded.groups] == [(0, 1), (0, 1)]
    assert len(loaded.collectives) == len(tracelink.load(PROFILES).collectives)


def test_counters_are_those_of_the_profiles(tmp_path: Path) -> None:
    """What follows from events follows again, and stands there once."""
    api.merge(PROFILES, output=tmp_path / "job.pftrace")
    again = tracelink.load(tmp_path / "job.pftrace")
    of = tracelink.load(PROFILES)

    def samples_of(graph: EventGraph) -> list[tuple[str, int, float]]:
        labels = [graph.tracks[track].label for track in graph.counters.track.tolist()]
        return sorted(zip(labels, graph.counters.time.tolist(), graph.counters.value.tolist(), strict=True))

    assert samples_of(again) == samples_of(of)


def test_inspecting_says_which_ranks_there_are(merged: Path) -> None:
    inspection = inspect_sources(found(merged), Processes(1))
    assert [(one.path, one.format, one.rank, one.world_size) for one in inspection.sources] == [
        (f"{merged}:rank-{rank}", "perfetto", rank, 2) for rank in (0, 1)
    ]
    assert [finding.reason for finding in inspection.findings] == ["drawn_only"]


JOBS = [PAIR, samples.path("cpu_job")]


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_inspecting_finds_what_reading_finds(job: Path, tmp_path: Path) -> None:
    """Only the size is that of the file: of several ranks, each has a share by its events."""
    api.merge([job], output=tmp_path / "job.pftrace")
    (file,) = found(tmp_path / "job.pftrace").sources
    reader = PerfettoReader()
    ranks, findings = reader.unpacked(file, Processes(1))
    traces = [reader.read(rank, Processes(1)) for rank in ranks]
    inspected = reader.inspect(file, Processes(1))
    stored = [rank.info.bytes for rank in inspected]
    assert file.bytes - len(ranks) < sum(stored) <= file.bytes
    assert [rank.info for rank in inspected] == [
        replace(trace.source, bytes=size) for trace, size in zip(traces, stored, strict=True)
    ]
    assert [rank.devices for rank in inspected] == [trace.devices for trace in traces]
    assert [finding for rank in inspected for finding in rank.findings] == [
        *findings,
        *(finding for trace in traces for finding in trace.findings),
    ]


def test_one_rank_is_chosen(merged: Path) -> None:
    graph = tracelink.load(merged, ranks="1")
    assert [rank.rank for rank in graph.ranks] == [1]


def test_beside_the_profiles_it_was_made_of_it_is_passed_over(merged: Path) -> None:
    graph = tracelink.load([*PROFILES, merged])
    assert {source.format for source in graph.sources} == {"kineto"}
    assert {finding.reason for finding in graph.findings} >= {"duplicate_source"}


def test_in_a_directory_the_traces_of_others_are_passed_over(tmp_path: Path) -> None:
    others = Sequence().instant(0, "another", category="input")
    (tmp_path / "other.pftrace").write_bytes(bytes(others))
    (tmp_path / "k_0.json.gz").write_bytes(PROFILES[0].read_bytes())
    graph = tracelink.load(tmp_path)
    assert [(one.severity, one.reason) for one in graph.findings if "pftrace" in one.source] == [
        ("info", "skipped")
    ]
    with pytest.raises(UnreadableError, match="neither tracelink nor PyTorch nor rocprof wrote"):
        tracelink.load(tmp_path / "other.pftrace")


def test_a_trace_of_recorders_alone_is_a_picture() -> None:
    told = Sequence().instant(0, "all_reduce", category="record")
    with pytest.raises(UnreadableError) as raised:
        PerfettoReader().unpacked(source(head() + bytes(told)), Processes(1))
    assert str(raised.value) == (
        "job.pftrace: this trace contains no profile. Use the files from which it was made; "
        "`tracelink merge -o FILE.json` writes it as JSON."
    )


def test_a_reader_by_itself_reads_one_rank(merged: Path, tmp_path: Path) -> None:
    (both,) = found(merged).sources
    with pytest.raises(UnreadableError, match="2 ranks"):
        PerfettoReader().read(both, Processes(1))
    api.merge(PROFILES[:1], output=tmp_path / "one.pftrace")
    (one,) = found(tmp_path / "one.pftrace").sources
    trace = PerfettoReader().read(one, Processes(1))
    assert (trace.source.format, trace.source.rank, len(trace.events)) == ("perfetto", 0, 493)


@pytest.mark.parametrize("name", ["gpu_2023/kineto_{}.json", *foreign("kineto/pair_rank{}.json.gz")])
def test_two_ranks_of_2023(tmp_path: Path, name: str) -> None:
    paths = [traces(name.format(rank)) for rank in (0, 1)]
    api.merge(paths, output=tmp_path / "job.pftrace")
    assert events(tracelink.load(tmp_path / "job.pftrace")) == events(tracelink.load(paths))
