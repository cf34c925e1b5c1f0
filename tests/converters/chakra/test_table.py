"""Host nodes contracted away, and pauses of threads added as nodes."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.chakra import EtTrace, TracedJob, only
from builders.execution_trace import node, process_root
from builders.job import START, JobBuilder
from tracelink._model.columns import Int64s
from tracelink._model.events import EventKind, TrackKind
from tracelink.converters.chakra.schema import Kind, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, contracted, gaps_of, kept_attribute


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


US = 1000

Before = list[list[int]]
"""For each node the places of those that it waits for, all of them earlier."""


def table(before: Before, attributes: dict[str, Attribute] | None = None) -> NodeTable:
    """Nodes that are called by their places."""
    count = len(before)
    return NodeTable(
        id=np.arange(count) + 1,
        name=np.arange(count, dtype=np.int32),
        type=np.full(count, NodeType.COMP, np.uint8),
        start=np.arange(count) * 10,
        duration=np.arange(count) + 5,
        data=Links.of([[place + 1 for place in places] for places in before]),
        control=Links.of([[place] if place else [] for place in range(count)]),
        strings=[str(place) for place in range(count)],
        attributes=attributes or {},
    )


def without(before: Before, removed: set[int], lanes: dict[int, int] | None = None) -> dict[str, list[str]]:
    """What each node that is left waits for, by name."""
    count = len(before)
    keep = np.array([place not in removed for place in range(count)], np.bool_)
    lane = np.array([(lanes or {}).get(place, place) for place in range(count)], np.int64)
    nodes = contracted(table(before), keep, lane)
    assert nodes.id.tolist() == list(range(1, len(nodes) + 1))
    return {
        nodes.text(row): [nodes.text(number - 1) for number in nodes.data[row]] for row in range(len(nodes))
    }


def reachable(before: Before, kept: list[int]) -> set[tuple[int, int]]:
    """Which kept nodes come before which others, by any path."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(before)))
    graph.add_edges_from((cause, place) for place, causes in enumerate(before) for cause in causes)
    closure = networkx.transitive_closure_dag(graph)
    return {(cause, effect) for cause, effect in closure.edges if cause in kept and effect in kept}


@st.composite
def programs(draw: st.DrawFn) -> tuple[Before, list[int], list[bool]]:
    """Nodes that wait for earlier ones, in a few lanes that need not run in order, and which are kept."""
    count = draw(st.integers(0, 14))
    before = [
        sorted(draw(st.sets(st.integers(0, place - 1), max_size=3))) if place else []
        for place in range(count)
    ]
    lanes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    keep = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return before, lanes, keep


@given(programs())
@example(([[], [], [0, 1], [2]], [0, 0, 1, 0], [True, True, False, True]))
def test_who_comes_before_whom_stays_as_it_was(program: tuple[Before, list[int], list[bool]]) -> None:
    before, lanes, keep = program
    kept = [place for place, wanted in enumerate(keep) if wanted]
    nodes = contracted(table(before), np.array(keep, np.bool_), np.array(lanes, np.int64))
    left = [[number - 1 for number in nodes.data[row]] for row in range(len(nodes))]
    assert all(cause < row for row, causes in enumerate(left) for cause in causes)
    assert all(causes == sorted(set(causes)) for causes in left)
    found = {(kept[cause], kept[effect]) for cause, effect in reachable(left, list(range(len(left))))}
    assert found == reachable(before, kept)


def test_order_passes_through_a_chain_of_nodes_that_are_left_out() -> None:
    assert without([[], [0], [1], [2]], {1, 2}) == {"0": [], "3": ["0"]}


def test_of_a_lane_that_runs_in_order_only_the_last_is_waited_for() -> None:
    stream = {0: 7, 1: 7, 2: 7}
    assert without([[], [0], [1], [0, 2], [3]], {3}, stream) == {"0": [], "1": ["0"], "2": ["1"], "4": ["2"]}


def test_of_a_lane_that_does_not_run_in_order_all_are_waited_for() -> None:
    stream = {0: 7, 1: 7}
    assert without([[], [], [0, 1], [2]], {2}, stream) == {"0": [], "1": [], "3": ["0", "1"]}


def test_what_the_node_before_in_the_lane_waits_for_is_not_stated_again() -> None:
    stream = {1: 7, 2: 7}
    assert without([[], [0], [0, 1]], set(), stream) == {"0": [], "1": ["0"], "2": ["1"]}


