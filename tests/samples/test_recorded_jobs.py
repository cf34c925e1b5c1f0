"""Recorded jobs: what a rank's dump says is what torch's recorder would write."""

from __future__ import annotations

import pickle
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.recorded_jobs import keeping_all, plans
from builders.recorder import as_source
from generators.recorded_jobs import FAULTS, Fault, Plan, RecordedJob, Snapshot, faults, job
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

JOBS = settings(max_examples=40, deadline=None)


def lines(recorded: RecordedJob, rank: int) -> list[str]:
    """What a rank recorded: group, numbers, operation, sizes and state."""
    return [
        f"{entry['record_id']:2} {entry['process_group'][1]} {entry['collective_seq_id']}/{entry['p2p_seq_id']}"
        f"/{entry['op_id']} {entry['profiling_name']} {entry['input_sizes']} {entry['state']}"
        for entry in recorded.dumps[rank]["entries"]
    ]


def test_a_ring_numbers_its_batches_and_leaves_their_members_scheduled() -> None:
    plan = Plan(world=3, tensor=1, kind="ring", steps=1, layers=1)
    assert lines(job(plan), 1) == [
        " 0 default_pg 1/0/1 nccl:broadcast [[1]] completed",
        " 1 mesh_cp 0/1/1 nccl:send 1->2 [[8, 128]] scheduled",
        " 2 mesh_cp 0/1/2 nccl:recv 1<-0 [[8, 128]] scheduled",
        " 3 mesh_cp 0/1/2 nccl:coalesced [] completed",
        " 4 mesh_cp 0/2/3 nccl:send 1->2 [[8, 128]] scheduled",
        " 5 mesh_cp 0/2/4 nccl:recv 1<-0 [[8, 128]] scheduled",
        " 6 mesh_cp 0/2/4 nccl:coalesced [] completed",
        " 7 default_pg 2/0/2 nccl:all_reduce [[1]] completed",
        " 8 mesh_dp 1/0/1 nccl:all_reduce [[4]] completed",
        " 9 default_pg 3/0/3 nccl:all_reduce [[2]] completed",
    ]


def test_single_messages_are_counted_by_each_end() -> None:
    plan = Plan(world=3, tensor=1, stages=3, kind="pipeline", steps=1, microbatches=2)
    recorded = job(plan)
    assert lines(recorded, 0)[1:5] == [
        " 1 mesh_pp 0/1/1 nccl:send 0->1 [[64, 128]] completed",
        " 2 mesh_pp 0/2/2 nccl:send 0->1 [[64, 128]] completed",
        " 3 mesh_pp 0/3/3 nccl:recv 0<-1 [[64, 128]] completed",
        " 4 mesh_pp 0/4/4 nccl:recv 0<-1 [[64, 128]] completed",
    ]
    assert lines(recorded, 1)[1:9] == [
        " 1 mesh_pp 0/1/1 nccl:recv 1<-0 [[64, 128]] completed",
        " 2 mesh_pp 0/2/2 nccl:send 1->2 [[64, 128]] completed",
        " 3 mesh_pp 0/3/3 nccl:recv 1<-0 [[64, 128]] completed",
        " 4 mesh_pp 0/4/4 nccl:send 1->2 [[64, 128]] completed",
        " 5 mesh_pp 0/5/5 nccl:recv 1<-2 [[64, 128]] completed",
        " 6 mesh_pp 0/6/6 nccl:send 1->0 [[64, 128]] completed",
        " 7 mesh_pp 0/7/7 nccl:recv 1<-2 [[64, 128]] completed",
        " 8 mesh_pp 0/8/8 nccl:send 1->0 [[64, 128]] completed",
    ]
    assert lines(recorded, 1)[10] == "10 mesh_pp 1/8/9 nccl:all_reduce [[4]] completed"


