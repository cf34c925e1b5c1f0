"""What becomes of the nodes of a linked trace."""

from __future__ import annotations

import json

import numpy as np
import pytest

from builders.execution_trace import PROCESS, THREAD, as_json, groups_node, tensor
from builders.linked_trace import Entry, linked_trace, node, read, root, untimed, work
from builders.trace import pairs
from tracelink.model.columns import NO_TIME, UNFINISHED
from tracelink.model.events import EventKind, Key, Relation, Track, TrackKind
from tracelink.model.trace import RankTrace

BASE = 1_700_000_000_123_456_789
BASED = {"baseTimeNanoseconds": BASE}


def rows(trace: RankTrace) -> list[tuple[str, EventKind, str, str]]:
    """Name, kind, kind of track and its identity of each event."""
    tracks = [trace.tracks[track] for track in trace.events.track]
    texts = trace.strings.texts()
    return [
        (texts[name], EventKind(kind), track.kind.value, track.identity)
        for name, kind, track in zip(trace.events.name, trace.events.kind, tracks, strict=True)
    ]


def reasons(trace: RankTrace) -> dict[str, int]:
    return {finding.reason: finding.count for finding in trace.findings}


def edges(trace: RankTrace) -> dict[str, list[tuple[int, int]]]:
    """The edges between the ids of nodes, by relation."""
    ids = trace.key(Key.NODE_ID).dense(len(trace.events), -1)
    told = {}
    for code in np.unique(trace.edges.relation).tolist():
        between = pairs(trace.edges, Relation(code))
        told[Relation(code).name] = [(int(ids[source]), int(ids[target])) for source, target in between]
    return told


def test_each_node_stands_where_it_ran() -> None:
    trace = read(
        linked_trace(
            root(),
            untimed(1, THREAD, scope=7, thread=3),
            node(2, "aten::mm", 1, ts="1", thread=3),
            work(3, "gemm", 2, ts="2", stream=20, thread=3),
            work(4, "Memcpy HtoD", 2, ts="3", cat="gpu_memcpy", thread=3),
            work(5, "Memset", 2, ts="4", cat="gpu_memset", thread=3),
            work(6, "something new", 2, ts="5", cat="gpu_graph", thread=3),
            node(7, "## step ##", 1, ts="6", scope=7, thread=4),
            **BASED,
        )
    )
    assert rows(trace) == [
        (PROCESS, EventKind.NODE, "nodes", "0"),
        (THREAD, EventKind.NODE, "nodes", "3"),
        ("aten::mm", EventKind.OPERATOR, "thread", "3"),
        ("gemm", EventKind.KERNEL, "stream", "20"),
        ("Memcpy HtoD", EventKind.MEMCPY, "stream", "7"),
        ("Memset", EventKind.MEMSET, "stream", "7"),
        ("something new", EventKind.OTHER, "stream", "7"),
        ("## step ##", EventKind.ANNOTATION, "thread", "4"),
    ]
    assert Track(TrackKind.THREAD, "4200", "3", "thread 3") in trace.tracks
    assert Track(TrackKind.NODES, "4200", "3", "logical thread 3") in trace.tracks
    assert Track(TrackKind.STREAM, "", "20", "stream 20") in trace.tracks
    assert trace.findings == []


def test_times_are_exact_nanoseconds_since_the_base() -> None:
    trace = read(linked_trace(root(), node(1, ts="1712345678901.567", dur="0.001"), **BASED))
    assert trace.events.start.tolist() == [NO_TIME, BASE + 1712345678901567]
    assert trace.events.duration.tolist() == [UNFINISHED, 1]
    assert (trace.source.start_ns, trace.source.end_ns) == (BASE + 1712345678901567, BASE + 1712345678901568)


def test_times_without_a_base_are_used_as_they_are() -> None:
    trace = read(linked_trace(root(), node(1, ts="1712345678901234.567")))
    assert trace.events.start.tolist() == [NO_TIME, 1712345678901234567]
    assert reasons(trace) == {"no_base_time": 1}


def test_a_base_that_is_no_time_is_left_out() -> None:
    trace = read(linked_trace(root(), node(1, ts="5"), baseTimeNanoseconds="soon"))
    assert trace.events.start.tolist() == [NO_TIME, 5000]
    assert reasons(trace) == {"unusable_base_time": 1}


def test_parents_call_and_launch() -> None:
    trace = read(
        linked_trace(
            root(),
            untimed(1, THREAD),
            node(2, ts="1", parent=1),
            work(3, "a", 2, ts="2"),
            node(4, ts="1", parent=2),
            work(5, "b", 4, ts="3"),
            **BASED,
        )
    )
    assert edges(trace) == {"CALLS": [(0, 1), (1, 2), (2, 4)], "LAUNCHES": [(2, 3), (4, 5)]}
    assert trace.key(Key.NODE_PARENT).rows.tolist() == [1, 2, 4, 3, 5]


def test_nodes_wait_for_other_threads_and_for_devices() -> None:
    trace = read(
        linked_trace(
            root(),
            node(1, ts="1", thread=1),
            work(2, "a", 1, ts="2"),
            work(3, "b", 1, ts="3"),
            node(4, ts="5", thread=2, inter_thread_dep=1, sync_dep=[2, 3]),
            work(5, "c", 4, ts="6") | {"inter_thread_dep": 1, "sync_dep": [2]},
            **BASED,
        )
    )
    assert edges(trace)["DEPENDS_ON"] == [(4, 1), (4, 2), (4, 3)]


