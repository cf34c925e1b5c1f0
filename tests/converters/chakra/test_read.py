"""`tracelink.converters.chakra.read`."""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracelink._api.functions as api
from builders.chakra_files import (
    METADATA,
    NODES,
    EtFile,
    as_source,
    file,
    host,
    metadata,
    node,
    nodes_read,
    read,
)
from builders.data import foreign, traces
from builders.trace import pairs
from tracelink import samples
from tracelink._api.functions import linked_job
from tracelink._io.targets import StreamTarget
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.events import EventKind, Relation, Track, TrackKind
from tracelink._model.job import LinkedJob
from tracelink._model.trace import ProcessGroup, RankTrace
from tracelink._run.processes import Processes
from tracelink.converters.chakra.chakra_pb2 import GlobalMetadata, Node
from tracelink.converters.chakra.json_form import NodesAsJson
from tracelink.converters.chakra.read import ChakraNodesReader, ChakraReader
from tracelink.converters.chakra.schema import CollectiveType

CALLS, LAUNCHES, DEPENDS_ON = Relation.CALLS, Relation.LAUNCHES, Relation.DEPENDS_ON


def kinds(trace: RankTrace) -> list[EventKind]:
    return [EventKind(kind) for kind in trace.events.kind]


def times(trace: RankTrace) -> list[tuple[int | None, int]]:
    starts = [None if start == NO_TIME else start for start in trace.events.start.tolist()]
    return list(zip(starts, trace.events.duration.tolist(), strict=True))


def told(trace: RankTrace) -> list[tuple[str, int]]:
    return [(finding.reason, finding.count) for finding in trace.findings]


def category(word: str) -> dict[str, tuple[str, str]]:
    return {"cat": ("string_val", word)}


class TestKinds:
    @pytest.mark.parametrize(
        ("word", "kind"),
        [
            ("cpu_op", EventKind.OPERATOR),
            ("user_annotation", EventKind.ANNOTATION),
            ("node", EventKind.NODE),
            ("record", EventKind.RECORD),
            ("kernel", EventKind.KERNEL),
            ("gpu_memcpy", EventKind.MEMCPY),
            ("gpu_memset", EventKind.MEMSET),
            ("idle", EventKind.OTHER),
        ],
    )
    def test_our_own_files_say_what_a_node_was(self, word: str, kind: EventKind) -> None:
        assert kinds(nodes_read(host(1, **category(word)))) == [kind]

    @pytest.mark.parametrize(
        ("of_type", "on_host", "kind"),
        [
            ("COMP_NODE", True, EventKind.OPERATOR),
            ("COMP_NODE", False, EventKind.KERNEL),
            ("COMM_COLL_NODE", False, EventKind.KERNEL),
            ("COMM_SEND_NODE", False, EventKind.KERNEL),
            ("COMM_RECV_NODE", True, EventKind.OPERATOR),
            ("MEM_LOAD_NODE", False, EventKind.MEMCPY),
            ("MEM_STORE_NODE", False, EventKind.MEMCPY),
            ("METADATA_NODE", True, EventKind.NODE),
            ("INVALID_NODE", False, EventKind.OTHER),
        ],
    )
    def test_others_tell_it_by_type_and_place(self, of_type: str, on_host: bool, kind: EventKind) -> None:
        assert kinds(nodes_read(node(1, "x", of_type, is_cpu_op=("bool_val", on_host)))) == [kind]

    def test_gloo_works_on_a_thread_though_simulators_take_it_for_a_device(self) -> None:
        trace = nodes_read(
            node(
                1,
                "gloo:all_reduce",
                "COMM_COLL_NODE",
                is_cpu_op=("bool_val", False),
                tid=("int64_val", 9),
                **category("user_annotation"),
            )
        )
        assert kinds(trace) == [EventKind.ANNOTATION]
        assert trace.tracks == [Track(TrackKind.THREAD, "", "9", "thread 9")]


