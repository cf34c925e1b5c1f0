"""Whatever ranks did and whatever their clocks say: files that every reader of Chakra traces can follow."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.chakra_written import EtTrace, traces
from builders.graph import GraphBuilder
from tracelink.converters.chakra.schema import COMMUNICATION, SIMULATED, NodeType
from tracelink.model.columns import NO_TIME
from tracelink.model.events import EventKind, Key, Relation, TrackKind
from tracelink.model.graph import EventGraph

OPERATIONS = ("all_reduce", "all_gather", "barrier", "reduce", "all_to_all", "unheard_of")
KINDS = (
    EventKind.OPERATOR,
    EventKind.ANNOTATION,
    EventKind.RUNTIME,
    EventKind.KERNEL,
    EventKind.MEMCPY,
    EventKind.NODE,
    EventKind.RECORD,
)


@st.composite
def jobs(draw: st.DrawFn) -> EventGraph:
    """Up to three ranks with anything on any track, related in any way, that communicate in any order."""
    builder = GraphBuilder()
    ranks = draw(st.integers(1, 3))
    rows: dict[int, list[int]] = {}
    for rank in range(ranks):
        tracks = [
            builder.track(kind, rank, str(number), str(number))
            for number, kind in enumerate(
                (TrackKind.THREAD, TrackKind.THREAD, TrackKind.STREAM, TrackKind.STREAM, TrackKind.NODES)
            )
        ]
        rows[rank] = [_event(draw, builder, tracks, number) for number in range(draw(st.integers(0, 9)))]
        for _ in range(draw(st.integers(0, 8)) if rows[rank] else 0):
            ends = draw(st.tuples(st.sampled_from(rows[rank]), st.sampled_from(rows[rank])))
            _related(builder, draw(st.sampled_from(list(Relation)[:6])), *ends)
    _communicating(draw, builder, rows)
    return builder.build()


def _event(draw: st.DrawFn, builder: GraphBuilder, tracks: list[int], number: int) -> int:
    kind = draw(st.sampled_from(KINDS))
    if kind == EventKind.NODE:
        parent = draw(st.integers(0, 9))
        keys = {Key.NODE_ID: number + 1, Key.NODE_PARENT: parent, Key.LOGICAL_THREAD: parent % 2}
        return builder.add(tracks[4], f"node {number}", None, -1, kind, b"{}", dict(keys))
    first = 2 if kind in (EventKind.KERNEL, EventKind.MEMCPY) else 0
    track = tracks[first + draw(st.integers(0, 1))]
    return builder.add(
        track, f"{kind.name} {number}", draw(st.integers(0, 20_000)), draw(st.integers(-1, 9_000)), kind
    )


def _related(builder: GraphBuilder, relation: Relation, source: int, target: int) -> None:
    """Calls and launches go down a tree, as linking makes them; the rest goes anywhere."""
    kinds = [EventKind(builder.rows[row][0]) for row in (source, target)]
    on_device = (EventKind.KERNEL, EventKind.MEMCPY)
    if relation == Relation.CALLS and (source >= target or any(kind in on_device for kind in kinds)):
        return
    if relation == Relation.LAUNCHES and (kinds[1] not in on_device or kinds[0] in on_device):
        return
    if relation == Relation.SAME and (kinds[0] != EventKind.NODE or kinds[1] != EventKind.OPERATOR):
        return
    builder.edge(source, relation, target)


def _communicating(draw: st.DrawFn, builder: GraphBuilder, rows: dict[int, list[int]]) -> None:
    everybody = builder.group(*rows, name="0")
    pair = builder.group(0, 1, name="abc")
    columns = {
        EventKind.KERNEL: "kernel",
        EventKind.ANNOTATION: "annotation",
        EventKind.OPERATOR: "operator",
        EventKind.NODE: "node",
        EventKind.RECORD: "record",
    }
    able = {
        rank: [row for row in mine if EventKind(builder.rows[row][0]) in columns]
        for rank, mine in rows.items()
    }
    for _ in range(draw(st.integers(0, 5))):
        group = draw(st.sampled_from([everybody, pair]))
        taking = [rank for rank in builder.groups[group].ranks if able.get(rank) and draw(st.booleans())]
        if not taking:
            continue
        chosen = {rank: draw(st.sampled_from(able[rank])) for rank in taking}
        operation = draw(st.sampled_from(OPERATIONS))
        start = draw(st.one_of(st.just(NO_TIME), st.integers(0, 9_000)))
        builder.together(group, *chosen.values(), operation=operation, start=start, skew=0, duration=-1)
        size = draw(st.integers(-1, 100))
        for part in builder.participations[-len(taking) :]:
            row = chosen[part["rank"]]
            part.pop("kernel")
            part |= {"wait": -1, "start": NO_TIME, "end": NO_TIME}
            part |= {columns[EventKind(builder.rows[row][0])]: row, "bytes_in": size, "bytes_out": size}
    for _ in range(draw(st.integers(0, 4))):
        source, target = draw(st.tuples(st.sampled_from(sorted(rows)), st.sampled_from(sorted(rows))))
        if able[source] and able[target]:
            send, receive = draw(st.sampled_from(able[source])), draw(st.sampled_from(able[target]))
            _message(builder, everybody, send, receive, bytes=draw(st.integers(-1, 50)))


def _message(builder: GraphBuilder, group: int, send: int, receive: int, **said: Any) -> None:
    builder.message(group, send, receive, **said)
    for end, row in (("send", send), ("receive", receive)):
        if builder.rows[row][0] == EventKind.NODE:
            builder.messages[-1] |= {end: -1, f"{end}_node": row}


def written(graph: EventGraph, **options: str) -> dict[int, EtTrace]:
    """Every file, of which the builder checks what must hold of all."""
    with tempfile.TemporaryDirectory() as folder:
        return traces(graph, Path(folder), **options)


SLOW = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(jobs(), st.sampled_from(["both", "time", "data"]), st.sampled_from(["no", "yes"]))
def test_every_file_can_be_followed(graph: EventGraph, deps: str, gaps: str) -> None:
    for rank, trace in written(graph, deps=deps, gaps=gaps).items():
        assert trace.decoded.said("rank") == rank
        assert trace.decoded.said("deps") == deps


@SLOW
@given(jobs())
def test_pauses_change_nothing_else(graph: EventGraph) -> None:
    plain, spaced = written(graph), written(graph, gaps="yes")
    for rank, trace in plain.items():
        assert [name for name in spaced[rank].names if name != "idle"] == [
            name for name in trace.names if name != "idle"
        ]


@SLOW
@given(jobs(), st.sampled_from(["both", "time", "data"]))
def test_ranks_that_run_one_communication_at_a_time_all_finish(graph: EventGraph, deps: str) -> None:
    """As ASTRA-sim does: a node runs when all that it waits for has; communication when all partners run it."""
    found = written(graph, profile="astra-sim", deps=deps)
    for trace in found.values():
        nodes = trace.decoded.nodes
        assert not len(nodes.control.ids)
        assert not nodes.on_host().any()
        kinds = nodes.attribute("comm_type")
        assert set(kinds.values) <= set(SIMULATED)
    assert _finished(found)


def _finished(found: dict[int, EtTrace]) -> bool:
    """Whether every node of every rank runs in the end."""
    lanes = {rank: _calls(trace) for rank, trace in found.items()}
    members = {
        call: [rank for rank, calls in lanes.items() if call in calls]
        for calls in lanes.values()
        for call in calls
    }
    while any(lanes.values()):
        ready = [
            call
            for calls in lanes.values()
            for call in calls[:1]
            if all(lanes[rank] and lanes[rank][0] == call for rank in members[call])
        ]
        if not ready:
            return False
        for rank in members[ready[0]]:
            lanes[rank].pop(0)
    return True


def _calls(trace: EtTrace) -> list[tuple[Any, ...]]:
    """What a rank runs as communication, in its order; each is told apart from others by how many were alike."""
    calls: list[tuple[Any, ...]] = []
    nodes = trace.decoded.nodes
    earlier: list[set[int]] = []
    before = -1
    for row in range(len(nodes)):
        causes = [number - 1 for number in nodes.data[row]]
        earlier.append(set(causes).union(*(earlier[cause] for cause in causes)))
        if nodes.type[row] not in COMMUNICATION:
            continue
        assert before < 0 or before in earlier[row]
        before = row
        said = trace.attributes(row)
        names = ("pg_name", "comm_type", "comm_size")
        if nodes.type[row] != NodeType.COMM_COLL:
            names = ("comm_src", "comm_dst", "comm_tag", "comm_size")
        call = tuple(said[name] for name in names)
        calls.append((*call, sum(other[:-1] == call for other in calls)))
    return calls
