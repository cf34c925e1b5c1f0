"""Jobs whose devices execute one call after the other: what a rank skipped hides behind queued calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.recorded_jobs import diagnosed
from generators.recorded_jobs import Fault, Plan, Snapshot, job
from generators.recorded_plan import TENSOR
from tracelink._hang.facts.model import Kind, Problem

queued = partial(Plan, queued=True, microbatches=3)
JOBS = {
    "pipeline": queued(kind="forward", world=16, tensor=4, stages=2),
    "deep pipeline": queued(kind="forward", world=16, tensor=2, stages=4),
    "ring": queued(kind="ring"),
    "ring in turns": queued(kind="ring_in_turns"),
}


@pytest.mark.parametrize("plan", JOBS.values(), ids=JOBS)
def test_finished_job(plan: Plan) -> None:
    assert diagnosed(job(plan).dumps).problems == []


def problems_at(name: str, elapsed: int, delays: Mapping[int, int]) -> list[Problem]:
    """Of dumps this long after the start, and those of some ranks later; times are microseconds."""
    plan = JOBS[name]
    moments = ((elapsed + delays.get(rank, 0)) * 1000 for rank in range(plan.world))
    return diagnosed(job(plan, snapshot=Snapshot("running", moments=tuple(moments))).dumps).problems


@settings(max_examples=20)
@given(
    st.sampled_from(list(JOBS)),
    st.integers(1_000, 100_000),
    st.dictionaries(st.integers(0, 15), st.integers(0, 10_000)),
)
def test_running_job_has_no_deadlock(name: str, elapsed: int, delays: dict[int, int]) -> None:
    """Dumps are taken at different times."""
    assert Kind.DEADLOCK not in {problem.kind for problem in problems_at(name, elapsed, delays)}


LATER = pytest.mark.xfail(strict=True, reason="the verdict is a deadlock")


@pytest.mark.parametrize(
    ("name", "elapsed", "delays"),
    [
        pytest.param(
            *("deep pipeline", 69_613, {2: 9_889}),
            id="both ends of a message wait behind other work of their devices",
        ),
        pytest.param(
            *("ring in turns", 16_734, {2: 1_848, 5: 8_548}),
            id="a rank dumped later has finished a collective that others joined after all that they recorded",
        ),
        pytest.param(
            *("ring in turns", 38_227, {3: 3_357, 7: 3_534}),
            id="two ranks of a ring dumped later",
            marks=LATER,
        ),
        pytest.param(
            *("deep pipeline", 75_747, {1: 6_192, 5: 8_337}),
            id="two stages of a pipeline dumped later",
            marks=LATER,
        ),
    ],
)
def test_running_job_is_in_flight(name: str, elapsed: int, delays: dict[int, int]) -> None:
    (problem,) = problems_at(name, elapsed, delays)
    assert problem.kind is Kind.IN_FLIGHT


def test_dumps_of_a_running_job_at_different_times_are_no_hang() -> None:
    """Some ranks were dumped before they did what others wait for."""
    found = set()
    for part in range(1, 20):
        later = dict.fromkeys(range(part % 3, 16, 3), 10_000)
        found |= {one.kind for one in problems_at("pipeline", part * 4_000, later)}
    assert found == {Kind.IN_FLIGHT}


@settings(max_examples=20)
@given(st.sampled_from(list(JOBS.values())), st.integers(0, 999))
def test_skipped_collective_of_a_tensor_parallel_group(plan: Plan, seed: int) -> None:
    recorded = job(replace(plan, seed=seed), Fault("left_out", role=TENSOR))
    assert recorded.truth
    (problem,) = diagnosed(recorded.dumps).problems
    assert problem.culprits == recorded.truth.culprits
