"""Whole columns against the plain way to compute them."""

from __future__ import annotations

from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink.converters.chakra.host import exclusive
from tracelink.converters.chakra_json.plan import reached
from tracelink.converters.chakra_json.schema import accepted_version, current_name, is_refused
from tracelink.converters.chakra_json.writer import microseconds
from tracelink.model.graph import innermost

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(-1, 9)), max_size=10)


@given(INTERVALS)
def test_own_time(intervals: list[tuple[int, int, int]]) -> None:
    """The nanoseconds of each interval that none of those directly inside it holds."""
    around = [outer if outer < len(intervals) else -1 for _, _, outer in intervals]
    spans = [set(range(start, start + length)) for start, length, _ in intervals]
    expected = [
        len(
            span - set().union(*(other for other, outer in zip(spans, around, strict=True) if outer == place))
        )
        for place, span in enumerate(spans)
    ]
    start = np.array([start for start, _, _ in intervals], np.int64)
    end = start + np.array([length for _, length, _ in intervals], np.int64)
    assert exclusive(start, end, np.array(around, np.int64)).tolist() == expected


@given(st.lists(st.tuples(st.integers(-1, 14), st.booleans()), max_size=15))
def test_innermost(rows: list[tuple[int, bool]]) -> None:
    caller = [outer if outer < len(rows) else -1 for outer, _ in rows]
    marked = [mark for _, mark in rows]

    def plain(row: int) -> int:
        seen: set[int] = set()
        while row != -1 and not marked[row]:
            if row in seen:
                return -1
            seen.add(row)
            row = caller[row]
        return row

    found = innermost(np.array(caller, np.int64), np.array(marked, np.bool_))
    assert found.tolist() == [plain(row) for row in range(len(rows))]


def test_innermost_of_a_deep_chain() -> None:
    length = 100_000
    marked = np.zeros(length, np.bool_)
    marked[0] = True
    assert not innermost(np.arange(-1, length - 1), marked).any()


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, b"0.000"),
        (1, b"0.001"),
        (30_975, b"30.975"),
        (-1_500, b"-1.500"),
        (2**62, b"4611686018427387.904"),
    ],
)
def test_microseconds(nanoseconds: int, text: bytes) -> None:
    assert microseconds(nanoseconds) == text


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.0.1", "1.0.2-chakra.0.0.4"),
        ("1.0.2-chakra.0.0.4", "1.0.2-chakra.0.0.4"),
        ("1.0.4-chakra.0.0.4", "1.0.3-chakra.0.0.4"),
        ("1.1.0", "1.1.0-chakra.0.0.4"),
        ("1.1.1-chakra.1.0.0", "1.1.1-chakra.0.0.4"),
        ("2.0.0", "1.1.1-chakra.0.0.4"),
        ("", "1.1.1-chakra.0.0.4"),
    ],
)
def test_accepted_version(version: str, accepted: str) -> None:
    assert accepted_version(version) == accepted


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False),
        ("ncclKernel_Reduce_Scatter_RING_LL", False),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", False),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", False),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", True),
        ("ncclDevKernel_Generic(ncclDevComm*)", True),
        ("void at::native::reduce_kernel", False),
    ],
)
def test_names_that_the_converter_refuses(name: str, refused: bool) -> None:
    assert is_refused(current_name(name)) is refused


@given(st.lists(st.integers(0, 8), max_size=9), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_waits_for_what_is_reached_earlier_make_no_circle(
    parents: list[int], waits: list[tuple[int, int]]
) -> None:
    parent = np.array([0, *(min(outer, place) for place, outer in enumerate(parents))], np.int64)
    latest = reached(parent)
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    for top in np.flatnonzero(parent == 0).tolist()[1:]:
        graph.add_edges_from((later, earlier) for earlier, later in pairwise(preorder(parent.tolist(), top)))
    for one, other in waits:
        if max(one, other) < len(parent) and latest[other] < latest[one]:
            graph.add_edge(one, other)
    assert networkx.is_directed_acyclic_graph(graph)


def preorder(parent: list[int], node: int) -> list[int]:
    inside = [child for child, outer in enumerate(parent) if outer == node and child != node]
    return [node, *(found for child in inside for found in preorder(parent, child))]
