"""Edges that a source states itself, beside those that linkers find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders.trace import TraceBuilder, pairs
from tracelink.linking.rank import LinkedRank, link_rank
from tracelink.model.events import EventKind, Relation, TrackKind
from tracelink.model.graph import STATED


def linked(build: TraceBuilder) -> tuple[LinkedRank, dict[str, tuple[int, int, int]]]:
    """The rank, and of each report what was linked, of how many, and how much of it was stated."""
    rank = link_rank(build.build())
    reports = rank.reports
    return rank, {r.relation: (r.linked, r.candidates, r.notes.get(STATED, 0)) for r in reports}


def test_what_nesting_finds_too_stands_once() -> None:
    build = TraceBuilder()
    outer, inner = build.op("outer", 0, 9), build.op("inner", 1, 5)
    build.edge(Relation.CALLS, outer, inner)
    rank, reports = linked(build)
    assert pairs(rank.edges) == [(outer, inner)]
    assert reports == {"calls": (1, 1, 1)}


def test_a_stated_caller_is_the_only_one() -> None:
    build = TraceBuilder()
    outer, inner = build.op("outer", 0, 9), build.op("inner", 1, 5)
    root = build.node("[pytorch|profiler|execution_trace|thread]", 2)
    leaf = build.op("leaf", 2, 3)
    build.edge(Relation.CALLS, root, inner)
    rank, _ = linked(build)
    assert pairs(rank.edges) == sorted([(root, inner), (inner, leaf)])
    assert outer not in rank.edges.source


def test_nodes_without_times_call_each_other_where_the_source_says_so() -> None:
    build = TraceBuilder()
    root, child = build.node("root", 1), build.node("aten::add", 2)
    build.edge(Relation.CALLS, root, child)
    rank, reports = linked(build)
    assert pairs(rank.edges, Relation.CALLS) == [(root, child)]
    assert reports == {"calls": (1, 1, 1)}


def test_work_whose_launch_is_stated_needs_no_correlation() -> None:
    build = TraceBuilder()
    stream = build.track(TrackKind.STREAM, "7")
    operator = build.op("aten::mm", 0, 5)
    call = build.event(EventKind.RUNTIME, "cudaLaunchKernel", 1, 2, correlation=4)
    stated = build.kernel("gemm", 6, 8, stream, correlation=4)
    other = build.kernel("gemm", 9, 10, stream, correlation=4)
    build.edge(Relation.LAUNCHES, operator, stated)
    rank, reports = linked(build)
    assert pairs(rank.edges, Relation.LAUNCHES) == [(operator, stated), (call, other)]
    assert reports["launches"] == (2, 2, 1)
    assert rank.findings == []


def test_an_arrow_that_is_drawn_and_stated_stands_once() -> None:
    build = TraceBuilder()
    first = build.op("first", 0, 1, flow_out=3)
    second = build.op("second", 2, 3, flow_in=3)
    third = build.op("third", 4, 5)
    for _ in range(2):
        build.edge(Relation.DEPENDS_ON, second, first)
        build.edge(Relation.DEPENDS_ON, third, second)
        build.edge(Relation.WAITS_FOR, third, second)
    rank, reports = linked(build)
    assert pairs(rank.edges, Relation.DEPENDS_ON) == [(second, first), (third, second)]
    assert pairs(rank.edges, Relation.WAITS_FOR) == [(third, second)]
    assert reports["stated"] == (2, 2, 2)


EDGES = st.lists(
    st.tuples(
        st.sampled_from([Relation.DEPENDS_ON, Relation.WAITS_FOR, Relation.SAME, Relation.TAKES_PART_IN]),
        st.integers(0, 4),
        st.integers(0, 4),
    )
)


@given(EDGES)
def test_every_stated_edge_is_there_once_and_no_other(stated: list[tuple[Relation, int, int]]) -> None:
    build = TraceBuilder()
    for number in range(5):
        build.op("op", 10 * number, 10 * number + 1)
    for relation, source, target in stated:
        build.edge(relation, source, target)
    edges = link_rank(build.build()).edges
    told = zip(edges.relation.tolist(), edges.source.tolist(), edges.target.tolist(), strict=True)
    assert sorted(told) == sorted(set(stated))