def test_threads_and_streams_are_tracks() -> None:
    trace = read(
        metadata(pid=("uint64_val", 77)),
        host(1, tid=("int64_val", 5)),
        host(2, tid=("int64_val", 5), pid=("string_val", "88")),
        node(3, "gemm", stream=("int64_val", 7), device=("int64_val", 1)),
        node(4, "gemm", stream=("int32_val", 7)),
        host(5, tid=("int64_val", 5), stream=("int64_val", 0)),
        host(6, tid=("int64_val", 5), **category("node")),
    )
    assert [trace.tracks[track] for track in trace.events.track] == [
        Track(TrackKind.THREAD, "77", "5", "thread 5"),
        Track(TrackKind.THREAD, "88", "5", "thread 5"),
        Track(TrackKind.STREAM, "1", "7", "stream 7"),
        Track(TrackKind.STREAM, "0", "7", "stream 7"),
        Track(TrackKind.THREAD, "77", "5", "thread 5"),
        Track(TrackKind.NODES, "77", "5", "logical thread 5"),
    ]


class TestTimes:
    def test_to_the_nanosecond_where_nodes_say_it(self) -> None:
        trace = nodes_read(
            host(
                1,
                start_time_micros=5,
                duration_micros=3,
                start_ns=("int64_val", 5_123),
                duration_ns=("int64_val", 2_750),
                inclusive_ns=("int64_val", 9_001),
            ),
            node(
                2,
                start_time_micros=9,
                duration_micros=1,
                start_ns=("int64_val", 9_999),
                duration_ns=("int64_val", 1_400),
            ),
        )
        assert times(trace) == [(5_123, 9_001), (9_999, 1_400)]

    def test_else_in_microseconds(self) -> None:
        trace = nodes_read(host(1, duration_micros=3), host(2, start_time_micros=3, duration_micros=4))
        assert times(trace) == [(0, 3_000), (3_000, 4_000)]
        assert (trace.source.start_ns, trace.source.end_ns) == (0, 7_000)

    def test_nodes_of_an_execution_trace_have_none(self) -> None:
        trace = nodes_read(
            host(1, start_time_micros=5, **category("node")),
            host(2, start_time_micros=5, start_ns=("int64_val", 5_000)),
        )
        assert times(trace) == [(None, UNKNOWN), (5_000, 0)]

    def test_what_can_be_no_time_is_said(self) -> None:
        trace = nodes_read(
            host(1, start_time_micros=2**64 - 1), host(2, start_time_micros=1, duration_micros=2**63)
        )
        assert times(trace) == [(None, UNKNOWN), (1_000, UNKNOWN)]
        assert told(trace) == [("unusable_time", 2)]


