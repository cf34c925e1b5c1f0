"""The synthetic job on many hosts: its files say what its truth says."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from generators.files import KINETO, RECORDER, Kept, Missing
from generators.job import Cluster, HostClock
from generators.jobs import truth_file, write
from generators.jobs import write_cluster as job
from generators.training import simulate

SMALL: dict[str, Any] = {"ranks": 16, "ranks_per_host": 4, "tensor_parallel": 2, "steps": 2, "layers": 2}
FROM_ROOT = {"broadcast"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    job(folder, **SMALL, sequence_numbers=True, straggler_ns=3_000_000)
    return folder


@pytest.fixture(scope="module")
def truth(folder: Path) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads(truth_file(folder).read_bytes())
    return truth


def profile(folder: Path, rank: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"kineto_{rank}.json").read_bytes())
    return content


def dump(folder: Path, rank: int) -> dict[str, Any]:
    content: dict[str, Any] = pickle.loads((folder / f"dumps/comm_lib_trace_rank_{rank}").read_bytes())
    return content


def kernels(content: dict[str, Any]) -> dict[int, tuple[str, int, int, int | None]]:
    """Name, start and end in Unix ns, and number of every NCCL kernel, by its correlation."""
    base = content["baseTimeNanoseconds"]
    return {
        event["args"]["correlation"]: (
            event["name"],
            base + round(event["ts"] * 1000),
            base + round(event["ts"] * 1000) + round(event["dur"] * 1000),
            event["args"].get("Seq"),
        )
        for event in content["traceEvents"]
        if event.get("cat") == "kernel" and event["name"].startswith("nccl")
    }


def ends(truth: dict[str, Any]) -> list[dict[str, Any]]:
    """Every rank's part in every collective and message."""
    parts = [member for collective in truth["collectives"] for member in collective["members"]]
    return parts + [message[end] for message in truth["messages"] for end in ("send", "receive")]


def test_equal_parameters_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    job(tmp_path, **SMALL, sequence_numbers=True, straggler_ns=3_000_000)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) == 3 * 16
    assert all((tmp_path / file).read_bytes() == (folder / file).read_bytes() for file in files)
    assert truth_file(tmp_path).read_bytes() == truth_file(folder).read_bytes()


def test_every_kernel_stands_where_the_clock_of_its_rank_showed_it(
    folder: Path, truth: dict[str, Any]
) -> None:
    found = {rank: kernels(profile(folder, rank)) for rank in range(16)}
    members = [member for member in ends(truth) if member["kernel"]]
    expected = [(m["kernel"], m["shown_ns"][1], m["shown_ns"][2], m["sequence"]) for m in members]
    assert [found[m["rank"]][m["correlation"]] for m in members] == expected


def test_the_members_of_a_batch_share_a_kernel_that_tells_nothing(
    folder: Path, truth: dict[str, Any]
) -> None:
    batched = [m[end] for m in truth["messages"] if m["batched"] for end in ("send", "receive")]
    assert len(batched) == 2 * 16 * 2
    for member in batched:
        name, start, end, number = kernels(profile(folder, member["rank"]))[member["correlation"]]
        assert name.startswith("ncclDevKernel_SendRecv")
        assert ([start, end], number) == (member["shown_ns"][1:], None)


def test_recorders_show_the_same_clock(folder: Path, truth: dict[str, Any]) -> None:
    entries = {rank: dump(folder, rank)["entries"] for rank in range(16)}
    members = ends(truth)
    assert [entries[m["rank"]][m["record"]]["time_created_ns"] for m in members] == [
        m["shown_ns"][0] for m in members
    ]


