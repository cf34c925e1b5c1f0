"""Annotations that only state data of a phase of torch.compile: arguments of the operator of the phase."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracelink
from builders.data import foreign, traces
from builders.trace import TraceBuilder, pairs
from tracelink._link.phase_data import ExtendedPayloads
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._model.events import EventKind, Relation, Track, TrackKind
from tracelink._model.trace import ListedPayloads, Payload, SourceInfo


def linked(build: TraceBuilder, *, events: int = 0) -> LinkedRank:
    """With `{"row": N}` as the arguments of each event."""
    payloads = ListedPayloads([b'{"row": %d}' % row for row in range(len(build.rows))])
    info = SourceInfo("built.json", "built", rank=0, events=events)
    return link_rank(replace(build.trace(), payloads=[payloads], sources=[info]))


def shown(rank: LinkedRank) -> list[tuple[str, dict[str, object]]]:
    """Name and arguments of each event."""
    ((_, texts),) = rank.trace.payloads[0].batches()
    names = rank.trace.strings.texts()
    return [
        (names[name], json.loads(bytes(texts[number])))
        for name, number in zip(
            rank.trace.events.name.tolist(), rank.trace.events.payload.tolist(), strict=True
        )
    ]


def folded(rank: LinkedRank) -> dict[str, int]:
    return {one.reason: one.count for one in rank.findings if one.reason.startswith("phase_data")}


def test_data_are_arguments_of_the_operator_around_them() -> None:
    build = TraceBuilder()
    build.op("dynamo", 0, 100)
    build.annotation("dynamo_data: fn_name=f(a, b), compile_id=0/0", 1, 2)
    build.op("inner (dynamo_timed)", 10, 20)
    build.annotation("inner_data: compile_id=0/0", 11, 12)
    build.annotation("inner_data: compile_id=0/1", 13, 14)
    build.annotation("inner_data: free text", 15, 16)
    build.op("aten::add", 30, 40)
    rank = linked(build, events=7)
    assert shown(rank) == [
        ("dynamo", {"row": 0, "fn_name": "f(a, b)", "compile_id": "0/0"}),
        ("inner (dynamo_timed)", {"row": 2, "compile_id": "0/0, 0/1", "data": "free text"}),
        ("aten::add", {"row": 6}),
    ]
    assert pairs(rank.edges, Relation.CALLS) == [(0, 1), (0, 2)]
    assert folded(rank) == {"phase_data": 4}
    assert rank.trace.source.events == 3


def test_data_without_the_operator_of_their_phase_are_slices() -> None:
    build = TraceBuilder()
    build.annotation("load_data: batch=1", 0, 1)
    build.op("dynamo", 2, 9)
    build.annotation("load_data: batch=2", 3, 4)
    build.annotation("dynamo_data: x=1", 5, 8)
    build.op("aten::add", 6, 7)
    rank = linked(build)
    assert len(rank.trace.events) == 5
    assert folded(rank) == {"phase_data_without_operator": 3}


def test_what_a_compile_log_states_of_the_same_phase_is_not_repeated() -> None:
    build = TraceBuilder()
    build.tracks.append(Track(TrackKind.THREAD, build.tracks[0].process, "compiler"))
    phase = build.event(
        EventKind.COMPILATION, "dynamo", 0, 100, 1, compile_id="0/0", compiled_function="step"
    )
    build.op("dynamo", 1, 99)
    build.annotation("dynamo_data: fn_name=step, compile_id=0/0, size=3", 2, 3)
    build.op("dynamo", 120, 130)
    build.annotation("dynamo_data: compile_id=0/0", 121, 122)
    rank = linked(build)
    assert pairs(rank.edges, Relation.SAME) == [(phase, 1)]
    assert shown(rank) == [
        ("dynamo", {"row": 0}),
        ("dynamo", {"row": 1, "size": "3"}),
        ("dynamo", {"row": 3, "compile_id": "0/0"}),
    ]


def test_nodes_of_folded_annotations_are_left_out() -> None:
    build = TraceBuilder()
    build.op("dynamo", 0, 9, record_function=5)
    build.annotation("dynamo_data: compile_id=0/0", 1, 2, record_function=6)
    node = build.node("dynamo", 2, record_function=5)
    build.node("dynamo_data: compile_id=0/0", 3, node_parent=2, record_function=6)
    build.node("other_data: compile_id=0/0", 4, node_parent=2, record_function=7)
    rank = linked(build)
    assert [name for name, _ in shown(rank)] == ["dynamo", "dynamo", "other_data: compile_id=0/0"]
    assert pairs(rank.edges, Relation.SAME) == [(node - 1, 0)]
    assert folded(rank) == {"phase_data": 1, "phase_data_copies": 1}
    (report,) = (one for one in rank.reports if one.relation == "same.et_kineto")
    assert (report.linked, report.candidates) == (2, 2)


def test_communication_keeps_its_events() -> None:
    build = TraceBuilder()
    build.op("dynamo", 0, 5)
    build.annotation("dynamo_data: compile_id=0/0", 1, 2)
    build.communication(build.op("c10d::allreduce_", 10, 20), operation="allreduce", group="0")
    rank = linked(build)
    assert [rank.trace.events.start[row] for row in rank.calls.operator.tolist()] == [10]
    assert [rank.trace.events.start[row] for row in rank.trace.communications.row.tolist()] == [10]


@given(st.lists(st.sampled_from([b"", b"{}", b' {"a": 1} ', b'{"a":{}}']), min_size=1, max_size=9), st.data())
def test_members_are_added_wherever_runs_begin(texts: list[Payload], data: st.DataObject) -> None:
    numbers = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1))))
    extended = ExtendedPayloads(
        ListedPayloads(texts), np.array(numbers, np.int64), dict.fromkeys(numbers, b'"x":1')
    )
    first = data.draw(st.integers(0, len(texts) - 1))
    for begin, run in extended.batches(first):
        for number, text in enumerate(run, begin):
            recorded = json.loads(bytes(texts[number]) or b"{}")
            expected = recorded | {"x": 1} if number in numbers else recorded
            assert json.loads(bytes(text) or b"{}") == expected


@pytest.mark.parametrize(
    ("path", "count"),
    [
        *(("compile_faults", 134), ("compile_job", 511)),
        *foreign(("torch_trace/matched_small", 83), ("torch_trace/multirank_matched", 1066)),
    ],
)
def test_recorded_profiles_have_no_slices_of_data(path: str, count: int) -> None:
    graph = tracelink.load(traces(path))
    names = {graph.name(row) for row in range(len(graph)) if graph.events.kind[row] != EventKind.NODE}
    assert not [name for name in names if "_data: " in name]
    assert sum(one.count for one in graph.findings if one.reason == "phase_data") == count


def test_recorded_operator_has_its_data_without_a_log() -> None:
    graph = tracelink.load(traces("compile_faults/kineto.json.gz"))
    rows = [row for row in range(len(graph)) if graph.name(row) == "entire_frame_compile"]
    found = [graph.arguments(row) for row in rows]
    assert {arguments["fn_name"] for arguments in found} == {"_compile.compile_inner"}
    assert [arguments["compile_id"] for arguments in found][:3] == ["2/0", "3/0", "4/0"]
