"""Logs of the clog hook as rank traces and as recordings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.clog import BASE, Clog, as_source
from builders.dumps import dumps, hang
from tracelink import plugins
from tracelink._model.columns import MILLISECOND, NO_TIME, UNKNOWN
from tracelink._model.errors import UnreadableError
from tracelink._model.records import Entry, Recording, State
from tracelink._model.trace import ProcessGroup, RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.clog import is_clog
from tracelink.converters.clog.reader import ClogReader

GATHER = "in_count=8|out_count=32|dtype=bf16|async_op=t"
SEND = "in_count=5|out_count=0|dtype=f32|peer=1|async_op=f"
ROOTED = "in_count=4|out_count=4|dtype=i64|root=1|async_op=f"


def recorded(log: Clog | bytes) -> Recording:
    return ClogReader().read_records(as_source(log if isinstance(log, bytes) else log.text), Processes())


def traced(log: Clog | bytes) -> RankTrace:
    return ClogReader().read(as_source(log if isinstance(log, bytes) else log.text), Processes())


def after(time: int) -> int | None:
    """Milliseconds after the start of the log."""
    return None if time == NO_TIME else time // MILLISECOND - BASE


def rows(recording: Recording) -> list[tuple[Any, ...]]:
    """Group, operation, number, state, retired, and the times of each record."""
    records, requests = recording.records, recording.requests
    return [
        (
            recording.strings[records.group[row]],
            recording.strings[requests.operation[records.request[row]]],
            int(records.sequence[row]),
            State(int(records.state[row])).name.lower(),
            int(records.retired[row]),
            *(after(int(column[row])) for column in (records.created, records.started, records.completed)),
        )
        for row in range(len(records))
    ]


def reasons(findings: Any) -> list[tuple[str, int]]:
    return [(finding.reason, finding.count) for finding in findings]


def test_a_call_is_a_record_from_its_enqueue_to_the_end_of_the_millisecond_of_its_end() -> None:
    log = Clog(rank=1).call().call("all_gather_single", GATHER, steps="QSEW").call(steps="QS").call(steps="Q")
    assert rows(recorded(log)) == [
        ("world", "all_reduce", 1, "completed", 1, 0, 3, 7),
        ("world", "all_gather_single", 2, "completed", 1, 10, 13, 17),
        ("world", "all_reduce", 3, "started", 0, 23, 26, None),
        ("world", "all_reduce", 4, "scheduled", 0, 30, None, None),
    ]


def test_steps_of_calls_with_one_signature_are_paired_in_order() -> None:
    log = Clog()
    number = log.signature("all_reduce")
    for line in (
        "Q|work_id=1|+0.001",
        "Q|work_id=2|+0.002",
        "S|+0.003",
        "E|+0.004",
        "S|+0.005",
        "W|+0.006",
        "E|+0.007",
    ):
        log.add(f"C{number}|{line}")
    assert [row[-3:] for row in rows(recorded(log))] == [(1, 3, 5), (2, 5, 8)]
    arguments = [json.loads(text) for _, run in traced(log).payloads[0].batches() for text in run]
    assert [(one["work_id"], "waited" in one) for one in arguments] == [(1, False), (2, False)]


def test_only_enqueues_show_that_a_rank_joined_and_nothing_else() -> None:
    log = Clog().call(steps="Q").call(steps="Q")
    assert [row[2:5] for row in rows(recorded(log))] == [(1, "unknown", 1), (2, "unknown", 1)]
    assert recorded(log).retires_early


def test_work_that_a_regular_end_left_does_not_hang() -> None:
    log = Clog().call().call("barrier", "async_op=f", steps="Q")
    assert rows(recorded(log))[1][3:5] == ("scheduled", 0)
    log.add("WARN|comm=world|leaked work_id=2|corr_id=2|pending_events=S,E")
    assert rows(recorded(log))[1][3:5] == ("scheduled", 1)
    assert reasons(recorded(log).findings) == [("warnings", 1)]


def test_replays_are_numbered_in_the_order_of_the_capture() -> None:
    log = (
        Clog()
        .call("all_reduce", graph=42)
        .call("barrier", "async_op=f", graph=42)
        .call("all_reduce", graph=42)
    )
    log.replay(42, 1, "all_reduce", "all_reduce").replay(42, 2, "all_reduce", steps="S")
    assert rows(recorded(log)) == [
        ("world (graph 1)", "all_reduce", 1, "completed", 1, None, 30, 33),
        ("world (graph 1)", "all_reduce", 3, "completed", 1, None, 34, 37),
        ("world (graph 1)", "all_reduce", 4, "started", 0, None, 38, None),
    ]
    assert reasons(recorded(log).findings) == [("captured", 3)]


def test_graphs_have_the_same_names_on_all_ranks_whatever_their_numbers_are() -> None:
    names = []
    for number in (7, 9_000_000):
        log = (
            Clog().call(graph=number).replay(number, 1, "all_reduce").call(graph=3).replay(3, 1, "all_reduce")
        )
        names.append([row[0] for row in rows(recorded(log))])
    assert names == [["world (graph 1)", "world (graph 2)"]] * 2


def test_a_replay_whose_capture_is_not_in_the_log_is_counted() -> None:
    assert reasons(recorded(Clog().replay(8, 1, "all_reduce")).findings) == [
        ("without_call", 2),
        ("empty", 1),
    ]


def test_groups_and_ranks_follow_from_communicators_and_splits() -> None:
    log = (
        Clog(rank=5, world=8)
        .add("split|parent=world|child=pp|ranks=1,5")
        .add("split|parent=pp|child=p|ranks=1")
    )
    log.add("split|parent=world|child=other|ranks=0,2").add("new_comm|comm=replicas|rank=0|world_size=2")
    log.call("send", SEND.replace("peer=1", "peer=0"), "pp").call(comm="p").call(comm="replicas").call(
        comm="x"
    )
    trace = traced(log)
    assert trace.groups == [
        ProcessGroup("world", ranks=tuple(range(8)), size=8),
        ProcessGroup("pp", ranks=(1, 5), size=2),
        ProcessGroup("p", ranks=(5,), size=1),
        ProcessGroup("replicas", size=2),
        ProcessGroup("x"),
    ]
    assert (trace.source.rank, trace.source.world_size) == (5, 8)
    assert [row[:3] for row in rows(recorded(log))] == [
        ("pp", "send 1->0", UNKNOWN),
        ("p", "all_reduce", 1),
        ("replicas", "all_reduce", 1),
        ("x", "all_reduce", 1),
    ]


def test_communications_have_sizes_types_roots_and_peers() -> None:
    log = Clog().call("all_gather", "in_count=3|out_counts=3,3|dtype=bf16|async_op=f")
    log.call("broadcast", ROOTED).call("send", SEND).call("batch_op_issue", "num_ops=2|async_op=t")
    trace = traced(log)
    table = trace.communications
    texts = [*trace.strings.texts(), None]
    assert [
        (
            texts[table.operation[row]],
            int(table.sequence[row]),
            bool(table.point_to_point[row]),
            int(table.source[row]),
            int(table.target[row]),
            int(table.elements_in[row]),
            int(table.elements_out[row]),
            texts[table.type[row]],
        )
        for row in range(len(table))
    ] == [
        ("all_gather", 1, False, -1, -1, 3, 6, "BFloat16"),
        ("broadcast", 2, False, 1, -1, 4, 4, "Long"),
        ("send 0->1", -1, True, 0, 1, 5, 5, "Float"),
        ("batch_op_issue", -1, True, -1, -1, -1, -1, None),
    ]


def test_arguments_and_entries_are_read_back() -> None:
    log = Clog().call("all_gather_single", GATHER, steps="QSEW")
    ((first, run),) = traced(log).payloads[0].batches()
    assert (first, [json.loads(text) for text in run]) == (
        0,
        [
            {
                "communicator": "world",
                "in_count": "8",
                "out_count": "32",
                "dtype": "bf16",
                "async_op": "t",
                "work_id": 1,
                "started": 0.003,
                "ended": 0.007,
                "waited": 0.009,
            }
        ],
    )
    payloads: Any = recorded(log).payloads
    assert payloads.entries([0, 7]) == {
        0: Entry(
            "world",
            "",
            1,
            "all_gather_single",
            [[8]],
            [[32]],
            ["BFloat16"],
            ["BFloat16"],
            "completed",
            None,
            BASE * MILLISECOND,
            None,
            (),
        )
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("C1|Q|work_id=1|+x", "damaged"),
        ("C99999999999999999999|S|+0.001", "damaged"),
        ("split|parent=world", "damaged"),
        ("new_comm|comm=world|rank=9|world_size=2|x", "damaged"),
        ("C5|Q|work_id=4|+0.004", "without_signature"),
        ("C1|E|+0.004", "without_call"),
        ("G3|R1|C1|S|+0.004", "without_call"),
    ],
)
def test_a_damaged_line_costs_only_itself(line: str, reason: str) -> None:
    recording = recorded(Clog().call().add(line).call())
    assert (len(recording.records), reasons(recording.findings)) == (2, [(reason, 1)])


def test_a_truncated_log_keeps_what_comes_before_the_cut() -> None:
    whole = Clog().call().call()
    recording = recorded(whole.text[:-4])
    assert (len(recording.records), recording.broken_off) == (2, True)
    assert reasons(recording.findings) == [("truncated", 1), ("damaged", 1)]
    assert rows(recording)[1][3] == "started"


def test_a_truncated_gzip_is_said_to_be_truncated() -> None:
    recording = recorded(gzip.compress(Clog().call().text * 1)[:-3])
    assert reasons(recording.findings)[0] == ("truncated", 1)


@pytest.mark.parametrize("head", [b"V|1|base_timestamp=x\n", b"V|1\n"])
def test_a_log_without_a_time_cannot_be_read(head: bytes) -> None:
    with pytest.raises(UnreadableError):
        recorded(head)


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert reasons(recorded(Clog().call().text.replace(b"V|1|", b"V|2|")).findings) == [("newer_version", 1)]


def test_logs_are_recognised_by_their_first_line() -> None:
    head = Clog().text
    assert [known.name for known in plugins.recognised(head, "x.txt")] == ["clog"]
    assert not is_clog(b"C1|Q|work_id=1|+0.001\n" + head, "clog_rank0.log")


@given(st.lists(st.sampled_from(["Q", "S", "E", "W"]), max_size=30), st.integers(1, 3))
def test_any_order_of_steps_is_read(steps: list[str], signatures: int) -> None:
    log = Clog()
    numbers = [log.signature(f"op{number}") for number in range(signatures)]
    for place, step in enumerate(steps):
        work = f"|work_id={place}" if step == "Q" else ""
        log.add(f"C{numbers[place % signatures]}|{step}{work}|+0.{place:03}")
    recording = recorded(log)
    assert len(recording.records) == steps.count("Q")
    of_calls = sum(1 + (record[6] is not None) + (record[7] is not None) for record in rows(recording))
    lost = sum(finding.count for finding in recording.findings if finding.reason == "without_call")
    assert of_calls + lost <= len(steps)


@given(st.binary(max_size=300))
def test_any_bytes_behind_the_first_line_are_read(data: bytes) -> None:
    recording = recorded(Clog().call().text + data)
    assert len(recording.records) >= 1


# With other ranks


def test_a_rank_that_did_not_join_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        log = Clog(rank, 4).call().call()
        (log if rank == 2 else log.call("barrier", "async_op=f", steps="Q")).save(tmp_path)
    diagnosis = tracelink.diagnose(tmp_path)
    assert [(problem.culprits, problem.sequence) for problem in diagnosis.problems] == [((2,), 3)]
    table = tracelink.load(tmp_path, jobs=1).table("collectives")
    assert table["verdict"].tolist() == ["complete", "complete", "missing"]


def test_next_to_dumps_of_the_same_ranks_logs_are_not_used(tmp_path: Path) -> None:
    dumps(tmp_path, hang())
    for rank in range(4):
        Clog(rank, 4).call().save(tmp_path)
    diagnosis = tracelink.diagnose(tmp_path)
    assert [problem.culprits for problem in diagnosis.problems] == [(2,)]
    assert ("other_recorder", 4) in reasons(diagnosis.findings)
    graph = tracelink.load(tmp_path, jobs=1)
    assert {source.format for source in graph.sources} == {"flight-recorder"}
    assert [count for reason, count in reasons(graph.findings) if reason == "duplicate_source"] == [1] * 4


@pytest.mark.parametrize(
    "line", [b"C1|S|+99999999999.000", b"C1|S|+-1.000", b"C1|Q|work_id=1|+999999999.999"]
)
def test_times_that_no_job_has_do_not_overflow(line: bytes) -> None:
    assert len(recorded(Clog().call().text + line + b"\n").records) >= 1


@pytest.mark.parametrize("peer", [999_999, 1_000_000, 1 << 32, 1 << 62])
def test_a_peer_that_no_job_has_is_unknown(peer: int) -> None:
    log = Clog().call("send", SEND.replace("peer=1", f"peer={peer}"))
    requests = recorded(log.text).requests
    known = peer < 1_000_000
    assert (requests.source.tolist(), requests.target.tolist()) == ([0], [peer if known else UNKNOWN])


def test_a_base_that_no_clock_shows_is_refused() -> None:
    with pytest.raises(UnreadableError):
        recorded(b"V|1|base_timestamp=999999999999.000\n")
