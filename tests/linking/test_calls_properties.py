"""What holds of the calls of any rank: nothing is lost, nothing is twice, and the reports add up."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.trace import TraceBuilder
from tracelink.linking.rank import LinkedRank, link_rank
from tracelink.model.columns import UNKNOWN
from tracelink.model.communications import CALL_ROWS
from tracelink.model.events import EventKind, TrackKind

TIMES = st.integers(0, 300)
LENGTHS = st.integers(1, 80)
NUMBERS = st.fixed_dictionaries({"group": st.sampled_from(["0", "1"]), "sequence": st.integers(1, 4)})
OPERATORS = st.sampled_from(
    ["c10d::allreduce_", "c10d::send", "record_param_comms", "_c10d_functional::all_reduce"]
)
RECORDED = st.sampled_from(["nccl:all_reduce", "gloo:all_reduce", "nccl:send 0->1", "nccl:coalesced"])
ANNOTATIONS = st.sampled_from(["nccl:all_reduce", "gloo:all_reduce", "nccl:coalesced"])
KERNELS = st.sampled_from(["ncclDevKernel_AllReduce_Sum(x)", "ncclDevKernel_SendRecv(x)"])


@st.composite
def linked_ranks(draw: st.DrawFn) -> LinkedRank:
    """Operators, annotations, launches, kernels, nodes and entries, with no regard to what goes together."""
    build = TraceBuilder()
    tracks = [0, build.track(TrackKind.THREAD, "101")]
    stream = build.track(TrackKind.STREAM, "20")
    for name, start, length, track, number in draw(
        st.lists(
            st.tuples(OPERATORS, TIMES, LENGTHS, st.sampled_from(tracks), st.none() | NUMBERS), max_size=8
        )
    ):
        row = build.op(name, start, start + length, track, record_function=start)
        if number and name == "record_param_comms":
            build.communication(row, operation=draw(st.sampled_from(["allreduce", "wait"])), **number)
    for name, start, length, track in draw(
        st.lists(st.tuples(ANNOTATIONS, TIMES, LENGTHS, st.sampled_from(tracks)), max_size=6)
    ):
        build.annotation(name, start, start + length, track)
    for name, start, track, correlation in draw(
        st.lists(st.tuples(KERNELS, TIMES, st.sampled_from(tracks), st.integers(1, 9)), max_size=6)
    ):
        build.event(EventKind.RUNTIME, "cudaLaunchKernel", start, start + 1, track, correlation=correlation)
        build.kernel(name, start + 5, start + 9, stream, correlation=correlation + draw(st.integers(0, 1)))
    nodes = st.tuples(OPERATORS, TIMES, st.none() | NUMBERS)
    for name, identity, number in draw(st.lists(nodes, max_size=6, unique_by=lambda node: node[1])):
        row = build.node(name, identity, record_function=identity)
        if number and name == "record_param_comms":
            build.communication(row, operation="allreduce", **number)
    for name, created, number in draw(st.lists(st.tuples(RECORDED, TIMES, NUMBERS), max_size=6)):
        keys = {"group": number["group"], "collective_sequence": number["sequence"], "p2p_sequence": 0}
        build.communication(build.record(name, created, **keys), operation=name, **number)
    return link_rank(build.build())


@settings(max_examples=60)
@given(linked_ranks())
def test_every_entry_is_in_one_call_or_closes_a_group(rank: LinkedRank) -> None:
    texts = rank.trace.strings.texts()
    records = [row for row, kind in enumerate(rank.trace.events.kind.tolist()) if kind == EventKind.RECORD]
    found = [row for row in rank.calls.record.tolist() if row != UNKNOWN]
    assert len(found) == len(set(found))
    missing = set(records) - set(found)
    assert {texts[rank.trace.events.name[row]] for row in missing} <= {"nccl:coalesced"}


@settings(max_examples=60)
@given(linked_ranks())
def test_every_kernel_and_annotation_is_told_of_and_reports_add_up(rank: LinkedRank) -> None:
    for report in rank.reports:
        assert report.linked + sum(report.unlinked.values()) == report.candidates, report
        assert min([report.linked, *report.unlinked.values(), *report.notes.values()]) >= 0, report


@settings(max_examples=60)
@given(linked_ranks())
def test_every_call_rests_on_something_and_stands_in_order(rank: LinkedRank) -> None:
    calls = rank.calls
    there = [getattr(calls, name) != UNKNOWN for name in CALL_ROWS]
    assert all(any(column[place] for column in there) for place in range(len(calls)))
    order = [
        next((time for time in times if time > -1), None)
        for times in zip(calls.enqueued.tolist(), calls.start.tolist(), calls.end.tolist(), strict=True)
    ]
    timed = [time for time in order if time is not None]
    assert timed == sorted(timed)
