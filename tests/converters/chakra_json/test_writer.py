"""`tracelink.converters.chakra_json.writer`."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builders.chakra import TracedJob, named, written
from builders.data import shared, traces
from builders.execution_trace import VERSIONS, Node, as_json, node, process_root, tensor, thread_root
from builders.job import START
from tracelink import load, samples
from tracelink._api.functions import merge
from tracelink._model.errors import UsageError
from tracelink._model.events import EventKind, Relation
from tracelink._model.findings import Severity
from tracelink._model.graph import EventGraph

# Which files are written, and what is told of what is not in them.


def two_ranks() -> TracedJob:
    job = TracedJob()
    for rank in (0, 3):
        job.node(process_root(), rank=rank)
        job.op(f"of {rank}", 0, 5, node=node(5, f"of {rank}", parent=1), rank=rank)
    return job


def reasons(graph: EventGraph, folder: Path) -> dict[str, int]:
    _, output = written(graph, folder)
    return {finding.reason: finding.count for finding in output.findings}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_for_each_rank(tmp_path: Path, jobs: int) -> None:
    outputs = merge(two_ranks().build(), tmp_path / "out", to="chakra-json", jobs=jobs).outputs
    assert [(Path(output.path).name, output.rank, output.events) for output in outputs] == [
        ("et_0.json", 0, 2),
        ("et_3.json", 3, 2),
    ]
    for output in outputs:
        text = Path(output.path).read_bytes()
        assert output.bytes == len(text)
        assert named(json.loads(text), f"of {output.rank}")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["et_0.json", "et_3.json"]


def test_the_suffix_means_this_format_and_compression(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    (output,) = merge(job.build(), tmp_path / "one.et.json.gz").outputs
    assert output.format == "chakra-json"
    assert json.loads(gzip.decompress(Path(output.path).read_bytes()))["nodes"]


def test_several_ranks_do_not_fit_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
    with pytest.raises(
        UsageError, match=r"takes one file, but 2 ranks have an execution trace.*-o DIRECTORY/"
    ):
        merge(two_ranks().build(), "-", to="chakra-json")
    assert not buffer.getvalue()


def test_a_rank_without_an_execution_trace_is_an_error_of_that_rank(tmp_path: Path) -> None:
    job = two_ranks()
    job.op("profiled", 0, 1, rank=5)
    outputs = merge(job.build(), tmp_path / "out", to="chakra-json", jobs=1).outputs
    assert [output.rank for output in outputs] == [0, 3]
    (finding,) = (finding for output in outputs for finding in output.findings)
    assert (finding.severity, finding.reason) == (Severity.ERROR, "no_execution_trace")
    assert "rank 5" in finding.message


def test_no_execution_trace_at_all_is_a_usage_error(tmp_path: Path) -> None:
    job = TracedJob()
    job.op("profiled", 0, 1)
    with pytest.raises(UsageError, match="no rank has an execution trace"):
        merge(job.build(), tmp_path / "x.et.json")
    assert not list(tmp_path.iterdir())


def test_device_work_that_cannot_be_placed_is_counted(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    outer = job.op("outer", 0, 10, node=node(5, "outer", parent=1))
    job.work("placed", 20, 21, by=job.call("cudaLaunchKernel", 1, inside=outer))
    job.work("before the recording", 0, 1)
    job.work("of nobody", 30, 31, by=job.call("cudaLaunchKernel", 15))
    job.work("of nobody", 31, 32, by=job.call("cudaLaunchKernel", 16))
    assert reasons(job.build(), tmp_path) == {"without_launch": 1, "without_node": 2}


def test_a_trace_without_a_profile_has_no_times(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    assert reasons(job.build(), tmp_path) == {"without_times": 1}


def test_kernels_that_the_converter_does_not_know_are_told(tmp_path: Path) -> None:
    job = TracedJob()
    job.node(process_root())
    outer = job.op("nccl:all_to_all", 0, 10, node=node(5, "nccl:all_to_all", parent=1))
    launch = job.call("cudaLaunchKernel", 1, inside=outer)
    job.work("ncclKernel_SendRecv_RING", 20, 21, by=launch)
    job.work("ncclDevKernel_Reduce_Sum", 30, 31, by=launch)
    content, output = written(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_SendRecv_RING")
    assert {finding.reason: finding.example for finding in output.findings} == {
        "renamed_kernel": "ncclKernel_SendRecv_RING",
        "refused_kernel": "ncclDevKernel_Reduce_Sum",
    }


def test_nodes_that_are_the_same_operator_do_no_harm(tmp_path: Path) -> None:
    """Record-function ids that stand twice in a file."""
    job = TracedJob()
    job.node(process_root())
    job.node(thread_root())
    outer = job.op("outer", 0, 10, node=node(5, "outer"))
    job.node(node(6, "outer"), outer)
    job.work("placed", 20, 21, by=job.call("cudaLaunchKernel", 1, inside=outer))
    job.work("copied", 20, 21, by=job.call("cudaMemcpy", 3, inside=outer), kind=EventKind.MEMCPY)
    content, _ = written(job.build(), tmp_path)
    assert [entry["name"] for entry in content["nodes"][2:]] == ["outer", "placed", "copied", "outer"]
    assert [entry["inclusive_dur"] for entry in content["nodes"][2:]] == [10, 1, 1, 10]


# What the nodes of a Chakra trace say, node by node.


SCHEMA = json.loads((files("tracelink.schemas") / "chakra-json.schema.json").read_text())
GPU_ONLY = ("cat", "ph", "stream")
TIMES = ("inclusive_dur", "exclusive_dur", "ts", "inter_thread_dep")


@pytest.fixture
def job() -> TracedJob:
    """A job that has its roots."""
    return rooted(TracedJob())


def rooted(job: TracedJob) -> TracedJob:
    job.node(thread_root(2))
    job.node(process_root())
    return job


def document(graph: EventGraph, folder: Path) -> dict[str, Any]:
    content, _ = written(graph, folder)
    jsonschema.validate(content, SCHEMA)
    return content


def attributes(node: dict[str, Any]) -> dict[str, Any]:
    return {attribute["name"]: attribute["value"] for attribute in node["attrs"]}


def test_nodes_are_numbered_in_the_order_in_which_they_began(job: TracedJob, tmp_path: Path) -> None:
    job.node(node(30, "inner", parent=20))
    job.node(node(20, "outer", parent=2))
    nodes = document(job.build(), tmp_path)["nodes"]
    assert [(node["id"], node["ctrl_deps"]) for node in nodes] == [(0, 0), (1, 0), (2, 1), (3, 2)]
    assert [node["name"] for node in nodes][2:] == ["outer", "inner"]


def test_a_node_that_is_not_linked_keeps_its_own_keys_only(job: TracedJob, tmp_path: Path) -> None:
    written_node = node(5, "aten::add", inputs=[tensor()], extra={"pg_name": "3", "in_msg_nelems": 64})
    job.node(written_node)
    found = named(document(job.build(), tmp_path), "aten::add")
    assert found == as_json(written_node) | {"id": 2, "ctrl_deps": 1}


def test_a_linked_node_has_times_in_microseconds(tmp_path: Path) -> None:
    job = rooted(TracedJob(header={"baseTimeNanoseconds": START - 2_000}))
    outer = job.op("outer", 0.5, 10.5, node=node(5, "outer"))
    job.op("inner", 2, 5.25, node=node(6, "inner", parent=5), inside=outer)
    content = document(job.build(), tmp_path)
    assert [named(content, "outer")[key] for key in TIMES] == [10.0, 6.75, 2.5, None]
    assert [named(content, "inner")[key] for key in TIMES] == [3.25, 3.25, 4.0, None]


def test_times_count_from_the_epoch_where_the_profile_has_no_base(job: TracedJob, tmp_path: Path) -> None:
    job.op("outer", 0, 1, node=node(5, "outer"))
    assert named(document(job.build(), tmp_path), "outer")["ts"] == START / 1000


def test_an_unfinished_operator_has_no_duration(job: TracedJob, tmp_path: Path) -> None:
    job.op("outer", 0, -0.001, node=node(5, "outer"))
    assert named(document(job.build(), tmp_path), "outer")["inclusive_dur"] == 0


def test_own_time_is_without_what_is_written_inside(job: TracedJob, tmp_path: Path) -> None:
    """Children that overlap count once, one that ends later counts up to the end, unlinked ones do not count."""
    outer = job.op("outer", 0, 100, node=node(5, "outer"))
    job.op("a", 10, 40, node=node(6, "a"), inside=outer)
    job.op("b", 30, 50, node=node(7, "b"), inside=outer)
    job.op("c", 90, 120, node=node(8, "c"), inside=outer)
    unlinked = job.op("python", 55, 85, inside=outer, kind=EventKind.PYTHON)
    job.op("d", 60, 65, node=node(9, "d"), inside=unlinked)
    assert named(document(job.build(), tmp_path), "outer")["exclusive_dur"] == 100 - 40 - 10 - 5


def test_device_work_follows_its_node_in_order_of_start(job: TracedJob, tmp_path: Path) -> None:
    values = {"inputs": [tensor(3)], "outputs": [tensor(4)]}
    outer = job.op("outer", 0, 100, node=node(5, "outer", handle=9, **values))
    graph_launch = job.call("cudaGraphLaunch", 10, inside=outer)
    job.work("late", 300, 307.5, 20, by=graph_launch)
    job.work("early", 200, 201, by=graph_launch)
    job.work("set", 250, 251, by=graph_launch, kind=EventKind.MEMSET)
    job.work("copy", 260, 261, by=job.call("cudaMemcpyAsync", 20, inside=outer), kind=EventKind.MEMCPY)
    job.op("next", 110, 115, node=node(6, "next"))
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


def test_device_work_stands_under_the_innermost_node_around_its_launch(
    job: TracedJob, tmp_path: Path
) -> None:
    outer = job.op("record_param_comms", 0, 100, node=node(5, "record_param_comms"))
    inner = job.op("nccl:all_reduce", 10, 60, node=node(6, "nccl:all_reduce", parent=5), inside=outer)
    python = job.op("python", 12, 52, inside=inner, kind=EventKind.PYTHON)
    job.work("ncclDevKernel_AllReduce", 200, 209, by=job.call("cudaLaunchKernelExC", 15, inside=python))
    job.work("other", 210, 219, by=job.call("cudaLaunchKernel", 70, inside=outer))
    content = document(job.build(), tmp_path)
    by_id = {node["id"]: node["name"] for node in content["nodes"]}
    assert by_id[named(content, "ncclDevKernel_AllReduce")["ctrl_deps"]] == "nccl:all_reduce"
    assert by_id[named(content, "other")["ctrl_deps"]] == "record_param_comms"


def test_a_kernel_has_the_group_that_its_profile_names(job: TracedJob, tmp_path: Path) -> None:
    outer = job.op("nccl:all_reduce", 0, 10, node=node(5, "nccl:all_reduce"))
    launch = job.call("cudaLaunchKernel", 1, inside=outer)
    job.work("ncclDevKernel_AllReduce", 20, 25, by=launch, args={"Process Group Name": 'tensor "1"'})
    job.work("add", 30, 35, by=launch)
    content = document(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_AllReduce")["pg_name"] == 'tensor "1"'
    assert "pg_name" not in named(content, "add")


def test_a_communication_kernel_has_the_group_of_the_record_around_it(job: TracedJob, tmp_path: Path) -> None:
    record = node(5, "record_param_comms", extra={"collective_name": "allreduce", "pg_name": "12"})
    outer = job.op("record_param_comms", 0, 50, node=record)
    inner = job.op("nccl:all_reduce", 0, 10, node=node(6, "nccl:all_reduce", parent=5), inside=outer)
    job.work("ncclDevKernel_AllReduce", 20, 25, by=job.call("cudaLaunchKernel", 1, inside=inner))
    job.work("copy", 30, 35, by=job.call("cudaMemcpyAsync", 2, inside=inner), kind=EventKind.MEMCPY)
    content = document(job.build(), tmp_path)
    assert named(content, "ncclDevKernel_AllReduce")["pg_name"] == "12"
    assert "pg_name" not in named(content, "copy")
    assert attributes(named(content, "record_param_comms"))["pg_name"] == "12"


def test_a_backward_node_waits_for_its_forward_node_on_the_other_thread(
    job: TracedJob, tmp_path: Path
) -> None:
    forward = job.op("forward", 0, 10, node=node(5, "forward"))
    backward = job.op("backward", 20, 25, "autograd", node=node(6, "backward"))
    job.edge(backward, Relation.BACKWARD_OF, forward)
    job.work("gradient", 40, 45, by=job.call("cudaLaunchKernel", 21, inside=backward, thread="autograd"))
    content = document(job.build(), tmp_path)
    expected = named(content, "forward")["id"]
    assert named(content, "backward")["inter_thread_dep"] == expected
    assert named(content, "gradient")["inter_thread_dep"] == expected
    assert named(content, "forward")["inter_thread_dep"] is None


def test_a_node_does_not_wait_for_its_own_thread(job: TracedJob, tmp_path: Path) -> None:
    first = job.op("first", 0, 10, node=node(5, "first"))
    second = job.op("second", 20, 25, node=node(6, "second"))
    job.edge(second, Relation.DEPENDS_ON, first)
    nodes = document(job.build(), tmp_path)["nodes"]
    assert [node.get("inter_thread_dep") for node in nodes] == [None] * 4


def test_of_two_nodes_that_wait_for_each_other_one_does_not(job: TracedJob, tmp_path: Path) -> None:
    """Their thread comes to `inner`, which began after `other`, before it comes to `early`."""
    job.node(thread_root(3, thread=2))
    job.node(node(5, "outer"))
    job.op("inner", 30, 35, node=node(9, "inner", parent=5))
    early = job.op("early", 10, 15, node=node(6, "early"))
    other = job.op("other", 20, 25, "other", node=node(8, "other", parent=3, thread=2))
    job.edge(other, Relation.DEPENDS_ON, early)
    content, output = written(job.build(), tmp_path)
    assert named(content, "other")["inter_thread_dep"] is None
    assert [finding.reason for finding in output.findings] == ["circular_wait"]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_becomes_one_that_the_converter_accepts(version: str, tmp_path: Path) -> None:
    job = rooted(TracedJob(version=version))
    values = {"inputs": [tensor()], "outputs": [(1.5, [], "Double")]}
    job.op("aten::add", 0, 1, node=Node(5, "aten::add", 2, handle=9, sequence=4, scope=1, **values))
    found = named(document(job.build(), tmp_path), "aten::add")
    expected = as_json(Node(5, "aten::add", 2, **values), "1.0.2-chakra.0.0.4")
    for key in ("inputs", "outputs"):
        assert {name: found[key][name] for name in ("values", "shapes", "types")} == expected[key]
    wanted = {"rf_id": 9, "fw_parent": 0, "seq_id": 4, "scope": 1, "tid": 1, "fw_tid": 0, "op_schema": ""}
    assert attributes(found).items() >= wanted.items()
    assert found.keys() == {"id", "name", "ctrl_deps", "inputs", "outputs", "attrs", *TIMES}


def test_attributes_that_the_converter_needs_are_added(job: TracedJob, tmp_path: Path) -> None:
    bare = {
        "id": 5,
        "name": "bare",
        "ctrl_deps": 2,
        "attrs": [{"name": "scope", "type": "uint64", "value": 7}],
    }
    row = job.node(node(5, "bare"))
    job.payloads[row] = json.dumps(bare).encode()
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


def test_a_node_without_its_text_is_written_from_what_is_known(job: TracedJob, tmp_path: Path) -> None:
    row = job.op("lost", 0, 5)
    job.payloads[job.node(node(5, "lost"), row)] = b""
    assert named(document(job.build(), tmp_path), "lost")["inclusive_dur"] == 5


def test_unusual_text_is_kept(job: TracedJob, tmp_path: Path) -> None:
    job.node(
        node(5, 'a "b" \\ \N{SNOWMAN} \t', inputs=[(float("1e300"), [], "Double"), ("inf", [], "Double")])
    )
    found = document(job.build(), tmp_path)["nodes"][2]
    assert found["name"] == 'a "b" \\ \N{SNOWMAN} \t'
    assert found["inputs"]["values"] == [1e300, "inf"]


def test_layout_is_compact(tmp_path: Path) -> None:
    job = rooted(TracedJob())
    row = job.node(node(5, "aten::add", inputs=[tensor()]))
    job.payloads[row] = json.dumps(json.loads(job.payloads[row]), indent=2).encode()
    _, output = written(job.build(), tmp_path)
    assert (
        b'{"id":2,"name":"aten::add","ctrl_deps":1,"inputs":{"values":[[7,8,'
        in Path(output.path).read_bytes()
    )


def test_a_call_of_the_library_that_the_profile_lacks_has_the_kernel(job: TracedJob, tmp_path: Path) -> None:
    outer = job.op("record_param_comms", 0, 100, node=node(5, "record_param_comms"))
    job.node(node(6, "nccl:all_reduce", parent=5))
    job.work("ncclDevKernel_AllReduce", 200, 209, by=job.call("cudaLaunchKernelExC", 15, inside=outer))
    job.work("copy", 210, 219, by=job.call("cudaMemcpyAsync", 70, inside=outer))
    content = document(job.build(), tmp_path)
    by_id = {node["id"]: node["name"] for node in content["nodes"]}
    assert by_id[named(content, "ncclDevKernel_AllReduce")["ctrl_deps"]] == "nccl:all_reduce"
    assert by_id[named(content, "copy")["ctrl_deps"]] == "record_param_comms"


# Jobs that ran, and the shipped samples, from file to file against a plain reading of the inputs.


DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
SLACK_US = 0.001
MANY = 200
"""As many nodes from either end stand for all of them: a validator of schemas takes its time."""

Entry = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """An execution trace, the profile of the same rank, and the file made of both."""

    nodes: list[Entry]
    events: list[Entry]
    written: list[Entry]
    base_us: float

    @property
    def on_cpu(self) -> list[Entry]:
        return [node for node in self.written if "cat" not in node]

    @property
    def on_gpu(self) -> list[Entry]:
        return [node for node in self.written if "cat" in node]

    def launches(self) -> dict[int, Entry]:
        """The runtime call of each GPU node, by id; found by name, stream and nearest time."""
        calls = {
            event["args"]["correlation"]: event
            for event in self.events
            if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
        }
        work = defaultdict(list)
        for event in self.events:
            if event.get("cat") in DEVICE_WORK and event["args"]["correlation"] in calls:
                work[plain(event["name"]), event["tid"], event["dur"]].append(event)
        found = {}
        for piece in self.on_gpu:
            candidates = work[piece["name"], piece["stream"], piece["inclusive_dur"]]
            best = min(candidates, key=lambda event: abs(event["ts"] - self.time(piece)))
            assert abs(best["ts"] - self.time(piece)) < 1
            found[piece["id"]] = calls[best["args"]["correlation"]]
        return found

    def time(self, node: Entry) -> float:
        """When a node began, on the profile's own clock."""
        return float(node["ts"]) - self.base_us

    def encloses(self, node: Entry, call: Entry) -> bool:
        start, slack = self.time(node), SLACK_US + (1 if self.base_us else 0)
        end = start + node["inclusive_dur"]
        return start - slack <= call["ts"] and call["ts"] + call["dur"] <= end + slack


