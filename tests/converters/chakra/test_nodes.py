"""Package."""

from __future__ import annotations

import ast
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from builders.chakra import Job
from builders.chakra_written import only
from builders.execution_trace import FLAT, VERSIONS, Node, as_json, node, process_root, tensor, thread_root
from builders.graph import START, GraphBuilder
from builders.ordering import RankBuilder
from tracelink.converters.chakra.chakra_pb2 import Node as Message
from tracelink.converters.chakra.communications import Communicating, usable
from tracelink.converters.chakra.decode import frames
from tracelink.converters.chakra.host import device_of, host_of
from tracelink.converters.chakra.nodes import contracted, fields_of, gaps_of, python_spelling, taken
from tracelink.converters.chakra.plan import (
    Lane,
    Pairs,
    Spots,
    Turns,
    control_links,
    device_flow,
    one_after_the_other,
    spread,
    turns_of,
    waiting,
)
from tracelink.converters.chakra.schema import Kind, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable
from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.events import EventKind, Key, TrackKind

# What nodes a rank has, and what each says of itself.


def kernel_of(job: Job, name: str, at: float, launched: float, caller: int, stream: str = "7") -> int:
    return job.kernel(name, at, 5, job.runtime("cudaLaunchKernel", launched, caller=caller), stream=stream)


def test_operators_annotations_and_work_on_a_device_are_nodes_and_the_rest_is_told(tmp_path: Path) -> None:
    job = Job()
    step = job.operator("step", 0, 100, kind=EventKind.ANNOTATION)
    add = job.operator("add", 10, 20, caller=step)
    job.operator("call", 11, 5, caller=add, kind=EventKind.PYTHON)
    kernel_of(job, "gemm", 40, 12, add)
    job.kernel("copy", 50, 2, job.runtime("cudaMemcpyAsync", 20, caller=add), kind=EventKind.MEMCPY)
    job.kernel("set", 60, 2, job.runtime("cudaMemsetAsync", 22, caller=add), kind=EventKind.MEMSET)
    trace = only(job.build(), tmp_path)
    assert trace.names == ["step", "add", "gemm", "copy", "set"]
    assert [trace.attributes_of(name)["cat"] for name in trace.names] == [
        "user_annotation",
        "cpu_op",
        "kernel",
        "gpu_memcpy",
        "gpu_memset",
    ]
    assert [trace.attributes_of(name)["is_cpu_op"] for name in trace.names] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert {trace.type(name) for name in trace.names} == {NodeType.COMP}
    assert trace.reasons == {"not_nodes": 4, "device_order": 2}


