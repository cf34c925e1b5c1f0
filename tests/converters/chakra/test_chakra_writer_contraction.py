"""A trace without some of its nodes: what waited for what through them still does."""

from __future__ import annotations

import networkx
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tracelink.converters.chakra.nodes import contracted, taken
from tracelink.converters.chakra.schema import Kind, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable

Before = list[list[int]]
"""For each node the places of those that it waits for, all of them earlier."""


def table(before: Before, attributes: dict[str, Attribute] | None = None) -> NodeTable:
    """Nodes that are called by their places."""
    count = len(before)
    return NodeTable(
        id=np.arange(count) + 1,
        name=np.arange(count, dtype=np.int32),
        type=np.full(count, NodeType.COMP, np.uint8),
        start=np.arange(count) * 10,
        duration=np.arange(count) + 5,
        data=Links.of([[place + 1 for place in places] for places in before]),
        control=Links.of([[place] if place else [] for place in range(count)]),
        strings=[str(place) for place in range(count)],
        attributes=attributes or {},
    )


def without(before: Before, removed: set[int], lanes: dict[int, int] | None = None) -> dict[str, list[str]]:
    """What each node that is left waits for, by name."""
    count = len(before)
    keep = np.array([place not in removed for place in range(count)], np.bool_)
    lane = np.array([(lanes or {}).get(place, place) for place in range(count)], np.int64)
    nodes = contracted(table(before), keep, lane)
    assert nodes.id.tolist() == list(range(1, len(nodes) + 1))
    return {
        nodes.text(row): [nodes.text(number - 1) for number in nodes.data[row]] for row in range(len(nodes))
    }


def reachable(before: Before, kept: list[int]) -> set[tuple[int, int]]:
    """Which kept nodes come before which others, by any path."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(before)))
    graph.add_edges_from((cause, place) for place, causes in enumerate(before) for cause in causes)
    closure = networkx.transitive_closure_dag(graph)
    return {(cause, effect) for cause, effect in closure.edges if cause in kept and effect in kept}


@st.composite
def programs(draw: st.DrawFn) -> tuple[Before, list[int], list[bool]]:
    """Nodes that wait for earlier ones, in a few lanes that need not run in order, and which are kept."""
    count = draw(st.integers(0, 14))
    before = [
        sorted(draw(st.sets(st.integers(0, place - 1), max_size=3))) if place else []
        for place in range(count)
    ]
    lanes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    keep = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return before, lanes, keep


@given(programs())
@example(([[], [], [0, 1], [2]], [0, 0, 1, 0], [True, True, False, True]))
def test_who_comes_before_whom_stays_as_it_was(program: tuple[Before, list[int], list[bool]]) -> None:
    before, lanes, keep = program
    kept = [place for place, wanted in enumerate(keep) if wanted]
    nodes = contracted(table(before), np.array(keep, np.bool_), np.array(lanes, np.int64))
    left = [[number - 1 for number in nodes.data[row]] for row in range(len(nodes))]
    assert all(cause < row for row, causes in enumerate(left) for cause in causes)
    assert all(causes == sorted(set(causes)) for causes in left)
    found = {(kept[cause], kept[effect]) for cause, effect in reachable(left, list(range(len(left))))}
    assert found == reachable(before, kept)


def test_order_passes_through_a_chain_of_nodes_that_are_left_out() -> None:
    assert without([[], [0], [1], [2]], {1, 2}) == {"0": [], "3": ["0"]}


def test_of_a_lane_that_runs_in_order_only_the_last_is_waited_for() -> None:
    stream = {0: 7, 1: 7, 2: 7}
    assert without([[], [0], [1], [0, 2], [3]], {3}, stream) == {"0": [], "1": ["0"], "2": ["1"], "4": ["2"]}


def test_of_a_lane_that_does_not_run_in_order_all_are_waited_for() -> None:
    stream = {0: 7, 1: 7}
    assert without([[], [], [0, 1], [2]], {2}, stream) == {"0": [], "1": [], "3": ["0", "1"]}


def test_what_the_node_before_in_the_lane_waits_for_is_not_stated_again() -> None:
    stream = {1: 7, 2: 7}
    assert without([[], [0], [0, 1]], set(), stream) == {"0": [], "1": ["0"], "2": ["1"]}


def test_columns_of_nodes_that_stay_are_as_they_were_and_control_dependencies_go() -> None:
    numbers = Attribute.of(Kind.INT64, np.array([0, 1, 3]), np.array([10, 11, 13]))
    texts = Attribute.of(Kind.STRING, np.array([1, 2]), ["one", "two"])
    gone = Attribute.of(Kind.STRING, np.array([1]), ["gone"])
    before: Before = [[], [0], [1], [2]]
    nodes = contracted(
        table(before, {"numbers": numbers, "texts": texts, "gone": gone}),
        np.array([True, False, True, True]),
        np.zeros(4, np.int64),
    )
    assert nodes.start.tolist() == [0, 20, 30]
    assert nodes.duration.tolist() == [5, 7, 8]
    assert [nodes.control[row] for row in range(3)] == [[], [], []]
    assert sorted(nodes.attributes) == ["numbers", "texts"]
    assert nodes.attributes["numbers"].rows.tolist() == [0, 2]
    assert list(nodes.attributes["numbers"].values) == [10, 13]
    assert nodes.attributes["texts"].rows.tolist() == [1]
    assert nodes.attributes["texts"].values == ["two"]


def test_an_attribute_of_no_node() -> None:
    assert len(taken(Attribute.of(Kind.INT64, np.empty(0, np.int64), []), np.zeros(3, np.bool_))) == 0


def test_nothing_is_left() -> None:
    assert without([[], [0]], {0, 1}) == {}


def test_a_long_trace_takes_time_in_proportion() -> None:
    count = 60_000
    before = [[place - 1] if place else [] for place in range(count)]
    keep = np.arange(count) % 3 == 0
    nodes = contracted(table(before), keep, np.arange(count) % 4)
    assert nodes.data.ids.tolist() == list(range(1, len(nodes)))
