"""Linked traces that a crash, a copy or a disk has damaged."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.execution_trace import as_source
from builders.linked_trace import Entry, linked_trace, node, read, root, work
from tracelink.converters.chakra_json import ChakraJsonReader
from tracelink.engine import Engine
from tracelink.errors import UnreadableError
from tracelink.model.events import Key
from tracelink.model.trace import RankTrace

COUNT = 40


def entries(count: int) -> list[Entry]:
    """A chain of nodes, of which every third is work that the one before launched."""
    chain = [
        work(number, "gemm", number - 1, ts=f"{number}.125")
        if number % 3 == 0
        else node(number, 'a "b" {c', number - 1 - (number % 3 == 1), ts=f"{number}.25")
        for number in range(2, count)
    ]
    return [root(), node(1, ts="1"), *chain]


def ids(trace: RankTrace) -> list[int]:
    return trace.key(Key.NODE_ID).values.tolist()


@cache
def written(indent: int | None) -> tuple[bytes, int, list[int]]:
    """A file, where its first node begins, and where each ends."""
    whole = linked_trace(*entries(COUNT), indent=indent, baseTimeNanoseconds=10**18)
    text, decoder = whole.decode(), json.JSONDecoder()
    begin = text.index('"nodes": [') + len('"nodes": [')
    ends, position = [], begin
    while text[position] != "]":
        if text[position] in " \n,":
            position += 1
        else:
            _, position = decoder.raw_decode(text, position)
            ends.append(position)
    return whole, begin, ends


@settings(deadline=None)
@given(st.sampled_from([None, 4]), st.floats(0, 1))
def test_everything_before_a_cut_is_read(indent: int | None, share: float) -> None:
    whole, begin, ends = written(indent)
    cut = begin + round(share * (ends[-1] - begin))
    trace = read(whole[:cut])
    kept = bisect_right(ends, cut)
    assert ids(trace) == list(range(kept))
    assert "cut_off" in {finding.reason for finding in trace.findings}
    assert trace.events.start[1:].tolist() == read(whole).events.start[1:kept].tolist()
    # A cut loses no caller and no launch of what is before it: they stand before what they called.
    assert len(trace.edges) == max(kept - 1, 0)


def test_a_gzip_stream_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = gzip.compress(linked_trace(*entries(3000), baseTimeNanoseconds=0))
    trace = read(whole[: len(whole) // 2])
    assert 100 < len(trace.events) < 3000
    assert ids(trace) == list(range(len(trace.events)))
    assert [finding.reason for finding in trace.findings] == ["cut_off"]


def test_a_node_beyond_mending_costs_only_itself_and_what_hangs_on_it() -> None:
    whole = linked_trace(root(), node(1, "STAND-IN", ts="1"), work(2, "gemm", 1, ts="2"), node(3, ts="3"))
    damaged = whole.replace(b'"STAND-IN"', b'"x" : : [')
    trace = read(damaged)
    assert ids(trace) == [0, 2, 3]
    assert {"damaged", "without_launch"} <= {finding.reason for finding in trace.findings}


@pytest.mark.parametrize("other", ["null", '"text"', "{}", '{"name": "no id", "ts": 3}'])
def test_what_is_no_node_is_counted(other: str) -> None:
    whole = linked_trace(root(), node(1, ts="1"), node(2, ts="2"), baseTimeNanoseconds=0)
    trace = read(whole.replace(b'"nodes": [', b'"nodes": [' + other.encode() + b", "))
    assert ids(trace) == [0, 1, 2]
    assert {finding.reason: finding.count for finding in trace.findings} == {"not_a_node": 1}
    assert trace.edges.source.tolist() == [0, 0]


def test_the_earlier_node_of_an_id_is_meant() -> None:
    trace = read(linked_trace(root(), node(1, ts="1"), node(1, ts="2"), work(2, "gemm", 1, ts="3")))
    launch = trace.edges.source[trace.edges.target == 3]
    assert launch.tolist() == [1]
    assert "duplicate_node" in {finding.reason for finding in trace.findings}


@pytest.mark.parametrize("data", [b"", b'{"schema": "1.1.0"', b'{"schema": "1.1.0", "pid": 1}'])
def test_without_nodes_there_is_nothing_to_read(data: bytes) -> None:
    with pytest.raises(UnreadableError):
        ChakraJsonReader().read(as_source(data), Engine())