def test_times_are_exact_in_attributes_and_rounded_in_fields(tmp_path: Path) -> None:
    """A duration is without what is inside; START is a whole number of microseconds."""
    job = Job()
    outer = job.operator("outer", 1.4, 10.9)
    job.operator("inner", 2.4, 3.25, caller=outer)
    trace = only(job.build(), tmp_path)
    assert trace.times("outer") == (START // 1000 + 1, 8)
    assert trace.times("inner") == (START // 1000 + 2, 3)
    outer_said, inner_said = trace.attributes_of("outer"), trace.attributes_of("inner")
    assert [outer_said[name] for name in ("start_ns", "duration_ns", "inclusive_ns")] == [
        START + 1400,
        7650,
        10900,
    ]
    assert [inner_said[name] for name in ("start_ns", "duration_ns")] == [START + 2400, 3250]
    assert "inclusive_ns" not in inner_said


def test_what_overlaps_inside_an_operator_is_taken_from_it_once(tmp_path: Path) -> None:
    job = Job()
    outer = job.operator("outer", 0, 10)
    job.operator("one", 1, 4, caller=outer)
    job.operator("two", 3, 4, caller=outer)
    assert only(job.build(), tmp_path).attributes_of("outer")["duration_ns"] == 4000


def test_the_profile_says_what_encloses_and_the_execution_trace_where_it_does_not(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    job.node(node(2, "thread", parent=1))
    outer = job.operator("outer", 0, 100, node(3, "outer", parent=2))
    job.node(node(4, "untimed", parent=3))
    job.operator("inner", 10, 20, node(5, "inner", parent=4), caller=outer)
    trace = only(job.build(), tmp_path)
    assert trace.inside("outer") == ["thread"]
    assert trace.inside("untimed") == ["outer"]
    assert trace.inside("inner") == ["outer"]


def test_work_stands_below_the_innermost_operator_around_its_launch(tmp_path: Path) -> None:
    job = Job()
    record = job.operator("record_param_comms", 0, 100)
    inner = job.operator("nccl:all_reduce", 10, 50, caller=record)
    kernel_of(job, "inside", 40, 12, inner)
    kernel_of(job, "outside", 50, 70, record)
    trace = only(job.build(), tmp_path)
    assert trace.inside("inside") == ["nccl:all_reduce"]
    assert trace.inside("outside") == ["record_param_comms"]


def test_work_of_a_graph_without_a_launch_and_launched_by_nobody_are_nodes(tmp_path: Path) -> None:
    job = Job()
    replay = job.operator("replay", 0, 30)
    launch = job.runtime("cudaGraphLaunch", 5, caller=replay)
    for number in range(3):
        job.kernel(f"of the graph {number}", 40 + 10 * number, 5, launch)
    job.kernel("of nobody", 80, 5, None, stream="9")
    job.kernel("outside", 90, 5, job.runtime("cudaLaunchKernel", 35), stream="11")
    trace = only(job.build(), tmp_path)
    assert [trace.inside(f"of the graph {number}") for number in range(3)] == [["replay"]] * 3
    assert (trace.inside("of nobody"), trace.waits("of nobody")) == ([], [])
    assert (trace.inside("outside"), trace.waits("outside")) == ([], ["replay"])


def test_what_the_execution_trace_says_of_an_operator_is_said_of_its_work_too(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    told = node(5, "add", parent=1)
    add = job.operator("add", 0, 30, told)
    kernel_of(job, "gemm", 40, 12, add)
    trace = only(job.build(), tmp_path)
    assert trace.attributes_of("add").get("op_schema", "") == trace.attributes_of("gemm").get("op_schema", "")
    for name in ("rf_id", "seq_id", "scope", "fw_tid", "tid"):
        assert trace.attributes_of("add")[name] == trace.attributes_of("gemm")[name], name


def test_where_work_runs(tmp_path: Path) -> None:
    builder = GraphBuilder()
    thread = builder.track(identity="77")
    stream = builder.track(TrackKind.STREAM, process="3", identity="20")
    add = builder.add(thread, "add", 0, 10)
    builder.add(stream, "gemm", 20, 5, EventKind.KERNEL, keys={Key.CORRELATION: 9})
    assert add == 0
    trace = only(builder.build(), tmp_path)
    assert (trace.attributes_of("add")["tid"], trace.attributes_of("add")["stream"]) == (77, 0)
    said = trace.attributes_of("gemm")
    assert (said["stream"], said["device"], said["correlation"]) == (20, 3, 9)


@pytest.mark.parametrize("identity", ["main", "9" * 30, "", "٣"])
def test_a_thread_without_a_number_is_0(tmp_path: Path, identity: str) -> None:
    builder = GraphBuilder()
    builder.add(builder.track(identity=identity), "add", 0, 10)
    assert only(builder.build(), tmp_path).attributes_of("add")["tid"] == 0


def test_link_keys_of_operators(tmp_path: Path) -> None:
    builder = GraphBuilder()
    thread = builder.track()
    keys = {Key.RECORD_FUNCTION: 12, Key.SEQUENCE: 7, Key.SCOPE: 1, Key.FORWARD_THREAD: 3}
    builder.add(thread, "told", 0, 10, keys=dict(keys))
    builder.add(thread, "untold", 20, 10)
    trace = only(builder.build(), tmp_path)
    names = ("rf_id", "seq_id", "scope", "fw_tid")
    assert [trace.attributes_of("told")[name] for name in names] == [12, 7, 1, 3]
    assert [trace.attributes_of("untold")[name] for name in names] == [0, -1, 0, 0]


def test_an_operator_whose_end_was_not_recorded_takes_no_time(tmp_path: Path) -> None:
    builder = GraphBuilder()
    builder.add(builder.track(), "unfinished", 5000, -1)
    trace = only(builder.build(), tmp_path)
    assert trace.times("unfinished") == (START // 1000 + 5, 0)
    assert trace.attributes_of("unfinished")["duration_ns"] == 0


class TestExecutionTraceAlone:
    """Nodes have no times: their numbers say in which order they began."""

    @pytest.fixture
    def job(self) -> Job:
        job = Job()
        job.node(process_root())
        job.node(thread_root(2))
        for number, name, parent in ((3, "one", 2), (4, "in one", 3), (5, "two", 2), (6, "in two", 5)):
            job.node(node(number, name, parent=parent))
        return job

    def test_the_order_is_that_of_the_numbers(self, job: Job, tmp_path: Path) -> None:
        trace = only(job.build(), tmp_path)
        assert trace.names[2:] == ["one", "in one", "two", "in two"]
        assert trace.waits("two") == ["in one"]
        assert trace.inside("in two") == ["two"]

    def test_no_time_is_made_up(self, job: Job, tmp_path: Path) -> None:
        trace = only(job.build(), tmp_path)
        assert trace.times("two") == (0, 0)
        assert not {"start_ns", "duration_ns", "inclusive_ns"} & set(trace.attributes_of("two"))
        assert trace.reasons["without_times"] == len(trace.names)


class TestRecorderAlone:
    def test_entries_are_nodes(self, tmp_path: Path) -> None:
        builder = GraphBuilder()
        track = builder.track(TrackKind.COMMUNICATOR)
        rows = [builder.add(track, name, 1000 * at, 500, EventKind.RECORD) for at, name in enumerate("ab")]
        group = builder.group(0, 1)
        for row in rows:
            builder.together(group, row, as_what="record")
            builder.participations[-1] |= {"bytes_in": 64}
        trace = only(builder.build(), tmp_path)
        assert trace.names == ["a", "b"]
        assert trace.waits("b") == ["a"]
        assert trace.attributes_of("a")["cat"] == "record"
        assert trace.communication() == [("COMM_COLL", 0, 64, "0")] * 2

    def test_beside_a_profile_they_are_not(self, tmp_path: Path) -> None:
        builder = GraphBuilder()
        builder.add(builder.track(), "add", 0, 10)
        builder.add(builder.track(TrackKind.COMMUNICATOR), "entry", 0, 5, EventKind.RECORD)
        trace = only(builder.build(), tmp_path)
        assert trace.names == ["add"]
        assert trace.reasons["not_nodes"] == 1


@pytest.mark.parametrize("variant", ["full", "astra-sim"])
def test_a_rank_of_which_nothing_is_a_node_has_one_that_is_idle(variant: str, tmp_path: Path) -> None:
    """Simulators need a file of every rank, and a node to begin with."""
    builder = GraphBuilder()
    builder.add(builder.track(), "python", 0, 5, EventKind.PYTHON)
    trace = only(builder.build(), tmp_path, variant=variant)
    assert trace.names == ["idle"]
    assert trace.attributes_of("idle")["cat"] == "idle"
    assert trace.reasons["nothing_to_write"] == 1


# A trace without some of its nodes: what waited for what through them still does.


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
    assert len(taken(Attribute.of(Kind.INT64, np.empty(0, np.int64), []), np.zeros(3, np.bool_))) == 0


def test_nothing_is_left() -> None:
    assert without([[], [0]], {0, 1}) == {}


def test_a_long_trace_takes_time_in_proportion() -> None:
    count = 60_000
    before = [[place - 1] if place else [] for place in range(count)]
    keep = np.arange(count) % 3 == 0
    nodes = contracted(table(before), keep, np.arange(count) % 4)
    assert nodes.data.ids.tolist() == list(range(1, len(nodes)))


# Inputs, outputs and signatures as the execution trace has them, in Python's spelling, which readers evaluate.


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def read(fields: bytes) -> Message:
    return Message.FromString(fields)


def as_text(made: Node, version: str) -> bytes:
    return json.dumps(as_json(made, version)).encode()


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_every_value_is_spelt_as_python_spells_it(value: list[Any], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert ast.literal_eval(python_spelling(text).decode()) == value


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_a_text_is_spelt_already(text: str) -> None:
    assert python_spelling(json.dumps(text).encode()).decode() == text


@pytest.mark.parametrize("text", [b"[NaN]", b"[Infinity]", b"not json", b"[1,\n2]", b'["\xff"]'])
def test_what_is_no_json_is_text_that_protobuf_takes(text: bytes) -> None:
    fields = fields_of(b'{"inputs":{"values":' + text + b"}}")
    read(fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_layout(version: str) -> None:
    made = node(5, "add", inputs=[tensor(7), (True, [], "Bool"), (None, [], "None")], outputs=[tensor(9)])
    found = read(fields_of(as_text(made, version)))
    assert ast.literal_eval(found.inputs.values)[1:] == [True, None]
    assert ast.literal_eval(found.inputs.values)[0] == tensor(7)[0]
    assert ast.literal_eval(found.inputs.shapes) == [[32], [], []]
    assert ast.literal_eval(found.inputs.types) == ["Tensor(float)", "Bool", "None"]
    assert ast.literal_eval(found.outputs.values) == [tensor(9)[0]]


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b'{"inputs":{"values":[1}}', b"\xff\xfe"])
def test_what_is_laid_out_in_another_way_says_nothing(text: bytes) -> None:
    found = read(fields_of(text))
    assert found.inputs.values in ("", "[]")
    assert not found.attr


def test_work_says_the_inputs_of_its_operator(tmp_path: Path) -> None:
    job = Job()
    job.node(process_root())
    add = job.operator("add", 0, 30, node(5, "add", parent=1, inputs=[tensor(7)], outputs=[tensor(9)]))
    job.kernel("gemm", 40, 5, job.runtime("cudaLaunchKernel", 10, caller=add))
    job.operator("alone", 50, 5)
    trace = only(job.build(), tmp_path)
    assert trace.output is not None
    with Path(trace.output.path).open("rb") as stream:
        messages = [Message.FromString(frame.body) for frame in list(frames(stream))[1:]]
    found = {message.name: message for message in messages}
    assert found["add"].inputs.values == found["gemm"].inputs.values != ""
    assert ast.literal_eval(found["add"].outputs.values) == [tensor(9)[0]]
    assert not found["alone"].HasField("inputs")


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != FLAT])
def test_signature_and_forward_parent(version: str, tmp_path: Path) -> None:
    job = Job(version)
    job.node(process_root())
    told = as_json(node(5, "add", parent=1), version)
    said = {attribute["name"]: attribute["value"] for attribute in told["attrs"]}
    job.operator("add", 0, 30, node(5, "add", parent=1))
    trace = only(job.build(), tmp_path)
    assert trace.attributes_of("add")["op_schema"] == said["op_schema"]
    assert trace.attributes_of("add")["fw_parent"] == said["fw_parent"]


# Whole columns against the plain way to compute them: lanes, spreading, gaps, order, work for tensors.


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return sorted(zip(pairs.before.tolist(), pairs.after.tolist(), strict=True))


def pairs(*both: tuple[int, int]) -> Pairs:
    return Pairs(column([before for before, _ in both]), column([after for _, after in both]))


SPOTS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 4), st.integers(0, 20)), max_size=12)
"""Lane, place in it, and time."""


