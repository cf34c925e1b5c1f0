"""Collectives that hang, from the tables of a job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings

from builders.programs import job_of_programs
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import CREATED, collective, dump, pickled, process_group
from generators.recorded_jobs import Fault, Plan, RecordedJob
from generators.recorded_jobs import job as recorded_job
from tracelink import load
from tracelink._model.job import Job
from tracelink.converters.perfetto.timeline.stuck import NEVER, hung_of

SECOND = 10**9
Place = tuple[str, int]
"""A group, and the number of a collective in it."""

TELLING = ["nccl", "nccl2", "nccl-lazy", "xccl", "own"]
"""Backends whose recorders tell what is finished."""
FAULTS = ("never_joined", "skipped", "extra", "operation_mismatch", "dtype_mismatch", "straggler")

few = settings(max_examples=15, deadline=None)
"""Each example is a whole job."""


def hangs(job: Job) -> dict[Place, list[int]]:
    """Each collective that hangs, and who is caught in it."""
    hung, whole, parts = hung_of(job), job.collectives, job.participations
    assert not (hung.parts & ~hung.collectives[parts.collective]).any()
    return {
        (job.groups[whole.group[row]].name, int(whole.sequence[row])): parts.rank[
            hung.parts & (parts.collective == row)
        ].tolist()
        for row in np.flatnonzero(hung.collectives).tolist()
    }


def told(folder: Path, ranks: Mapping[int, str], **groups: list[int]) -> list[str]:
    """The same in words: `a2 at 0 1`."""
    found = hangs(job_of_programs(folder, ranks, **groups))
    return [f"{group}{number} at {' '.join(map(str, ranks))}" for (group, number), ranks in found.items()]


@pytest.mark.parametrize(
    ("ranks", "hung"),
    [
        ({0: "a1 a2", 1: "a1 a2", 2: "a1 a2"}, []),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2!"}, []),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, ["a2 at 0 1"]),
        ({0: "a1 a2^", 1: "a1 a2^", 2: "a1"}, ["a2 at 0 1"]),
        ({0: "a1 a2! a3!", 1: "a1 a2!", 2: "a1"}, ["a2 at 0 1", "a3 at 0"]),
        ({0: "a1 a2!", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, ["a2 at 0 1 2"]),
        ({0: "a1 a2", 1: "a1 a2!", 2: "a1 a2=broadcast!"}, []),
    ],
    ids=["over", "under way", "missed", "missed once started", "queued", "different", "one has left"],
)
def test_hangs_in_one_group(tmp_path: Path, ranks: dict[int, str], hung: list[str]) -> None:
    assert told(tmp_path, ranks, a=[0, 1, 2]) == hung


@pytest.mark.parametrize(
    ("ranks", "hung"),
    [
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~ a2!"}, []),
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~"}, ["a2 at 0 1"]),
        ({0: "a1~ a2!", 1: "a1~ a2!", 2: "a1~ a2=broadcast!"}, ["a2 at 0 1 2"]),
        ({0: "a1~ a2~ b1!", 1: "a1~ a2~", 2: "a1~ a2.Int~"}, []),
        ({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~ a2.Int~"}, ["a2 at 0 1 2"]),
    ],
    ids=["over or under way", "missed", "different", "one went on", "different, as far as anything is told"],
)
def test_hangs_without_states(tmp_path: Path, ranks: dict[int, str], hung: list[str]) -> None:
    assert told(tmp_path, ranks, a=[0, 1, 2], b=[0]) == hung


def test_later_calls_hang_as_well(tmp_path: Path) -> None:
    """Rank 0 waits in a2 for rank 1; b2 is queued behind it, so rank 2 waits in vain, and c1 behind that."""
    ranks = {0: "b1 a1 a2! b2!", 1: "a1", 2: "b1 b2! c1!", 3: "c1!"}
    assert told(tmp_path, ranks, a=[0, 1], b=[0, 2], c=[2, 3]) == ["a2 at 0", "b2 at 0 2", "c1 at 2 3"]


def test_earlier_calls_do_not_hang(tmp_path: Path) -> None:
    ranks = {0: "a1 b1! a2!", 1: "a1", 2: "b1!"}
    assert told(tmp_path, ranks, a=[0, 1], b=[0, 2]) == ["a2 at 0"]


def test_older_dump(tmp_path: Path) -> None:
    """All have left a2, so rank 2 had entered it."""
    ranks = {0: "a1 a2 a3!", 1: "a1 a2 a3!", 2: "a1"}
    assert told(tmp_path, ranks, a=[0, 1, 2]) == []


@pytest.mark.parametrize(("members", "hung"), [([0, 1, 2], ["a2 at 0 1"]), ([0, 1, 2, 3], [])])
def test_missing_dumps_of_a_few(tmp_path: Path, members: list[int], hung: list[str]) -> None:
    assert told(tmp_path, {0: "a1 a2!", 1: "a1 a2!"}, a=members) == hung


@pytest.mark.parametrize(("first", "hung"), [(True, {}), (False, {("0", 2): [0, 1]})])
def test_hang_after_a_long_time(tmp_path: Path, first: bool, hung: dict[Place, list[int]]) -> None:
    """15 s are long where a collective took half a second, but not for the first one of a group."""
    usual = [] if first else [collective("nccl:all_reduce", 1, completed=CREATED + SECOND // 2)]
    waits = collective("nccl:all_reduce", len(usual) + 1, created=CREATED + SECOND)
    later = CREATED + 16 * SECOND
    beside = collective("nccl:all_reduce", 1, group=("1", "dp"), created=later, completed=later + 1)
    for rank in (0, 1):
        groups = process_group("0", [0, 1]) | process_group("1", [0, 1])
        content = dump(*usual, waits, beside, pg_config=groups)
        (tmp_path / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    assert hangs(Job.of(load(tmp_path))) == hung


def test_stuck_since_the_first_hanging_collective(tmp_path: Path) -> None:
    told = job_of_programs(tmp_path, {0: "a1 a2! b1!", 1: "a1", 2: "b1!"}, a=[0, 1], b=[0, 2])
    asked = {
        (int(rank), int(collective)): int(time)
        for rank, collective, time in zip(
            told.participations.rank,
            told.participations.collective,
            told.participations.enqueued,
            strict=True,
        )
    }
    assert hung_of(told).since.tolist() == [asked[0, 1], NEVER, asked[2, 2]]


def test_job_without_collectives() -> None:
    hung = hung_of(Job(parts=[], ranks=[], sources=[]))
    assert [len(column) for column in (hung.collectives, hung.parts, hung.since)] == [0, 0, 0]


def loaded(recorded: RecordedJob) -> Job:
    with TemporaryDirectory() as folder:
        recorded.write(Path(folder))
        return Job.of(load(folder))


def finished(recorded: RecordedJob) -> set[Place]:
    """What any recorder tells is over."""
    entries: list[dict[str, Any]] = [entry for one in recorded.dumps.values() for entry in one["entries"]]
    return {
        (entry["process_group"][0], entry["collective_seq_id"])
        for entry in entries
        if entry["state"] == "completed"
    }


@given(plans())
@few
def test_any_finished_job(plan: Plan) -> None:
    assert hangs(loaded(recorded_job(plan))) == {}


@given(faulty_plans(*FAULTS))
@few
def test_any_faulty_job(faulty: tuple[Plan, Fault]) -> None:
    plan, fault = faulty
    recorded = recorded_job(plan, fault)
    truth = recorded.truth
    assert truth is not None
    assume(plan.backend in TELLING and not truth.point_to_point and truth.evident)
    found = hangs(loaded(recorded))
    assert not found.keys() & finished(recorded)
    if truth.hangs:
        assert found.keys() & {(truth.group, truth.sequence), *truth.places}
    else:
        assert found == {}
