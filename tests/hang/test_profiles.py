"""Profiles next to dumps: frames, activity, roots and sightings."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders import execution_trace as et
from builders.data import traces
from builders.dumps import dumps, hang, healthy, steps
from builders.kineto import Element, cpu_op, trace, write
from builders.recorder import CREATED, pickled
from builders.trace import TraceBuilder
from builders.witnesses import LOADER, RING, loading, profile
from builders.witnesses import call as profiled_call
from tracelink import Diagnosis, Kind
from tracelink._hang.facts.model import CallSeen, Problem, Role, Running, Sighting, Stretch, WorkSeen
from tracelink._hang.facts.model import Kind as ProblemKind
from tracelink._hang.profiles import MOST_BYTES, MOST_TRACKS, find_activity
from tracelink._join.ranks import graph_of_rank
from tracelink._link.rank import link_rank
from tracelink._model.events import EventKind, TrackKind
from tracelink._model.records import Frame

# Activity of threads and streams.


MAIN = "thread 100"
NOBODY = np.empty(0, np.int64)


def seen(
    builder: TraceBuilder, first: int, last: int, track: int = 0, without: tuple[int, ...] = ()
) -> tuple[Stretch, ...]:
    graph = graph_of_rank(link_rank(builder.trace()))
    return find_activity(graph, first, last, track, np.array(without, np.int64))


def told(stretches: tuple[Stretch, ...]) -> dict[str, list[tuple[str, int]]]:
    return {one.where: [(each.name, each.duration_ns) for each in one.running] for one in stretches}


def test_calls_longer_than_half() -> None:
    built = TraceBuilder()
    built.op("step", 0, 1000)
    built.op("load", 200, 900)
    built.op("before", 0, 150)
    built.op("open", 300, 310)
    built.op("read", 320, 890)
    assert told(seen(built, 100, 900)) == {MAIN: [("step", 800), ("load", 700), ("read", 570)]}


def test_many_short_calls() -> None:
    built = TraceBuilder()
    built.op("epoch", 0, 1000)
    for start in range(0, 1000, 10):
        built.op("next", start, start + 9)
    assert told(seen(built, 0, 1000)) == {MAIN: [("epoch", 1000)]}


def test_calling_thread_comes_first() -> None:
    built = TraceBuilder()
    stream, other = built.lane(TrackKind.STREAM, "7"), built.lane(TrackKind.THREAD, "101")
    built.kernel("gemm", 0, 900, stream)
    built.op("load", 0, 1000, other)
    built.op("wait", 100, 1000)
    assert told(seen(built, 0, 1000)) == {
        MAIN: [("wait", 900)],
        "thread 101": [("load", 1000)],
        "stream 7": [("gemm", 900)],
    }
    assert [one.where for one in seen(built, 0, 1000)] == [MAIN, "thread 101", "stream 7"]


def test_limit_of_threads() -> None:
    built = TraceBuilder()
    for number in range(5):
        built.op("spin", number, 1000, built.lane(TrackKind.THREAD, str(200 + number)))
    assert len(seen(built, 0, 1000)) == MOST_TRACKS


def test_unfinished_events() -> None:
    built = TraceBuilder()
    built.event(EventKind.OPERATOR, "hang", 200, 199)
    assert told(seen(built, 100, 900)) == {MAIN: [("hang", 700)]}


def test_profiler_frames_are_ignored() -> None:
    built = TraceBuilder()
    work = built.op("gloo:all_reduce", 0, 1000, built.lane(TrackKind.THREAD, "101"))
    built.event(EventKind.PYTHON, "train.py(5): main", 0, 1000)
    built.event(EventKind.PYTHON, "torch/profiler/profiler.py(700): stop", 10, 1000)
    built.event(EventKind.PYTHON, "torch/autograd/profiler.py(300): __exit__", 20, 1000)
    assert told(seen(built, 0, 1000, without=(work,))) == {MAIN: [("train.py(5): main", 1000)]}


def test_startup_and_torch_frames_are_ignored() -> None:
    built = TraceBuilder()
    for depth, name in enumerate(
        ["runpy.py(88): run", "train.py(5): main", "torch/nn/modules/x.py(9): f", "queue.py(3): get"]
    ):
        built.event(EventKind.PYTHON, name, depth, 1000)
    assert [name for name, _ in told(seen(built, 0, 1000))[MAIN]] == ["train.py(5): main", "queue.py(3): get"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=12), st.integers(1, 60))
def test_any_activity_fits_the_stretch(spans: list[tuple[int, int]], last: int) -> None:
    built = TraceBuilder()
    for start, length in spans:
        built.op(f"op{start}", start, start + length)
    for stretch in seen(built, 0, last):
        times = [one.duration_ns for one in stretch.running]
        assert all(last < 2 * time <= 2 * last for time in times)


# Roots from profiles.


RANKS = range(4)


def entries(*, finished: bool) -> dict[int, list[dict[str, Any]]]:
    """An all-reduce, and a broadcast in which all are."""
    both = {rank: steps(rank, 3 if finished else 2)[:2] for rank in RANKS}
    return {rank: [one, other | {"profiling_name": "nccl:broadcast"}] for rank, (one, other) in both.items()}


def call(number: int, name: str, rank: int) -> list[Element]:
    time = number * 1e6
    said = {"Collective_name": name, "Process_Group_Name": "0", "Rank": rank, "In_msg_nelems": 1024}
    return [
        cpu_op(f"c10d::{name}_", time - 20, 100),
        cpu_op("record_param_comms", time - 10, 80, Group_size=4, **said),
    ]


def job(folder: Path, roots: dict[int, int], *, finished: bool = False) -> Path:
    """What each rank named as the root of the broadcast."""
    dumps(folder / "dumps", entries(finished=finished))
    for rank, root in roots.items():
        elements = [*call(1, "allreduce", rank), *call(2, "broadcast", root)]
        profile = trace(*elements, rank=rank, baseTimeNanoseconds=CREATED)
        write(folder / "traces" / f"k_{rank}.json", profile)
    return folder


UNDECIDED = [(Kind.IN_FLIGHT, 2, ())]


def rooted(diagnosis: Diagnosis) -> list[tuple[Kind, int | None, tuple[int, ...]]]:
    return [(one.kind, one.sequence, one.culprits) for one in diagnosis.problems]


def test_hanging_broadcast_with_another_root(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    assert rooted(tracelink.diagnose(tmp_path / "dumps", jobs=1)) == UNDECIDED
    (problem,) = tracelink.diagnose(tmp_path, jobs=1).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.PEER_MISMATCH, (2,), (0, 1, 3))
    assert "Compare the root (src, dst) of the calls at train.py:20 (step)" in problem.advice
    assert [(one.rank, one.call and one.call.operation) for one in problem.sightings] == [
        (2, "broadcast"),
        (0, "broadcast"),
    ]


def test_finished_broadcast_needs_named_profiles(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0}, finished=True)
    traces = tmp_path / "traces"
    assert rooted(tracelink.diagnose(tmp_path, jobs=1)) == []
    named = tracelink.diagnose(tmp_path / "dumps", kineto=traces, jobs=1)
    assert rooted(named) == [(Kind.PEER_MISMATCH, 2, (2,))]


def test_equal_roots(tmp_path: Path) -> None:
    job(tmp_path, dict.fromkeys(RANKS, 3))
    assert rooted(tracelink.diagnose(tmp_path, jobs=1)) == UNDECIDED


def test_single_profile_has_no_roots(tmp_path: Path) -> None:
    job(tmp_path, {2: 3})
    assert rooted(tracelink.diagnose(tmp_path, jobs=1)) == UNDECIDED


def test_too_large_profiles_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    assert MOST_BYTES > 1 << 20
    monkeypatch.setattr("tracelink._hang.profiles.MOST_BYTES", 1000)
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert (rooted(diagnosis), [one.reason for one in diagnosis.findings]) == (
        UNDECIDED,
        ["roots_unchecked"],
    )


def test_damaged_profile_for_roots(tmp_path: Path) -> None:
    job(tmp_path, {0: 0, 1: 0, 2: 3, 3: 0})
    broken = tmp_path / "traces" / "k_3.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": 7}')
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert rooted(diagnosis) == [(Kind.PEER_MISMATCH, 2, (2,))]
    assert any(str(broken) in one.message for one in diagnosis.findings)


def test_recorded_roots() -> None:
    data = traces("cpu_job")
    diagnosis = tracelink.diagnose(fr=data / "fr", kineto=data, et=data)
    assert (diagnosis.verdict, [one for one in diagnosis.findings if one.severity == "error"]) == ("ok", [])


# Sightings of ranks in profiles.


SECOND = 1_000_000_000
MAIN_FRAME, STEP = Frame("main", "train.py", 100), Frame("step", "train.py", 20)


def problem(*paths: Path, kineto: Path | tuple[()] = ()) -> Problem:
    (found,) = tracelink.diagnose(paths, kineto=kineto, jobs=1).problems
    return found


def of_rank(rank: int, found: Problem) -> Sighting:
    (one,) = (each for each in found.sightings if each.rank == rank)
    return one


def call_of(rank: int, found: Problem) -> CallSeen:
    one = of_rank(rank, found).call
    assert one
    return one


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """Rank 2 loads data while the others wait for it in the third all-reduce."""
    dumps(tmp_path / "dumps", hang(4, culprit=2))
    profile(
        tmp_path / "traces",
        0,
        profiled_call(1),
        profiled_call(2),
        profiled_call(3, finished=False),
    )
    profile(tmp_path / "traces", 2, profiled_call(1), profiled_call(2), loading(2.3, 6.8))
    return tmp_path


def test_last_call_and_activity_of_the_culprit(job_folder: Path) -> None:
    start = CREATED + 2 * SECOND
    assert of_rank(2, problem(job_folder)) == Sighting(
        rank=2,
        role=Role.CULPRIT,
        sources=(str(job_folder / "traces" / "host_4014.1741000000.pt.trace.json"),),
        start_ns=CREATED + SECOND // 2,
        end_ns=CREATED + 7 * SECOND,
        call=CallSeen(
            operation="all_reduce",
            group="0",
            sequence=2,
            before=0,
            operator="record_param_comms",
            thread="thread 4200",
            start_ns=start - 10_000,
            duration_ns=80_000,
            around=("DistributedDataParallel.forward", "c10d::allreduce_"),
            frames=(STEP, MAIN_FRAME),
            node=None,
            work=WorkSeen(RING, "stream 20", start + 100_000, 1_000_000),
            launched=True,
        ),
        stretches=(
            Stretch(
                "thread 4200",
                start + 80_000,
                5 * SECOND - 80_000,
                (
                    Running("train.py(100): main", 5 * SECOND - 80_000),
                    Running("data.py(12): batches", 4_500_000_000),
                    Running(LOADER, 4_500_000_000),
                ),
            ),
        ),
    )


def test_waiting_call_with_unfinished_kernel(job_folder: Path) -> None:
    seen = of_rank(0, problem(job_folder))
    assert (seen.role, seen.note, seen.later, seen.stretches) == (Role.WAITING, "", None, ())
    assert seen.call
    assert (seen.call.sequence, seen.call.before) == (3, 0)
    assert (seen.call.work, seen.call.launched) == (None, True)


def test_call_without_a_kernel(job_folder: Path) -> None:
    profile(
        job_folder / "traces",
        0,
        profiled_call(1),
        profiled_call(2),
        profiled_call(3, launched=False, finished=False),
    )
    seen = call_of(0, problem(job_folder))
    assert (seen.sequence, seen.work, seen.launched) == (3, None, False)


def test_profile_that_ends_before_the_call(tmp_path: Path) -> None:
    entries = {rank: steps(rank, 9) for rank in range(4)}
    del entries[2][8:]
    dumps(tmp_path / "dumps", entries)
    for rank in (0, 2):
        profile(tmp_path / "traces", rank, profiled_call(1), profiled_call(2), until=3)
    found = problem(tmp_path)
    told = [
        (one.rank, one.note, one.call and (one.call.sequence, one.call.before)) for one in found.sightings
    ]
    assert told == [
        (2, "it ends 5.0 s before this call", (2, 6)),
        (0, "it ends 6.0 s before this call", (2, 7)),
    ]
    assert [one.stretches for one in found.sightings] == [(), ()]


def test_profile_later_than_the_dump(job_folder: Path) -> None:
    profile(
        job_folder / "traces",
        2,
        profiled_call(1),
        profiled_call(2),
        loading(2.3, 5.8),
        profiled_call(6),
    )
    seen = of_rank(2, problem(job_folder))
    assert seen.later
    assert seen.later.start_ns == CREATED + 6 * SECOND - 10_000
    assert [one.duration_ns for one in seen.stretches] == [4 * SECOND - 100_000]


def test_rank_without_a_dump(job_folder: Path) -> None:
    (job_folder / "dumps" / "comm_lib_trace_rank_2").unlink()
    seen = of_rank(2, problem(job_folder))
    assert seen.note == "this rank has no dump: its last call of this kind is shown"
    assert seen.call
    assert (seen.call.start_ns, seen.call.before) == (CREATED + 2 * SECOND - 10_000, None)
    assert [running.name for running in seen.stretches[0].running][-1] == LOADER


def test_profiles_change_only_the_next_step(job_folder: Path) -> None:
    alone, together = problem(job_folder / "dumps"), problem(job_folder)
    assert alone.sightings == ()
    assert (together.message, together.evidence) == (alone.message, alone.evidence)
    assert "py-spy" in alone.advice
    assert together.advice.startswith("Find out why rank 2 was in enumerate(DataLoader)")


def test_rank_from_the_first_bytes(job_folder: Path) -> None:
    assert problem(job_folder / "dumps", kineto=job_folder / "traces") == problem(job_folder)


def test_profiles_of_other_ranks_are_not_read(job_folder: Path) -> None:
    broken = job_folder / "traces" / "kineto_rank1.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": [broken')
    diagnosis = tracelink.diagnose(job_folder, jobs=1)
    assert [one.rank for one in diagnosis.problems[0].sightings] == [2, 0]
    assert [one for one in diagnosis.findings if str(broken) in one.message] == []


def test_damaged_profile(job_folder: Path) -> None:
    (broken,) = (job_folder / "traces").glob("host_4014*")
    broken.write_text('{"schemaVersion": 1, "distributedInfo": {"rank": 2}, "traceEvents": 7}')
    diagnosis = tracelink.diagnose(job_folder, jobs=1)
    assert [one.rank for one in diagnosis.problems[0].sightings] == [0]
    assert any(str(broken) in one.message for one in diagnosis.findings)


def test_healthy_job_reads_no_profiles(tmp_path: Path) -> None:
    dumps(tmp_path, healthy(4))
    (tmp_path / "kineto_rank1.json").write_text('{"schemaVersion": 1, "traceEvents": [broken')
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert (diagnosis.verdict, list(diagnosis.findings)) == ("ok", [])


def test_profile_without_a_rank(job_folder: Path) -> None:
    nodes = et.trace(et.thread_root(2), et.node(3, handle=1), et.process_root())
    (job_folder / "traces" / "nodes.json").write_bytes(nodes)
    (finding,) = tracelink.diagnose(job_folder, jobs=1).findings
    assert (finding.reason, finding.example) == ("unknown_rank", str(job_folder / "traces" / "nodes.json"))


def cut(folder: Path, first: int = 0) -> Path:
    """The dumps of a recorded job: rank 1 stopped before the last call of the profiles, in which rank 0 waits."""
    shutil.copytree(traces("cpu_job/fr"), folder)
    for rank, kept in enumerate((21, 20)):
        dump = folder / f"comm_lib_trace_rank_{rank}"
        content = pickle.loads(dump.read_bytes())
        content["entries"] = content["entries"][first:kept]
        dump.write_bytes(pickled(content))
    return folder


def recorded(folder: Path, *ranks: int, of: str = "kineto et") -> Path:
    """Its profiles and execution traces."""
    folder.mkdir()
    for kind in of.split():
        for rank in ranks:
            shutil.copy(traces(f"cpu_job/{kind}_{rank}.json.gz"), folder)
    return folder


SCRIPT = "generators/record_cpu_job.py"


def test_recorded_call(tmp_path: Path) -> None:
    found = problem(cut(tmp_path / "dumps"), recorded(tmp_path / "traces", 0, 1))
    assert (found.kind, found.culprits) == (ProblemKind.IN_FLIGHT, (1,))
    seen = call_of(1, found)
    assert (seen.operation, seen.group, seen.sequence, seen.before) == ("all_reduce", "0", 12, 0)
    assert (seen.operator, seen.thread) == ("c10d::allreduce_", "thread 29105 (python)")
    assert seen.around == (
        "ProfilerStep#2",
        "## step ##",
        "## backward ##",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    )
    assert seen.frames == (Frame("train_step", SCRIPT, 63), Frame("record_rank", SCRIPT, 118))
    assert (seen.node, seen.launched) == (746, None)
    assert seen.work
    assert (seen.work.name, seen.work.where) == ("gloo:all_reduce", "thread 29172 (pt_gloo_runloop)")
    waits = call_of(0, found)
    assert (waits.group, waits.sequence, waits.before, waits.node) == ("0", 13, 0, 788)


def test_recorded_activity_after_the_dump(tmp_path: Path) -> None:
    found = problem(cut(tmp_path / "dumps"), recorded(tmp_path / "traces", 1, of="kineto"))
    seen = of_rank(1, found)
    assert seen.later
    assert (seen.later.operator, seen.later.frames[0].name) == ("c10d::recv_", "ring_exchange")
    assert [one.name for one in seen.stretches[0].running][:5] == [
        f"{SCRIPT}(118): record_rank",
        "ProfilerStep#2",
        "## step ##",
        f"{SCRIPT}(63): train_step",
        "## backward ##",
    ]


def test_execution_trace_only(tmp_path: Path) -> None:
    found = problem(cut(tmp_path / "dumps", first=13), recorded(tmp_path / "traces", 0, of="et"))
    (seen,) = found.sightings
    assert (seen.rank, seen.end_ns) == (0, None)
    assert seen.note == "it has no times: its calls are matched by their order"
    assert (call_of(0, found).operator, call_of(0, found).node) == ("c10d::barrier", 788)
