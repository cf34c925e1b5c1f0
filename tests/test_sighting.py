"""Under a problem stands what profiles show of its ranks; profiles of other ranks are not read."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

import tracelink
from builders.data import shared
from builders.recorder import pickled
from tracelink.diagnosis import Frame, Kind, Problem, Role, Sighting

STEP, WORKER = Frame("step", "gen_matched8.py", 32), Frame("worker", "gen_matched8.py", 58)


def cut(folder: Path, rank: int, kept: int) -> Path:
    """The dumps of a recorded job, of which one rank is said to have stopped after so many calls."""
    shutil.copytree(shared("matched8/fr"), folder)
    dump = folder / f"comm_lib_trace_rank_{rank}"
    content = pickle.loads(dump.read_bytes())
    content["entries"] = content["entries"][:kept]
    dump.chmod(0o644)
    dump.write_bytes(pickled(content))
    return folder


def profiles(folder: Path, *ranks: int, of: str = "kineto et") -> Path:
    """Those of the same job."""
    folder.mkdir(exist_ok=True)
    for kind in of.split():
        for rank in ranks:
            shutil.copy(shared(f"matched8/{kind}_{rank}.json.gz"), folder)
    return folder


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    return cut(tmp_path / "dumps", rank=3, kept=50)


def problem(*paths: Path) -> Problem:
    (found,) = tracelink.diagnose(paths, jobs=1).problems
    return found


def of_rank(rank: int, found: Problem) -> Sighting:
    (one,) = (each for each in found.sightings if each.rank == rank)
    return one


def test_a_hang_without_profiles_is_the_same_hang(tmp_path: Path, dumps: Path) -> None:
    alone, together = problem(dumps), problem(dumps, profiles(tmp_path / "traces", 2, 3))
    assert (alone.kind, alone.culprits, alone.sightings) == (Kind.LAGGING, (3,), ())
    assert (together.message, together.evidence) == (alone.message, alone.evidence)


def test_the_last_call_of_the_culprit_from_its_operators_down_to_what_carries_it_out(
    tmp_path: Path, dumps: Path
) -> None:
    seen = of_rank(3, problem(dumps, profiles(tmp_path / "traces", 2, 3)))
    assert (seen.role, seen.note, [Path(one).name for one in seen.sources]) == (
        Role.CULPRIT,
        "",
        ["et_3.json.gz", "kineto_3.json.gz"],
    )
    call = seen.call
    assert call
    assert (call.operation, call.group, call.sequence, call.before) == ("all_reduce", "6", 14, 0)
    assert (call.operator, call.thread) == ("c10d::allreduce_", "thread 19151 (python3.11)")
    assert call.around == (
        "## step 4 ##",
        "## bwd ##",
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    )
    assert (call.frames, call.node, call.launched) == ((STEP, WORKER), 1886, None)
    assert call.work
    assert (call.work.name, call.work.where) == ("gloo:all_reduce", "thread 19353 (pt_gloo_runloop)")


def test_the_call_in_which_another_waits(tmp_path: Path, dumps: Path) -> None:
    seen = of_rank(2, problem(dumps, profiles(tmp_path / "traces", 2, 3)))
    assert seen.call
    assert (seen.role, seen.call.group, seen.call.sequence, seen.call.before) == (Role.WAITING, "2", 13, 0)
    assert (seen.later, seen.stretches) == (None, ())


def test_what_the_culprit_did_after_its_last_call(tmp_path: Path, dumps: Path) -> None:
    """Here the program went on, for the dump was cut by hand: the profile shows the call that others wait in."""
    seen = of_rank(3, problem(dumps, profiles(tmp_path / "traces", 2, 3)))
    assert seen.later
    assert (seen.later.operator, seen.later.frames[0].name) == ("c10d::allreduce_", "<lambda>")
    (stretch,) = seen.stretches
    assert stretch.where == "thread 19151 (python3.11)"
    assert [one.name for one in stretch.running][:4] == [
        "gen_matched8.py(58): worker",
        "## step 4 ##",
        "gen_matched8.py(32): step",
        "## bwd ##",
    ]


def test_ranks_that_no_problem_is_about_need_no_profile_and_theirs_is_not_read(
    tmp_path: Path, dumps: Path
) -> None:
    traces = profiles(tmp_path / "traces", 3)
    for rank in (0, 1, 4):
        (traces / f"kineto_{rank}.json").write_text('{"schemaVersion": 1, "traceEvents": [broken')
    diagnosis = tracelink.diagnose((dumps, traces), jobs=1)
    assert [one.rank for one in diagnosis.problems[0].sightings] == [3]
    assert [one for one in diagnosis.findings if "kineto" in one.source] == []