def test_several_collectives_share_a_number_and_are_closed() -> None:
    plan = Plan(world=2, tensor=1, kind="coalesced", steps=1)
    assert lines(job(plan), 0)[1:13] == [
        " 1 mesh_dp 1/0/1 nccl:_all_gather_base [[4, 128]] scheduled",
        " 2 mesh_dp 1/0/2 nccl:_all_gather_base [[5, 128]] scheduled",
        " 3 mesh_dp 1/0/3 nccl:_all_gather_base [[6, 128]] scheduled",
        " 4 mesh_dp 1/0/3 nccl:coalesced [] completed",
        " 5 mesh_dp 2/0/4 nccl:all_gather_into_tensor_coalesced [[2, 128], [3, 128]] completed",
        " 6 mesh_dp 3/0/5 nccl:reduce_scatter_tensor_coalesced [[4, 128], [6, 128]] completed",
        " 7 mesh_dp 4/0/6 nccl:_broadcast_oop [[3, 128]] scheduled",
        " 8 mesh_dp 4/0/7 nccl:_broadcast_oop [[4, 128]] scheduled",
        " 9 mesh_dp 4/0/7 nccl:ALLGATHER_coalesced [] completed",
        "10 mesh_dp 5/0/8 nccl:_reduce_oop [[3, 128]] scheduled",
        "11 mesh_dp 5/0/9 nccl:_reduce_oop [[4, 128]] scheduled",
        "12 mesh_dp 5/0/9 nccl:REDUCE_SCATTER_coalesced [] completed",
    ]


def test_gloo_records_fewer_operations_and_no_messages() -> None:
    plan = Plan(world=4, tensor=2, stages=2, kind="mixed", steps=1, layers=1, microbatches=1, backend="gloo")
    recorded = job(plan)
    assert {entry["profiling_name"] for entry in recorded.dumps[0]["entries"]} == {
        "gloo:broadcast",
        "gloo:all_reduce",
    }
    assert {entry["state"] for entry in recorded.dumps[0]["entries"]} == {"scheduled"}
    assert recorded.dumps[0]["pg_status"]["1"] == {
        "last_enqueued_collective": 7,
        "last_started_collective": -1,
        "last_completed_collective": 7,
    }


def test_without_timing_nothing_is_started() -> None:
    hangs = Fault("never_joined", rank=1)
    timed, untimed = (job(Plan(world=4, tensor=1, timing=timing), hangs) for timing in (True, False))
    states = [{entry["state"] for entry in recorded.dumps[0]["entries"]} for recorded in (timed, untimed)]
    assert states == [{"completed", "started", "scheduled"}, {"completed", "scheduled"}]
    assert not any("duration_ms" in entry for entry in untimed.dumps[0]["entries"])


def unfinished(recorded: RecordedJob) -> list[dict[str, Any]]:
    """The entries that tell of an end and have none."""
    entries = [entry for content in recorded.dumps.values() for entry in content["entries"]]
    closed = {number_of(entry) for entry in entries if not entry["input_sizes"]}
    return [
        entry
        for entry in entries
        if not entry["retired"] and (number_of(entry) not in closed or not entry["input_sizes"])
    ]


def number_of(entry: dict[str, Any]) -> tuple[str, int, int]:
    return entry["process_group"][0], entry["collective_seq_id"], entry["p2p_seq_id"]


@given(plans())
@JOBS
def test_a_healthy_job_finishes_everything(plan: Plan) -> None:
    recorded = job(plan)
    assert recorded.truth is None
    assert list(recorded.dumps) == list(range(plan.world))
    assert unfinished(recorded) == []


@given(plans(buffers=[7, 40]))
@JOBS
def test_a_wrapped_buffer_keeps_the_newest(plan: Plan) -> None:
    whole, kept = job(keeping_all(plan)), job(plan)
    for rank, content in kept.dumps.items():
        assert content["entries"] == whole.dumps[rank]["entries"][-plan.buffer :]
        assert content["pg_status"] == whole.dumps[rank]["pg_status"]


