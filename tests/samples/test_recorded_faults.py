"""Every fault is in the dumps where the truth says, and nowhere else is anything amiss."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.recorded_jobs import faulty_plans, looks, numbered, plans
from generators.recorded_jobs import FAULTS, Fault, Plan, RecordedJob, Snapshot, Truth, faults, job

JOBS = settings(max_examples=30, deadline=None)
Faulty = tuple[Plan, Fault]


def known(recorded: RecordedJob) -> Truth:
    assert recorded.truth is not None
    return recorded.truth


def at(recorded: RecordedJob, rank: int) -> list[tuple[object, ...]]:
    """What a rank did under the number of the truth."""
    truth = known(recorded)
    assert truth.sequence is not None
    return looks(recorded, rank, truth.group).get(truth.sequence, [])


@given(faulty_plans("never_joined", "never_joined_any", "lagging"))
@JOBS
def test_who_stops_is_missed_in_that_collective(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    assert at(recorded, truth.culprits[0]) == []
    assert all(at(recorded, rank) for rank in truth.waiting)


@given(faulty_plans("never_joined", "lagging"))
@JOBS
def test_others_are_ahead_of_who_lags(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    last = {max(looks(recorded, rank, truth.group)) for rank in truth.waiting}
    assert truth.sequence is not None
    ahead = max(last) > truth.sequence
    assert ahead or truth.kind != "lagging"
    assert not ahead or "lagging" in {truth.kind, *truth.also}


@given(faulty_plans("died"))
@JOBS
def test_who_died_has_no_dump(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    assert set(range(recorded.plan.world)) - set(recorded.dumps) == set(truth.culprits)
    assert all(at(recorded, rank) for rank in truth.waiting)


@given(faulty_plans("skipped", "extra", "operation_mismatch", "dtype_mismatch", "size_mismatch"))
@JOBS
def test_the_culprit_alone_does_something_else(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    others = [rank for rank in members(recorded) if rank not in truth.culprits]
    expected = at(recorded, others[0])
    assert expected[-1][0] == truth.operation
    assert [at(recorded, rank) for rank in others] == [expected] * len(others)
    assert at(recorded, truth.culprits[0]) not in ([], expected)
    assert truth.tie == (len(others) == 1)


def members(recorded: RecordedJob) -> tuple[int, ...]:
    """Of the group of the truth."""
    truth = known(recorded)
    groups = recorded.plan.groups(truth.culprits[0]).values()
    return next(group.ranks for group in groups if group.name == truth.group)


@given(faulty_plans("skipped"))
@JOBS
def test_a_skip_shows_what_comes_next(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    assert truth.sequence is not None
    ahead = [looks(recorded, rank, truth.group).get(truth.sequence + 1) for rank in truth.waiting]
    assert truth.also or [at(recorded, truth.culprits[0])] * len(ahead) == ahead


@given(faulty_plans("not_started"))
@JOBS
def test_who_does_not_start_leaves_scheduled_what_others_started(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    assert truth.sequence is not None
    states = {
        rank: numbered(recorded, rank, truth.group, truth.sequence)[-1]["state"] for rank in members(recorded)
    }
    assert states.pop(truth.culprits[0]) == "scheduled"
    assert set(states.values()) == {"started"}


@given(faulty_plans("timed_out"))
@JOBS
def test_what_is_lost_is_given_up_after_the_timeout(faulty: Faulty) -> None:
    recorded = job(*faulty, Snapshot("timed_out"))
    truth = known(recorded)
    assert truth.sequence is not None
    for rank in truth.waiting:
        entry = numbered(recorded, rank, truth.group, truth.sequence)[-1]
        assert entry["retired"]
        assert entry["time_discovered_completed_ns"] is None


@given(faulty_plans("deadlock", "deadlock_of_three"))
@JOBS
def test_a_deadlock_is_a_circle_of_waiting_ranks(faulty: Faulty) -> None:
    recorded = job(*faulty)
    cycle = known(recorded).cycle
    assert sorted(waiting for _, _, waiting, _ in cycle) == sorted(awaited for *_, awaited in cycle)
    for group, number, waiting, awaited in cycle:
        assert not numbered(recorded, waiting, group, number)[-1]["retired"]
        there = numbered(recorded, awaited, group, number)
        assert not there or there[-1]["state"] == "scheduled"


@given(faulty_plans("wrong_target", "wrong_source", "message_size_mismatch", "messages_swapped"))
@JOBS
def test_a_message_without_its_other_end_stops_both(faulty: Faulty) -> None:
    recorded = job(*faulty)
    truth = known(recorded)
    (culprit,) = truth.culprits
    call = [
        entry
        for entry in recorded.dumps[culprit]["entries"]
        if entry["process_group"][0] == truth.group and entry["p2p_seq_id"] == truth.sequence
    ]
    assert truth.point_to_point
    done = any(entry["profiling_name"].startswith(truth.operation) for entry in call)
    assert done == (truth.fault != "messages_swapped")
    # Collectives that follow carry the number of the last message, too.
    ends = [entry for entry in call if entry["is_p2p"] or entry["profiling_name"].endswith(":coalesced")]
    assert {entry["state"] for entry in ends} <= {"scheduled", "started"}
    assert hung(recorded)


@given(faulty_plans("dtype_mismatch", "straggler"))
@JOBS
def test_what_does_not_stop_the_job_leaves_nothing_unfinished(faulty: Faulty) -> None:
    recorded = job(*faulty)
    assert not known(recorded).hangs
    assert hung(recorded) == []


def hung(recorded: RecordedJob) -> list[int]:
    """Ranks that wait for something that their own program must have, at the end."""
    return [
        rank
        for rank, content in recorded.dumps.items()
        if content["entries"] and not content["entries"][-1]["retired"]
    ]


@given(faulty_plans(*(kind for kind in FAULTS if kind not in ("dtype_mismatch", "straggler"))))
@JOBS
def test_what_stops_the_job_leaves_somebody_waiting(faulty: Faulty) -> None:
    recorded = job(*faulty)
    assert known(recorded).hangs
    assert hung(recorded)


def test_a_straggler_issues_its_first_call_of_a_step_late() -> None:
    plan = Plan(world=4, tensor=1, steps=3)
    recorded = job(plan, Fault("straggler", rank=2, share=0.5))
    first = {
        rank: [
            entry["time_created_ns"]
            for entry in content["entries"]
            if entry["frames"][1]["name"] == "forward_gather" and entry["input_sizes"] == [[16, 128]]
        ]
        for rank, content in recorded.dumps.items()
    }
    late = [first[2][step] - max(first[rank][step] for rank in (0, 1, 3)) for step in range(3)]
    computing = 2 * 3 * 4_000_000
    assert late[0] < 1_000_000
    assert all(abs(ns - computing // 2) < 1_000_000 for ns in late[1:])


@given(plans(), st.sampled_from(sorted(FAULTS)))
@JOBS
def test_faults_tells_what_can_be_put_into_a_job(plan: Plan, kind: str) -> None:
    if kind in faults(plan):
        assert known(job(plan, Fault(kind))).fault == kind
    else:
        with pytest.raises(ValueError, match="makes no sense"):
            job(plan, Fault(kind))


def test_a_fault_is_put_where_it_is_wanted() -> None:
    plan = Plan(world=8, tensor=4, steps=3)
    truth = known(job(plan, Fault("size_mismatch", rank=5, step=1, role="mesh_tp")))
    assert truth.culprits == (5,)
    assert truth.waiting == (4, 6, 7)
    with pytest.raises(ValueError, match="makes no sense"):
        job(plan, Fault("size_mismatch", rank=5, role="mesh_pp"))


@pytest.mark.parametrize(
    ("plan", "fault", "snapshot", "evident"),
    [
        (Plan(), Fault("size_mismatch", rank=3), Snapshot(), True),
        (Plan(), Fault("size_mismatch", rank=3), Snapshot(missing=(3,)), False),
        (Plan(), Fault("size_mismatch", rank=3), Snapshot(cut_short=(3,)), False),
        (Plan(steps=2), Fault("dtype_mismatch", step=0), Snapshot(), True),
        (Plan(steps=2, buffer=5), Fault("dtype_mismatch", step=0), Snapshot(), False),
        (Plan(steps=2), Fault("dtype_mismatch", step=0), Snapshot("running", at=0.01), False),
        (Plan(), Fault("died"), Snapshot("timed_out"), True),
        (Plan(backend="gloo"), Fault("died"), Snapshot(), True),
        (Plan(backend="gloo"), Fault("died"), Snapshot("timed_out"), False),
        (Plan(), Fault("timed_out"), Snapshot(), True),
        (Plan(timing=False), Fault("timed_out"), Snapshot(), False),
        (Plan(timing=False), Fault("timed_out"), Snapshot("timed_out"), True),
        (Plan(), Fault("straggler", rank=2), Snapshot(missing=(2,)), False),
        (Plan(), Fault("deadlock"), Snapshot(), True),
        (Plan(world=4, tensor=1, kind="ring"), Fault("wrong_target", rank=1), Snapshot(missing=(2,)), False),
    ],
)
def test_what_the_dumps_can_tell(plan: Plan, fault: Fault, snapshot: Snapshot, evident: bool) -> None:
    assert known(job(plan, fault, snapshot)).evident is evident


def test_without_a_majority_nobody_is_told_apart() -> None:
    plan, fault = Plan(world=3, tensor=1), Fault("size_mismatch", rank=2)
    assert not known(job(plan, fault)).tie
    assert known(job(plan, fault, Snapshot(missing=(0,)))).tie


def test_a_job_that_hangs_is_not_running() -> None:
    with pytest.raises(ValueError, match="not running"):
        job(Plan(), Fault("never_joined"), Snapshot("running"))