def test_nobody_leaves_before_the_last_has_entered_except_where_all_come_from_one(
    truth: dict[str, Any],
) -> None:
    early = Counter(
        collective["operation"]
        for collective in truth["collectives"]
        for member in collective["members"]
        if member["finished_ns"] < max(other["started_ns"] for other in collective["members"])
    )
    assert set(early) == FROM_ROOT
    synchronizing = [c for c in truth["collectives"] if c["operation"] not in FROM_ROOT]
    for collective in synchronizing:
        finished = [member["finished_ns"] for member in collective["members"]]
        late = [member["rank"] for member in collective["members"]]
        late.sort(key={member["rank"]: member["started_ns"] for member in collective["members"]}.__getitem__)
        sizes = {"all_to_all": 50_000}
        assert max(finished) - min(finished) <= 3_000 + sizes.get(collective["operation"], 0)
        assert collective["last_rank"] == late[-1]


def test_messages_are_received_after_they_were_sent(truth: dict[str, Any]) -> None:
    assert Counter(message["batched"] for message in truth["messages"]) == {True: 32, False: 16}
    assert all(message["sent_ns"] < message["received_ns"] for message in truth["messages"])


def test_a_sender_does_not_wait_for_the_receiver(truth: dict[str, Any]) -> None:
    assert any(m["send"]["finished_ns"] < m["receive"]["started_ns"] for m in truth["messages"])


def test_hosts_have_names_clocks_and_processes_of_their_own(folder: Path, truth: dict[str, Any]) -> None:
    hosts = [profile(folder, rank)["host_name"] for rank in range(16)]
    assert hosts == [f"node00{rank // 4}" for rank in range(16)] == [rank["host"] for rank in truth["ranks"]]
    clocks = {(rank["host"], rank["clock_offset_ns"], rank["clock_drift_ppm"]) for rank in truth["ranks"]}
    assert len(clocks) == len({clock[1:] for clock in clocks}) == 4
    assert truth["ranks"][0]["clock_offset_ns"] == 0
    processes = [
        {e["pid"] for e in profile(folder, rank)["traceEvents"] if e.get("cat") == "cpu_op"}
        for rank in range(16)
    ]
    assert processes[0] == processes[4] != processes[1]


def test_a_straggler_keeps_everyone_waiting(truth: dict[str, Any]) -> None:
    waited = [c for c in truth["collectives"] if c["skew_ns"] > 2_000_000]
    assert {c["last_rank"] for c in waited} >= set(truth["stragglers"])


def test_every_rank_is_in_four_groups() -> None:
    cluster = Cluster(ranks=64, tensor_parallel=4, stages=2)
    assert [(group.name, group.ranks) for group in cluster.groups(37)] == [
        ("0", tuple(range(64))),
        ("10", (36, 37, 38, 39)),
        ("22", (33, 37, 41, 45, 49, 53, 57, 61)),
        ("30", (5, 37)),
    ]
    groups = {group.name: group for rank in range(64) for group in cluster.groups(rank)}
    assert sorted(map(int, groups)) == list(range(cluster.group_count))
    assert all(group in cluster.groups(rank) for group in groups.values() for rank in group.ranks)


def test_ranks_that_make_no_grid_are_refused() -> None:
    with pytest.raises(ValueError, match="10 ranks make no 2 stages of 4 tensor-parallel ranks"):
        Cluster(ranks=10)


@pytest.mark.parametrize(
    ("start", "stop", "gone"), [(None, 2, [1, 2]), (3, 6, [4, 5, 6]), (-1, None, [10])], ids=str
)
def test_missing_communications_leave_no_event_and_change_no_other(
    tmp_path: Path, start: int | None, stop: int | None, gone: list[int]
) -> None:
    cluster = Cluster(**SMALL)
    whole, part = tmp_path / "whole", tmp_path / "part"
    write(cluster, whole)
    truth = write(cluster, part, Kept(missing=[Missing(3, start, stop, group="2")]))
    missing = [
        (collective["group"], collective["sequence"], member["rank"])
        for collective in truth["collectives"]
        for member in collective["members"]
        if not member["sources"]
    ]
    assert missing == [("2", number, 3) for number in gone]
    assert_only_communications_are_gone(profile(whole, 3), profile(part, 3), len(gone))
    entries = dump(whole, 3)["entries"]
    kept = [e for e in entries if not (e["process_group"][0] == "2" and e["collective_seq_id"] in gone)]
    assert dump(part, 3)["entries"] == kept
    assert (part / "kineto_2.json").read_bytes() == (whole / "kineto_2.json").read_bytes()