@given(plans().map(keeping_all))
@JOBS
def test_records_are_counted_over_all_groups_and_collectives_and_messages_within_one(plan: Plan) -> None:
    for content in job(plan).dumps.values():
        assert [entry["record_id"] for entry in content["entries"]] == list(range(len(content["entries"])))
        created = [entry["time_created_ns"] for entry in content["entries"]]
        assert created == sorted(created)
        last: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
        for entry in content["entries"]:
            before = last[entry["pg_id"]]
            now = entry["collective_seq_id"], entry["p2p_seq_id"], entry["op_id"]
            assert now >= before
            # Where messages are not recorded, their operations still count.
            assert now[0] + now[1] <= before[0] + before[1] + 1
            last[entry["pg_id"]] = now


@given(plans().map(keeping_all))
@JOBS
def test_both_ends_of_all_messages_are_there(plan: Plan) -> None:
    sent: dict[tuple[str, str], list[Any]] = defaultdict(list)
    received: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for content in job(plan).dumps.values():
        for entry in content["entries"]:
            if entry["is_p2p"]:
                verb, ends = entry["profiling_name"].split(":")[1].split()
                pair = tuple(ends.split("->")) if verb == "send" else tuple(reversed(ends.split("<-")))
                known = sent if verb == "send" else received
                known[entry["process_group"][0], str(pair)].append(entry["input_sizes"])
    assert sent == received


@given(plans(), st.sampled_from(["settled", "timed_out", "running"]))
@JOBS
def test_dumps_are_read_without_findings(plan: Plan, when: str) -> None:
    recorded = job(plan, snapshot=Snapshot(when, skew_ns=10**7))
    for name, data in recorded.files().items():
        assert pickle.loads(data) == recorded.dumps[int(name.rsplit("_", 1)[1])]
        trace = FlightRecorderReader().read(as_source(data, name), Processes())
        assert {finding.reason for finding in trace.findings} <= {"wrapped"}
        assert len(trace.events) == len(pickle.loads(data)["entries"])


def test_a_running_job_is_caught_at_different_places() -> None:
    plan = Plan(world=8, tensor=1, steps=4, timing=True)
    recorded = job(plan, snapshot=Snapshot("running", at=0.5, skew_ns=3_000_000))
    last = [content["entries"][-1] for content in recorded.dumps.values()]
    assert len({entry["record_id"] for entry in last}) > 1
    shared = min(entry["record_id"] for entry in last)
    states = {content["entries"][shared]["state"] for content in recorded.dumps.values()}
    assert len(states) > 1


def test_ranks_of_a_host_share_a_clock() -> None:
    plan = Plan(world=6, tensor=1, ranks_per_host=2, clock_skew_ns=10**9)
    true = job(replace(plan, clock_skew_ns=0))
    shown = job(plan)
    off = [
        {
            entry["time_created_ns"] - other["time_created_ns"]
            for entry, other in zip(shown.dumps[rank]["entries"], true.dumps[rank]["entries"], strict=True)
        }
        for rank in range(6)
    ]
    assert off == [{plan.clock_offset(rank)} for rank in range(6)]
    assert len({plan.clock_offset(rank) for rank in range(6)}) == 3


def test_equal_parameters_give_equal_dumps() -> None:
    plan = Plan(kind="mixed", stages=2)
    assert job(plan).files() == job(plan).files()
    assert job(plan).files() != job(replace(plan, seed=1)).files()


def test_dumps_that_are_missing_or_broken_off(tmp_path: Path) -> None:
    recorded = job(Plan(world=4), snapshot=Snapshot(missing=(1,), cut_short=(2,)))
    recorded.write(tmp_path)
    assert sorted(recorded.dumps) == [0, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comm_lib_trace_rank_0",
        "comm_lib_trace_rank_2",
        "comm_lib_trace_rank_3",
    ]
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        pickle.loads((tmp_path / "comm_lib_trace_rank_2").read_bytes())


def test_a_large_job_has_all_faults() -> None:
    plan = Plan(kind="mixed", world=16, tensor=1, stages=4, triangle=True)
    assert faults(plan) == list(FAULTS)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"world": 6, "tensor": 4}, "6 ranks make no 1 stages of 4 ranks"),
        ({"kind": "other"}, "other is not one of data_parallel, ring"),
        ({"world": 2, "tensor": 1, "triangle": True}, "three corners"),
    ],
)
def test_plans_that_make_no_sense(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Plan(**wrong)