def plain(name: str) -> str:
    return name.replace("ncclKernel_SendRecv", "ncclDevKernel_SendRecv")


def pair(trace: Path, profile: Path, folder: Path) -> Pair:
    graph = load(et=trace, kineto=profile, jobs=1)
    (output,) = merge(graph, folder / "rank.et.json", jobs=1).outputs
    content = json.loads(Path(output.path).read_bytes())
    jsonschema.validate(content | {"nodes": content["nodes"][:MANY] + content["nodes"][-MANY:]}, SCHEMA)
    profiled = read(profile)
    first = next(node for node in content["nodes"] if "ts" in node)
    base = profiled.get("baseTimeNanoseconds", 0) / 1000 if first["ts"] > 1e15 else 0.0
    return Pair(read(trace)["nodes"], profiled["traceEvents"], content["nodes"], base)


def read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    content: dict[str, Any] = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return content


def check(made: Pair) -> None:
    originals = sorted(made.nodes, key=lambda node: node["id"])
    assert [node["id"] for node in made.written] == list(range(len(made.written)))
    assert [node["name"] for node in made.on_cpu] == [node["name"] for node in originals]
    renumbered = {old["id"]: new["id"] for old, new in zip(originals, made.on_cpu, strict=True)}
    for old, new in zip(originals, made.on_cpu, strict=True):
        assert new["ctrl_deps"] == renumbered[old.get("ctrl_deps", old.get("parent"))]
        if "attrs" in old:
            assert {key: new[key] for key in ("inputs", "outputs", "attrs")} == {
                key: old[key] for key in ("inputs", "outputs", "attrs")
            }
    assert sum(node.get("exclusive_dur", 0) < 0 for node in made.written) == 0
    check_device_work(made)


