"""`tracelink.converters.chakra_json.reader`."""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import execution_trace as et
from builders.execution_trace import NEWEST, PROCESS, THREAD, Node, as_json, as_source, groups_node, tensor
from builders.trace import pairs
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.errors import UnreadableError
from tracelink._model.events import EventKind, Key, Relation, Track, TrackKind
from tracelink._model.trace import RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.chakra_json import CHAKRA_JSON
from tracelink.converters.chakra_json.reader import ChakraJsonReader, nanoseconds_of
from tracelink.converters.execution_trace import EXECUTION_TRACE

Entry = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number that is written as it is spelt."""

    text: str


def root(number: int = 0) -> Entry:
    """The root of the process, which is its own parent."""
    return as_json(Node(number, PROCESS, number, scope=7, thread=0))


def untimed(number: int, name: str = "aten::add", parent: int = 0, **fields: Any) -> Entry:
    """A node that no profile saw."""
    return as_json(Node(number, name, parent, **fields))


def node(
    number: int,
    name: str = "aten::add",
    parent: int = 0,
    *,
    ts: str,
    dur: str = "1",
    inter_thread_dep: int | None = None,
    sync_dep: list[int] | None = None,
    **fields: Any,
) -> Entry:
    """A node with its times in microseconds."""
    times = {"inclusive_dur": Number(dur), "exclusive_dur": Number(dur), "ts": Number(ts)}
    added = {**times, "inter_thread_dep": inter_thread_dep}
    return untimed(number, name, parent, **fields) | added | ({"sync_dep": sync_dep} if sync_dep else {})


def work(
    number: int,
    name: str,
    parent: int,
    *,
    ts: str,
    dur: str = "1",
    stream: int = 7,
    cat: str = "kernel",
    **more: Any,
) -> Entry:
    """A kernel, copy or memset with the values of the node that launched it."""
    fields = {name: more.pop(name) for name in ("handle", "sequence", "thread") if name in more}
    copied = node(number, name, parent, ts=ts, dur=dur, **fields)
    return copied | {"cat": cat, "ph": "X", "stream": stream} | more


def linked_trace(*nodes: Entry, version: str = NEWEST, indent: int | None = None, **header: Any) -> bytes:
    """A whole file, as `chakra_trace_link` orders its keys."""
    content = {"schema": version, "pid": 4200, "time": "2025-03-01 08:06:00", "start_ts": 1, **header}
    text = json.dumps({**content, "nodes": nodes, "finish_ts": 2}, indent=indent, default=_marked)
    return MARKED.sub(lambda match: json.loads(f'"{match[1]}"'), text).encode()


def read(data: bytes) -> RankTrace:
    """What the reader makes of a file."""
    return ChakraJsonReader().read(as_source(data, "linked.json"), Processes())


MARKED = re.compile(r'"number:((?:[^"\\]|\\.)*)"')


def _marked(number: Number) -> str:
    return f"number:{number.text}"


# Microseconds as text to nanoseconds, without a float between.


LATEST_NS = 4 * 10**18


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4458676423385.774", 4458676423385774),
        ("1712345678901234.567", 1712345678901234567),
        ("0", 0),
        ("-1.5", -1500),
        ("12.", 12000),
        ("1e3", 1_000_000),
        ("4.458676423385774e12", 4458676423385774),
        ("0.0004", 0),
        ("2.0006", 2001),
        ("000000000000000000000000007.25", 7250),
        ("", NO_TIME),
        ("null", NO_TIME),
        ("true", NO_TIME),
        ('"7.25"', NO_TIME),
        ("NaN", NO_TIME),
        ("-", NO_TIME),
        (".", NO_TIME),
        ("1.2.3", NO_TIME),
        ("4-2", NO_TIME),
        ("9999999999999999", NO_TIME),
        ("1e400", NO_TIME),
    ],
)
def test_each_text(text: str, expected: int) -> None:
    assert nanoseconds_of([b"1", text.encode(), b"1"]).tolist() == [1000, expected, 1000]


def test_none_at_all() -> None:
    assert nanoseconds_of([]).tolist() == []


@given(st.lists(st.integers(-LATEST_NS, LATEST_NS)))
def test_all_whole_nanoseconds_come_back(numbers: list[int]) -> None:
    texts = [str(Decimal(number) / 1000 if number % 7 else Decimal(number).scaleb(-3)) for number in numbers]
    assert nanoseconds_of([text.encode() for text in texts]).tolist() == numbers


@given(st.lists(st.text("0123456789.-e", max_size=30)))
def test_any_text_is_what_a_decimal_makes_of_it(texts: list[str]) -> None:
    assert nanoseconds_of([text.encode() for text in texts]).tolist() == [plainly(text) for text in texts]


def plainly(text: str) -> int:
    try:
        number = Decimal(text)
    except ArithmeticError:
        return NO_TIME
    return int((number * 1000).to_integral_value()) if number.copy_abs() <= LATEST_NS // 1000 else NO_TIME


# What becomes of the nodes of a linked trace.


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
    assert trace.events.duration.tolist() == [UNKNOWN, 1]
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
    assert trace.events.duration.tolist() == [UNKNOWN] * 5 + [2000]
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


# Linked traces that a crash, a copy or a disk has damaged.


COUNT = 40


def entries(count: int) -> list[Entry]:
    """A chain of nodes, of which every third is work that the one before launched."""
    chain = [
        work(number, "gemm", number - 1, ts=f"{number}.125")
        if number % 3 == 0
        else node(number, 'a "b" {c', number - 1 - (number % 3 == 1), ts=f"{number}.25")
        for number in range(2, count)
    ]
    return [root(), node(1, ts="1"), *chain]


def ids(trace: RankTrace) -> list[int]:
    return trace.key(Key.NODE_ID).values.tolist()


@cache
def written(indent: int | None) -> tuple[bytes, int, list[int]]:
    """A file, where its first node begins, and where each ends."""
    whole = linked_trace(*entries(COUNT), indent=indent, baseTimeNanoseconds=10**18)
    text, decoder = whole.decode(), json.JSONDecoder()
    begin = text.index('"nodes": [') + len('"nodes": [')
    ends, position = [], begin
    while text[position] != "]":
        if text[position] in " \n,":
            position += 1
        else:
            _, position = decoder.raw_decode(text, position)
            ends.append(position)
    return whole, begin, ends


@settings(deadline=None)
@given(st.sampled_from([None, 4]), st.floats(0, 1))
def test_everything_before_a_cut_is_read(indent: int | None, share: float) -> None:
    whole, begin, ends = written(indent)
    cut = begin + round(share * (ends[-1] - begin))
    trace = read(whole[:cut])
    kept = bisect_right(ends, cut)
    assert ids(trace) == list(range(kept))
    assert "truncated" in {finding.reason for finding in trace.findings}
    assert trace.events.start[1:].tolist() == read(whole).events.start[1:kept].tolist()
    # A cut loses no caller and no launch of what is before it: they stand before what they called.
    assert len(trace.edges) == max(kept - 1, 0)


def test_a_gzip_stream_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = gzip.compress(linked_trace(*entries(3000), baseTimeNanoseconds=0))
    trace = read(whole[: len(whole) // 2])
    assert 100 < len(trace.events) < 3000
    assert ids(trace) == list(range(len(trace.events)))
    assert [finding.reason for finding in trace.findings] == ["truncated"]


def test_a_node_beyond_mending_costs_only_itself_and_what_hangs_on_it() -> None:
    whole = linked_trace(root(), node(1, "STAND-IN", ts="1"), work(2, "gemm", 1, ts="2"), node(3, ts="3"))
    damaged = whole.replace(b'"STAND-IN"', b'"x" : : [')
    trace = read(damaged)
    assert ids(trace) == [0, 2, 3]
    assert {"damaged", "without_launch"} <= {finding.reason for finding in trace.findings}


@pytest.mark.parametrize("other", ["null", '"text"', "{}", '{"name": "no id", "ts": 3}'])
def test_what_is_no_node_is_counted(other: str) -> None:
    whole = linked_trace(root(), node(1, ts="1"), node(2, ts="2"), baseTimeNanoseconds=0)
    trace = read(whole.replace(b'"nodes": [', b'"nodes": [' + other.encode() + b", "))
    assert ids(trace) == [0, 1, 2]
    assert {finding.reason: finding.count for finding in trace.findings} == {"not_a_node": 1}
    assert trace.edges.source.tolist() == [0, 0]


def test_the_earlier_node_of_an_id_is_meant() -> None:
    trace = read(linked_trace(root(), node(1, ts="1"), node(1, ts="2"), work(2, "gemm", 1, ts="3")))
    launch = trace.edges.source[trace.edges.target == 3]
    assert launch.tolist() == [1]
    assert "duplicate_node" in {finding.reason for finding in trace.findings}


@pytest.mark.parametrize("data", [b"", b'{"schema": "1.1.0"', b'{"schema": "1.1.0", "pid": 1}'])
def test_without_nodes_there_is_nothing_to_read(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        ChakraJsonReader().read(as_source(data), Processes())


# Which files are linked traces: never a plain execution trace, and never both.


HEAD = 64 << 10


def recognised_by(data: bytes) -> list[str]:
    known = (CHAKRA_JSON, EXECUTION_TRACE)
    return [one.name for one in known if one.reader and one.reader.recognises(data[:HEAD], "x.json")]


def many_untimed(count: int) -> list[Entry]:
    """More than a head holds, as where the profiler began late."""
    return [untimed(number) for number in range(1, count)]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("version", [version for version in et.VERSIONS if version != et.FLAT])
def test_a_node_with_times_makes_a_linked_trace(version: str, indent: int | None) -> None:
    data = linked_trace(untimed(5), node(6, ts="1"), version=version, indent=indent)
    assert recognised_by(data) == ["chakra-json"]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf", b"\n "])
def test_the_first_nodes_are_often_such_as_no_profile_saw(first: bytes, indent: int | None) -> None:
    nodes = [root(), *many_untimed(3000), node(3000, ts="1"), work(3001, "gemm", 3000, ts="2")]
    data = first + linked_trace(*nodes, indent=indent)
    assert b"inclusive_dur" not in data[:HEAD]
    assert recognised_by(data) == ["chakra-json"]


def test_the_header_of_this_writer_says_it_too() -> None:
    assert recognised_by(linked_trace(*many_untimed(3000), baseTimeNanoseconds=0)) == ["chakra-json"]


@pytest.mark.parametrize("version", et.VERSIONS)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_plain_execution_trace_is_none(version: str, indent: int | None) -> None:
    nodes = (et.thread_root(), et.node(5, 'x "inclusive_dur" "ts":'), et.process_root())
    assert recognised_by(et.trace(*nodes, version=version, indent=indent)) == ["execution-trace"]


def test_a_plain_execution_trace_may_have_a_node_zero() -> None:
    assert recognised_by(et.trace(et.node(0), et.process_root())) == ["execution-trace"]


@pytest.mark.parametrize(
    "other",
    [
        {"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": [{"ph": "X", "ts": 1}]},
        {"workload_graph": [{"Id": 1, "inter_thread_dep": 3}]},
        {"inclusive_dur": 3},
        [{"nodes": [{"inclusive_dur": 3}]}],
    ],
)
def test_other_files_are_none(other: object) -> None:
    assert recognised_by(json.dumps(other).encode()) == []
