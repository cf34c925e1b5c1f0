"""Real traces as Chakra traces: every file can be followed, nothing is lost, and the order is the real one."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tracelink
from builders.chakra_written import EtTrace
from builders.data import shared
from tracelink.api import merge
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.encode import encoded
from tracelink.converters.chakra.schema import NodeType
from tracelink.model.events import GPU_WORK, Key, Relation
from tracelink.model.graph import EventGraph
from tracelink.model.job import rank_rows

TRACES = (
    "pairs/simple_add",
    "pairs/torch213_gloo2",
    "pairs/dlrm8",
    "matched8",
    "kineto/cuda_graphs.json.gz",
    "kineto/mi300_resnet.json.gz",
    "kineto/nccl_data.json.gz",
    "kineto/h100_qwen.json.gz",
    "kineto/resnet50_2021.json.gz",
    "pairs/resnet_110_nccl",
)


@cache
def graph(path: str) -> EventGraph:
    return tracelink.load([shared(path)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> object:
    """What a path is made into, once."""

    @cache
    def files(path: str, profile: str = "full", **options: str) -> Mapping[int, EtTrace]:
        folder = tmp_path_factory.mktemp("et")
        merged = merge(
            [shared(path)], output=folder / "job", to="chakra", options={"profile": profile, **options}
        )
        return {
            output.rank: EtTrace.read(output.path, output)
            for output in merged.outputs
            if output.rank is not None
        }

    return files


def device_rows(trace: EtTrace) -> list[int]:
    nodes = trace.decoded.nodes
    categories = nodes.attribute("cat").texts(len(nodes))
    return [row for row, word in enumerate(categories) if word in ("kernel", "gpu_memcpy", "gpu_memset")]


@pytest.mark.parametrize("profile", ["full", "astra-sim"])
@pytest.mark.parametrize("path", TRACES)
def test_every_file_can_be_followed_and_is_read_again_as_it_was(made, path: str, profile: str) -> None:  # type: ignore[no-untyped-def]
    for trace in made(path, profile).values():
        assert trace.output is not None
        nodes = trace.decoded.nodes
        assert len(nodes) == trace.output.events
        again = decode(io.BytesIO(b"".join(encoded({}, nodes)))).nodes
        for name in ("id", "name", "type", "start", "duration"):
            assert np.array_equal(getattr(again, name), getattr(nodes, name))
        for links in ("data", "control"):
            assert np.array_equal(getattr(again, links).ids, getattr(nodes, links).ids)
            assert np.array_equal(getattr(again, links).bounds, getattr(nodes, links).bounds)
        assert set(again.attributes) == set(nodes.attributes)
        for name, column in nodes.attributes.items():
            assert np.array_equal(again.attributes[name].rows, column.rows)
            assert list(again.attributes[name].values) == list(column.values)


@pytest.mark.parametrize("path", TRACES)
def test_all_work_on_devices_is_there_with_its_exact_times(made, path: str) -> None:  # type: ignore[no-untyped-def]
    events = graph(path).events
    work = events.take(events.of_kind(*GPU_WORK))
    expected = sorted(zip(work.start.tolist(), work.duration.tolist(), strict=True))
    for profile in ("full", "astra-sim"):
        found = []
        for trace in made(path, profile).values():
            nodes = trace.decoded.nodes
            start, duration = (
                nodes.attribute(name).whole_numbers(len(nodes), -1) for name in ("start_ns", "duration_ns")
            )
            found += [(int(start[row]), int(duration[row])) for row in device_rows(trace)]
        assert sorted(found) == expected


class TestResnet:
    """One rank of resnet with NCCL, from two runs."""

    @pytest.fixture
    def trace(self, made) -> EtTrace:  # type: ignore[no-untyped-def]
        found: EtTrace = made("pairs/resnet_110_nccl")[0]
        return found

    def test_nccl_kernels_stand_under_the_innermost_nccl_operator(self, trace: EtTrace) -> None:
        nodes = trace.decoded.nodes
        rows = np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
        assert len(rows) == 21
        above = {trace.names[number - 1] for row in rows for number in nodes.control[row]}
        assert above == {"nccl:broadcast", "nccl:all_reduce"}
        assert all(len(nodes.control[row]) == 1 for row in rows)

    def test_all_work_but_the_first_waits_for_other_work(self, trace: EtTrace) -> None:
        device = set(device_rows(trace))
        following = [
            row for row in device if any(number - 1 in device for number in trace.decoded.nodes.data[row])
        ]
        assert (len(device), len(following)) == (3774, 3773)


class TestDlrm:
    """Eight ranks of one run, whose External ids do not line up."""

    @pytest.fixture
    def traces(self, made) -> Mapping[int, EtTrace]:  # type: ignore[no-untyped-def]
        found: Mapping[int, EtTrace] = made("pairs/dlrm8")
        return found

    def test_the_parent_of_every_kernel_encloses_its_launch(self, traces: Mapping[int, EtTrace]) -> None:
        whole = graph("pairs/dlrm8")
        for rank, trace in traces.items():
            called = calls_of(whole, rank)
            nodes, rows, said = trace.decoded.nodes, device_rows(trace), times(trace)
            numbers = nodes.attribute("correlation").whole_numbers(len(nodes), -1)
            assert len(rows) > 200
            without = [row for row in rows if int(numbers[row]) not in called]
            assert len(without) == (64 if rank in (1, 3) else 0)  # launched before the recording began
            assert all(nodes.control[row] == [] for row in without)
            for row in set(rows) - set(without):
                begin, end = called[int(numbers[row])]
                (parent,) = nodes.control[row]
                start, length = said[parent - 1]
                assert start <= begin <= end <= start + length

    def test_eight_collectives_agree_on_eight_ranks(self, traces: Mapping[int, EtTrace]) -> None:
        first = traces[0].communication()
        kinds = [kind for _, kind, _, _ in first]
        assert kinds == [6, 6, 6, 6, 0, 6, 0, 0]
        assert all(trace.communication() == first for trace in traces.values())
        numbers = [list(trace.decoded.nodes.attribute("collective_id").values) for trace in traces.values()]
        assert len(traces) == 8
        assert all(number == numbers[0] for number in numbers)


def calls_of(whole: EventGraph, rank: int) -> dict[int, tuple[int, int]]:
    """When the call ran that launched the work of each correlation of a rank."""
    rows = rank_rows(whole, rank)
    events, edges = whole.events, whole.edges
    launches = (
        (edges.relation == Relation.LAUNCHES) & (edges.source >= rows.start) & (edges.source < rows.stop)
    )
    numbers = whole.key(Key.CORRELATION).dense(len(events), -1)
    return {
        int(numbers[work]): (int(events.start[call]), int(events.end[call]))
        for call, work in zip(edges.source[launches].tolist(), edges.target[launches].tolist(), strict=True)
    }


def times(trace: EtTrace) -> list[tuple[int, int]]:
    """Start of each node, and how long it took with all that it encloses."""
    nodes = trace.decoded.nodes
    start, own, whole = (
        nodes.attribute(name).whole_numbers(len(nodes), -1).tolist()
        for name in ("start_ns", "duration_ns", "inclusive_ns")
    )
    return [(begin, max(lengths)) for begin, *lengths in zip(start, own, whole, strict=True)]


@pytest.mark.parametrize("path", ["pairs/dlrm8", "matched8", "pairs/torch213_gloo2"])
def test_collectives_of_a_group_are_in_one_order_on_all_ranks(made, path: str) -> None:  # type: ignore[no-untyped-def]
    by_group: dict[str, set[tuple[int, ...]]] = {}
    for trace in made(path).values():
        nodes = trace.decoded.nodes
        numbers = nodes.attribute("collective_id").whole_numbers(len(nodes), -1)
        for group in set(nodes.attribute("group_name").values):
            texts = nodes.attribute("group_name").texts(len(nodes))
            mine = [
                int(numbers[row]) for row, text in enumerate(texts) if text == group and numbers[row] >= 0
            ]
            if mine:
                members = by_group.setdefault(group, set())
                members.add(tuple(mine))
    for group, orders in by_group.items():
        longest = max(orders, key=len)
        assert all(list(order) == [number for number in longest if number in order] for order in orders), (
            group
        )


def test_gloo_runs_on_threads_of_its_own(made) -> None:  # type: ignore[no-untyped-def]
    for trace in made("pairs/torch213_gloo2").values():
        nodes = trace.decoded.nodes
        rows = np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
        assert rows
        assert {trace.names[row] for row in rows} <= {
            "gloo:all_reduce",
            "gloo:broadcast",
            "gloo:barrier",
            "gloo:all_gather",
        }
        for row in rows:
            assert any(re.match("c10d::", trace.names[number - 1]) for number in nodes.data[row])


def test_kernels_of_graphs_are_all_there(made) -> None:  # type: ignore[no-untyped-def]
    """Several hundred kernels stand under one operator each: the one that launched their graph."""
    (trace,) = made("kineto/cuda_graphs.json.gz").values()
    nodes = trace.decoded.nodes
    parents = [nodes.control[row][0] for row in device_rows(trace) if nodes.control[row]]
    counts = np.bincount(parents)
    assert counts.max() > 10


def test_execution_traces_alone(tmp_path: Path) -> None:
    """Without a profile: messages are known from the nodes, and no time is made up."""
    paths = sorted(shared("matched8").glob("et_*.json.gz"))
    merged = merge(paths, output=tmp_path / "job", to="chakra", options={"profile": "astra-sim"})
    found = [EtTrace.read(output.path) for output in merged.outputs if output.rank is not None]
    assert len(found) == 8
    kinds = [kind for trace in found for kind, *_ in trace.communication()]
    assert (kinds.count("COMM_SEND"), kinds.count("COMM_RECV")) == (32, 32)
    assert all(not trace.decoded.nodes.start.any() for trace in found)


def test_recorders_alone(tmp_path: Path) -> None:
    merged = merge(fr=shared("fr/healthy8/dumps"), output=tmp_path / "job", to="chakra")
    found = [EtTrace.read(output.path) for output in merged.outputs if output.rank is not None]
    assert len(found) == 8
    assert all(set(trace.decoded.nodes.attribute("cat").values) == {"record"} for trace in found)
    assert len({tuple(trace.communication()) for trace in found if trace.communication()}) <= 8
    assert all(trace.decoded.nodes.of_type(NodeType.COMM_COLL).any() for trace in found)
