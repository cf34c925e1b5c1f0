"""Execution traces of every version, damaged files, and recorded files."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.data import foreign, plain, traces
from builders.execution_trace import (
    FLAT,
    NEWEST,
    VERSIONS,
    Node,
    as_json,
    as_source,
    groups_node,
    node,
    process_root,
    tensor,
    thread_root,
    trace,
)
from tracelink._api.functions import linked_job
from tracelink._io.sources import Request, discover
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Key, TrackKind
from tracelink._model.findings import Severity
from tracelink._model.trace import ProcessGroup, RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.execution_trace.reader import ExecutionTraceReader
from tracelink.converters.pytorch import is_execution_trace

# What every version of the format becomes.


NUMBERS = st.integers(0, 2**63 - 1)


def read(data: bytes) -> RankTrace:
    return ExecutionTraceReader().read(as_source(data), Processes())


def column(result: RankTrace, key: Key) -> dict[int, int]:
    keys = result.key(key)
    return dict(zip(keys.rows.tolist(), keys.values.tolist(), strict=True))


def payloads(result: RankTrace) -> list[bytes]:
    return [bytes(text) for _, run in result.payloads[0].batches() for text in run]


def reasons(result: RankTrace) -> list[str]:
    return [finding.reason for finding in result.findings]


def linear() -> list[Node]:
    return [
        thread_root(2),
        node(6, "aten::t", parent=5, handle=8, sequence=3, inputs=[tensor()]),
        node(5, "aten::linear", parent=2, handle=7, sequence=3),
        thread_root(9, thread=4),
        node(11, "LinearBackward0", parent=9, handle=9, sequence=3, scope=1, thread=4, forward_thread=1),
        process_root(),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_same_columns(version: str) -> None:
    result = read(trace(*linear(), version=version))
    texts = result.strings.texts()
    assert [texts[name] for name in result.events.name][1:3] == ["aten::t", "aten::linear"]
    assert set(result.events.kind) == {EventKind.NODE}
    assert set(result.events.start) == {NO_TIME}
    assert set(result.events.duration) == {UNKNOWN}
    assert column(result, Key.NODE_ID) == {0: 2, 1: 6, 2: 5, 3: 9, 4: 11, 5: 1}
    assert column(result, Key.NODE_PARENT) == {0: 1, 1: 5, 2: 2, 3: 1, 4: 9}
    assert column(result, Key.RECORD_FUNCTION) == {1: 8, 2: 7, 4: 9}
    assert column(result, Key.SEQUENCE) == {1: 3, 2: 3, 4: 3}
    assert column(result, Key.FORWARD_THREAD) == {4: 1}
    assert column(result, Key.LOGICAL_THREAD) == {0: 1, 1: 1, 2: 1, 3: 4, 4: 4, 5: 0}
    assert column(result, Key.SCOPE) == {0: 7, 1: 0, 2: 0, 3: 7, 4: 1, 5: 7}
    assert result.findings == []


def test_a_track_for_each_logical_thread() -> None:
    result = read(trace(*linear()))
    tracks = [result.tracks[track] for track in result.events.track]
    assert [track.identity for track in tracks] == ["1", "1", "1", "4", "4", "0"]
    assert {(track.kind, track.process, track.label) for track in tracks} == {
        (TrackKind.NODES, "4200", f"logical thread {number}") for number in (0, 1, 4)
    }


def test_what_the_file_says_of_itself() -> None:
    data = trace(*linear())
    info = read(data).source
    assert (info.format, info.version, info.pid) == ("execution-trace", NEWEST, 4200)
    assert (info.rank, info.start_ns, info.end_ns) == (None, None, None)
    assert (info.events, info.records, info.bytes) == (6, 6, len(data))
    assert list(info.header) == ["schema", "pid", "time", "start_ts", "finish_ts"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("indent", [None, 1])
def test_payloads_are_the_nodes_as_they_stand(version: str, indent: int | None) -> None:
    data = trace(*linear(), version=version, indent=indent)
    texts = payloads(read(data))
    assert [json.loads(text) for text in texts] == [as_json(node, version) for node in linear()]
    assert all(text in data for text in texts[:-1])


def test_payloads_of_some_nodes_in_a_long_file() -> None:
    nodes = [node(number, f"aten::op{number}", handle=number) for number in range(3, 9000)]
    result = read(trace(thread_root(2), *nodes, process_root()))
    assert len(result.events) == len(nodes) + 2
    for first, last in ((0, 1), (4000, 4003), (8990, 8998), (5, 5)):
        runs = list(result.payloads[0].batches(first, last))
        numbers = [start + place for start, run in runs for place in range(len(run))]
        assert numbers == list(range(first, last))
        texts = [json.loads(bytes(text))["id"] for _, run in runs for text in run]
        assert texts == [number + 2 for number in numbers]


@pytest.mark.parametrize("version", VERSIONS)
def test_process_groups(version: str) -> None:
    default = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "group_size": 4}
    listed = {"pg_name": "1", "pg_desc": "tp", "ranks": [0, 1], "group_size": 2, "group_count": 3}
    nodes = [
        thread_root(2),
        groups_node(3, {**default, "ranks": []}, listed),
        groups_node(4, listed),
        process_root(),
    ]
    assert read(trace(*nodes, version=version)).groups == [
        ProcessGroup("0", "default_pg", (), 4, "cuda:nccl"),
        ProcessGroup("1", "tp", (0, 1), 2),
    ]


def test_a_group_of_1_0_2_without_a_name_has_its_backend() -> None:
    group = {"pg_name": "", "backend_id": 94594108, "backend_config": "cuda:nccl", "ranks": {"1": 0, "3": 1}}
    result = read(trace(thread_root(2), groups_node(3, group), process_root(), version=VERSIONS[1]))
    assert result.groups == [ProcessGroup("94594108", "", (1, 3), 2, "cuda:nccl")]


def test_lists_of_groups_that_cannot_be_read_are_told() -> None:
    broken = node(3, "## process_group:init ##", inputs=[("[{", [], "String")])
    result = read(trace(thread_root(2), broken, process_root()))
    assert result.groups == []
    assert reasons(result) == ["unreadable_groups"]


def test_an_unknown_version_is_read_as_far_as_it_is_known() -> None:
    result = read(trace(*linear(), version="2.0.0-chakra.1.0.0"))
    assert len(result.events) == 6
    assert [(finding.severity, finding.reason) for finding in result.findings] == [
        (Severity.INFO, "newer_version")
    ]


def test_a_parent_that_is_not_in_the_file() -> None:
    nodes = [
        thread_root(2),
        thread_root(9, thread=4),
        node(5, parent=3),
        node(6, parent=3, thread=4),
        process_root(),
    ]
    result = read(trace(*nodes))
    assert column(result, Key.NODE_PARENT) == {0: 1, 1: 1, 2: 2, 3: 9}
    (finding,) = result.findings
    assert (finding.reason, finding.count, finding.example) == ("missing_parent", 2, "node 5")


def test_a_parent_that_is_missing_where_the_thread_has_no_root() -> None:
    result = read(trace(node(5, parent=3), process_root()))
    assert column(result, Key.NODE_PARENT) == {0: 1}
    assert column(read(trace(node(5, parent=3))), Key.NODE_PARENT) == {}


def test_a_node_zero_is_a_node() -> None:
    nodes = [{**as_json(node(number, parent=0)), "attrs": []} for number in (0, 1)]
    result = read(trace(nodes=nodes))
    assert column(result, Key.NODE_PARENT) == {1: 0}
    assert result.findings == []


def test_attributes_that_are_missing_or_in_another_order() -> None:
    usual = [as_json(each) for each in linear()]
    for each in usual:
        each["attrs"] = [attribute for attribute in reversed(each["attrs"]) if attribute["name"] != "scope"]
    result = read(trace(nodes=usual))
    assert column(result, Key.RECORD_FUNCTION) == {1: 8, 2: 7, 4: 9}
    assert set(column(result, Key.SCOPE).values()) == {0}
    assert result.findings == []


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_communication_that_the_observer_could_not_describe(version: str) -> None:
    comms = node(5, "record_param_comms", handle=3, extra={"debug": "missing comms info"})
    known = node(6, "record_param_comms", handle=4, extra={"collective_name": "allreduce", "pg_size": 2})
    result = read(trace(thread_root(2), comms, known, process_root(), version=version))
    (finding,) = result.findings
    assert (finding.severity, finding.reason, finding.count) == (Severity.INFO, "missing_communication", 1)


@pytest.mark.parametrize("value", [None, "text", 3, {"name": "no id"}, {"id": None}, {"id": "x"}])
def test_elements_that_are_no_nodes_keep_their_place(value: Any) -> None:
    nodes = [as_json(thread_root(2)), value, as_json(node(5)), as_json(process_root())]
    result = read(trace(nodes=nodes))
    assert list(result.events.payload) == [0, 2, 3]
    assert reasons(result) == ["not_a_node"]
    assert json.loads(payloads(result)[2])["id"] == 5


def test_ids_of_other_types_are_taken_where_they_are_numbers() -> None:
    nodes = [as_json(thread_root(2)), {"id": "5", "name": None, "ctrl_deps": [2, 3]}, as_json(process_root())]
    result = read(trace(nodes=nodes))
    assert column(result, Key.NODE_ID) == {0: 2, 1: 5, 2: 1}
    assert column(result, Key.NODE_PARENT) == {0: 1, 1: 2}


def test_repeated_ids_are_told() -> None:
    assert reasons(read(trace(thread_root(2), node(5), node(5), process_root()))) == ["duplicate_node"]


def test_no_nodes() -> None:
    assert reasons(read(trace())) == ["no_nodes"]


def test_keys_in_another_order() -> None:
    nodes = [dict(sorted(as_json(each).items())) for each in linear() for _ in range(400)]
    whole = dict(sorted(json.loads(trace(nodes=nodes)).items()))
    result = read(json.dumps(whole).encode())
    assert len(result.events) == 2400
    assert reasons(result) == ["duplicate_node"]
    assert result.source.version == NEWEST


@pytest.mark.parametrize("version", [FLAT, NEWEST])
def test_a_name_like_an_attribute(version: str) -> None:
    names = ['"attrs":', '}, {"id": 7', '"name": "rf_id"', "]}", "näme 名"]
    nodes = [node(number, name, handle=number) for number, name in enumerate(names * 2000, start=3)]
    result = read(trace(thread_root(2), *nodes, process_root(), version=version))
    texts = result.strings.texts()
    assert [texts[code] for code in result.events.name][1:-1] == names * 2000
    assert result.findings == []


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Node,
            id=NUMBERS,
            name=st.text(),
            parent=NUMBERS,
            handle=NUMBERS,
            sequence=st.integers(-1, 2**63 - 1),
            scope=st.integers(0, 9),
            thread=st.integers(0, 50),
            forward_thread=st.integers(0, 50),
        ),
        max_size=30,
        unique_by=lambda each: each.id,
    ),
    st.sampled_from(VERSIONS),
    st.sampled_from([None, 2]),
)
def test_round_trip(nodes: list[Node], version: str, indent: int | None) -> None:
    data = trace(*nodes, version=version, indent=indent)
    result = read(data)
    assert is_execution_trace(data)
    assert list(column(result, Key.NODE_ID).values()) == [each.id for each in nodes]
    assert column(result, Key.RECORD_FUNCTION) == {
        row: each.handle for row, each in enumerate(nodes) if each.handle
    }
    assert column(result, Key.SEQUENCE) == {
        row: each.sequence for row, each in enumerate(nodes) if each.sequence >= 0
    }
    assert list(column(result, Key.LOGICAL_THREAD).values()) == [each.thread for each in nodes]
    assert [json.loads(text) for text in payloads(result)] == [as_json(each, version) for each in nodes]


def test_a_node_without_attributes_keeps_its_parent() -> None:
    bare = {"id": 7, "name": "bare", "ctrl_deps": 5}
    data = json.dumps({"schema": NEWEST, "nodes": [bare, {"id": 5, "name": "outer", "ctrl_deps": 5}]})
    assert read(data.encode()).key(Key.NODE_PARENT).values.tolist() == [5]


def test_a_linked_trace_that_is_named_as_an_execution_trace_is_told() -> None:
    linked = trace(process_root(), node(5, parent=1), baseTimeNanoseconds=0)
    (finding,) = read(linked.replace(b'"finish_ts"', b'"x"')).findings
    assert (finding.reason, finding.severity) == ("linked_trace", Severity.WARNING)


# Files that a crash, a copy or the writer itself has damaged.


def ids(result: RankTrace) -> list[int]:
    return result.key(Key.NODE_ID).values.tolist()


def nodes(count: int) -> list[Node]:
    """A chain of nodes, some with names that look like JSON."""
    chain = [
        node(number, "[x]" if number % 3 else 'a "b" {c', number - 1, number, inputs=[tensor()])
        for number in range(3, count)
    ]
    return [thread_root(2), *chain, process_root()]


def with_stand_in(place: int) -> list[Node]:
    """A long trace with one node whose name can be found and replaced."""
    whole = nodes(5000)
    whole[place] = node(whole[place].id, "STAND-IN", whole[place].parent)
    return whole


@cache
def written(count: int, version: str, indent: int | None) -> tuple[bytes, int, list[int]]:
    """A file, where its first node begins, and where each ends."""
    whole = trace(*nodes(count), version=version, indent=indent)
    text, decoder = whole.decode(), json.JSONDecoder()
    begin = text.index('"nodes": [') + len('"nodes": [')
    ends: list[int] = []
    position = begin
    while text[position] != "]":
        if text[position] in " \n,":
            position += 1
        else:
            _, position = decoder.raw_decode(text, position)
            ends.append(position)
    return whole, begin, ends


def check_cut(whole: bytes, cut: int, kept: int, count: int, version: str) -> None:
    result = read(whole[:cut])
    assert ids(result) == [each.id for each in nodes(count)[:kept]]
    assert [finding.reason for finding in result.findings if finding.reason != "no_nodes"] == ["truncated"]
    texts = [json.loads(bytes(text)) for _, run in result.payloads[0].batches() for text in run]
    assert texts == [as_json(each, version) for each in nodes(count)[:kept]]


@settings(deadline=None)
@given(st.data(), st.integers(3, 9), st.sampled_from(VERSIONS), st.sampled_from([None, 1]))
def test_every_node_before_the_cut_is_kept(
    data: st.DataObject, count: int, version: str, indent: int | None
) -> None:
    whole, begin, ends = written(count, version, indent)
    cut = data.draw(st.integers(begin, whole.rindex(b"]")))
    check_cut(whole, cut, bisect_right(ends, cut), count, version)


@pytest.mark.parametrize("version", [FLAT, NEWEST])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
def test_every_node_before_a_late_cut_is_kept(version: str, share: float) -> None:
    whole, _, ends = written(6000, version, None)
    cut = int(len(whole) * share)
    check_cut(whole, cut, bisect_right(ends, cut), 6000, version)


@pytest.mark.parametrize("cut", [0, 1, 30, 80])
def test_nothing_readable_is_an_error(cut: int) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(trace(*nodes(5))[:cut])
    assert caught.value.source == "et_0.json"
    assert caught.value.advice


def test_parents_that_the_cut_took_are_no_finding_of_their_own() -> None:
    whole = trace(thread_root(2), node(6, parent=5), node(5, parent=2), process_root())
    result = read(whole[: whole.index(b'"id": 5') - 3])
    assert ids(result) == [2, 6]
    (finding,) = result.findings
    assert finding.reason == "truncated"
    assert "2 nodes" in finding.message


def test_a_cut_compressed_file() -> None:
    whole = gzip.compress(trace(*nodes(5000)))
    result = read(whole[: len(whole) // 2])
    assert 500 < len(result.events) < 4998
    assert [finding.reason for finding in result.findings] == ["truncated"]


@pytest.mark.parametrize("version", [FLAT, NEWEST])
@pytest.mark.parametrize("place", [1, 2500, -1])
def test_names_that_the_writer_did_not_escape(version: str, place: int) -> None:
    listed = with_stand_in(place)
    whole = trace(*listed, version=version).replace(b"STAND-IN", rb'step "1" of C:\data')
    result = read(whole)
    texts = result.strings.texts()
    assert ids(result) == [one.id for one in listed]
    assert texts[result.events.name[place]] == r'step "1" of C:\data'
    assert [finding.reason for finding in result.findings] == ["repaired"]
    assert result.source.header["finish_ts"]


@pytest.mark.parametrize("place", [1, 2500, -1])
def test_a_node_beyond_repair_costs_only_itself(place: int) -> None:
    listed = with_stand_in(place)
    whole = trace(*listed).replace(b'"STAND-IN", "ctrl_deps"', b'"x", ctrl deps')
    result = read(whole)
    assert ids(result) == [one.id for one in listed if one.name != "STAND-IN"]
    assert [finding.reason for finding in result.findings] == ["damaged", "missing_parent"]
    assert result.source.header["finish_ts"]


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    whole = trace(thread_root(2), node(5, "STAND-IN"), process_root()).replace(b"STAND-IN", b"\xff\xfe")
    result = read(whole)
    assert "\ufffd\ufffd" in result.strings.texts()
    texts = [bytes(text) for _, run in result.payloads[0].batches() for text in run]
    assert json.loads(texts[1])["name"] == "\ufffd\ufffd"


def test_a_damaged_record_of_communication_before_a_node_that_is_longer_than_the_buffer() -> None:
    records = [node(number, "record_param_comms", inputs=[tensor()]) for number in range(10, 20)]
    long = node(5, inputs=[("STAND-IN", [], "GenericList[]")])
    many = [node(number, inputs=[tensor()]) for number in range(100, 6000)]
    whole = trace(thread_root(2), *records, *many, long, process_root())
    damaged = whole.replace(b'"record_param_comms",', rb'"record_param_comms", "x": "\q",', 1)
    result = read(damaged.replace(b'"STAND-IN"', b"[" + b"1, " * 2_000_000 + b"1]"))
    assert ids(result) == [2, *range(10, 20), *range(100, 6000), 5, 1]
    assert len(result.communications) == 10
    assert reasons(result) == ["repaired"]


def test_a_value_that_is_nested_without_end() -> None:
    deep = "[" * 5000 + "]" * 5000
    whole = trace(thread_root(2), node(5, inputs=[("STAND-IN", [], "GenericList[]")]), process_root())
    result = read(whole.replace(b'"STAND-IN"', deep.encode()))
    assert ids(result) == [2, 1]
    assert [finding.reason for finding in result.findings] == ["damaged"]


def test_a_long_chain_of_parents() -> None:
    chain = [node(number, parent=number - 1) for number in range(3, 20_000)]
    result = read(trace(thread_root(2), *reversed(chain), process_root()))
    assert len(result.key(Key.NODE_PARENT)) == len(chain) + 1
    assert result.findings == []


# Files that torch wrote, and the shipped samples, against a plain JSON parser.


SHIPPED = [f"{name}/et_{rank}.json.gz" for name in ("cpu_job", "gpu_pair") for rank in (0, 1)]
REAL = [
    *(f"pairs/dlrm8/host.{rank}.json.gz" for rank in (0, 7)),
    "pairs/resnet_110_nccl/host.0.json.gz",
    "pairs/simple_add/host.0.json.gz",
    "pairs/torch213_gloo2/host.1.json.gz",
    *(f"matched8/et_{rank}.json.gz" for rank in range(8)),
    "torch_trace/matched_small/et.json.gz",
]


@pytest.mark.parametrize("path", [*SHIPPED, *foreign(*REAL)])
def test_real_files(path: str) -> None:
    (source,) = discover(Request([(str(traces(path)), "")])).sources
    reader = ExecutionTraceReader()
    assert is_execution_trace(source.head())
    result = reader.read(source, Processes())
    whole = json.loads(plain(path))
    texts = result.strings.texts()
    assert [texts[name] for name in result.events.name] == [node["name"] for node in whole["nodes"]]
    for key, name, default in (
        (Key.NODE_ID, "id", 0),
        (Key.RECORD_FUNCTION, "rf_id", 0),
        (Key.SEQUENCE, "seq_id", -1),
        (Key.FORWARD_THREAD, "fw_tid", 0),
        (Key.SCOPE, "scope", 0),
    ):
        written = [value(node, name) for node in whole["nodes"]]
        assert result.key(key).dense(len(written), default).tolist() == written
    assert [json.loads(bytes(text)) for _, run in result.payloads[0].batches() for text in run] == whole[
        "nodes"
    ]
    assert result.source.version == whole["schema"]
    assert result.findings == []


def value(node: dict[str, Any], name: str) -> Any:
    attributes = {attribute["name"]: attribute["value"] for attribute in node.get("attrs", [])}
    return (node | attributes)[name]


# Parents that lead back to the node.


@pytest.mark.parametrize(
    ("nodes", "parents", "looping"),
    [
        ([node(5, parent=6), node(6, parent=5), node(7, parent=6)], {3: 6}, 2),
        ([node(5, parent=7), node(6, parent=5), node(7, parent=6), node(8, parent=2)], {4: 2}, 3),
        ([node(5, parent=6), node(6, parent=5), node(6, parent=5)], {3: 5}, 2),
        ([node(5, parent=6), node(6, parent=2)], {1: 6, 2: 2}, 0),
        ([node(5, parent=5)], {}, 0),
    ],
)
def test_nodes_that_are_their_own_ancestors_have_no_parent(
    nodes: list[Node], parents: dict[int, int], looping: int
) -> None:
    result = read(trace(thread_root(2), *nodes, process_root()))
    assert column(result, Key.NODE_PARENT) == {0: 1} | parents
    found = [finding.count for finding in result.findings if finding.reason == "parent_loop"]
    assert found == [looping] * (looping > 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=20))
def test_every_chain_of_parents_ends(pairs: list[tuple[int, int]]) -> None:
    result = read(trace(*(node(number, parent=parent) for number, parent in pairs)))
    ids = result.key(Key.NODE_ID).values.tolist()
    above = {row: ids.index(parent) for row, parent in column(result, Key.NODE_PARENT).items()}
    for row in range(len(ids)):
        seen = [row]
        while seen[-1] in above:
            assert above[seen[-1]] not in seen
            seen.append(above[seen[-1]])


@pytest.mark.parametrize("names", [("c10d::allreduce_", "c10d::allreduce_"), ("record_param_comms",) * 2])
def test_loops_through_nodes_with_the_same_id_end(names: tuple[str, str], tmp_path: Path) -> None:
    first, second = names
    nodes = [node(5, "aten::add"), node(5, first, parent=7), node(7, second, parent=5)]
    (tmp_path / "et_0.json").write_bytes(trace(thread_root(2), *nodes, process_root()))
    assert linked_job(tmp_path).collectives is not None


def test_truth_values_and_long_numbers_are_no_ids() -> None:
    content = {"schema": NEWEST, "pid": 2**70, "nodes": [{"id": True}, {"id": 2**64}, {"id": 3}, {"id": "4"}]}
    result = read(json.dumps(content).encode())
    assert (column(result, Key.NODE_ID), result.source.pid) == ({0: 3, 1: 4}, None)


# Which files are execution traces.


OTHERS = {
    "a Kineto trace": {"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "nodes", "ts": 1}]},
    "a graph of something else": {"nodes": [{"id": 1, "name": "x"}], "edges": []},
    "a chakra workload": {"workload_graph": [{"Id": 1, "Name": "x", "data_deps": []}]},
    "a recorder dump": {"version": "2.10", "pg_config": {}, "entries": []},
}


@pytest.mark.parametrize("version", [*VERSIONS, "9.9.9"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf", b"\n "])
def test_every_version_is_recognised(version: str, indent: int | None, first: bytes) -> None:
    data = first + trace(thread_root(2), process_root(), version=version, indent=indent)
    assert is_execution_trace(data[: 64 << 10])


def test_an_empty_trace_is_recognised() -> None:
    assert is_execution_trace(trace())


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_files_are_not(other: object) -> None:
    assert not is_execution_trace(json.dumps(other).encode())
