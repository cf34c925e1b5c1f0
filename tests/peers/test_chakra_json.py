"""Chakra traces in the hands of `chakra_converter`.

Its dependencies do not suit every environment: give it one of its own and name that one's Python. The converter
needs only one of them.

    python -m venv VENV && VENV/bin/pip install protobuf && VENV/bin/pip install --no-deps mlc-chakra
    TRACELINK_CHAKRA_PYTHON=VENV/bin/python pytest -m peer tests/peers/test_chakra_json.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.data import foreign, shared
from tracelink import load, samples
from tracelink._api.functions import merge
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.schema import Name, NodeType

pytestmark = pytest.mark.peer

CONVERTER = "chakra.src.converter.converter"
READ = """
import json, sys
from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node
from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd

file = openFileRd(sys.argv[1])
decodeMessage(file, GlobalMetadata())
node, nodes = Node(), {}
while decodeMessage(file, node):
    nodes[node.id] = [node.name, node.type, list(node.data_deps)]
    node = Node()
print(json.dumps(nodes))
"""
COLLECTIVE, SEND, RECEIVE = 7, 5, 6


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("TRACELINK_CHAKRA_PYTHON", sys.executable)
    if subprocess.run([found, "-c", f"import {CONVERTER}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{found} has no package mlc-chakra; name one that has it in TRACELINK_CHAKRA_PYTHON")
    return found


@pytest.fixture(
    params=["cpu_job", "gpu_pair", *foreign("resnet_110_nccl", "dlrm8", "simple_add", "torch213_gloo2")]
)
def traces(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """The execution trace and the profile of one rank."""
    if request.param in samples.names():
        folder = samples.path(request.param)
        return folder / "et_0.json.gz", folder / "kineto_0.json.gz"
    folder = shared(f"pairs/{request.param}")
    return folder / "host.0.json.gz", folder / "device.0.json.gz"


def converted(python: str, path: Path) -> dict[int, Any]:
    """Name, type and dependencies of every node that the converter makes of a file."""
    output = path.with_suffix(".et")
    log = ["--log-filename", str(path.with_suffix(".log"))]
    run(python, "-m", CONVERTER, *log, "PyTorch", "--input", str(path), "--output", str(output))
    nodes = json.loads(run(python, "-c", READ, str(output)))
    return {int(number): node for number, node in nodes.items()}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_converter_keeps_all_work(python: str, traces: tuple[Path, Path], tmp_path: Path) -> None:
    trace, profile = traces
    (output,) = merge(load(et=trace, kineto=profile), tmp_path / "rank.et.json").outputs
    content = json.loads(Path(output.path).read_bytes())
    nodes = converted(python, Path(output.path))
    for node in content["nodes"]:
        if "cat" in node:
            name, kind, dependencies = nodes[node["id"]]
            assert name == node["name"]
            assert dependencies == [node["ctrl_deps"]]
            assert (kind in (COLLECTIVE, SEND, RECEIVE)) is ("nccl" in name)
        elif node.get("inter_thread_dep") is not None:
            assert node["inter_thread_dep"] in nodes[node["id"]][2]
    assert not {dependency for _, _, needed in nodes.values() for dependency in needed} - nodes.keys()


def test_the_converter_finds_the_communication_that_we_write(
    python: str, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    trace, profile = traces
    graph = load(et=trace, kineto=profile)
    (linked,) = merge(graph, tmp_path / "rank.et.json").outputs
    converted(python, Path(linked.path))
    theirs = communication(tmp_path / "rank.et.et")
    merge(graph, tmp_path / "job", to="chakra")
    ours = communication(tmp_path / "job.0.et")
    on_devices = [one for one in ours if one[0] == "kernel"]
    assert [one[1:] for one in on_devices] == [one[1:] for one in theirs]


def communication(path: Path) -> list[tuple[object, ...]]:
    """Category, sort, type and bytes of each node of communication, in order."""
    with path.open("rb") as file:
        nodes = decode(file).nodes
    rows = np.flatnonzero(nodes.of_type(NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_COLL))
    columns = [nodes.attribute(name).integers(len(nodes), -1) for name in (Name.COMM_TYPE, Name.COMM_SIZE)]
    categories = nodes.attribute(Name.CATEGORY).strings(len(nodes))
    return [
        (categories[row], int(nodes.type[row]), *(int(column[row]) for column in columns))
        for row in rows.tolist()
    ]
