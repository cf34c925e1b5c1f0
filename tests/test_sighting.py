"""Under a problem stands what profiles show of its ranks; profiles of other ranks are not read."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

import tracelink
from builders import execution_trace as et
from builders.data import shared
from builders.dumps import dumps, hang, healthy, steps
from builders.profiles import LOADER, RING, call, loading, profile
from builders.recorder import CREATED, pickled
from tracelink.diagnosis.model import CallSeen, Kind, Problem, Role, Running, Sighting, Stretch, WorkSeen
from tracelink.model.records import Frame

SECOND = 1_000_000_000
MAIN, STEP = Frame("main", "train.py", 100), Frame("step", "train.py", 20)


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
def job(tmp_path: Path) -> Path:
    """Rank 2 loads data while the others wait for it in the third all-reduce."""
    dumps(tmp_path / "dumps", hang(4, culprit=2))
    profile(tmp_path / "traces", 0, call(1), call(2), call(3, finished=False))
    profile(tmp_path / "traces", 2, call(1), call(2), loading(2.3, 6.8))
    return tmp_path


def test_the_last_call_of_the_culprit_and_what_it_did_after_that(job: Path) -> None:
    start = CREATED + 2 * SECOND
    assert of_rank(2, problem(job)) == Sighting(
        rank=2,
        role=Role.CULPRIT,
        sources=(str(job / "traces" / "host_4014.1741000000.pt.trace.json"),),
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
            frames=(STEP, MAIN),
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


def test_the_call_in_which_another_waits_and_the_kernel_that_does_not_end(job: Path) -> None:
    seen = of_rank(0, problem(job))
    assert (seen.role, seen.note, seen.later, seen.stretches) == (Role.WAITING, "", None, ())
    assert seen.call
    assert (seen.call.sequence, seen.call.before) == (3, 0)
    assert (seen.call.work, seen.call.launched) == (None, True)


def test_a_call_that_never_launched_a_kernel(job: Path) -> None:
    profile(job / "traces", 0, call(1), call(2), call(3, launched=False, finished=False))
    seen = call_of(0, problem(job))
    assert (seen.sequence, seen.work, seen.launched) == (3, None, False)


def test_a_profile_that_ends_before_shows_an_earlier_call_like_it(tmp_path: Path) -> None:
    entries = {rank: steps(rank, 9) for rank in range(4)}
    del entries[2][8:]
    dumps(tmp_path / "dumps", entries)
    for rank in (0, 2):
        profile(tmp_path / "traces", rank, call(1), call(2), until=3)
    found = problem(tmp_path)
    told = [
        (one.rank, one.note, one.call and (one.call.sequence, one.call.before)) for one in found.sightings
    ]
    assert told == [
        (2, "it ends 5.0 s before this call", (2, 6)),
        (0, "it ends 6.0 s before this call", (2, 7)),
    ]
    assert [one.stretches for one in found.sightings] == [(), ()]


def test_what_the_dump_does_not_know_yet(job: Path) -> None:
    profile(job / "traces", 2, call(1), call(2), loading(2.3, 5.8), call(6))
    seen = of_rank(2, problem(job))
    assert seen.later
    assert seen.later.start_ns == CREATED + 6 * SECOND - 10_000
    assert [one.duration_ns for one in seen.stretches] == [4 * SECOND - 100_000]


def test_a_rank_without_a_dump_is_seen_in_its_profile(job: Path) -> None:
    (job / "dumps" / "comm_lib_trace_rank_2").unlink()
    seen = of_rank(2, problem(job))
    assert seen.note == "without a dump of this rank its last such call is shown"
    assert seen.call
    assert (seen.call.start_ns, seen.call.before) == (CREATED + 2 * SECOND - 10_000, None)
    assert [running.name for running in seen.stretches[0].running][-1] == LOADER


def test_profiles_change_nothing_of_the_problem_itself(job: Path) -> None:
    alone, together = problem(job / "dumps"), problem(job)
    assert alone.sightings == ()
    assert (together.message, together.advice, together.evidence) == (
        alone.message,
        alone.advice,
        alone.evidence,
    )


def test_profiles_that_are_named_say_in_their_first_bytes_whose_they_are(job: Path) -> None:
    assert problem(job / "dumps", kineto=job / "traces") == problem(job)


def test_damaged_profiles_of_other_ranks_are_not_even_read(job: Path) -> None:
    broken = job / "traces" / "kineto_rank1.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": [broken')
    diagnosis = tracelink.diagnose(job, jobs=1)
    assert [one.rank for one in diagnosis.problems[0].sightings] == [2, 0]
    assert [one for one in diagnosis.findings if str(broken) in one.message] == []


def test_a_damaged_profile_costs_only_what_it_would_have_shown(job: Path) -> None:
    (broken,) = (job / "traces").glob("host_4014*")
    broken.write_text('{"schemaVersion": 1, "distributedInfo": {"rank": 2}, "traceEvents": 7}')
    diagnosis = tracelink.diagnose(job, jobs=1)
    assert [one.rank for one in diagnosis.problems[0].sightings] == [0]
    assert any(str(broken) in one.message for one in diagnosis.findings)


def test_a_healthy_job_reads_no_profile(tmp_path: Path) -> None:
    dumps(tmp_path, healthy(4))
    (tmp_path / "kineto_rank1.json").write_text('{"schemaVersion": 1, "traceEvents": [broken')
    diagnosis = tracelink.diagnose(tmp_path, jobs=1)
    assert (diagnosis.verdict, list(diagnosis.findings)) == ("ok", [])


def test_a_profile_of_which_no_rank_is_known_is_named(job: Path) -> None:
    nodes = et.trace(et.thread_root(2), et.node(3, handle=1), et.process_root())
    (job / "traces" / "nodes.json").write_bytes(nodes)
    (finding,) = tracelink.diagnose(job, jobs=1).findings
    assert (finding.reason, finding.example) == ("unknown_rank", str(job / "traces" / "nodes.json"))


def cut(folder: Path, rank: int, kept: int) -> Path:
    """The dumps of a recorded job, of which one rank is said to have stopped after so many calls."""
    shutil.copytree(shared("matched8/fr"), folder)
    dump = folder / f"comm_lib_trace_rank_{rank}"
    content = pickle.loads(dump.read_bytes())
    content["entries"] = content["entries"][:kept]
    dump.chmod(0o644)
    dump.write_bytes(pickled(content))
    return folder


def of_matched8(folder: Path, *ranks: int, of: str = "kineto et") -> Path:
    """Its profiles and execution traces."""
    folder.mkdir()
    for kind in of.split():
        for rank in ranks:
            shutil.copy(shared(f"matched8/{kind}_{rank}.json.gz"), folder)
    return folder


def test_a_recorded_call_from_its_operators_down_to_what_carries_it_out(tmp_path: Path) -> None:
    found = problem(cut(tmp_path / "dumps", rank=3, kept=50), of_matched8(tmp_path / "traces", 2, 3))
    assert (found.kind, found.culprits) == (Kind.LAGGING, (3,))
    seen = call_of(3, found)
    assert (seen.operation, seen.group, seen.sequence, seen.before) == ("all_reduce", "6", 14, 0)
    assert (seen.operator, seen.thread) == ("c10d::allreduce_", "thread 19151 (python3.11)")
    assert seen.around == (
        "## step 4 ##",
        "## bwd ##",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    )
    assert seen.frames == (Frame("step", "gen_matched8.py", 32), Frame("worker", "gen_matched8.py", 58))
    assert (seen.node, seen.launched) == (1886, None)
    assert seen.work
    assert (seen.work.name, seen.work.where) == ("gloo:all_reduce", "thread 19353 (pt_gloo_runloop)")
    waits = call_of(2, found)
    assert (waits.group, waits.sequence, waits.before, waits.node) == ("2", 13, 0, 1925)


def test_a_recorded_program_goes_on_where_its_dump_was_cut(tmp_path: Path) -> None:
    found = problem(
        cut(tmp_path / "dumps", rank=3, kept=50), of_matched8(tmp_path / "traces", 3, of="kineto")
    )
    seen = of_rank(3, found)
    assert seen.later
    assert (seen.later.operator, seen.later.frames[0].name) == ("c10d::allreduce_", "<lambda>")
    (stretch,) = seen.stretches
    assert [one.name for one in stretch.running][:4] == [
        "gen_matched8.py(58): worker",
        "## step 4 ##",
        "gen_matched8.py(32): step",
        "## bwd ##",
    ]


def test_an_execution_trace_alone_shows_operators_and_nodes(tmp_path: Path) -> None:
    found = problem(cut(tmp_path / "dumps", rank=3, kept=50), of_matched8(tmp_path / "traces", 2, of="et"))
    (seen,) = found.sightings
    assert (seen.rank, seen.end_ns) == (2, None)
    assert seen.note == "it has no times: which of its calls these are rests on their order"
    assert (call_of(2, found).operator, call_of(2, found).node) == ("c10d::allreduce_", 1925)
