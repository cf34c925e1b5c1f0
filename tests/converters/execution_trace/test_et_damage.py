"""Files that a crash, a copy or the writer itself has damaged."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.execution_trace import (
    FLAT,
    NEWEST,
    VERSIONS,
    Node,
    as_json,
    as_source,
    node,
    process_root,
    tensor,
    thread_root,
    trace,
)
from tracelink.converters.execution_trace import ExecutionTraceReader
from tracelink.engine import Engine
from tracelink.errors import UnreadableError
from tracelink.model.events import Key
from tracelink.model.trace import RankTrace


def read(data: bytes) -> RankTrace:
    return ExecutionTraceReader().read(as_source(data), Engine())


def ids(result: RankTrace) -> list[int]:
    return result.key(Key.NODE_ID).values.tolist()


def nodes(count: int) -> list[Node]:
    """A chain of nodes, some with names that look like JSON."""
    chain = [
        node(number, "[x]" if number % 3 else 'a "b" {c', number - 1, number, inputs=[tensor()])
        for number in range(3, count)
    ]
    return [thread_root(2), *chain, process_root()]


def with_stand_in(place: int) -> list[Node]:
    """A long trace with one node whose name can be found and replaced."""
    whole = nodes(5000)
    whole[place] = node(whole[place].id, "STAND-IN", whole[place].parent)
    return whole


@cache
def written(count: int, version: str, indent: int | None) -> tuple[bytes, int, list[int]]:
    """A file, where its first node begins, and where each ends."""
    whole = trace(*nodes(count), version=version, indent=indent)
    text, decoder = whole.decode(), json.JSONDecoder()
    begin = text.index('"nodes": [') + len('"nodes": [')
    ends: list[int] = []
    position = begin
    while text[position] != "]":
        if text[position] in " \n,":
            position += 1
        else:
            _, position = decoder.raw_decode(text, position)
            ends.append(position)
    return whole, begin, ends


def check_cut(whole: bytes, cut: int, kept: int, count: int, version: str) -> None:
    result = read(whole[:cut])
    assert ids(result) == [each.id for each in nodes(count)[:kept]]
    assert [finding.reason for finding in result.findings if finding.reason != "no_nodes"] == ["cut_off"]
    texts = [json.loads(bytes(text)) for _, run in result.payloads[0].batches() for text in run]
    assert texts == [as_json(each, version) for each in nodes(count)[:kept]]


@settings(deadline=None)
@given(st.data(), st.integers(3, 9), st.sampled_from(VERSIONS), st.sampled_from([None, 1]))
def test_every_node_before_the_cut_is_kept(
    data: st.DataObject, count: int, version: str, indent: int | None
) -> None:
    whole, begin, ends = written(count, version, indent)
    cut = data.draw(st.integers(begin, whole.rindex(b"]")))
    check_cut(whole, cut, bisect_right(ends, cut), count, version)


@pytest.mark.parametrize("version", [FLAT, NEWEST])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9, 0.99, 0.9999])
def test_every_node_before_a_late_cut_is_kept(version: str, share: float) -> None:
    whole, _, ends = written(6000, version, None)
    cut = int(len(whole) * share)
    check_cut(whole, cut, bisect_right(ends, cut), 6000, version)


@pytest.mark.parametrize("cut", [0, 1, 30, 80])
def test_nothing_readable_is_an_error(cut: int) -> None:
    with pytest.raises(UnreadableError) as caught:
        read(trace(*nodes(5))[:cut])
    assert caught.value.source == "et_0.json"
    assert caught.value.advice


def test_parents_that_the_cut_took_are_no_finding_of_their_own() -> None:
    whole = trace(thread_root(2), node(6, parent=5), node(5, parent=2), process_root())
    result = read(whole[: whole.index(b'"id": 5') - 3])
    assert ids(result) == [2, 6]
    (finding,) = result.findings
    assert finding.reason == "cut_off"
    assert "2 nodes" in finding.message


def test_a_cut_compressed_file() -> None:
    whole = gzip.compress(trace(*nodes(5000)))
    result = read(whole[: len(whole) // 2])
    assert 500 < len(result.events) < 4998
    assert [finding.reason for finding in result.findings] == ["cut_off"]


@pytest.mark.parametrize("version", [FLAT, NEWEST])
@pytest.mark.parametrize("place", [1, 2500, -1])
def test_names_that_the_writer_did_not_escape(version: str, place: int) -> None:
    listed = with_stand_in(place)
    whole = trace(*listed, version=version).replace(b"STAND-IN", rb'step "1" of C:\data')
    result = read(whole)
    texts = result.strings.texts()
    assert ids(result) == [one.id for one in listed]
    assert texts[result.events.name[place]] == r'step "1" of C:\data'
    assert [finding.reason for finding in result.findings] == ["repaired"]
    assert result.source.header["finish_ts"]


@pytest.mark.parametrize("place", [1, 2500, -1])
def test_a_node_beyond_repair_costs_only_itself(place: int) -> None:
    listed = with_stand_in(place)
    whole = trace(*listed).replace(b'"STAND-IN", "ctrl_deps"', b'"x", ctrl deps')
    result = read(whole)
    assert ids(result) == [one.id for one in listed if one.name != "STAND-IN"]
    assert [finding.reason for finding in result.findings] == ["damaged", "missing_parent"]
    assert result.source.header["finish_ts"]


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    whole = trace(thread_root(2), node(5, "STAND-IN"), process_root()).replace(b"STAND-IN", b"\xff\xfe")
    result = read(whole)
    assert "\ufffd\ufffd" in result.strings.texts()
    texts = [bytes(text) for _, run in result.payloads[0].batches() for text in run]
    assert json.loads(texts[1])["name"] == "\ufffd\ufffd"


def test_a_value_that_is_nested_without_end() -> None:
    deep = "[" * 5000 + "]" * 5000
    whole = trace(thread_root(2), node(5, inputs=[("STAND-IN", [], "GenericList[]")]), process_root())
    result = read(whole.replace(b'"STAND-IN"', deep.encode()))
    assert ids(result) == [2, 1]
    assert [finding.reason for finding in result.findings] == ["damaged"]


def test_a_long_chain_of_parents() -> None:
    chain = [node(number, parent=number - 1) for number in range(3, 20_000)]
    result = read(trace(thread_root(2), *reversed(chain), process_root()))
    assert len(result.key(Key.NODE_PARENT)) == len(chain) + 1
    assert result.findings == []
