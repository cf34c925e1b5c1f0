"""Jobs with one device queue for each rank, whose programs run ahead: pipelines, rings, sharded data."""

from __future__ import annotations

import pytest

from builders.recorded_jobs import diagnosed
from generators.queued_jobs import SCHEDULES, Dumping, Queued, QueuedJob, queued_job
from tracelink.diagnosis.model import Category, Diagnosis, Kind

PIPELINES = ("forward", "one_forward_one_backward", "batched")


def job(schedule: str, fault: str, seed: int, dumping: Dumping = Dumping()) -> QueuedJob:  # noqa: B008
    stages = 2 if schedule in PIPELINES else 1
    return queued_job(Queued(world=8, tensor=2, stages=stages, schedule=schedule, seed=seed), fault, dumping)


def diagnosis(recorded: QueuedJob) -> Diagnosis:
    return diagnosed({**recorded.dumps, **recorded.truncated})


def culprits(found: Diagnosis) -> set[int]:
    return {rank for problem in found.problems for rank in problem.culprits}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("eager", [False, True])
def test_healthy_job_that_is_over(schedule: str, eager: bool) -> None:
    stages = 2 if schedule in PIPELINES else 1
    queued = Queued(world=8, tensor=2, stages=stages, schedule=schedule, eager=eager)
    found = diagnosis(queued_job(queued))
    assert (found.verdict, list(found.problems), list(found.notes)) == ("ok", [], [])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("when", ["settled", "timed_out"])
def test_program_of_a_rank_is_stuck(schedule: str, seed: int, when: str) -> None:
    recorded = job(schedule, "host_stuck", seed, Dumping(when))
    assert culprits(diagnosis(recorded)) == set(recorded.truth.culprits)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
def test_skipped_collective_of_data_parallel_group(schedule: str, seed: int) -> None:
    recorded = job(schedule, "skip_dp", seed)
    assert culprits(diagnosis(recorded)) == set(recorded.truth.culprits)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
def test_killed_rank(schedule: str, seed: int) -> None:
    recorded = job(schedule, "killed", seed)
    assert culprits(diagnosis(recorded)) == set(recorded.truth.absent)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
def test_wrong_size(schedule: str, seed: int) -> None:
    recorded = job(schedule, "wrong_size", seed)
    assert set(recorded.truth.culprits) <= culprits(diagnosis(recorded))


SKIPS = [
    *(("skip_tp", schedule) for schedule in ("sharded", *PIPELINES)),
    *(("skip_message", schedule) for schedule in PIPELINES),
    ("skip_ring", "ring"),
    ("skip_ring", "ring_of_single_messages"),
]


@pytest.mark.parametrize(("fault", "schedule"), SKIPS)
@pytest.mark.parametrize("seed", [0, 2])
def test_skipped_call_is_called_skipped(fault: str, schedule: str, seed: int) -> None:
    recorded = job(schedule, fault, seed)
    problem, *others = diagnosis(recorded).problems
    assert (problem.kind, problem.culprits) == (Kind.SKIPPED, recorded.truth.culprits)
    assert {other.kind for other in others} <= {Kind.IN_FLIGHT}


@pytest.mark.parametrize("schedule", PIPELINES)
@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("run_ahead", [1, 16, 64])
def test_stage_with_fewer_microbatches(schedule: str, stages: int, run_ahead: int) -> None:
    queued = Queued(
        world=8, tensor=2, stages=stages, schedule=schedule, microbatches=8, seed=1, run_ahead=run_ahead
    )
    recorded = queued_job(queued, "fewer_microbatches")
    found = diagnosis(recorded)
    assert culprits(found) == set(recorded.truth.culprits)
    assert {problem.category for problem in found.problems} == {Category.CODE_PATH}
    assert not any(problem.tie for problem in found.problems)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(3))
def test_exchanged_calls_are_a_deadlock(schedule: str, seed: int) -> None:
    recorded = job(schedule, "crossed", seed)
    (problem,) = diagnosis(recorded).problems
    assert problem.kind is Kind.DEADLOCK
    assert set(recorded.truth.culprits) <= set(problem.culprits)
    assert set(problem.culprits) <= {*recorded.truth.culprits, *recorded.truth.tied}


@pytest.mark.parametrize("run_ahead", [1, 64])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_skipped_collective_of_all_ranks(schedule: str, run_ahead: int) -> None:
    stages = 4 if schedule in PIPELINES else 1
    queued = Queued(world=8, tensor=2, stages=stages, schedule=schedule, seed=1, run_ahead=run_ahead)
    recorded = queued_job(queued, "skip_world")
    assert culprits(diagnosis(recorded)) == set(recorded.truth.culprits)


def test_stages_that_run_other_programs_are_not_blamed() -> None:
    queued = Queued(
        world=16,
        tensor=2,
        stages=4,
        schedule="batched",
        microbatches=5,
        steps=2,
        seed=29,
        eager=True,
        run_ahead=1,
    )
    recorded = queued_job(queued, "host_stuck")
    assert culprits(diagnosis(recorded)) == set(recorded.truth.culprits)


def test_call_of_one_rank_only_leaves_open_who_is_wrong() -> None:
    queued = Queued(
        world=8, tensor=2, stages=1, schedule="data", steps=4, microbatches=8, seed=1, run_ahead=1, eager=True
    )
    recorded = queued_job(queued, "extra", Dumping("timed_out"))
    (problem,) = diagnosis(recorded).problems
    assert recorded.truth.culprits == (4,)
    assert (problem.kind, problem.tie, problem.category) == (Kind.NEVER_JOINED, True, Category.UNKNOWN)
    assert problem.culprits == tuple(range(8))
    assert problem.message == (
        "Rank 4 is alone in all_reduce #21 of group 0 (default_pg) for at least 50.0 ms: either rank 4 has made a call "
        "too many, or ranks 0-3, 5-7 stopped before it."
    )


@pytest.mark.parametrize("schedule", ["one_forward_one_backward", "batched"])
def test_rank_that_runs_ahead_is_compared_with_ranks_of_other_stages(schedule: str) -> None:
    """Rank 5 made one all_reduce too many; rank 4 made as many as all others."""
    queued = Queued(world=8, tensor=2, stages=4, schedule=schedule, steps=3, microbatches=3, run_ahead=64)
    recorded = queued_job(queued, "extra")
    assert recorded.truth.culprits == (5,)
    assert culprits(diagnosis(recorded)) == {5}


def test_ranks_of_a_killed_node_that_no_rank_waits_for_are_named() -> None:
    queued = Queued(world=8, tensor=2, stages=4, schedule="one_forward_one_backward", ranks_per_host=4)
    (problem,) = diagnosis(queued_job(queued, "node_killed")).problems
    assert (problem.culprits, problem.category) == ((2, 3), Category.PROCESS_GONE)
    assert problem.message.endswith("Ranks 0 and 1 left no dump, too; no rank is known to wait for them.")
