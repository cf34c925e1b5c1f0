"""Recorded jobs: each dump is what torch's recorder would write, and each fault is where the truth says."""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.recorder import as_source
from tracelink.converters.flight_recorder import FlightRecorderReader
from tracelink.engine import Engine
from tracelink.samples.generate.recorded_jobs import FAULTS, Fault, Plan, RecordedJob, Snapshot, faults, job
from tracelink.samples.generate.recorded_plan import KINDS


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
        " 8 default_pg 3/0/3 nccl:all_reduce [[2]] completed",
    ]


def sequences(recorded: RecordedJob, rank: int, group: str) -> list[int]:
    """The numbers of the collectives that a rank issued in a group."""
    entries = recorded.dumps[rank]["entries"]
    return [entry["collective_seq_id"] for entry in entries if entry["process_group"][0] == group]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tensor, stages = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]))
    return Plan(
        world=tensor * stages * draw(st.sampled_from([1, 2, 3])) if tensor * stages > 1 else 4,
        tensor=tensor,
        stages=stages,
        kind=draw(st.sampled_from(KINDS)),
        steps=draw(st.integers(1, 3)),
        layers=draw(st.integers(1, 2)),
        microbatches=draw(st.integers(1, 5)),
        backend=draw(st.sampled_from(["nccl", "nccl2", "nccl-lazy", "gloo", "ucc", "xccl", "own"])),
        buffer=draw(st.sampled_from([2000, 17, 40])),
        seed=draw(st.integers(0, 99)),
        timing=draw(st.booleans()),
        unknown_operations=draw(st.booleans()),
        clock_skew_ns=draw(st.sampled_from([0, 10**7])),
        ranks_per_host=2,
    )


def unfinished(recorded: RecordedJob) -> list[dict[str, Any]]:
    """The entries that tell of an end and have none."""
    entries = [entry for content in recorded.dumps.values() for entry in content["entries"]]
    closed = {
        (entry["process_group"][0], entry["collective_seq_id"], entry["p2p_seq_id"])
        for entry in entries
        if not entry["input_sizes"]
    }
    members = [
        (entry["process_group"][0], entry["collective_seq_id"], entry["p2p_seq_id"]) for entry in entries
    ]
    return [
        entry
        for entry, number in zip(entries, members, strict=True)
        if not entry["retired"] and (number not in closed or not entry["input_sizes"])
    ]


@given(plans())
@settings(max_examples=60, deadline=None)
def test_a_healthy_job_finishes_everything(plan: Plan) -> None:
    recorded = job(plan)
    assert recorded.truth is None
    assert list(recorded.dumps) == list(range(plan.world))
    assert unfinished(recorded) == []


@given(plans())
@settings(max_examples=40, deadline=None)
def test_a_wrapped_buffer_keeps_the_newest(plan: Plan) -> None:
    whole = job(Plan(**{**fields(plan), "buffer": 10_000}))
    kept = job(plan)
    for rank, content in kept.dumps.items():
        assert content["entries"] == whole.dumps[rank]["entries"][-plan.buffer :]
        assert content["pg_status"] == whole.dumps[rank]["pg_status"]


def fields(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


@given(plans())
@settings(max_examples=40, deadline=None)
def test_records_are_counted_over_all_groups_and_collectives_within_one(plan: Plan) -> None:
    for rank, content in job(Plan(**{**fields(plan), "buffer": 10_000})).dumps.items():
        assert [entry["record_id"] for entry in content["entries"]] == list(range(len(content["entries"])))
        created = [entry["time_created_ns"] for entry in content["entries"]]
        assert created == sorted(created), rank
        last: dict[int, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
        for entry in content["entries"]:
            before, now = last[entry["pg_id"]], number_of(entry)
            assert now >= before
            assert sum(now[:2]) <= sum(before[:2]) + 1 or not plan.records_messages
            last[entry["pg_id"]] = now


def number_of(entry: dict[str, Any]) -> tuple[int, int, int]:
    return entry["collective_seq_id"], entry["p2p_seq_id"], entry["op_id"]


@given(plans(), st.sampled_from(["settled", "timed_out", "running"]))
@settings(max_examples=40, deadline=None)
def test_dumps_are_read_without_findings(plan: Plan, when: str) -> None:
    recorded = job(plan, snapshot=Snapshot(when))
    for name, data in recorded.files().items():
        assert pickle.loads(data) == recorded.dumps[int(name.rsplit("_", 1)[1])]
        trace = FlightRecorderReader().read(as_source(data, name), Engine())
        assert {finding.reason for finding in trace.findings} <= {"wrapped"}
        assert len(trace.events) == len(pickle.loads(data)["entries"])


def test_equal_parameters_give_equal_dumps() -> None:
    plan = Plan(kind="mixed", stages=2)
    assert job(plan).files() == job(plan).files()
    assert job(plan).files() != job(Plan(kind="mixed", stages=2, seed=1)).files()


@given(plans(), st.data())
@settings(max_examples=100, deadline=None)
def test_who_stops_is_missed_by_the_others_in_that_collective(plan: Plan, data: st.DataObject) -> None:
    whole = Plan(**{**fields(plan), "buffer": 10_000})
    stops = ["never_joined", "never_joined_any", "lagging"]
    kind = data.draw(st.sampled_from([name for name in stops if name in faults(whole)]))
    recorded = job(whole, Fault(kind))
    truth = recorded.truth
    assert truth is not None
    assert truth.sequence not in sequences(recorded, truth.culprits[0], truth.group)
    for rank in truth.waiting:
        assert truth.sequence in sequences(recorded, rank, truth.group)


def test_dumps_that_are_missing_or_broken_off(tmp_path: Path) -> None:
    recorded = job(Plan(world=4), snapshot=Snapshot(missing=(1,), cut_short=(2,)))
    recorded.write(tmp_path)
    assert sorted(recorded.dumps) == [0, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comm_lib_trace_rank_0",
        "comm_lib_trace_rank_2",
        "comm_lib_trace_rank_3",
    ]
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads((tmp_path / "comm_lib_trace_rank_2").read_bytes())


def test_a_large_job_has_all_faults() -> None:
    assert faults(Plan(kind="mixed", world=16, stages=2)) == list(FAULTS)