@given(SPOTS)
@example([(0, 0, 9), (0, 0, 9), (0, 1, 3)])
def test_what_shares_a_lane_is_in_its_order_and_only_as_much_later_as_that_needs(
    spots: list[tuple[int, int, int]],
) -> None:
    lane, place, time = (column([spot[part] for spot in spots]) for part in range(3))
    pushed = Lane(lane, place).pushed(time).tolist()
    expected = time.tolist()
    for number in range(3):
        mine = sorted(
            (row for row, spot in enumerate(spots) if spot[0] == number), key=lambda row: (spots[row][1], row)
        )
        for before, after in pairwise(mine):
            expected[after] = max(expected[after], expected[before] + 1)
    assert pushed == expected
    assert listed(Lane(lane, place).pairs()) == sorted(
        (before, after)
        for number in range(3)
        for before, after in pairwise(
            sorted(
                (row for row, spot in enumerate(spots) if spot[0] == number),
                key=lambda row: (spots[row][1], row),
            )
        )
    )


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=8),
    st.lists(st.integers(0, 3), max_size=3),
)
def test_every_message_that_shares_an_end_has_the_pairs_of_the_first(
    both: list[tuple[int, int]], others: list[int]
) -> None:
    """Spots 0 to 3 can have further messages; 4 and 5 have none."""
    further = [*range(6), *others]
    alike = {spot: [row for row, first in enumerate(further) if first == spot] for spot in range(6)}
    expected = {
        (before, after)
        for left, right in both
        if left != right
        for before in alike[left]
        for after in alike[right]
    }
    found = spread(pairs(*both).known(), column(further))
    assert set(listed(found)) == expected