def check_device_work(made: Pair) -> None:
    """Each piece stands under a node around its launch, of whose children none is around it too."""
    children = defaultdict(list)
    for piece in made.on_cpu:
        if "ts" in piece:
            children[piece["ctrl_deps"]].append(piece)
    calls = made.launches()
    for piece in made.on_gpu:
        call = calls[piece["id"]]
        parent = made.written[piece["ctrl_deps"]]
        assert made.encloses(parent, call)
        if not made.base_us:
            assert not any(made.encloses(child, call) for child in children[parent["id"]])


def categories(nodes: Iterable[Entry]) -> Counter[str]:
    return Counter(node["cat"] for node in nodes)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ["cpu_job", "gpu_pair"])
def test_samples(name: str, rank: int, tmp_path: Path) -> None:
    folder = samples.path(name)
    made = pair(folder / f"et_{rank}.json.gz", folder / f"kineto_{rank}.json.gz", tmp_path)
    check(made)
    profiled = Counter(event["cat"] for event in made.events if event.get("cat") in DEVICE_WORK)
    assert categories(made.on_gpu) == profiled
    assert sum("ts" in node for node in made.on_cpu) > 0.9 * len(made.nodes)


def test_nccl_with_arguments(tmp_path: Path) -> None:
    made = pair(traces("gpu_pair/et_0.json.gz"), traces("gpu_pair/kineto_0.json.gz"), tmp_path)
    communication = [node for node in made.on_gpu if "nccl" in node["name"]]
    assert Counter(node["pg_name"] for node in communication) == {"0": 6, "1": 10}
    assert {made.written[node["ctrl_deps"]]["name"].split(":")[0] for node in communication} == {"nccl"}
    assert sum(node.get("inter_thread_dep") is not None for node in made.on_cpu) == 20


@pytest.mark.parametrize("rank", [0, 1])
def test_nccl_of_2023(rank: int, tmp_path: Path) -> None:
    made = pair(traces(f"gpu_2023/et_{rank}.json.gz"), traces(f"gpu_2023/kineto_{rank}.json"), tmp_path)
    check(made)
    communication = [node for node in made.on_gpu if "nccl" in node["name"]]
    assert Counter(made.written[node["ctrl_deps"]]["name"] for node in communication) == {
        "nccl:all_reduce": 12,
        "nccl:_all_gather_base": 2,
        ("nccl:send 0->1", "nccl:recv 1<-0")[rank]: 2,
    }


@pytest.mark.foreign
@pytest.mark.parametrize("name", ["simple_add", "torch213_gloo2", "resnet_110_nccl", "dlrm8"])
def test_recorded_pairs(name: str, tmp_path: Path) -> None:
    folder = shared(f"pairs/{name}")
    check(pair(folder / "host.0.json.gz", folder / "device.0.json.gz", tmp_path))
