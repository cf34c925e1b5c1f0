"""Arrows between ranks and tracks of groups in Perfetto's own engine, of a job whose every link is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from builders.job import JobBuilder
from peers.perfetto_process import Loaded, PerfettoEngine
from tracelink._io.targets import file_target
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.job import LinkedJob
from tracelink._run.processes import Processes
from tracelink.converters.perfetto.json_writer import PerfettoJsonWriter

pytestmark = pytest.mark.peer

RANKS = 3
STEPS = 4


def job() -> JobBuilder:
    """Each step one rank enters last, all leave in turn; and each rank receives from the one before it.

    Within a waiting rank other slices open before its end, and its kernel touches the next.
    """
    built = JobBuilder()
    group = built.group(*range(RANKS), description="dp")
    sends, receives, kernels = {}, {}, {}
    for rank in range(RANKS):
        thread, stream = built.track(rank=rank), built.track(TrackKind.STREAM, rank, "0", "7")
        for step in range(STEPS):
            start, enters = 1000 * step, 1000 * step + 100 * (2 if rank == step % RANKS else 0) + rank
            kernels[rank, step] = built.add(
                stream, f"k{rank} {step}", enters, start + 1000 - enters, EventKind.KERNEL
            )
            built.add(stream, "inside", start + 400, 500, EventKind.KERNEL)
            receives[rank, step] = built.add(thread, f"r{rank} {step}", start, 300)
            sends[rank, step] = built.add(thread, f"s{rank} {step}", start + 100, 150)
    for step in range(STEPS):
        built.together(group, *(kernels[rank, step] for rank in range(RANKS)), bytes=1 << 20)
        for rank in range(1, RANKS):
            built.message(group, sends[rank - 1, step], receives[rank, step])
    return built


@pytest.fixture(scope="module")
def trace(engine: PerfettoEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    path = tmp_path_factory.mktemp("ties") / "job.json"
    (output,) = PerfettoJsonWriter().write(LinkedJob.of(job().build()), file_target(path), Processes(1))
    assert output.findings == ()
    with engine.load(path) as loaded:
        yield loaded


def arrows(trace: Loaded, name: str, argument: str) -> Counter[tuple[str, str, int]]:
    """Of the arrows that end at an instant of this name: cause, the slice around the instant, and its argument."""
    rows = trace.query(
        f"select o.name as cause, p.name as effect, extract_arg(i.arg_set_id, 'args.link.{argument}') as rank"
        " from flow join slice o on o.id = slice_out join slice i on i.id = slice_in"
        f" join slice p on p.id = i.parent_id where i.name = '{name}' and i.ts = p.ts + p.dur - 1"
    )
    return Counter((row["cause"], row["effect"], row["rank"]) for row in rows)


def test_the_engine_has_no_complaint(trace: Loaded) -> None:
    assert trace.problems() == []
    assert trace.value("select count(*) from flow") == STEPS * (RANKS - 1) * 2


def test_who_waits_is_pointed_at_by_who_came_last(trace: Loaded) -> None:
    assert arrows(trace, "waited", "for rank") == Counter(
        (f"k{step % RANKS} {step}", f"k{rank} {step}", step % RANKS)
        for step in range(STEPS)
        for rank in range(RANKS)
        if rank != step % RANKS
    )


def test_messages_lead_from_the_sending_to_the_receiving(trace: Loaded) -> None:
    assert arrows(trace, "received", "from rank") == Counter(
        (f"s{rank - 1} {step}", f"r{rank} {step}", rank - 1)
        for step in range(STEPS)
        for rank in range(1, RANKS)
    )


def test_the_group_has_a_track_with_every_collective(trace: Loaded) -> None:
    rows = trace.query(
        "select s.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'args.last rank') as last"
        " from slice s join thread_track t on t.id = s.track_id join thread using (utid)"
        " where thread.name = 'group dp [0, 1, 2] · row' and s.category = 'collective' order by s.ts"
    )
    assert [(row["name"], row["ts"] + row["dur"], row["last"]) for row in rows] == [
        ("all_reduce 1.0 MB", 1000 * step + 1000, step % RANKS) for step in range(STEPS)
    ]