@given(SPOTS, st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12))
def test_each_pair_once_and_none_against_the_order(
    spots: list[tuple[int, int, int]], both: list[tuple[int, int]]
) -> None:
    count = len(spots)
    both = [(before, after) for before, after in both if before < count and after < count]
    order = sorted(range(count), key=lambda row: (spots[row][2], row))
    turn = [order.index(row) for row in range(count)]
    turns = Turns(column(order), column(turn), column([spot[2] for spot in spots]))
    found = waiting({"some": pairs(*both), "more": pairs(*both[:2])}, turns)
    lists = [found.links[row] for row in range(count)]
    expected: list[set[int]] = [set() for _ in range(count)]
    for before, after in both:
        if turn[before] < turn[after]:
            expected[turn[after]].add(turn[before] + 1)
    assert lists == [sorted(numbers) for numbers in expected]
    against = {
        name: sum(turn[before] >= turn[after] for before, after in some)
        for name, some in (("some", both), ("more", both[:2]))
    }
    assert found.against_order == {name: number for name, number in against.items() if number}


@given(st.permutations(range(5)), st.lists(st.integers(-1, 4), min_size=5, max_size=5))
def test_a_parent_that_comes_later_is_none(order: list[int], parent: list[int]) -> None:
    turn = [order.index(spot) for spot in range(5)]
    links = control_links(column(parent), Turns(column(order), column(turn), column([0] * 5)))
    for place, spot in enumerate(order):
        above = parent[spot]
        known = above != UNKNOWN and turn[above] < place
        assert links[place] == ([turn[above] + 1] if known else [])


