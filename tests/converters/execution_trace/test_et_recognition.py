"""Which files are execution traces."""

from __future__ import annotations

import json

import pytest

from builders.execution_trace import VERSIONS, process_root, thread_root, trace
from tracelink.converters.execution_trace import ExecutionTraceReader

OTHERS = {
    "a Kineto trace": {"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "nodes", "ts": 1}]},
    "a graph of something else": {"nodes": [{"id": 1, "name": "x"}], "edges": []},
    "a chakra workload": {"workload_graph": [{"Id": 1, "Name": "x", "data_deps": []}]},
    "a recorder dump": {"version": "2.10", "pg_config": {}, "entries": []},
}


@pytest.mark.parametrize("version", [*VERSIONS, "9.9.9"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf", b"\n "])
def test_every_version_is_recognised(version: str, indent: int | None, first: bytes) -> None:
    data = first + trace(thread_root(2), process_root(), version=version, indent=indent)
    assert ExecutionTraceReader().recognises(data[: 64 << 10], "x")


def test_an_empty_trace_is_recognised() -> None:
    assert ExecutionTraceReader().recognises(trace(), "x")


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_files_are_not(other: object) -> None:
    assert not ExecutionTraceReader().recognises(json.dumps(other).encode(), "et_0.json")
