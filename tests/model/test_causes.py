"""`tracelink._model.causes`."""

from __future__ import annotations

from itertools import pairwise

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracelink._model.causes import CAUSE_IS_TARGET, Causes
from tracelink._model.columns import UNKNOWN
from tracelink._model.events import Edges, Relation

MOST = 12
EDGE = st.tuples(st.integers(0, MOST - 1), st.integers(0, MOST - 1), st.sampled_from(Relation))


def causes(edges: list[tuple[int, int, Relation]], events: int = MOST) -> Causes:
    source, target, relation = np.array(edges, np.int64).reshape(-1, 3).T
    return Causes(Edges(source, target, relation.astype(np.uint8)), events)


@given(st.lists(EDGE), st.lists(st.integers(0, MOST - 1)), st.sampled_from(Relation))
def test_neighbours_are_those_of_a_scan(
    edges: list[tuple[int, int, Relation]], rows: list[int], relation: Relation
) -> None:
    index, asked = causes(edges), np.array(rows, np.int64)
    assert index.targets(asked, relation).tolist() == [
        target for row in rows for source, target, kind in edges if (source, kind) == (row, relation)
    ]
    assert index.sources(asked, relation).tolist() == [
        source for row in rows for source, target, kind in edges if (target, kind) == (row, relation)
    ]


@given(st.lists(EDGE), st.integers(0, MOST - 1), st.sets(st.sampled_from(Relation)))
def test_causes_and_effects_are_those_of_networkx(
    edges: list[tuple[int, int, Relation]], row: int, relations: set[Relation]
) -> None:
    network: networkx.DiGraph[int] = networkx.DiGraph()
    network.add_nodes_from(range(MOST))
    for source, target, relation in edges:
        if relation in relations:
            network.add_edge(*((target, source) if relation in CAUSE_IS_TARGET else (source, target)))
    index, asked = causes(edges), np.array([row])
    itself = {row} if any(row in cycle for cycle in cycles(network)) else set()
    assert (
        set(index.reached(asked, relations, effects=True).tolist())
        == networkx.descendants(network, row) | itself
    )
    assert (
        set(index.reached(asked, relations, effects=False).tolist())
        == networkx.ancestors(network, row) | itself
    )


def cycles(network: networkx.DiGraph[int]) -> list[set[int]]:
    """Events that are effects of themselves."""
    loops = [{row} for row in networkx.nodes_with_selfloops(network)]
    return loops + [part for part in networkx.strongly_connected_components(network) if len(part) > 1]


@given(st.lists(EDGE), st.integers(0, MOST - 1), st.booleans())
def test_a_stack_ends_and_each_event_leads_to_the_next(
    edges: list[tuple[int, int, Relation]], row: int, forward: bool
) -> None:
    stack = causes(edges).stack(row, forward=forward)
    rows = [row for row, _ in stack]
    assert stack[-1] == (row, None)
    assert len(set(rows)) == len(rows)
    for (outer, relation), (inner, _) in pairwise(stack):
        assert relation is not None
        if relation in (Relation.CALLS, Relation.LAUNCHES):
            assert (outer, inner, relation) in edges
        else:
            assert forward
            assert any((within, outer, relation) in edges for within in rows)


@given(
    st.lists(EDGE), st.lists(st.integers(0, MOST - 1)), st.lists(st.booleans(), min_size=MOST, max_size=MOST)
)
def test_many_events_are_followed_as_single_ones(
    edges: list[tuple[int, int, Relation]], rows: list[int], wanted: list[bool]
) -> None:
    index, marked = causes(edges), np.array(wanted)
    single = [int(index.launching(np.array([row]), marked)[0]) for row in rows]
    assert index.launching(np.array(rows * 20, np.int64), marked).tolist() == single * 20


def test_a_cycle_of_calls_has_no_wanted_event() -> None:
    index = causes([(0, 1, Relation.CALLS), (1, 0, Relation.CALLS), (0, 2, Relation.LAUNCHES)])
    assert index.launching(np.array([2]), np.zeros(MOST, np.bool_)).tolist() == [UNKNOWN]


def test_no_edges() -> None:
    index = causes([])
    assert index.reached(np.array([3]), Relation, effects=True).tolist() == []
    assert index.reached(np.array([3]), [], effects=True).tolist() == []
    with pytest.raises(IndexError):
        index.stack(MOST, forward=True)