def spots_of(work: list[int], parent: list[int]) -> Spots:
    none = column([UNKNOWN] * len(work))
    place = column([UNKNOWN if number != UNKNOWN else row for row, number in enumerate(work)])
    return Spots(
        column(list(range(len(work)))),
        place,
        column(work),
        column(parent),
        none,
        column(list(range(len(work)))),
    )


def test_order_is_by_time_then_host_before_device_then_by_what_tells_equal_ones_apart() -> None:
    spots = spots_of([UNKNOWN, UNKNOWN, UNKNOWN, 0], [UNKNOWN] * 4)
    turns = turns_of(spots, column([5, 5, 3, 5]), [column([2, 1, 0, 0])], [])
    assert turns.spot.tolist() == [2, 1, 0, 3]
    assert turns.turn.tolist() == [2, 1, 0, 3]
    assert turns.time.tolist() == [5, 5, 3, 5]


def test_work_is_not_earlier_than_its_launch_nor_what_follows_it_on_its_stream() -> None:
    spots = spots_of([UNKNOWN, 0, 1], [UNKNOWN, 0, UNKNOWN])
    stream = Lane(column([UNKNOWN, 7, 7]), column([0, 1, 2]))
    turns = turns_of(spots, column([50, 10, 20]), [], [stream])
    assert turns.spot.tolist() == [0, 1, 2]
    assert turns.time.tolist() == [50, 50, 51]