def test_what_names_no_node_of_the_file_is_told() -> None:
    trace = read(
        linked_trace(
            root(),
            untimed(1, THREAD),
            node(2, ts="1", parent=77),
            node(3, ts="2", parent=1, inter_thread_dep=88, sync_dep=[99]),
            work(4, "gemm", 66, ts="3"),
            **BASED,
        )
    )
    assert edges(trace) == {"CALLS": [(0, 1), (1, 2), (1, 3)]}
    assert reasons(trace) == {"missing_parent": 1, "unknown_dependency": 2, "without_launch": 1}


def test_a_node_that_waits_for_itself_does_not() -> None:
    trace = read(linked_trace(root(), node(1, ts="1", inter_thread_dep=1), **BASED))
    assert edges(trace) == {"CALLS": [(0, 1)]}


def test_work_has_only_ids_of_its_own() -> None:
    trace = read(
        linked_trace(
            root(),
            node(1, ts="1", handle=9, sequence=4, forward_thread=1),
            work(2, "gemm", 1, ts="2", handle=9, sequence=4),
            **BASED,
        )
    )
    for key, value in ((Key.RECORD_FUNCTION, 9), (Key.SEQUENCE, 4), (Key.FORWARD_THREAD, 1)):
        assert (trace.key(key).rows.tolist(), trace.key(key).values.tolist()) == ([1], [value])
    assert trace.key(Key.NODE_ID).values.tolist() == [0, 1, 2]


@pytest.mark.parametrize("lenient", [False, True])
def test_what_is_no_time_makes_a_node_without_one(lenient: bool) -> None:
    entries: list[Entry] = [
        root(),
        node(1, ts='"later"'),
        node(2, ts="5", dur="-3"),
        node(3, ts="1e99"),
        work(4, "gemm", 2, ts="null"),
        node(5, ts="7.5", dur="2"),
    ]
    data = linked_trace(*entries, **BASED)
    trace = read(data.replace(b'"stream": 7', b'"stream": "7"') if lenient else data)
    assert [kind for _, kind, _, _ in rows(trace)] == [
        EventKind.NODE,
        EventKind.NODE,
        EventKind.OPERATOR,
        EventKind.NODE,
        EventKind.NODE,
        EventKind.OPERATOR,
    ]
    assert trace.events.start[[2, 5]].tolist() == [BASE + 5000, BASE + 7500]
    assert trace.events.duration.tolist() == [UNFINISHED] * 5 + [2000]
    assert reasons(trace) == {"unusable_time": 4}


def test_a_trace_that_was_linked_to_nothing_says_so() -> None:
    trace = read(linked_trace(root(), untimed(1)))
    assert [kind for _, kind, _, _ in rows(trace)] == [EventKind.NODE] * 2
    assert reasons(trace) == {"without_times": 1}


def test_communication_is_stated_as_in_an_execution_trace() -> None:
    record = ([[tensor()], 7, ["1", "tp"], 0, "allreduce", [], [], 0, 1, 2], ["GenericList"])
    inputs = [(value, [], "") for value in record[0]]
    group = {"pg_name": "1", "pg_desc": "tp", "backend_config": "cuda:nccl", "ranks": [0, 1], "group_size": 2}
    trace = read(
        linked_trace(
            root(),
            as_json(groups_node(1, group, parent=0)),
            node(2, "record_param_comms", ts="1", dur="9", inputs=inputs),
            node(3, "nccl:all_reduce", 2, ts="2", dur="5", scope=7),
            work(4, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, ts="4", pg_name="1"),
            work(5, "gemm", 3, ts="6"),
            **BASED,
        )
    )
    texts = [*trace.strings.texts(), ""]
    said = trace.communications
    assert dict(zip(said.row.tolist(), [texts[code] for code in said.group], strict=True)) == {
        2: "1",
        3: "",
        4: "1",
    }
    assert dict(zip(said.row.tolist(), [texts[code] for code in said.operation], strict=True)) == {
        2: "allreduce",
        3: "nccl:all_reduce",
        4: "",
    }
    (known,) = trace.groups
    assert (known.name, known.description, known.ranks, known.size) == ("1", "tp", (0, 1), 2)


def test_every_node_gives_itself_back() -> None:
    entries = [root(), node(1, ts="1.5"), work(2, "gemm", 1, ts="2", pg_name="0")]
    trace = read(linked_trace(*entries, **BASED))
    texts = [json.loads(bytes(text)) for _, run in trace.payloads[0].batches() for text in run]
    assert [text["id"] for text in texts] == [0, 1, 2]
    assert texts[1]["ts"] == 1.5
    assert texts[2]["cat"] == "kernel"


def test_the_header_says_what_it_is() -> None:
    source = read(linked_trace(root(), node(1, ts="1"), **BASED)).source
    assert (source.format, source.version, source.pid, source.events, source.records) == (
        "chakra-json",
        "1.1.1-chakra.0.0.4",
        4200,
        2,
        2,
    )
    assert source.header["baseTimeNanoseconds"] == BASE
