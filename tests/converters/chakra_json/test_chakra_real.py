"""Jobs that ran, and the shipped samples, from file to file against a plain reading of the inputs."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from builders.data import shared
from tracelink import load, samples
from tracelink.api import write

SCHEMA = json.loads((files("tracelink.schemas") / "chakra-json.schema.json").read_text())
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
        for node in self.on_gpu:
            candidates = work[node["name"], node["stream"], node["inclusive_dur"]]
            best = min(candidates, key=lambda event: abs(event["ts"] - self.time(node)))
            assert abs(best["ts"] - self.time(node)) < 1
            found[node["id"]] = calls[best["args"]["correlation"]]
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
    (output,) = write(graph, folder / "rank.et.json", jobs=1)
    content = json.loads(Path(output.path).read_bytes())
    jsonschema.validate(content | {"nodes": content["nodes"][:MANY] + content["nodes"][-MANY:]}, SCHEMA)
    profiled = read(profile)
    first = next(node for node in content["nodes"] if "ts" in node)
    base = profiled.get("baseTimeNanoseconds", 0) / 1000 if first["ts"] > 1e15 else 0.0
    return Pair(read(trace)["nodes"], profiled["traceEvents"], content["nodes"], base)


def read(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        content: dict[str, Any] = json.load(file)
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
    for node in made.on_cpu:
        if "ts" in node:
            children[node["ctrl_deps"]].append(node)
    calls = made.launches()
    for node in made.on_gpu:
        call = calls[node["id"]]
        parent = made.written[node["ctrl_deps"]]
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


def test_resnet_with_nccl(tmp_path: Path) -> None:
    folder = shared("pairs/resnet_110_nccl")
    made = pair(folder / "host.0.json.gz", folder / "device.0.json.gz", tmp_path)
    check(made)
    assert categories(made.on_gpu) == {"kernel": 2700, "gpu_memcpy": 960, "gpu_memset": 114}
    communication = [node for node in made.on_gpu if "nccl" in node["name"]]
    assert len(communication) == 21
    assert {node["pg_name"] for node in communication} == {"0"}
    assert {made.written[node["ctrl_deps"]]["name"].split(":")[0] for node in communication} == {"nccl"}
    assert sum(node.get("inter_thread_dep") is not None for node in made.on_cpu) == 543


@pytest.mark.parametrize("rank", range(8))
def test_dlrm(rank: int, tmp_path: Path) -> None:
    folder = shared("pairs/dlrm8")
    made = pair(folder / f"host.{rank}.json.gz", folder / f"device.{rank}.json.gz", tmp_path)
    check(made)
    communication = [node for node in made.on_gpu if "nccl" in node["name"]]
    assert Counter(made.written[node["ctrl_deps"]]["name"] for node in communication) == {
        "nccl:all_to_all": 5,
        "nccl:all_reduce": 3,
    }


@pytest.mark.parametrize("name", ["simple_add", "torch213_gloo2"])
def test_other_pairs(name: str, tmp_path: Path) -> None:
    folder = shared(f"pairs/{name}")
    check(pair(folder / "host.0.json.gz", folder / "device.0.json.gz", tmp_path))
