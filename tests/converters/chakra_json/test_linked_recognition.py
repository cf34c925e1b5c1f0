"""Which files are linked traces: never a plain execution trace, and never both."""

from __future__ import annotations

import json

import pytest

from builders import execution_trace as et
from builders.linked_trace import Entry, linked_trace, node, root, untimed, work
from tracelink.converters.chakra_json import ChakraJsonReader
from tracelink.converters.execution_trace import ExecutionTraceReader

HEAD = 64 << 10


def recognised_by(data: bytes) -> list[str]:
    readers = (ChakraJsonReader(), ExecutionTraceReader())
    return [reader.name for reader in readers if reader.recognises(data[:HEAD], "x.json")]


def many_untimed(count: int) -> list[Entry]:
    """More than a head holds, as where the profiler began late."""
    return [untimed(number) for number in range(1, count)]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("version", [version for version in et.VERSIONS if version != et.FLAT])
def test_a_node_with_times_makes_a_linked_trace(version: str, indent: int | None) -> None:
    data = linked_trace(untimed(5), node(6, ts="1"), version=version, indent=indent)
    assert recognised_by(data) == ["chakra-json"]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("first", [b"", b"\xef\xbb\xbf", b"\n "])
def test_the_first_nodes_are_often_such_as_no_profile_saw(first: bytes, indent: int | None) -> None:
    nodes = [root(), *many_untimed(3000), node(3000, ts="1"), work(3001, "gemm", 3000, ts="2")]
    data = first + linked_trace(*nodes, indent=indent)
    assert b"inclusive_dur" not in data[:HEAD]
    assert recognised_by(data) == ["chakra-json"]


def test_the_header_of_this_writer_says_it_too() -> None:
    assert recognised_by(linked_trace(*many_untimed(3000), baseTimeNanoseconds=0)) == ["chakra-json"]


@pytest.mark.parametrize("version", et.VERSIONS)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_plain_execution_trace_is_none(version: str, indent: int | None) -> None:
    nodes = (et.thread_root(), et.node(5, 'x "inclusive_dur" "ts":'), et.process_root())
    assert recognised_by(et.trace(*nodes, version=version, indent=indent)) == ["execution-trace"]


def test_a_plain_execution_trace_may_have_a_node_zero() -> None:
    assert recognised_by(et.trace(et.node(0), et.process_root())) == ["execution-trace"]


@pytest.mark.parametrize(
    "other",
    [
        {"schemaVersion": 1, "baseTimeNanoseconds": 5, "traceEvents": [{"ph": "X", "ts": 1}]},
        {"workload_graph": [{"Id": 1, "inter_thread_dep": 3}]},
        {"inclusive_dur": 3},
        [{"nodes": [{"inclusive_dur": 3}]}],
    ],
)
def test_other_files_are_none(other: object) -> None:
    assert recognised_by(json.dumps(other).encode()) == []
