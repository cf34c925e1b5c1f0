"""Files of the Inspector as rank traces: kernels, groups, numbers, counters, ranks, and what does not fit."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink
from builders.data import shared
from builders.inspector import (
    COMMUNICATOR,
    START_US,
    as_source,
    collective,
    header,
    lines,
    marker,
    message,
    metadata,
    read,
    record,
    text,
)
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Truncated
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.nccl_inspector import is_inspector
from tracelink.converters.nccl_inspector.reader import InspectorReader

START = START_US * 1000


def kernels(trace: RankTrace) -> list[tuple[str, str, int, int]]:
    """Name, track, start after `START` and duration in microseconds of each event."""
    names, events = trace.strings.texts(), trace.events
    return [
        (names[name], trace.tracks[track].label, (start - START) // 1000, duration // 1000)
        for name, track, start, duration in zip(
            events.name.tolist(),
            events.track.tolist(),
            events.start.tolist(),
            events.duration.tolist(),
            strict=True,
        )
    ]


def declared(trace: RankTrace, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the communications; strings as text."""
    table, texts = trace.communications.masked(), trace.strings.texts()
    named = set(trace.communications.text_columns())
    found = []
    for row in range(len(trace.communications)):
        values = [getattr(trace.communications, column)[row] for column in columns]
        found.append(tuple(texts[v] if c in named else int(v) for c, v in zip(columns, values, strict=True)))
    assert len(table["row"]) == len(found)
    return found


