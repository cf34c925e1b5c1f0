"""Files that torch wrote, and the shipped samples, against a plain JSON parser."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from builders.data import shared
from tracelink import samples
from tracelink.converters.execution_trace import ExecutionTraceReader
from tracelink.engine import Engine
from tracelink.io.sources import Request, discover
from tracelink.model.events import Key

SHIPPED = [samples.path(name) / f"et_{rank}.json.gz" for name in ("cpu_job", "gpu_pair") for rank in (0, 1)]
REAL = [
    *(f"pairs/dlrm8/host.{rank}.json.gz" for rank in (0, 7)),
    "pairs/resnet_110_nccl/host.0.json.gz",
    "pairs/simple_add/host.0.json.gz",
    "pairs/torch213_gloo2/host.1.json.gz",
    *(f"matched8/et_{rank}.json.gz" for rank in range(8)),
    "torch_trace/matched_small/et.json.gz",
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_samples(path: Path) -> None:
    check(path)


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str) -> None:
    check(shared(name))


def check(path: Path) -> None:
    (source,) = discover(Request([(str(path), "")])).sources
    reader = ExecutionTraceReader()
    assert reader.recognises(source.head(), source.name)
    result = reader.read(source, Engine())
    with gzip.open(path) as file:
        whole = json.load(file)
    texts = result.strings.texts()
    assert [texts[name] for name in result.events.name] == [node["name"] for node in whole["nodes"]]
    for key, name, default in (
        (Key.NODE_ID, "id", 0),
        (Key.RECORD_FUNCTION, "rf_id", 0),
        (Key.SEQUENCE, "seq_id", -1),
        (Key.FORWARD_THREAD, "fw_tid", 0),
        (Key.SCOPE, "scope", 0),
    ):
        written = [value(node, name) for node in whole["nodes"]]
        assert result.key(key).dense(len(written), default).tolist() == written
    assert [json.loads(bytes(text)) for _, run in result.payloads[0].batches() for text in run] == whole[
        "nodes"
    ]
    assert result.source.version == whole["schema"]
    assert result.findings == []


def value(node: dict[str, Any], name: str) -> Any:
    attributes = {attribute["name"]: attribute["value"] for attribute in node.get("attrs", [])}
    return (node | attributes)[name]