def test_columns_of_nodes_that_stay_are_as_they_were_and_control_dependencies_go() -> None:
    numbers = Attribute.of(Kind.INT64, np.array([0, 1, 3]), np.array([10, 11, 13]))
    texts = Attribute.of(Kind.STRING, np.array([1, 2]), ["one", "two"])
    gone = Attribute.of(Kind.STRING, np.array([1]), ["gone"])
    before: Before = [[], [0], [1], [2]]
    nodes = contracted(
        table(before, {"numbers": numbers, "texts": texts, "gone": gone}),
        np.array([True, False, True, True]),
        np.zeros(4, np.int64),
    )
    assert nodes.start.tolist() == [0, 20, 30]
    assert nodes.duration.tolist() == [5, 7, 8]
    assert [nodes.control[row] for row in range(3)] == [[], [], []]
    assert sorted(nodes.attributes) == ["numbers", "texts"]
    assert nodes.attributes["numbers"].rows.tolist() == [0, 2]
    assert list(nodes.attributes["numbers"].values) == [10, 13]
    assert nodes.attributes["texts"].rows.tolist() == [1]
    assert nodes.attributes["texts"].values == ["two"]


def test_an_attribute_of_no_node() -> None:
    assert (
        len(kept_attribute(Attribute.of(Kind.INT64, np.empty(0, np.int64), []), np.zeros(3, np.bool_))) == 0
    )


def test_nothing_is_left() -> None:
    assert without([[], [0]], {0, 1}) == {}


def test_a_long_trace_takes_time_in_proportion() -> None:
    count = 60_000
    before = [[place - 1] if place else [] for place in range(count)]
    keep = np.arange(count) % 3 == 0
    nodes = contracted(table(before), keep, np.arange(count) % 4)
    assert nodes.data.ids.tolist() == list(range(1, len(nodes)))


INTERVALS = st.lists(
    st.tuples(st.integers(-1, 2), st.booleans(), st.integers(0, 9_000), st.integers(0, 5_000)), max_size=10
)


@given(INTERVALS)
def test_pauses_of_threads(intervals: list[tuple[int, bool, int, int]]) -> None:
    """Of what begins one after the other; a pause lasts a microsecond and ends with what nothing encloses."""
    intervals = sorted(intervals, key=lambda interval: interval[2])
    lane, outermost, start, length = zip(*intervals, strict=True) if intervals else ([], [], [], [])
    begins, lengths = column(list(start)), column(list(length))
    thread = column([100 + number for number in lane])
    gaps = gaps_of(column(list(lane)), thread, np.array(outermost, np.bool_), begins, begins + lengths)
    expected = []
    for row, (number, outer, begin, _) in enumerate(intervals):
        earlier = [other for other in range(row) if intervals[other][0] == number]
        ended = max((intervals[other][2] + intervals[other][3] for other in earlier), default=begin)
        if number >= 0 and outer and begin - ended >= 1000:
            expected.append((earlier[-1], row, ended, begin - ended, 100 + number))
    columns = (gaps.before, gaps.after, gaps.start, gaps.length, gaps.thread)
    assert sorted(zip(*(values.tolist() for values in columns), strict=True)) == sorted(expected)


def launched(
    job: TracedJob, name: str, at: float, called: float, caller: int | None = None, stream: str = "7"
) -> int:
    return job.work(name, at, at + 5, stream, by=job.call("cudaLaunchKernel", called, inside=caller))


class TestWork:
    """What ASTRA-sim's models of local memory and of devices read."""

    def trace(self, folder: Path, variant: str) -> EtTrace:
        """Two kernels, of which one lasts less than a microsecond, and a collective."""
        builder = JobBuilder()
        track = builder.track(TrackKind.STREAM, 0, "0", "7")
        for place, (name, length) in enumerate([("gemm", 20 * US), ("fill", 400), ("nccl", 5 * US)]):
            row = builder.add(track, name, place * 100 * US, length, EventKind.KERNEL)
        builder.together(builder.group(0, 1, name="0"), row, operation="all_reduce")
        builder.participations[0] |= {"bytes_in": 1 << 20, "bytes_out": 1 << 20}
        return only(builder.build(), folder, variant=variant)

    def test_computation_moves_what_an_h100_moves_in_its_time(self, tmp_path: Path) -> None:
        trace = self.trace(tmp_path, "astra-sim")
        found = {name: trace.attributes_of(name) for name in ("gemm", "fill", "nccl")}
        assert [(said.get("num_ops"), said.get("tensor_size")) for said in found.values()] == [
            (1, 20_000 * 3350),
            (1, 400 * 3350),
            (None, None),
        ]
        assert [(said["inputs"], said["outputs"]) for said in found.values()] == [([], [])] * 3

    def test_the_full_variant_has_none_of_it(self, tmp_path: Path) -> None:
        trace = self.trace(tmp_path, "full")
        added = {"num_ops", "tensor_size", "inputs", "outputs"}
        assert [added & set(trace.attributes_of(name)) for name in trace.names] == [set()] * 3

    def test_a_rank_without_nodes_has_it_too(self, tmp_path: Path) -> None:
        job = TracedJob()
        job.op("aten::mm", 0, 10)
        said = only(job.build(), tmp_path, variant="astra-sim").attributes_of("idle")
        assert (said["num_ops"], said["tensor_size"], said["inputs"], said["outputs"]) == (1, 3350, [], [])