def samples(trace: RankTrace) -> dict[str, list[tuple[int, float]]]:
    """Time after `START` in microseconds and value of each sample, by the name of the counter."""
    found: dict[str, list[tuple[int, float]]] = {}
    counters = trace.counters
    for track, time, value in zip(
        counters.track.tolist(), counters.time.tolist(), counters.value.tolist(), strict=True
    ):
        found.setdefault(trace.tracks[track].label, []).append(((time - START) // 1000, value))
    return found


def reasons(trace: RankTrace) -> dict[str, int]:
    return {finding.reason: finding.count for finding in trace.findings}


def test_verbose_operations_are_kernels_of_numbered_collectives() -> None:
    trace = read(
        lines(
            collective("AllGather", 0, 1000, at=10, lasts=100),
            collective("AllReduce", 0, 4096, at=200, lasts=50),
            collective("ReduceScatter", 7, 500, at=300, lasts=20),
            rank=2,
            size=8,
            name="DP Group 0",
        )
    )
    label = f"DP Group 0 ({COMMUNICATOR}/8)"
    assert kernels(trace) == [
        ("nccl:AllGather", label, 10, 100),
        ("nccl:AllReduce", label, 200, 50),
        ("nccl:ReduceScatter", label, 300, 20),
    ]
    assert declared(
        trace, "operation", "group", "sequence", "elements_in", "elements_out", "type", "size"
    ) == [
        ("nccl:AllGather", f"{COMMUNICATOR}/8 AllGather", 0, 1000, 8000, "Byte", 8),
        ("nccl:AllReduce", f"{COMMUNICATOR}/8 AllReduce", 0, 4096, 4096, "Byte", 8),
        ("nccl:ReduceScatter", f"{COMMUNICATOR}/8 ReduceScatter", 7, 4000, 500, "Byte", 8),
    ]
    assert [(group.name, group.description, group.size, group.backend) for group in trace.groups] == [
        (f"{COMMUNICATOR}/8 {name}", f"DP Group 0 {name}", 8, "nccl")
        for name in ("AllGather", "AllReduce", "ReduceScatter")
    ]
    info = trace.source
    assert (info.rank, info.world_size, info.host, info.pid, info.version) == (2, 8, "node0", 100, "v4.1")
    assert reasons(trace) == {}


def test_both_ends_of_a_message_name_both_ranks_and_have_no_number() -> None:
    trace = read(
        lines(message("Send", 3, 1, 64, at=10), message("Recv", 0, 2, 32, at=90), rank=1, size=4, name="PP")
    )
    columns = ("operation", "group", "sequence", "point_to_point", "source", "target", "elements_in")
    assert declared(trace, *columns) == [
        ("nccl:Send", f"{COMMUNICATOR}/4", -1, 1, 1, 3, 64),
        ("nccl:Recv", f"{COMMUNICATOR}/4", -1, 1, 0, 1, 32),
    ]
    assert [(group.name, group.description) for group in trace.groups] == [(f"{COMMUNICATOR}/4", "PP")]


def test_operations_without_times_are_counters_of_their_communicator() -> None:
    trace = read(
        text(
            record(collective(number=0, coll_exec_time_us=70), written=10),
            record(collective(number=1, coll_busbw_gbs=4.5), written=20),
            record(message(), identity="0xaa", written=30),
        )
    )
    assert (kernels(trace), declared(trace, "group")) == ([], [])
    name, other = f"{COMMUNICATOR}/2", "0xaa/2"
    assert samples(trace) == {
        f"{name} bus GB/s": [(10, 3.75), (20, 4.5)],
        f"{name} algorithm GB/s": [(10, 2.5), (20, 2.5)],
        f"{name} execution time": [(10, 70), (20, 100)],
        f"{other} bus GB/s": [(30, 1.25)],
        f"{other} algorithm GB/s": [(30, 1.25)],
        f"{other} execution time": [(30, 50)],
    }
    assert {track.unit for track in trace.tracks if track.kind == "counter"} == {"GB/s", "us"}
    assert reasons(trace) == {"no_times": 3}
    assert trace.source.start_ns == START + 10_000


def test_rates_of_verbose_operations_are_sampled_when_they_end() -> None:
    trace = read(lines(collective(at=10, lasts=100), written=5000))
    assert samples(trace)[f"{COMMUNICATOR}/2 bus GB/s"] == [(110, 3.75)]


@pytest.mark.parametrize(
    "flat", [{**header(1, 4), "metadata": metadata()}, {**header(1, 4), **metadata()}], ids=["header", "both"]
)
def test_the_header_can_be_in_the_line_itself(flat: dict[str, Any]) -> None:
    trace = read(text({**flat, **collective(at=10)}))
    assert declared(trace, "group", "size") == [(f"{COMMUNICATOR}/4 AllReduce", 4)]
    assert (trace.source.rank, trace.source.pid) == (1, 100)


def test_since_v4_3_lines_belong_to_the_marker_before_them() -> None:
    trace = read(
        text(
            marker(2, rank=1, size=4, written=1),
            collective(number=0, at=10),
            collective(number=1, at=200),
            marker(3, dropped=5, rank=1, size=4, written=2),
            collective(number=7, at=400),
        )
    )
    assert declared(trace, "group", "sequence") == [
        (f"{COMMUNICATOR}/4 AllReduce", number) for number in (0, 1, 7)
    ]
    assert trace.source.version == "v4.3"
    assert reasons(trace) == {"missing_lines": 2, "overwritten": 5}


def test_lines_before_the_first_marker_have_no_communicator() -> None:
    trace = read(text(collective(at=10), marker(1), collective(at=20)))
    assert len(trace.events) == 1
    assert reasons(trace) == {"no_communicator": 1}


def test_records_of_the_proxy_and_others_are_counted() -> None:
    proxy = {"proxy_trace": {"record_type": "proxy_op", "rank": 0, "parent_sn": 1}}
    trace = read(text(record(collective(at=10)), record(proxy), {"summary": {"complete": True}}))
    assert reasons(trace) == {"other_line": 1, "proxy_record": 1}


def test_arguments_are_those_of_the_line() -> None:
    first, second = collective(number=4, at=10, coll_algo="RING"), message(at=90)
    trace = read(lines(collective(number=3), first, second))
    (batch,) = trace.payloads[0].batches()
    assert [json.loads(bytes(payload)) for payload in batch[1]] == [first["coll_perf"], second["p2p_perf"]]
    (near,) = trace.payloads[0].near(trace.events.payload[1:])  # type: ignore[attr-defined]
    assert (near[0], json.loads(bytes(near[1][0]))) == (1, second["p2p_perf"])


def test_a_truncated_last_line_costs_only_itself() -> None:
    data = lines(collective(number=0, at=10), collective(number=1, at=200))
    trace = read(data[:-20])
    assert declared(trace, "sequence") == [(0,)]
    assert reasons(trace) == {"truncated": 1}


def test_a_damaged_gzip_file_keeps_the_lines_before_the_cut() -> None:
    data = gzip.compress(lines(*(collective(number=n, at=n) for n in range(20_000))))
    trace = read(data[: len(data) // 2])
    assert 1000 < len(trace.events) < 19_000
    (finding,) = trace.findings
    assert (finding.reason, "it is damaged (" in finding.message) == (Truncated.reason, True)
    assert f"the {len(trace.events):,} lines before it are used" in finding.message


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (collective(at=10, coll_sn=-1), [(-1, 1 << 20)]),
        (collective(at=10, coll_sn="12"), [(12, 1 << 20)]),
        (collective(at=10, coll_msg_size_bytes=2**63 - 1), [(0, 2**63 - 1)]),
        (collective(at=10, coll_msg_size_bytes=None), [(0, -1)]),
        (collective(coll_sn=3, event_trace_ts={"kernel_events": [{"kernel_start_ts": 5}]}), []),
        (collective(coll_sn=3, event_trace_ts={"kernel_events": []}), []),
    ],
)
def test_odd_values_are_unknown(body: dict[str, Any], found: list[tuple[int, int]]) -> None:
    trace = read(text(record(body)))
    assert declared(trace, "sequence", "elements_in") == found


@pytest.mark.parametrize(
    "line",
    [b"null", b"[]", b"{", b'{"coll_perf": 5}', b'{"header": {"rank": "x"}, "coll_perf": {}}', b"\xff\xfe"],
)
def test_damaged_lines_cost_only_themselves(line: bytes) -> None:
    whole = lines(collective(at=10))
    trace = read(whole + line + b"\n" + whole)
    assert len(trace.events) == 2
    assert reasons(trace) == {"damaged_line": 1}


def test_a_file_without_records_is_an_error() -> None:
    with pytest.raises(UnreadableError, match="no line of it is a record"):
        read(b"hello\nworld\n")


# Ranks: within communicators, of which the largest is that of the job.


def test_the_rank_is_that_in_the_largest_communicator() -> None:
    small, large = record(collective(at=10), 1, 2, "0xaa"), record(collective(at=20), 5, 8, "0xbb")
    assert read(text(small, large)).source.rank == 5


def test_two_communicators_of_one_size_give_no_rank() -> None:
    trace = read(text(record(collective(at=10), 1, 2, "0xaa"), record(collective(at=20), 0, 2, "0xbb")))
    assert trace.source.rank is None
    assert reasons(trace) == {"unknown_communicator_rank": 1}


def test_a_file_of_several_processes_is_one_source_for_each() -> None:
    data = text(
        record(collective(number=0, at=10), 0, pid=100),
        record(collective(number=0, at=12), 1, pid=101),
        marker(1, rank=1, pid=101),
        collective(number=1, at=200),
        record(collective(number=1, at=205), 0, pid=100),
    )
    sources, findings = InspectorReader().unpacked(as_source(data, "all.log"), Processes(1))
    traces = [InspectorReader().read(source, Processes(1)) for source in sources]
    assert [(trace.source.path, trace.source.rank, len(trace.events)) for trace in traces] == [
        ("all.log:node0-pid100", 0, 2),
        ("all.log:node0-pid101", 1, 2),
    ]
    assert findings == []


def test_a_file_of_one_process_is_not_copied() -> None:
    source = as_source(lines(collective()))
    assert InspectorReader().unpacked(source, Processes(1)) == ([source], [])


# The whole way: files of a job.


def job(folder: Path) -> Path:
    """Two ranks: rank 1 comes 2 ms late to the second all-reduce, and receives a message."""
    folder.mkdir()
    for rank in (0, 1):
        late = 2000 * rank
        bodies = [
            collective("AllReduce", 0, 4096, at=100, lasts=100),
            collective("AllGather", 0, 4096, at=300, lasts=100),
            collective("AllReduce", 1, 4096, at=500 + late, lasts=2100 - late),
            message(("Send", "Recv")[rank], 1 - rank, 1, 64, at=3000),
        ]
        data = lines(*bodies, rank=rank, size=2, pid=100 + rank, name="DP")
        (folder / f"node0-pid{100 + rank}.log").write_bytes(data)
    return folder


def test_collectives_and_messages_are_matched_across_ranks(tmp_path: Path) -> None:
    graph = tracelink.load(job(tmp_path / "job"), jobs=1)
    table = graph.table("collectives")
    columns = ("operation", "sequence", "bytes", "skew", "last_rank", "verdict")
    rows = [tuple(str(table[name][row]) for name in columns) for row in range(len(table["group"]))]
    assert sorted(rows) == [
        ("all_gather", "0", "8192", "0", "0", "complete"),
        ("all_reduce", "0", "4096", "0", "0", "complete"),
        ("all_reduce", "1", "4096", "2000000", "1", "complete"),
    ]
    messages = graph.table("messages")
    assert [(str(messages["verdict"][0]), int(messages["source"][0]), int(messages["target"][0]))] == [
        ("complete", 0, 1)
    ]
    assert [finding.reason for finding in graph.findings] == []


@pytest.mark.parametrize("name", ["job.json", "job.pftrace"])
def test_a_timeline_has_the_kernels_and_the_counters(tmp_path: Path, name: str) -> None:
    outputs = tracelink.merge(job(tmp_path / "job"), output=tmp_path / name, jobs=1)
    assert [output.events for output in outputs.outputs] == [8]


# Properties.

BODIES = st.lists(
    st.builds(
        collective,
        st.sampled_from(["AllReduce", "AllGather", "Broadcast", "AlltoAll", "", "é\ud800"]),
        st.integers(-5, 2**64),
        st.integers(-1, 2**66),
        at=st.none() | st.integers(0, 10**9),
    )
    | st.builds(
        message, st.sampled_from(["Send", "Recv"]), st.integers(-2, 2**40), at=st.none() | st.just(5)
    ),
    max_size=8,
)


@given(BODIES, st.integers(0, 4000))
def test_any_cut_of_a_file_keeps_the_lines_before_it(bodies: list[dict[str, Any]], cut: int) -> None:
    data = lines(*bodies)[:cut]
    ended = data.count(b"\n")
    try:
        trace = read(data)
    except UnreadableError:
        assert not any(line.startswith(b"{") and _is_readable(line) for line in data.split(b"\n")[:ended])
        return
    assert trace.source.records <= ended + 1


def _is_readable(line: bytes) -> bool:
    from tracelink.converters.nccl_inspector.schema import decode_line

    try:
        return decode_line(line) is not None
    except ValueError:
        return False


# Recognition.


def test_files_are_recognised_by_their_lines() -> None:
    data = lines(collective())
    assert is_inspector(data, "anything")
    assert is_inspector(text(marker(1), collective()), "anything")
    assert is_inspector(text({**header(), **collective()}), "anything")
    assert not is_inspector(b'{"traceEvents": [{"args": {"n_ranks": 2}}]}', "x.json")
    assert not is_inspector(data[1:], "node0-pid100.log")


@pytest.mark.foreign
def test_a_line_of_the_documentation() -> None:
    trace = read(shared("metrics/samples/nccl_inspector.jsonl").read_bytes())
    assert (trace.source.rank, trace.source.world_size, len(trace.counters)) == (2, 8, 3)
