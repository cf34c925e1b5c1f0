"""Jobs with one device queue for each rank, whose programs run ahead: pipelines, rings, sharded data."""

from __future__ import annotations

from typing import Any

import pytest

from builders.recorded_jobs import diagnosed
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot, job
from generators.recorded_plan import CONTEXT, DATA, PIPELINE, PIPELINES, QUEUED_KINDS, TENSOR, WORLD
from tracelink._hang.facts.model import Category, Kind


def plan(kind: str, stages: int = 2, **more: Any) -> Plan:
    stages = stages if kind in PIPELINES else 1
    usual = {"world": 8, "tensor": 2, "microbatches": 3, "run_ahead": 64, "settles": False}
    return Plan(kind=kind, stages=stages, queued=True, **{**usual, **more})


def culprits(recorded: RecordedJob) -> set[int]:
    return {rank for problem in diagnosed(recorded.dumps, hung=True).problems for rank in problem.culprits}


def true_culprits(recorded: RecordedJob) -> set[int]:
    assert recorded.truth
    return set(recorded.truth.culprits)


@pytest.mark.parametrize("kind", QUEUED_KINDS)
@pytest.mark.parametrize("eager", [False, True])
def test_healthy_job_that_is_over(kind: str, eager: bool) -> None:
    found = diagnosed(job(plan(kind, eager=eager)).dumps)
    assert (found.verdict, list(found.problems), list(found.notes)) == ("ok", [], [])


@pytest.mark.parametrize("kind", QUEUED_KINDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("when", ["settled", "timed_out"])
def test_program_of_a_rank_is_stuck(kind: str, seed: int, when: str) -> None:
    recorded = job(plan(kind, seed=seed), Fault("stuck"), Snapshot(when))
    assert culprits(recorded) == true_culprits(recorded)


@pytest.mark.parametrize("kind", QUEUED_KINDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", [Fault("left_out", role=DATA), Fault("killed")], ids=["left_out", "killed"])
def test_rank_that_leaves_out_a_call_or_is_killed(kind: str, seed: int, fault: Fault) -> None:
    recorded = job(plan(kind, seed=seed), fault)
    assert culprits(recorded) == true_culprits(recorded)


@pytest.mark.parametrize("kind", QUEUED_KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_wrong_size(kind: str, seed: int) -> None:
    recorded = job(plan(kind, seed=seed), Fault("size_mismatch"))
    assert true_culprits(recorded) <= culprits(recorded)


SKIPS = [
    *((TENSOR, kind) for kind in ("data_parallel", *PIPELINES)),
    *((PIPELINE, kind) for kind in PIPELINES),
    *((CONTEXT, kind) for kind in ("ring", "ring_in_turns")),
]


@pytest.mark.parametrize(("role", "kind"), SKIPS)
@pytest.mark.parametrize("seed", [0, 2])
def test_skipped_call_is_called_skipped(role: str, kind: str, seed: int) -> None:
    recorded = job(plan(kind, seed=seed), Fault("left_out", role=role))
    problem, *others = diagnosed(recorded.dumps, hung=True).problems
    assert (problem.kind, set(problem.culprits)) == (Kind.SKIPPED, true_culprits(recorded))
    assert {other.kind for other in others} <= {Kind.IN_FLIGHT}


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("run_ahead", [1, 16, 64])
def test_stage_with_fewer_microbatches(kind: str, stages: int, run_ahead: int) -> None:
    made = plan(kind, stages, microbatches=8, seed=1, run_ahead=run_ahead)
    recorded = job(made, Fault("fewer_microbatches", rank=0, step=2))
    found = diagnosed(recorded.dumps, hung=True)
    assert culprits(recorded) == true_culprits(recorded)
    assert {problem.category for problem in found.problems} == {Category.CODE_PATH}
    assert not any(problem.tie for problem in found.problems)


@pytest.mark.parametrize("kind", QUEUED_KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_exchanged_calls_are_a_deadlock(kind: str, seed: int) -> None:
    recorded = job(plan(kind, seed=seed), Fault("deadlock"))
    (problem,) = diagnosed(recorded.dumps, hung=True).problems
    assert problem.kind is Kind.DEADLOCK
    assert recorded.truth
    assert true_culprits(recorded) <= set(problem.culprits) <= recorded.truth.suspects


@pytest.mark.parametrize("run_ahead", [1, 64])
@pytest.mark.parametrize("kind", QUEUED_KINDS)
def test_skipped_collective_of_all_ranks(kind: str, run_ahead: int) -> None:
    recorded = job(plan(kind, 4, seed=1, run_ahead=run_ahead), Fault("left_out", role=WORLD))
    assert culprits(recorded) == true_culprits(recorded)


def test_stages_that_run_other_programs_are_not_blamed() -> None:
    made = plan("batched_pipeline", 4, world=16, microbatches=5, steps=2, eager=True, run_ahead=1)
    recorded = job(made, Fault("stuck", rank=13, role=PIPELINE, number=4))
    assert culprits(recorded) == {13}


def test_call_of_one_rank_only_leaves_open_who_is_wrong() -> None:
    made = plan("buckets", steps=4, run_ahead=1, eager=True)
    (problem,) = diagnosed(
        job(made, Fault("repeated", rank=4, number=20), Snapshot("timed_out")).dumps
    ).problems
    assert (problem.kind, problem.tie, problem.category) == (Kind.NEVER_JOINED, True, Category.UNKNOWN)
    assert problem.culprits == tuple(range(8))
    assert problem.message == (
        "Rank 4 is alone in all_reduce #21 of group 0 (default_pg) for at least 10 min: either rank 4 has made a call "
        "too many, or ranks 0-3, 5-7 stopped before it."
    )


@pytest.mark.parametrize("kind", ["pipeline", "batched_pipeline"])
def test_rank_that_runs_ahead_is_compared_with_ranks_of_other_stages(kind: str) -> None:
    """Rank 5 made one all_reduce too many; rank 4 made as many as all others."""
    recorded = job(plan(kind, 4), Fault("repeated", rank=5, role=WORLD, number=1))
    assert culprits(recorded) == {5}


def test_ranks_of_a_killed_node_that_no_rank_waits_for_are_named() -> None:
    recorded = job(plan("pipeline", 4, ranks_per_host=4), Fault("node_killed", rank=0))
    (problem,) = diagnosed(recorded.dumps, hung=True).problems
    assert (problem.culprits, problem.category) == ((2, 3), Category.PROCESS_GONE)
    assert problem.message.endswith(
        "Ranks 0 and 1 left no complete dump, too; no rank is known to wait for them."
    )