class TestPlacing:
    """Files of chakra_converter say of no node when it began."""

    def test_each_begins_when_what_it_depends_on_has_ended(self) -> None:
        trace = nodes_read(
            host(0, "root", duration_micros=1),
            host(1, "mm", ctrl_deps=[0], data_deps=[0], duration_micros=2),
            node(2, "gemm", ctrl_deps=[1], data_deps=[1], duration_micros=10),
            host(3, "add", ctrl_deps=[0], data_deps=[1], duration_micros=3),
            host(4, "sync", ctrl_deps=[0], data_deps=[2, 3], duration_micros=1),
        )
        assert times(trace) == [(0, 1_000), (1_000, 2_000), (3_000, 10_000), (3_000, 3_000), (13_000, 1_000)]
        assert told(trace) == [("placed", 1)]

    def test_a_stream_does_one_thing_at_a_time(self) -> None:
        kernels = [
            node(number, "k", duration_micros=5, stream=("int64_val", number // 2)) for number in range(4)
        ]
        assert [start for start, _ in times(nodes_read(*kernels))] == [0, 5_000, 0, 5_000]

    def test_what_waits_for_itself_has_no_time(self) -> None:
        trace = nodes_read(
            host(1, data_deps=[2]), host(2, data_deps=[1]), host(3, data_deps=[2]), host(4, duration_micros=1)
        )
        assert times(trace) == [(None, 0), (None, 0), (None, 0), (0, 1_000)]
        assert told(trace) == [("placed", 1), ("circular_dependency", 3)]

    @given(
        st.lists(
            st.tuples(st.integers(0, 50), st.sets(st.integers(0, 11), max_size=3)), min_size=1, max_size=12
        )
    )
    def test_nothing_begins_before_what_it_depends_on_has_ended(
        self, drawn: list[tuple[int, set[int]]]
    ) -> None:
        nodes = [
            node(
                row,
                stream=("int64_val", row % 3),
                duration_micros=length,
                data_deps=[d for d in sorted(deps) if d < row],
            )
            for row, (length, deps) in enumerate(drawn)
        ]
        trace = nodes_read(*nodes)
        start, end = trace.events.start, trace.events.end
        for later, earlier in pairs(trace.edges, DEPENDS_ON):
            assert start[later] >= end[earlier]
        assert start.min() == 0

    def test_a_placed_trace_can_be_drawn(self, tmp_path: Path) -> None:
        trace = EtFile()
        gemm = trace.compute("gemm")
        trace.compute("relu", after=[gemm])
        api.merge(trace.save(tmp_path), output=tmp_path / "drawn.json", to="perfetto-json")
        drawn = json.loads((tmp_path / "drawn.json").read_bytes())["traceEvents"]
        slices = {event["name"]: (event["ts"], event["dur"]) for event in drawn if event["ph"] == "X"}
        assert slices == {"gemm": (0, 10), "relu": (10, 10)}


class TestEdges:
    def test_control_is_a_call_or_a_launch_and_data_a_dependency(self) -> None:
        trace = nodes_read(
            host(10), host(11, ctrl_deps=[10], data_deps=[10]), node(12, ctrl_deps=[11], data_deps=[11, 10])
        )
        assert pairs(trace.edges, CALLS) == [(0, 1)]
        assert pairs(trace.edges, LAUNCHES) == [(1, 2)]
        assert pairs(trace.edges, DEPENDS_ON) == [(1, 0), (2, 0), (2, 1)]

    def test_only_one_encloses_a_node(self) -> None:
        trace = nodes_read(host(1), host(2), host(3, ctrl_deps=[2, 1]))
        assert pairs(trace.edges, CALLS) == [(1, 2)]
        assert pairs(trace.edges, DEPENDS_ON) == [(2, 0)]

    def test_a_device_launches_nothing(self) -> None:
        trace = nodes_read(node(1), node(2, ctrl_deps=[1]))
        assert (pairs(trace.edges, LAUNCHES), pairs(trace.edges, DEPENDS_ON)) == ([], [(1, 0)])

    def test_nothing_encloses_itself(self) -> None:
        trace = nodes_read(host(1, ctrl_deps=[2]), host(2, ctrl_deps=[1]), host(3, ctrl_deps=[2]))
        assert pairs(trace.edges, CALLS) == []
        assert pairs(trace.edges, DEPENDS_ON) == [(0, 1), (1, 0), (2, 1)]

    def test_ids_of_64_bits(self) -> None:
        largest = 2**64 - 1
        assert pairs(nodes_read(host(largest), host(3, ctrl_deps=[largest])).edges, CALLS) == [(0, 1)]

    @pytest.mark.parametrize(("deps", "reason"), [([9, 9], "missing_dependency"), ([2, 2], "own_dependency")])
    def test_dependencies_that_lead_nowhere_are_said(self, deps: list[int], reason: str) -> None:
        trace = nodes_read(host(1, start_time_micros=1), host(2, data_deps=deps))
        assert len(trace.edges) == 0
        assert told(trace) == [(reason, 2)]

    def test_of_nodes_with_one_id_the_first_is_meant(self) -> None:
        trace = nodes_read(host(1, start_time_micros=1), host(1), host(2, ctrl_deps=[1]))
        assert pairs(trace.edges, CALLS) == [(0, 2)]
        assert told(trace) == [("duplicate_node", 1)]


def ranks_of(folder: Path, *files: EtFile) -> LinkedJob:
    for trace in files:
        trace.save(folder)
    return linked_job(folder)


def collectives(job: LinkedJob) -> list[tuple[str, str, int, str]]:
    table, texts = job.collectives, [*job.strings, ""]
    return [
        (job.groups[group].name, texts[operation], size, texts[verdict])
        for group, operation, size, verdict in zip(
            table.group.tolist(),
            table.operation.tolist(),
            table.bytes.tolist(),
            table.verdict.tolist(),
            strict=True,
        )
    ]


class TestCommunication:
    def test_collectives_match_across_ranks(self, tmp_path: Path) -> None:
        files = [EtFile(rank) for rank in range(2)]
        for trace in files:
            trace.metadata["world_size"] = ("int64_val", 2)
            trace.collective(CollectiveType.ALL_REDUCE, 4096)
            trace.collective(CollectiveType.ALL_GATHER, 64, group="")
            trace.collective(CollectiveType.REDUCE_SCATTER, 128)
        assert collectives(ranks_of(tmp_path, *files)) == [
            ("0", "all_reduce", 4096, "complete"),
            ("0", "all_gather", 128, "complete"),
            ("0", "reduce_scatter", 128, "complete"),
        ]

    def test_groups_are_named_and_listed_by_the_metadata(self, tmp_path: Path) -> None:
        listed = {
            "0": {"name": "world", "ranks": [0, 1, 2]},
            "4": {"name": "tp", "description": "tensor", "ranks": [0, 2]},
        }
        files = [EtFile(rank) for rank in (0, 2)]
        for trace in files:
            trace.metadata["groups"] = ("string_val", json.dumps(listed))
            trace.collective(size=16, group="4")
        job = ranks_of(tmp_path, *files)
        assert collectives(job) == [("tp", "all_reduce", 16, "complete")]
        (group,) = [group for group in job.groups if group.name == "tp"]
        assert (group.description, group.ranks) == ("tensor", (0, 2))

    def test_messages_match_across_ranks(self, tmp_path: Path) -> None:
        first, second = EtFile(0), EtFile(1)
        first.send(1, tag=3, size=64)
        first.send(1, tag=4, size=32)
        second.receive(0, tag=4, size=32)
        second.receive(0, tag=3, size=64)
        messages = ranks_of(tmp_path, first, second).messages
        told = zip(messages.source, messages.target, messages.tag, messages.bytes, strict=True)
        assert sorted(told) == [(0, 1, 3, 64), (0, 1, 4, 32)]

    def test_sizes_in_elements_where_their_type_is_told(self) -> None:
        trace = nodes_read(
            node(
                1,
                "nccl",
                "COMM_COLL_NODE",
                comm_type=("int64_val", 2),
                bytes_in=("int64_val", 64),
                bytes_out=("int64_val", 128),
                dtype=("string_val", "BFloat16"),
                collective_seq=("int64_val", 7),
                group_name=("string_val", "dp"),
            )
        )
        said, texts = trace.communications, trace.strings.texts()
        assert (said.elements_in[0], said.elements_out[0], texts[said.type[0]]) == (32, 64, "BFloat16")
        assert (said.sequence[0], texts[said.group[0]], texts[said.operation[0]]) == (7, "dp", "all_gather")

    def test_a_list_of_groups_that_is_none_is_said(self) -> None:
        trace = read(metadata(groups=("string_val", "{")), node(1, start_time_micros=1))
        assert (told(trace), trace.groups) == ([("unreadable_groups", 1)], [])

    def test_groups_of_any_content_are_read(self) -> None:
        listed = {"1": 3, "2": {"ranks": ["x"]}, "3": {"name": 5, "ranks": [1, 0]}}
        trace = read(metadata(groups=("string_val", json.dumps(listed))), node(1, start_time_micros=1))
        assert trace.groups == [ProcessGroup("2"), ProcessGroup("3", "", (1, 0), 2)]


class TestRank:
    @pytest.mark.parametrize("name", ["job.3.et", "job.3.et.gz", "my.job.3.ET"])
    def test_from_the_name(self, tmp_path: Path, name: str) -> None:
        data = file(metadata(), node(1))
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        assert [source.rank for source in api.inspect(tmp_path).sources] == [3]

    def test_the_content_counts_more_than_the_name(self, tmp_path: Path) -> None:
        (tmp_path / "job.3.et").write_bytes(file(metadata(rank=("int64_val", 5)), node(1)))
        assert [source.rank for source in api.inspect(tmp_path).sources] == [5]


class TestPayloads:
    def test_everything_in_a_node_is_read_again(self, tmp_path: Path) -> None:
        path = tmp_path / "job.0.et"
        path.write_bytes(
            file(metadata(), host(1), node(2, "gemm", ctrl_deps=[1], mine=("bytes_val", b"\x00")))
        )
        graph = api.load(path)
        assert graph.arguments(1) == {
            "id": 2,
            "name": "gemm",
            "type": "COMP_NODE",
            "ctrl_deps": [1],
            "attr": [{"name": "mine", "bytes_val": "AA=="}],
        }

    @given(METADATA, st.lists(NODES | st.just(Node()), max_size=6), st.integers(0, 6), st.integers(0, 6))
    def test_any_run_of_nodes(self, said: GlobalMetadata, nodes: list[Node], first: int, last: int) -> None:
        trace = read(said, *nodes)
        (payloads,) = trace.payloads
        whole = [node for node in nodes if node.ByteSize()]
        found = {
            begin + place: json.loads(text).get("id")
            for begin, texts in payloads.batches(first, last)
            for place, text in enumerate(texts)
        }
        assert found == {row: whole[row].id for row in range(first, min(last, len(whole)))}


class TestBesideItsOrigin:
    """What a trace was made of is there twice where both are read."""

    @pytest.mark.parametrize(
        ("word", "more"), [("cpu_op", set()), ("node", {"execution-trace"}), ("record", {"flight-recorder"})]
    )
    def test_it_says_what_it_was_made_of(self, word: str, more: set[str]) -> None:
        assert nodes_read(host(1, **category(word))).derived_from == {"kineto", "chakra-json"} | more

    def test_a_folder_of_a_trace_its_json_and_its_profile_gives_each_event_once(self, tmp_path: Path) -> None:
        profile = tmp_path / "kineto_0.json.gz"
        profile.write_bytes((samples.path("gpu_pair") / profile.name).read_bytes())
        api.merge(profile, output=tmp_path / "job", to="chakra")
        api.merge(tmp_path / "job.0.et", output=tmp_path / "job.0.nodes.json")
        together = api.load(tmp_path)
        told = {f.source: f.reason for f in together.findings if f.reason == "duplicate_source"}
        assert together.events.kind.tolist() == api.load(profile).events.kind.tolist()
        assert set(told) == {str(tmp_path / "job.0.et"), str(tmp_path / "job.0.nodes.json")}


class TestDamage:
    def test_a_cut_file_gives_what_is_there(self) -> None:
        data = file(metadata(), host(1, start_time_micros=1), host(2))
        trace = ChakraReader().read(as_source(data[:-1]), Processes())
        assert (len(trace.events), told(trace)) == (1, [("truncated", 1)])

    def test_a_cut_between_nodes_is_seen_by_their_number(self) -> None:
        trace = read(metadata(nodes=("uint64_val", 3)), host(1, start_time_micros=1))
        assert told(trace) == [("truncated", 1)]

    def test_a_cut_gzip_stream(self) -> None:
        nodes = [host(number, f"op {number * 7919}", start_time_micros=number) for number in range(1, 1000)]
        packed = gzip.compress(file(metadata(), *nodes))
        trace = ChakraReader().read(as_source(packed[: len(packed) // 2]), Processes())
        assert 0 < len(trace.events) < 999
        assert told(trace) == [("truncated", 1)]

    @pytest.mark.parametrize(("body", "reason"), [(b"", "empty_message"), (b"\xff", "unreadable_node")])
    def test_messages_that_are_none_cost_only_themselves(self, body: bytes, reason: str) -> None:
        trace = read(metadata(), host(1, start_time_micros=1), body, body, host(2))
        assert (len(trace.events), told(trace)) == (2, [(reason, 2)])

    def test_no_nodes(self) -> None:
        assert told(read(metadata())) == [("no_nodes", 1)]

    @given(METADATA, st.lists(NODES, max_size=6), st.integers(0, 40))
    def test_files_of_any_content_are_read_however_they_end(
        self, said: GlobalMetadata, nodes: list[Node], lost: int
    ) -> None:
        data = file(said, *nodes)
        trace = ChakraReader().read(as_source(data[: max(len(data) - lost, 0)]), Processes())
        assert len(trace.events) <= len(nodes)
        assert len(trace.events) == len(nodes) or trace.findings


@given(METADATA, st.lists(NODES | st.just(Node()), max_size=6))
def test_the_json_form_is_the_same_graph(said: GlobalMetadata, nodes: list[Node]) -> None:
    data, stream = file(said, *nodes), io.BytesIO()
    NodesAsJson().convert(as_source(data), StreamTarget(stream), Processes())
    one = ChakraReader().read(as_source(data), Processes())
    other = ChakraNodesReader().read(as_source(stream.getvalue(), "job.0.json"), Processes())
    assert events_of(other) == events_of(one)
    assert pairs(other.edges) == pairs(one.edges)
    assert told(other) == told(one)


def events_of(trace: RankTrace) -> list[tuple[Any, ...]]:
    """Every event with what it recorded of itself."""
    (payloads,) = trace.payloads
    texts = {
        first + place: json.loads(text) if len(text) else None
        for first, batch in payloads.batches()
        for place, text in enumerate(batch)
    }
    events = trace.events
    columns = (events.kind, events.name, events.track, events.start, events.duration)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(*row, texts[place]) for row, place in zip(rows, events.payload.tolist(), strict=True)]


PAIRS = {"gpu_pair": True, "gpu_2023": True, "data_parallel": True, "cpu_job": False}
SHARED_PAIRS = {
    "pairs/dlrm8": True,
    "pairs/torch213_gloo2": True,
    "pairs/resnet_110_nccl": True,
    "pairs/simple_add": True,
    "matched8": False,
}
"""Jobs, and whether all their communication is within what was profiled and so has a node."""


def matched(job: LinkedJob) -> Counter[tuple[Any, ...]]:
    """Everything that the ranks of a job did together."""
    texts, groups = [*job.strings, ""], [group.name for group in job.groups]
    found: Counter[tuple[Any, ...]] = Counter()
    for table, names in (
        (job.collectives, ("sequence", "bytes", "root", "operation", "verdict", "group")),
        (job.messages, ("source", "target", "tag", "bytes", "verdict", "verdict", "group")),
    ):
        for *numbers, what, verdict, group in zip(
            *(getattr(table, name).tolist() for name in names), strict=True
        ):
            found[(*numbers, texts[what], texts[verdict], groups[group])] += 1
    return found


@pytest.mark.parametrize(("pair", "whole"), [*PAIRS.items(), *foreign(*SHARED_PAIRS.items())])
def test_what_is_written_reads_equal(pair: str, whole: bool, tmp_path: Path) -> None:
    merged = api.merge(traces(pair), output=tmp_path / "job", to="chakra")
    files = [output for output in merged.outputs if output.path.endswith(".et")]
    job = linked_job([output.path for output in files])
    before, after = matched(linked_job(traces(pair))), matched(job)
    assert after <= before
    assert (after == before) == whole
    assert job.events == sum(output.events for output in files)
    assert [rank.rank for rank in job.ranks] == [output.rank for output in files]
