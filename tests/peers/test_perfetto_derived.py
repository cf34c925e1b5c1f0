"""What no source has in Perfetto's own engine, in both formats: derived counters, last arrivals, and what hangs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.job import START, JobBuilder
from builders.programs import job_of_programs
from peers.perfetto_process import Loaded, PerfettoEngine
from tracelink._io.targets import file_target
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.json_events import ROW
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter
from tracelink.converters.perfetto.native_writer import PerfettoWriter

pytestmark = pytest.mark.peer

MS = 1_000_000
TRACK_NAMES = "coalesce(nullif(thread.name, ''), track.name)"
"""Slices of JSON stand on threads, those of native traces on tracks."""
SLICES = (
    f"select {TRACK_NAMES} as track, s.name, s.ts - {{base}} as start, s.dur, s.category, s.arg_set_id, parent.name"
    " as parent from slice s join track on track.id = s.track_id left join thread_track tt on tt.id = track.id"
    " left join thread using (utid) left join slice parent on parent.id = s.parent_id"
)


@pytest.fixture(scope="module", params=["json", "pftrace"])
def suffix(request: pytest.FixtureRequest) -> str:
    suffix: str = request.param
    return suffix


def write(job: LinkedJob, path: Path) -> Path:
    writer = PerfettoJsonWriter() if path.suffix == ".json" else PerfettoWriter()
    writer.write(job, file_target(path), Processes(1))
    return path


def launched() -> LinkedJob:
    """Rank 0 launches two kernels on a stream and both take part in what rank 1 enters last; to the nanosecond."""
    built = JobBuilder()
    threads = [built.track(rank=0), built.track(rank=1)]
    streams = [built.track(TrackKind.STREAM, rank, "0", "7") for rank in (0, 1)]
    launches = [built.add(threads[0], "launch", start, 5, EventKind.RUNTIME) for start in (1, 11)]
    first = built.add(streams[0], "first", 101, 1000, EventKind.KERNEL)
    second = built.add(streams[0], "second", 1101, 902, EventKind.KERNEL)
    late = built.add(streams[1], "late", 403, 700, EventKind.KERNEL)
    for launch, kernel in zip(launches, (first, second), strict=True):
        built.edge(launch, Relation.LAUNCHES, kernel)
    built.together(built.group(0, 1, description="dp"), first, late, bytes=1 << 20, bus_gb_s=12.5)
    return LinkedJob.of(built.build())


LANE = re.compile(rf"( \(\d+\))?({ROW})?$")
"""What numbers lanes and rows."""

LAUNCHED: list[tuple[str, list[tuple[int, float]]]] = [
    ("bus GB/s, group dp [0, 1]", [(403, 12.5), (1103, 0)]),
    ("collectives in flight", [(101, 1), (1103, 0)]),
    ("rank 0 outstanding kernels, stream 7", [(1, 1), (11, 2), (1101, 1), (2003, 0)]),
    ("rank 1 outstanding kernels, stream 7", [(403, 1), (1103, 0)]),
]
"""The samples of each counter; times are ns after `START`."""


@pytest.fixture(scope="module")
def counted(
    engine: PerfettoEngine, suffix: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    with engine.load(write(launched(), tmp_path_factory.mktemp("derived") / f"job.{suffix}")) as loaded:
        yield loaded


def test_counters_have_their_values_at_their_times(counted: Loaded, suffix: str) -> None:
    rows = counted.query(
        "select t.name, c.ts, c.value from counter c join counter_track t on t.id = c.track_id"
    )
    after = START - (launched().base_ns or 0)
    called = " value" if suffix == "json" else ""
    samples = sorted((row["name"], row["ts"] - after, row["value"]) for row in rows)
    assert samples == sorted((name + called, *one) for name, some in LAUNCHED for one in some)


def test_counters_of_native_traces_have_units(counted: Loaded, suffix: str) -> None:
    rows = counted.query("select name, unit from counter_track order by 1")
    units = ["GB/s", "count", "count", "count"] if suffix == "pftrace" else [None] * 4
    assert [row["unit"] for row in rows] == units


def test_who_entered_last_stands_within_the_collective(counted: Loaded, suffix: str) -> None:
    argument = "args" if suffix == "json" else "debug.collective"
    rows = counted.query(
        f"select *, extract_arg(arg_set_id, '{argument}.rank') as rank,"
        f" extract_arg(arg_set_id, '{argument}.skew_us') as skew"
        f" from ({SLICES.format(base=START - (launched().base_ns or 0))})"
        " where category = 'arrival'"
    )
    found = [
        [
            row["track"].removesuffix(ROW),
            *(row[name] for name in ("name", "start", "dur", "parent", "rank", "skew")),
        ]
        for row in rows
    ]
    assert found == [["group dp [0, 1]", "rank 1 arrived last", 403, 0, "all_reduce 1.0 MB", 1, 0.302]]


def hung(folder: Path) -> LinkedJob:
    """Rank 2 never comes to a2, behind which rank 0 has asked for a3; the trace lasts 3.3 ms."""
    return job_of_programs(folder, {0: "a1 b1 a2! a3!", 1: "b1 a1 a2!", 2: "a1"}, a=[0, 1, 2], b=[0, 1])


@pytest.fixture(scope="module")
def stuck(engine: PerfettoEngine, suffix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder = tmp_path_factory.mktemp("hung")
    with engine.load(write(hung(folder), folder / f"job.{suffix}")) as loaded:
        yield loaded


def test_the_engine_has_no_complaint(counted: Loaded, stuck: Loaded) -> None:
    assert (counted.problems(), stuck.problems()) == ([], [])


def test_what_hangs_runs_to_the_end_of_the_trace(stuck: Loaded) -> None:
    first = stuck.value("select min(ts) from slice")
    rows = stuck.query(
        f"select * from ({SLICES.format(base=first)}) where name glob 'HUNG *' and category != 'summary'"
        " order by category, start, track"
    )
    assert [(LANE.sub("", row["track"]), row["name"], row["start"], row["dur"]) for row in rows] == [
        ("group a [0, 1, 2] · HUNG (cause)", "HUNG all_reduce 4.1 kB: rank 2 missing", 2 * MS, 1_300_000),
        ("group a [0, 1, 2] · HUNG", "HUNG all_reduce 4.1 kB: ranks 1-2 missing", 3 * MS, 300_000),
        ("rank 0 group a", "HUNG nccl:all_reduce", 2 * MS, 1_300_000),
        ("rank 1 group a", "HUNG nccl:all_reduce", 2 * MS, 1_300_000),
        ("rank 0 group a", "HUNG nccl:all_reduce", 3 * MS, 300_000),
    ]
    assert stuck.value("select max(ts + dur) from slice") == first + 3_300_000
    samples = stuck.query("select ts, value from counter order by ts")
    assert [(row["ts"] - first, row["value"]) for row in samples] == [(0, 2), (2 * MS, 1), (3 * MS, 2)]


def test_what_hangs_has_one_colour_in_native_traces_and_nothing_else_has_it(
    stuck: Loaded, suffix: str
) -> None:
    rows = stuck.query(
        "select name glob 'HUNG *' as hangs, extract_arg(arg_set_id, 'correlation_id') as colour, count(*) as count"
        " from slice group by 1, 2"
    )
    colours = {row["hangs"]: row["colour"] for row in rows}
    assert len(rows) == 2
    assert colours == {0: None, 1: "tp:#262" if suffix == "pftrace" else None}