class TestGaps:
    """Pauses of a thread between operators that nothing encloses, as nodes between them."""

    def test_a_pause_is_a_node_between_two_operators(self, tmp_path: Path) -> None:
        job = TracedJob()
        outer = job.op("outer", 0, 10)
        job.op("inner", 2, 5, inside=outer)
        job.op("next", 12.6, 17.6)
        trace = only(job.build(), tmp_path, gaps="yes")
        assert trace.names == ["outer", "inner", "idle", "next"]
        assert trace.waits("idle") == ["inner"]
        assert trace.waits("next") == ["inner", "idle"]
        assert trace.inside("idle") == []
        assert trace.times("idle") == (START // 1000 + 10, 3)
        said = trace.attributes_of("idle")
        assert (said["start_ns"], said["duration_ns"]) == (START + 10_000, 2600)
        assert (said["cat"], said["is_cpu_op"], said["stream"]) == ("idle", True, 0)

    @pytest.mark.parametrize(("pause", "nodes"), [(0.999, 2), (1, 3)])
    def test_less_than_a_microsecond_is_none(self, pause: float, nodes: int, tmp_path: Path) -> None:
        job = TracedJob()
        job.op("one", 0, 10)
        job.op("two", 10 + pause, 10 + pause + 5)
        assert len(only(job.build(), tmp_path, gaps="yes").names) == nodes

    def test_threads_pause_each_for_itself_and_devices_do_not(self, tmp_path: Path) -> None:
        job = TracedJob()
        for thread, at in (("1", 0), ("2", 5)):
            job.op(f"one {thread}", at, at + 10, thread)
            job.op(f"two {thread}", at + 20, at + 20 + 10, thread)
        job.work("early", 100, 101)
        job.work("late", 200, 201)
        trace = only(job.build(), tmp_path, gaps="yes")
        assert trace.names.count("idle") == 2
        numbers = [trace.attributes(row) for row, name in enumerate(trace.names) if name == "idle"]
        assert [said["tid"] for said in numbers] == [1, 2]
        assert [said["duration_ns"] for said in numbers] == [10_000, 10_000]

    def test_time_within_an_operator_is_its_own(self, tmp_path: Path) -> None:
        job = TracedJob()
        outer = job.op("outer", 0, 100)
        job.op("one", 0, 10, inside=outer)
        job.op("two", 50, 60, inside=outer)
        assert "idle" not in only(job.build(), tmp_path, gaps="yes").names

    def test_what_nodes_said_stays_theirs(self, tmp_path: Path) -> None:
        job = TracedJob()
        job.node(process_root())
        job.op("one", 0, 10, node=node(5, "one", parent=1))
        two = job.op("two", 20, 30, node=node(6, "two", parent=1), kind=EventKind.ANNOTATION)
        launched(job, "gemm", 40, 22, two)
        plain, spaced = (only(job.build(), tmp_path / gaps, gaps=gaps) for gaps in ("no", "yes"))
        assert [name for name in spaced.names if name != "idle"] == plain.names
        for name in plain.names:
            assert plain.attributes_of(name) == spaced.attributes_of(name)
            assert plain.times(name) == spaced.times(name)
            assert plain.inside(name) == spaced.inside(name)
            assert plain.waits(name) == [other for other in spaced.waits(name) if other != "idle"]

    def test_a_pause_is_not_shown_before_what_it_follows(self, tmp_path: Path) -> None:
        """Communication is shown after the one before it in its group, whatever its own time."""
        builder = JobBuilder()
        threads = [builder.track(identity=name) for name in "12"]
        late = builder.add(threads[0], "late", 50 * US, 5 * US)
        early = builder.add(threads[1], "early", 0, 5 * US)
        builder.add(threads[1], "next", 90 * US, 5 * US)
        group = builder.group(0, 1, name="0")
        for row in (late, early):
            builder.together(group, row, as_what="operator", start=START, skew=0)
            builder.participations[-1] |= {"bytes_in": 8}
        trace = only(builder.build(), tmp_path, gaps="yes")
        assert trace.waits("early") == ["late"]
        assert trace.times("early")[0] == trace.times("idle")[0] == START // 1000 + 50
        assert trace.attributes_of("idle")["start_ns"] == START + 5 * US
