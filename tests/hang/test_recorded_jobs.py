"""Generated jobs of all kinds, healthy and faulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from builders.recorded_jobs import LARGE, diagnosed, faulty_plans, plans
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot, Truth, job
from generators.recorded_plan import KINDS, Call
from generators.recorded_training import programs
from tracelink._hang.facts.model import Diagnosis, Kind, Problem

HANGING = Snapshot("settled"), Snapshot("timed_out")
COLLECTIVE_FAULTS = (
    *("never_joined", "never_joined_any", "lagging", "died", "skipped", "extra", "operation_mismatch"),
    *("dtype_mismatch", "size_mismatch", "split_mismatch", "not_started", "timed_out"),
    *("deadlock", "deadlock_of_three"),
)
MESSAGE_FAULTS = ("wrong_target", "wrong_source", "message_size_mismatch", "messages_swapped")

Dumps = Mapping[int, Any]

few = settings(max_examples=20)
"""Each example is a whole job."""


def told(diagnosis: Diagnosis) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.group, one.sequence, one.culprits, one.waiting, one.tie) for one in diagnosis.problems
    ]


def everything(recorded: RecordedJob) -> Dumps:
    return {**recorded.dumps, **recorded.cut_short}


def says(problem: Problem, truth: Truth) -> bool:
    """Whether a problem is the truth, as far as the dumps can tell it."""
    in_ring = ((group, number) for group, number, *_ in truth.cycle)
    places = {(truth.group, truth.sequence), *truth.places, *in_ring}
    by_the_culprits = (
        set(truth.culprits) <= set(problem.culprits) if truth.tie else problem.culprits == truth.culprits
    )
    there = truth.sequence is None or (problem.group, problem.sequence) in places
    return problem.kind.value in {truth.kind, *truth.also} and by_the_culprits and there


def broken(plan: Plan, fault: Fault, snapshot: Snapshot) -> RecordedJob:
    """A job that shows its fault."""
    recorded = job(plan, fault, snapshot)
    assert recorded.truth is not None
    assume(recorded.truth.evident)
    return recorded


@few
@given(plans(), st.sampled_from(HANGING))
def test_healthy_job(plan: Plan, snapshot: Snapshot) -> None:
    assert told(diagnosed(everything(job(plan, None, snapshot)))) == []


COALESCED = Plan(
    world=8, tensor=2, stages=2, kind="mixed", steps=1, layers=2, microbatches=1, buffer=17, triangle=True
)
"""Ring buffers cut coalesced calls, and no call is finished."""


@few
@given(plans(backends=["nccl", "nccl2", "xccl", "own"]), st.floats(0.05, 0.95), st.integers(0, 3))
@example(COALESCED, 0.5, 0)
def test_running_job(plan: Plan, at: float, skew_ms: int) -> None:
    """Some ranks have completed what others have only started, or go on to things that others have not reached."""
    recorded = job(plan, None, Snapshot("running", at=at, skew_ns=skew_ms * 1_000_000))
    found = diagnosed(everything(recorded)).problems
    decided = [one for one in found if one.kind is not Kind.IN_FLIGHT]
    assert [
        one for one in decided if (one.waited_ns or 0) > 100_000_000 or one.kind.value.endswith("mismatch")
    ] == []


FIRST_OF_A_RING = Plan(
    4, 1, kind="ring", steps=1, layers=1, microbatches=1, buffer=LARGE, seed=1, timing=False
)
UNRECORDED_MESSAGES = Plan(
    8,
    2,
    2,
    "mixed",
    steps=2,
    layers=1,
    microbatches=1,
    backend="gloo",
    buffer=LARGE,
    timing=False,
    ranks_per_host=2,
)
"""Ranks 0 and 1 wait in messages for rank 5, which stopped: nothing but that they go no further is recorded."""
ONE_STEP = Plan(microbatches=1, buffer=LARGE, seed=41, timing=False, ranks_per_host=2)
"""Rank 4 leaves out the last call of the first step: no rank shows what comes after it."""


@few
@given(faulty_plans(*COLLECTIVE_FAULTS), st.sampled_from(HANGING))
@example((ONE_STEP, Fault("skipped")), Snapshot("settled"))
@example((replace(FIRST_OF_A_RING, tensor=2, seed=0), Fault("skipped")), Snapshot("settled"))
@example((UNRECORDED_MESSAGES, Fault("never_joined")), Snapshot("settled"))
def test_of_a_broken_job_its_fault_and_nothing_else(case: tuple[Plan, Fault], snapshot: Snapshot) -> None:
    recorded = broken(*case, snapshot)
    assert_its_fault_alone(recorded)


@few
@given(faulty_plans(*MESSAGE_FAULTS), st.sampled_from(HANGING))
@example((FIRST_OF_A_RING, Fault("wrong_target")), Snapshot("settled"))
@example((replace(FIRST_OF_A_RING, stages=4, kind="pipeline"), Fault("wrong_target")), Snapshot("settled"))
@example((replace(FIRST_OF_A_RING, stages=4, kind="mixed"), Fault("wrong_target")), Snapshot("settled"))
@example((replace(FIRST_OF_A_RING, seed=2), Fault("wrong_target")), Snapshot("settled"))
@example((replace(FIRST_OF_A_RING, layers=2), Fault("wrong_target")), Snapshot("settled"))
@example(
    (replace(FIRST_OF_A_RING, world=6, tensor=2, steps=2, layers=2), Fault("wrong_source")),
    Snapshot("settled"),
)
def test_faulty_messages(case: tuple[Plan, Fault], snapshot: Snapshot) -> None:
    recorded = broken(*case, snapshot)
    assert_its_fault_alone(recorded)


def assert_its_fault_alone(recorded: RecordedJob) -> None:
    found = diagnosed(everything(recorded), hung=True).problems
    assert recorded.truth is not None
    known = [one for one in found if not _are_consequences(one.culprits, recorded)]
    assert [says(one, recorded.truth) for one in known] == [True], [one.message for one in found]


def _are_consequences(culprits: Sequence[int], recorded: RecordedJob) -> bool:
    """True if these ranks only go no further because they wait in messages, which their backend does not record."""
    assert recorded.truth is not None
    others = bool(culprits) and set(culprits).isdisjoint(recorded.truth.culprits)
    return others and all(_waits_in_a_message(recorded, rank) for rank in culprits)


def _waits_in_a_message(recorded: RecordedJob, rank: int) -> bool:
    """True if the backend does not record messages, and the rank called one after all that its dump contains."""
    calls = [item for item in programs(recorded.plan)[rank] if isinstance(item, Call)]
    made = len(recorded.dumps[rank]["entries"]) if rank in recorded.dumps else 0
    collectives = [index for index, call in enumerate(calls) if not call.messages]
    return recorded.plan.blocks and 0 < made < len(collectives) and calls[collectives[made] - 1].messages


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(data=st.data())
def test_any_order_of_files(kind: str, data: st.DataObject) -> None:
    plan, fault = Plan(kind=kind, seed=data.draw(st.integers(0, 99))), Fault("never_joined")
    dumps = everything(job(plan, fault))
    shuffled = data.draw(st.permutations(list(dumps)))
    assert told(diagnosed({rank: dumps[rank] for rank in shuffled})) == told(diagnosed(dumps))


@few
@given(faulty_plans("never_joined", "skipped", "operation_mismatch", "dtype_mismatch", "deadlock"))
def test_any_start_of_buffers(case: tuple[Plan, Fault]) -> None:
    """What was done before can tell whose fault it is: without it, it may be that of either."""
    whole, kept = whole_and_kept(*case)
    assume(all(one.truth is not None and one.truth.evident for one in (whole, kept)))
    assume(all(_groups_of(kept, rank) == _groups_of(whole, rank) for rank in whole.dumps))
    less, more = diagnosed(kept.dumps).problems, diagnosed(whole.dumps).problems
    assume(less)  # expected failures: test_start_of_buffers
    assume(not _may_begin_within_the_call(kept))
    assert whole.truth is not None
    assert_the_same_faults(less, more, whole.truth)


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (
            Plan(
                4,
                4,
                kind="data_parallel",
                steps=1,
                layers=1,
                microbatches=1,
                backend="ucc",
                unknown_operations=True,
            ),
            "deadlock",
        ),
        (Plan(2, 2, kind="mixed", steps=1, layers=1, microbatches=3, backend="own", seed=3), "deadlock"),
        (Plan(2, 2, kind="mixed", steps=1, layers=2, microbatches=3, backend="ucc", seed=3), "skipped"),
        (
            Plan(2, 1, 2, kind="expert", steps=2, layers=1, microbatches=1, backend="nccl2", seed=29),
            "deadlock",
        ),
        (Plan(6, 2, kind="coalesced", steps=1, layers=1, microbatches=1, seed=1), "dtype_mismatch"),
        (Plan(12, 1, 4, steps=2, layers=1, microbatches=1, unknown_operations=True), "deadlock"),
    ],
    ids=lambda value: (
        f"{value.kind} {value.backend} {value.world} ranks" if isinstance(value, Plan) else value
    ),
)
@pytest.mark.xfail(strict=True, reason="the fault is not found, or elsewhere, without the first entries")
def test_start_of_buffers(plan: Plan, fault: str) -> None:
    plan = replace(plan, buffer=LARGE, timing=plan.backend == "nccl2", ranks_per_host=2)
    whole, kept = whole_and_kept(plan, Fault(fault))
    assert whole.truth is not None
    assert_the_same_faults(diagnosed(kept.dumps).problems, diagnosed(whole.dumps).problems, whole.truth)


def whole_and_kept(plan: Plan, fault: Fault) -> tuple[RecordedJob, RecordedJob]:
    """A job with all entries, and without the first ones of the longest buffers."""
    whole = job(plan, fault, Snapshot("timed_out"))
    longest = max(len(content["entries"]) for content in whole.dumps.values())
    return whole, job(replace(plan, buffer=max(longest - 5, 1)), fault, Snapshot("timed_out"))


def assert_the_same_faults(less: Sequence[Problem], more: Sequence[Problem], truth: Truth) -> None:
    """What was done before can also tell one of the names of the truth from the others."""
    names = {truth.kind, *truth.also}
    places = [
        [(one.kind.value in names or one.kind, one.group, one.sequence) for one in problems]
        for problems in (less, more)
    ]
    assert places[0] == places[1]
    for one, other in zip(less, more, strict=True):
        assert one.culprits == other.culprits or (one.tie and set(other.culprits) < set(one.culprits))


def _may_begin_within_the_call(kept: RecordedJob) -> bool:
    """Whether what is left of a buffer begins with the call in question: it may be the end of a coalesced one."""
    firsts = (content["entries"][0] for content in kept.dumps.values())
    places = [(entry["process_group"][0], entry["collective_seq_id"]) for entry in firsts]
    assert kept.truth
    return kept.plan.kind == "coalesced" and (kept.truth.group, kept.truth.sequence) in places


def _groups_of(recorded: RecordedJob, rank: int) -> set[str]:
    """The groups of which a rank still has an entry."""
    return {entry["process_group"][0] for entry in recorded.dumps[rank]["entries"]}


@few
@given(st.sampled_from(["never_joined", "dtype_mismatch", "size_mismatch"]), st.integers(0, 99), st.data())
def test_renumbered_ranks(kind: str, seed: int, data: st.DataObject) -> None:
    recorded = job(Plan(seed=seed, steps=2), Fault(kind), Snapshot("timed_out"))
    number = data.draw(st.permutations(range(8)))
    renamed = {number[rank]: _renumbered(content, number) for rank, content in recorded.dumps.items()}
    found, moved = diagnosed(recorded.dumps).problems, diagnosed(renamed).problems
    assert [(one.kind, one.group, one.sequence, set(one.culprits)) for one in moved] == [
        (one.kind, one.group, one.sequence, {number[rank] for rank in one.culprits}) for one in found
    ]


def _renumbered(content: dict[str, Any], number: list[int]) -> dict[str, Any]:
    groups = {
        name: group | {"ranks": str([number[int(rank)] for rank in group["ranks"].strip("[]").split(",")])}
        for name, group in content["pg_config"].items()
    }
    return content | {"pg_config": groups}
