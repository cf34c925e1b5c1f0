"""What the nodes of a Chakra trace say, node by node."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builders.chakra import Job, named, written
from builders.execution_trace import VERSIONS, Node, as_json, node, process_root, tensor, thread_root
from builders.graph import START
from tracelink.model.events import EventKind, Relation
from tracelink.model.graph import EventGraph

SCHEMA = json.loads((files("tracelink.schemas") / "chakra-json.schema.json").read_text())
GPU_ONLY = ("cat", "ph", "stream")
TIMES = ("inclusive_dur", "exclusive_dur", "ts", "inter_thread_dep")


@pytest.fixture
def job() -> Job:
    """A job that has its roots."""
    return rooted(Job())


def rooted(job: Job) -> Job:
    job.node(thread_root(2))
    job.node(process_root())
    return job


def document(graph: EventGraph, folder: Path) -> dict[str, Any]:
    content, _ = written(graph, folder)
    jsonschema.validate(content, SCHEMA)
    return content


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    return {attribute["name"]: attribute["value"] for attribute in node["attrs"]}


def test_nodes_are_numbered_in_the_order_in_which_they_began(job: Job, tmp_path: Path) -> None:
    job.node(node(30, "inner", parent=20))
    job.node(node(20, "outer", parent=2))
    nodes = document(job.build(), tmp_path)["nodes"]
    assert [(node["id"], node["ctrl_deps"]) for node in nodes] == [(0, 0), (1, 0), (2, 1), (3, 2)]
    assert [node["name"] for node in nodes][2:] == ["outer", "inner"]


def test_a_node_that_is_not_linked_keeps_its_own_keys_only(job: Job, tmp_path: Path) -> None:
    written_node = node(5, "aten::add", inputs=[tensor()], extra={"pg_name": "3", "in_msg_nelems": 64})
    job.node(written_node)
    found = named(document(job.build(), tmp_path), "aten::add")
    assert found == as_json(written_node) | {"id": 2, "ctrl_deps": 1}


def test_a_linked_node_has_times_in_microseconds(tmp_path: Path) -> None:
    job = rooted(Job(baseTimeNanoseconds=START - 2_000))
    outer = job.operator("outer", 0.5, 10, node(5, "outer"))
    job.operator("inner", 2, 3.25, node(6, "inner", parent=5), caller=outer)
    content = document(job.build(), tmp_path)
    assert [named(content, "outer")[key] for key in TIMES] == [10.0, 6.75, 2.5, None]
    assert [named(content, "inner")[key] for key in TIMES] == [3.25, 3.25, 4.0, None]


def test_times_count_from_the_epoch_where_the_profile_has_no_base(job: Job, tmp_path: Path) -> None:
    job.operator("outer", 0, 1, node(5, "outer"))
    assert named(document(job.build(), tmp_path), "outer")["ts"] == START / 1000


def test_an_unfinished_operator_has_no_duration(job: Job, tmp_path: Path) -> None:
    job.operator("outer", 0, -0.001, node(5, "outer"))
    assert named(document(job.build(), tmp_path), "outer")["inclusive_dur"] == 0


def test_own_time_is_without_what_is_written_inside(job: Job, tmp_path: Path) -> None:
    """Children that overlap count once, one that ends later counts up to the end, unlinked ones do not count."""
    outer = job.operator("outer", 0, 100, node(5, "outer"))
    job.operator("a", 10, 30, node(6, "a"), caller=outer)
    job.operator("b", 30, 20, node(7, "b"), caller=outer)
    job.operator("c", 90, 30, node(8, "c"), caller=outer)
    unlinked = job.operator("python", 55, 30, caller=outer, kind=EventKind.PYTHON)
    job.operator("d", 60, 5, node(9, "d"), caller=unlinked)
    assert named(document(job.build(), tmp_path), "outer")["exclusive_dur"] == 100 - 40 - 10 - 5


def test_device_work_follows_its_node_in_order_of_start(job: Job, tmp_path: Path) -> None:
    values = {"inputs": [tensor(3)], "outputs": [tensor(4)]}
    outer = job.operator("outer", 0, 100, node(5, "outer", handle=9, **values))
    graph_launch = job.runtime("cudaGraphLaunch", 10, caller=outer)
    job.kernel("late", 300, 7.5, graph_launch, stream="20")
    job.kernel("early", 200, 1, graph_launch)
    job.kernel("set", 250, 1, graph_launch, kind=EventKind.MEMSET)
    job.kernel("copy", 260, 1, job.runtime("cudaMemcpyAsync", 20, caller=outer), kind=EventKind.MEMCPY)
    job.operator("next", 110, 5, node(6, "next"))
    content = document(job.build(), tmp_path)
    parent = named(content, "outer")
    work = content["nodes"][3:7]
    assert [(node["name"], node["cat"]) for node in work] == [
        ("early", "kernel"),
        ("set", "gpu_memset"),
        ("copy", "gpu_memcpy"),
        ("late", "kernel"),
    ]
    assert [node["id"] for node in content["nodes"]] == list(range(8))
    late = work[-1]
    assert late["ctrl_deps"] == parent["id"]
    assert (late["ph"], late["stream"], late["inclusive_dur"], late["exclusive_dur"]) == ("X", 20, 7.5, 7.5)
    for key in ("inputs", "outputs", "attrs"):
        assert late[key] == parent[key]
    assert not any(key in parent for key in GPU_ONLY)


def test_device_work_stands_under_the_innermost_node_around_its_launch(job: Job, tmp_path: Path) -> None:
    outer = job.operator("record_param_comms", 0, 100, node(5, "record_param_comms"))
    inner = job.operator("nccl:all_reduce", 10, 50, node(6, "nccl:all_reduce", parent=5), caller=outer)
    python = job.operator("python", 12, 40, caller=inner, kind=EventKind.PYTHON)
    job.kernel("ncclDevKernel_AllReduce", 200, 9, job.runtime("cudaLaunchKernelExC", 15, caller=python))
    job.kernel("other", 210, 9, job.runtime("cudaLaunchKernel", 70, caller=outer))
    content = document(job.build(), tmp_path)
    by_id = {node["id"]: node["name"] for node in content["nodes"]}
    assert by_id[named(content, "ncclDevKernel_AllReduce")["ctrl_deps"]] == "nccl:all_reduce"
    assert by_id[named(content, "other")["ctrl_deps"]] == "record_param_comms"


def test_a_kernel_has_the_group_that_its_profile_names(job: Job, tmp_path: Path) -> None:
    outer = job.operator("nccl:all_reduce", 0, 10, node(5, "nccl:all_reduce"))
    launch = job.runtime("cudaLaunchKernel", 1, caller=outer)
    job.kernel("ncclDevKernel_AllReduce", 20, 5, launch, **{"Process Group Name": 'tensor "1"'})
    job.kernel("add", 30, 5, launch)
    content = document(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_AllReduce")["pg_name"] == 'tensor "1"'
    assert "pg_name" not in named(content, "add")


def test_a_communication_kernel_has_the_group_of_the_record_around_it(job: Job, tmp_path: Path) -> None:
    record = node(5, "record_param_comms", extra={"collective_name": "allreduce", "pg_name": "12"})
    outer = job.operator("record_param_comms", 0, 50, record)
    inner = job.operator("nccl:all_reduce", 0, 10, node(6, "nccl:all_reduce", parent=5), caller=outer)
    job.kernel("ncclDevKernel_AllReduce", 20, 5, job.runtime("cudaLaunchKernel", 1, caller=inner))
    job.kernel("copy", 30, 5, job.runtime("cudaMemcpyAsync", 2, caller=inner), kind=EventKind.MEMCPY)
    content = document(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_AllReduce")["pg_name"] == "12"
    assert "pg_name" not in named(content, "copy")
    assert attributes(named(content, "record_param_comms"))["pg_name"] == "12"


def test_a_backward_node_waits_for_its_forward_node_on_the_other_thread(job: Job, tmp_path: Path) -> None:
    forward = job.operator("forward", 0, 10, node(5, "forward"))
    backward = job.operator("backward", 20, 5, node(6, "backward"), thread="autograd")
    job.edge(backward, Relation.BACKWARD_OF, forward)
    job.kernel("gradient", 40, 5, job.runtime("cudaLaunchKernel", 21, caller=backward, thread="autograd"))
    content = document(job.build(), tmp_path)
    expected = named(content, "forward")["id"]
    assert named(content, "backward")["inter_thread_dep"] == expected
    assert named(content, "gradient")["inter_thread_dep"] == expected
    assert named(content, "forward")["inter_thread_dep"] is None


def test_a_node_does_not_wait_for_its_own_thread(job: Job, tmp_path: Path) -> None:
    first = job.operator("first", 0, 10, node(5, "first"))
    second = job.operator("second", 20, 5, node(6, "second"))
    job.edge(second, Relation.DEPENDS_ON, first)
    nodes = document(job.build(), tmp_path)["nodes"]
    assert [node.get("inter_thread_dep") for node in nodes] == [None] * 4


def test_of_two_nodes_that_wait_for_each_other_one_does_not(job: Job, tmp_path: Path) -> None:
    """Their thread comes to `inner`, which began after `other`, before it comes to `early`."""
    job.node(thread_root(3, thread=2))
    job.node(node(5, "outer"))
    job.operator("inner", 30, 5, node(9, "inner", parent=5))
    early = job.operator("early", 10, 5, node(6, "early"))
    other = job.operator("other", 20, 5, node(8, "other", parent=3, thread=2), thread="other")
    job.edge(other, Relation.DEPENDS_ON, early)
    content, output = written(job.build(), tmp_path)
    assert named(content, "other")["inter_thread_dep"] is None
    assert [finding.reason for finding in output.findings] == ["circular_wait"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_becomes_one_that_the_converter_accepts(version: str, tmp_path: Path) -> None:
    job = rooted(Job(version))
    values = {"inputs": [tensor()], "outputs": [(1.5, [], "Double")]}
    job.operator("aten::add", 0, 1, Node(5, "aten::add", 2, handle=9, sequence=4, scope=1, **values))
    found = named(document(job.build(), tmp_path), "aten::add")
    expected = as_json(Node(5, "aten::add", 2, **values), "1.0.2-chakra.0.0.4")
    for key in ("inputs", "outputs"):
        assert {name: found[key][name] for name in ("values", "shapes", "types")} == expected[key]
    wanted = {"rf_id": 9, "fw_parent": 0, "seq_id": 4, "scope": 1, "tid": 1, "fw_tid": 0, "op_schema": ""}
    assert attributes(found).items() >= wanted.items()
    assert found.keys() == {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs", *TIMES}


def test_attributes_that_the_converter_needs_are_added(job: Job, tmp_path: Path) -> None:
    bare = {
        "id": 5,
        "name": "bare",
        "ctrl_deps": 2,
        "attrs": [{"name": "scope", "type": "uint64", "value": 7}],
    }
    row = job.node(node(5, "bare"))
    job.builder.payloads[row] = json.dumps(bare).encode()
    found = named(document(job.build(), tmp_path), "bare")
    assert attributes(found) == {
        "scope": 7,
        "rf_id": 0,
        "fw_parent": 0,
        "seq_id": -1,
        "tid": 0,
        "fw_tid": 0,
        "op_schema": "",
    }
    assert found["inputs"] == {"values": [], "shapes": [], "types": []}


def test_a_node_without_its_text_is_written_from_what_is_known(job: Job, tmp_path: Path) -> None:
    row = job.operator("lost", 0, 5)
    job.builder.payloads[job.node(node(5, "lost"), row)] = b""
    assert named(document(job.build(), tmp_path), "lost")["inclusive_dur"] == 5


def test_unusual_text_is_kept(job: Job, tmp_path: Path) -> None:
    job.node(
        node(5, 'a "b" \\ \N{SNOWMAN} \t', inputs=[(float("1e300"), [], "Double"), ("inf", [], "Double")])
    )
    found = document(job.build(), tmp_path)["nodes"][2]
    assert found["name"] == 'a "b" \\ \N{SNOWMAN} \t'
    assert found["inputs"]["values"] == [1e300, "inf"]


def test_layout_is_compact(tmp_path: Path) -> None:
    job = rooted(Job())
    row = job.node(node(5, "aten::add", inputs=[tensor()]))
    job.builder.payloads[row] = json.dumps(json.loads(job.builder.payloads[row]), indent=2).encode()
    _, output = written(job.build(), tmp_path)
    assert (
        b'{"id":2,"name":"aten::add","ctrl_deps":1,"inputs":{"values":[[7,8,'
        in Path(output.path).read_bytes()
    )


def test_a_call_of_the_library_that_the_profile_lacks_has_the_kernel(job: Job, tmp_path: Path) -> None:
    outer = job.operator("record_param_comms", 0, 100, node(5, "record_param_comms"))
    job.node(node(6, "nccl:all_reduce", parent=5))
    job.kernel("ncclDevKernel_AllReduce", 200, 9, job.runtime("cudaLaunchKernelExC", 15, caller=outer))
    job.kernel("copy", 210, 9, job.runtime("cudaMemcpyAsync", 70, caller=outer))
    content = document(job.build(), tmp_path)
    by_id = {node["id"]: node["name"] for node in content["nodes"]}
    assert by_id[named(content, "ncclDevKernel_AllReduce")["ctrl_deps"]] == "nccl:all_reduce"
    assert by_id[named(content, "copy")["ctrl_deps"]] == "record_param_comms"