def assert_only_communications_are_gone(whole: dict[str, Any], part: dict[str, Any], count: int) -> None:
    remaining = [json.dumps(event) for event in part["traceEvents"]]
    assert set(remaining) <= {json.dumps(event) for event in whole["traceEvents"]}
    gone = Counter(json.dumps(event) for event in whole["traceEvents"]) - Counter(remaining)
    events = [json.loads(text) for text in gone.elements()]
    assert Counter(event["cat"] for event in events if event["ph"] == "X") == {
        "cpu_op": 2 * count,
        "user_annotation": count,
        "gpu_user_annotation": count,
        "cuda_runtime": 3 * count,
        "cuda_sync": count,
        "kernel": count,
    }


def test_one_source_can_miss_what_another_shows(tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(missing=[Missing(0, 0, 1, sources=[KINETO])]), **SMALL)
    (first,) = [m for m in ends(truth) if m["rank"] == 0 and m["record"] == 0]
    assert first["sources"] == ["execution_trace", "flight_recorder"]


def test_a_ring_buffer_keeps_the_newest_entries(folder: Path, tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(recorder_entries=5), **SMALL, sequence_numbers=True, straggler_ns=3_000_000)
    newest = dump(folder, 7)["entries"][-5:]
    assert dump(tmp_path, 7)["entries"] == newest
    recorded = {m["record"] for m in ends(truth) if m["rank"] == 7 and RECORDER in m["sources"]}
    # The closing of a batch is neither a message nor a collective.
    names = {entry["record_id"]: entry["profiling_name"] for entry in newest}
    assert recorded == {record for record, name in names.items() if name != "nccl:coalesced"}


def test_ranks_and_sources_can_be_left_out(tmp_path: Path) -> None:
    truth = job(tmp_path, Kept(sources=[KINETO], absent_ranks=[1, 5]), **SMALL)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"kineto_{rank}.json" for rank in range(16) if rank not in (1, 5)}
    assert not any(member["sources"] for member in ends(truth) if member["rank"] in (1, 5))


def test_a_clock_can_be_set_while_the_job_runs(tmp_path: Path) -> None:
    cluster = Cluster(**SMALL)
    half = cluster.start_ns + 2_000_000
    steps = [HostClock(), HostClock(step_ns=7_000_000, step_at_ns=half), HostClock(), HostClock()]
    truth = write(Cluster(**SMALL, clocks=tuple(steps)), tmp_path)
    off = Counter(
        (member["rank"] // 4, member["started_ns"] >= half, member["shown_ns"][1] - member["started_ns"])
        for member in ends(truth)
    )
    assert set(off) == {(0, False, 0), (0, True, 0), (1, False, 0), (1, True, 7_000_000)} | {
        (host, late, 0) for host in (2, 3) for late in (False, True)
    }


def test_padding_stands_behind_the_events_and_on_the_clock_of_its_rank(tmp_path: Path) -> None:
    text = b'{"ph": "X", "cat": "cpu_op", "name": "padding", "pid": 1, "tid": 1, "ts": 7.000, "dur": 1.000}'
    cluster = Cluster(**SMALL, drift_ppm=0.0)
    truth = write(cluster, tmp_path, padding=lambda rank: text)
    bases = {
        profile(tmp_path, rank)["baseTimeNanoseconds"] - truth["ranks"][rank]["clock_offset_ns"]
        for rank in range(16)
    }
    assert len(bases) == 1
    assert profile(tmp_path, 9)["traceEvents"][-1]["name"] == "padding"
    member = next(m for m in ends(truth) if m["rank"] == 9 and m["kernel"])
    assert kernels(profile(tmp_path, 9))[member["correlation"]][1] == member["shown_ns"][1]


def test_a_job_of_one_stage_sends_nothing() -> None:
    recordings = simulate(Cluster(ranks=4, tensor_parallel=2, stages=1, steps=1, layers=1))
    assert not any(part.point_to_point for recording in recordings for part in recording.participations)