def test_lanes_that_contradict_each_other_end() -> None:
    lanes = [Lane(column([0, 0]), column(places)) for places in ([0, 1], [1, 0])]
    assert turns_of(spots_of([0, 1], [UNKNOWN, UNKNOWN]), column([0, 0]), [], lanes).spot.tolist() == [1, 0]


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


class TestWorkForTensors:
    """The first work of who reads a tensor after the last work of who wrote it."""

    @pytest.fixture
    def rank(self) -> RankBuilder:
        return RankBuilder()

    def flow(self, rank: RankBuilder, *both: tuple[int, int]) -> list[tuple[str, str]]:
        part = rank.part()
        host = host_of(part)
        device = device_of(part, host)
        place = {row: number for number, row in enumerate(host.row.tolist())}
        writers, readers = (column([place[pair[side]] for pair in both]) for side in (0, 1))
        found = device_flow(part.events, host, device, writers, readers)
        rows = device.row.tolist()
        return [
            (part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in listed(found)
        ]

    def test_the_last_after_the_first(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        for name, at, inside, stream in (
            ("a", 40, make, 7),
            ("b", 50, make, 7),
            ("c", 70, use, 9),
            ("d", 80, use, 9),
        ):
            rank.work(name, at, at + 5, stream, launched=1 if inside == make else 21, inside=inside)
        assert self.flow(rank, (make, use)) == [("b", "c")]

    def test_work_of_inner_operators_is_that_of_the_outer_one_too(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        inner = rank.op("inner", 1, 9, inside=make)
        use = rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=inner)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == [("a", "b")]

    def test_times_must_not_contradict_it(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 90, launched=2, inside=make)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == []

    def test_operators_without_work_put_nothing_in_order(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=make)
        assert self.flow(rank, (make, use), (use, make)) == []

    def test_works_of_one_operator(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        other = rank.op("other", 10, 20)
        for name, at, inside in (("a", 40, make), ("c", 60, make), ("b", 50, other), ("d", 62, make)):
            rank.work(name, at, at + 5, at, launched=11 if inside == other else 1, inside=inside)
        part = rank.part()
        device = device_of(part, host_of(part))
        rows = device.row.tolist()
        found = listed(one_after_the_other(part.events, device))
        assert [(part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in found] == [
            ("a", "c")
        ]


def test_communication_that_lacks_several_things_is_counted_once() -> None:
    told = Communicating.of(
        4,
        type=np.array(
            [NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_COLL], np.uint8
        ),
        collective=column([0, 1, -1, 2]),
        collective_type=column([-1, 0, -1, 0]),
        size=column([-1, -1, 8, 8]),
        source=column([-1, -1, 0, -1]),
    )
    kept, counts = usable(told)
    assert kept.collective.tolist() == [2]
    assert counts == {"operation": 1, "size": 1, "peer": 1}
