"""The nodes of a rank and their attributes; inputs, outputs and signatures."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.chakra import TracedJob, only
from builders.execution_trace import FLAT, VERSIONS, Node, as_json, node, process_root, tensor, thread_root
from builders.job import START, JobBuilder
from tracelink._model.events import EventKind, Key, TrackKind
from tracelink.converters.chakra.chakra_pb2 import Node as Message
from tracelink.converters.chakra.decode import frames
from tracelink.converters.chakra.schema import NodeType
from tracelink.converters.chakra.writing.nodes import fields_of, python_syntax


def kernel_of(job: TracedJob, name: str, at: float, launched: float, caller: int, stream: str = "7") -> int:
    return job.work(name, at, at + 5, stream, by=job.call("cudaLaunchKernel", launched, inside=caller))


def test_operators_annotations_and_work_on_a_device_are_nodes_and_the_rest_is_told(tmp_path: Path) -> None:
    job = TracedJob()
    step = job.op("step", 0, 100, kind=EventKind.ANNOTATION)
    add = job.op("add", 10, 30, inside=step)
    job.op("call", 11, 16, inside=add, kind=EventKind.PYTHON)
    kernel_of(job, "gemm", 40, 12, add)
    job.work("copy", 50, 52, by=job.call("cudaMemcpyAsync", 20, inside=add), kind=EventKind.MEMCPY)
    job.work("set", 60, 62, by=job.call("cudaMemsetAsync", 22, inside=add), kind=EventKind.MEMSET)
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
    job = TracedJob()
    outer = job.op("outer", 1.4, 12.3)
    job.op("inner", 2.4, 5.65, inside=outer)
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
    job = TracedJob()
    outer = job.op("outer", 0, 10)
    job.op("one", 1, 5, inside=outer)
    job.op("two", 3, 7, inside=outer)
    assert only(job.build(), tmp_path).attributes_of("outer")["duration_ns"] == 4000


def test_the_profile_says_what_encloses_and_the_execution_trace_where_it_does_not(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    job.node(node(2, "thread", parent=1))
    outer = job.op("outer", 0, 100, node=node(3, "outer", parent=2))
    job.node(node(4, "untimed", parent=3))
    job.op("inner", 10, 30, node=node(5, "inner", parent=4), inside=outer)
    trace = only(job.build(), tmp_path)
    assert trace.inside("outer") == ["thread"]
    assert trace.inside("untimed") == ["outer"]
    assert trace.inside("inner") == ["outer"]


def test_work_stands_below_the_innermost_operator_around_its_launch(tmp_path: Path) -> None:
    job = TracedJob()
    record = job.op("record_param_comms", 0, 100)
    inner = job.op("nccl:all_reduce", 10, 60, inside=record)
    kernel_of(job, "inside", 40, 12, inner)
    kernel_of(job, "outside", 50, 70, record)
    trace = only(job.build(), tmp_path)
    assert trace.inside("inside") == ["nccl:all_reduce"]
    assert trace.inside("outside") == ["record_param_comms"]


def test_work_of_a_graph_without_a_launch_and_launched_by_nobody_are_nodes(tmp_path: Path) -> None:
    job = TracedJob()
    replay = job.op("replay", 0, 30)
    launch = job.call("cudaGraphLaunch", 5, inside=replay)
    for number in range(3):
        job.work(f"of the graph {number}", 40 + 10 * number, 40 + 10 * number + 5, by=launch)
    job.work("of nobody", 80, 85, 9)
    job.work("outside", 90, 95, 11, by=job.call("cudaLaunchKernel", 35))
    trace = only(job.build(), tmp_path)
    assert [trace.inside(f"of the graph {number}") for number in range(3)] == [["replay"]] * 3
    assert (trace.inside("of nobody"), trace.waits("of nobody")) == ([], [])
    assert (trace.inside("outside"), trace.waits("outside")) == ([], ["replay"])


def test_what_the_execution_trace_says_of_an_operator_is_said_of_its_work_too(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    told = node(5, "add", parent=1)
    add = job.op("add", 0, 30, node=told)
    kernel_of(job, "gemm", 40, 12, add)
    trace = only(job.build(), tmp_path)
    assert trace.attributes_of("add").get("op_schema", "") == trace.attributes_of("gemm").get("op_schema", "")
    for name in ("rf_id", "seq_id", "scope", "fw_tid", "tid"):
        assert trace.attributes_of("add")[name] == trace.attributes_of("gemm")[name], name


def test_where_work_runs(tmp_path: Path) -> None:
    builder = JobBuilder()
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
    builder = JobBuilder()
    builder.add(builder.track(identity=identity), "add", 0, 10)
    assert only(builder.build(), tmp_path).attributes_of("add")["tid"] == 0


def test_link_keys_of_operators(tmp_path: Path) -> None:
    builder = JobBuilder()
    thread = builder.track()
    keys = {Key.RECORD_FUNCTION: 12, Key.SEQUENCE: 7, Key.SCOPE: 1, Key.FORWARD_THREAD: 3}
    builder.add(thread, "told", 0, 10, keys=dict(keys))
    builder.add(thread, "untold", 20, 10)
    trace = only(builder.build(), tmp_path)
    names = ("rf_id", "seq_id", "scope", "fw_tid")
    assert [trace.attributes_of("told")[name] for name in names] == [12, 7, 1, 3]
    assert [trace.attributes_of("untold")[name] for name in names] == [0, -1, 0, 0]


def test_an_operator_whose_end_was_not_recorded_takes_no_time(tmp_path: Path) -> None:
    builder = JobBuilder()
    builder.add(builder.track(), "unfinished", 5000, -1)
    trace = only(builder.build(), tmp_path)
    assert trace.times("unfinished") == (START // 1000 + 5, 0)
    assert trace.attributes_of("unfinished")["duration_ns"] == 0


class TestExecutionTraceAlone:
    """Nodes have no times: their numbers say in which order they began."""

    @pytest.fixture
    def job(self) -> TracedJob:
        job = TracedJob()
        job.node(process_root())
        job.node(thread_root(2))
        for number, name, parent in ((3, "one", 2), (4, "in one", 3), (5, "two", 2), (6, "in two", 5)):
            job.node(node(number, name, parent=parent))
        return job

    def test_the_order_is_that_of_the_numbers(self, job: TracedJob, tmp_path: Path) -> None:
        trace = only(job.build(), tmp_path)
        assert trace.names[2:] == ["one", "in one", "two", "in two"]
        assert trace.waits("two") == ["in one"]
        assert trace.inside("in two") == ["two"]

    def test_no_time_is_made_up(self, job: TracedJob, tmp_path: Path) -> None:
        trace = only(job.build(), tmp_path)
        assert trace.times("two") == (0, 0)
        assert not {"start_ns", "duration_ns", "inclusive_ns"} & set(trace.attributes_of("two"))
        assert trace.reasons["without_times"] == len(trace.names)


class TestRecorderAlone:
    def test_entries_are_nodes(self, tmp_path: Path) -> None:
        builder = JobBuilder()
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
        builder = JobBuilder()
        builder.add(builder.track(), "add", 0, 10)
        builder.add(builder.track(TrackKind.COMMUNICATOR), "entry", 0, 5, EventKind.RECORD)
        trace = only(builder.build(), tmp_path)
        assert trace.names == ["add"]
        assert trace.reasons["not_nodes"] == 1


@pytest.mark.parametrize("variant", ["full", "astra-sim"])
def test_a_rank_of_which_nothing_is_a_node_has_one_that_is_idle(variant: str, tmp_path: Path) -> None:
    """Simulators need a file of every rank, and a node to begin with."""
    builder = JobBuilder()
    builder.add(builder.track(), "python", 0, 5, EventKind.PYTHON)
    trace = only(builder.build(), tmp_path, variant=variant)
    assert trace.names == ["idle"]
    assert trace.attributes_of("idle")["cat"] == "idle"
    assert trace.reasons["nothing_to_write"] == 1


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
    assert ast.literal_eval(python_syntax(text).decode()) == value


def test_a_number_that_no_double_holds_is_infinite() -> None:
    assert python_syntax(b"[null, 1e999, 1]") == b"[None, inf, 1]"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_a_text_is_spelt_already(text: str) -> None:
    assert python_syntax(json.dumps(text).encode()).decode() == text


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
    job = TracedJob()
    job.node(process_root())
    add = job.op("add", 0, 30, node=node(5, "add", parent=1, inputs=[tensor(7)], outputs=[tensor(9)]))
    job.work("gemm", 40, 45, by=job.call("cudaLaunchKernel", 10, inside=add))
    job.op("alone", 50, 55)
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
    job = TracedJob(version=version)
    job.node(process_root())
    told = as_json(node(5, "add", parent=1), version)
    said = {attribute["name"]: attribute["value"] for attribute in told["attrs"]}
    job.op("add", 0, 30, node=node(5, "add", parent=1))
    trace = only(job.build(), tmp_path)
    assert trace.attributes_of("add")["op_schema"] == said["op_schema"]
    assert trace.attributes_of("add")["fw_parent"] == said["fw_parent"]
