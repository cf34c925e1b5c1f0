"""Jobs whose devices execute one call after the other: what a rank skipped hides behind queued calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.journal import journal
from generators.device_queues import Call, Programs, calls_of, dumps_of, pipeline, ring, run, skipped
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.model import Diagnosis, Kind, Problem

JOBS = {
    "pipeline": pipeline(tensor=4, stages=2, replicas=2),
    "deep pipeline": pipeline(tensor=2, stages=4, replicas=2),
    "ring": ring(size=4, tensor=2, replicas=2),
    "ring in turns": ring(size=4, tensor=2, replicas=2, batched=False),
}


def diagnosed(programs: Programs, at: Sequence[int] | None = None) -> Diagnosis:
    return diagnosis_of(journal(dumps_of(run(programs), at=at)))


def calls_with(programs: Programs, rank: int, description: str) -> list[int]:
    """The calls of a rank in its groups of this description, without those of the first step."""
    calls = calls_of(programs, rank)
    found = []
    for index in calls[len(calls) // 3 :]:
        item = programs[rank][index]
        if isinstance(item, Call) and item.group.description == description:
            found.append(index)
    return found


@pytest.mark.parametrize("programs", JOBS.values(), ids=JOBS)
def test_finished_job(programs: Programs) -> None:
    assert diagnosed(programs).problems == []


def problems_at(name: str, elapsed: int, delays: Mapping[int, int]) -> list[Problem]:
    """Of dumps this long after the first call, and those of some ranks later."""
    issued = run(JOBS[name])
    first = min(call.enqueued for calls in issued for call in calls)
    at = [first + elapsed + delays.get(rank, 0) for rank in range(len(issued))]
    return diagnosis_of(journal(dumps_of(issued, at=at))).problems


@settings(max_examples=20)
@given(
    st.sampled_from(list(JOBS)),
    st.integers(0, 3_000_000),
    st.dictionaries(st.integers(0, 15), st.integers(0, 300_000)),
)
def test_running_job_has_no_deadlock(name: str, elapsed: int, delays: dict[int, int]) -> None:
    """Dumps are taken at different times."""
    assert Kind.DEADLOCK not in {problem.kind for problem in problems_at(name, elapsed, delays)}


@pytest.mark.parametrize(
    ("name", "elapsed", "delays"),
    [
        pytest.param(
            *("deep pipeline", 439_022, {8: 26_928, 12: 208_152}),
            id="both ends of a message wait behind other work of their devices",
        ),
        pytest.param(
            *("ring", 1_421_315, {12: 257_783}),
            id="a rank dumped later has finished a collective that others joined after all that they recorded",
        ),
        pytest.param(
            *("ring in turns", 449_922, {1: 80_083, 5: 79_559}),
            id="two ranks of another ring dumped later",
            marks=pytest.mark.xfail(strict=True, reason="the verdict is a deadlock"),
        ),
    ],
)
def test_running_job_is_in_flight(name: str, elapsed: int, delays: dict[int, int]) -> None:
    (problem,) = problems_at(name, elapsed, delays)
    assert problem.kind is Kind.IN_FLIGHT


def test_dumps_of_a_running_job_at_different_times_are_no_hang() -> None:
    """Some ranks were dumped before they did what others wait for."""
    issued = run(JOBS["pipeline"])
    first = min(call.enqueued for calls in issued for call in calls)
    found = set()
    for part in range(1, 20):
        at = [first + part * 100_000 + (300_000 if rank % 3 == part % 3 else 0) for rank in range(16)]
        found |= {one.kind for one in diagnosis_of(journal(dumps_of(issued, at=at))).problems}
    assert found == {Kind.IN_FLIGHT}


@settings(max_examples=20)
@given(st.sampled_from(list(JOBS.values())), st.data())
def test_skipped_collective_of_a_tensor_parallel_group(programs: Programs, data: st.DataObject) -> None:
    rank = data.draw(st.sampled_from(range(len(programs))))
    index = data.draw(st.sampled_from(calls_with(programs, rank, "mesh_tp")))
    (problem,) = diagnosed(skipped(programs, rank, index)).problems
    assert problem.culprits == (rank,)
