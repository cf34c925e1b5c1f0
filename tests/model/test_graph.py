"""`tracelink._model.graph`."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tracelink._model.causes import EventEntry, StackEntry
from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.communications import Collectives, Evidence, Messages, Participations
from tracelink._model.errors import UsageError
from tracelink._model.events import (
    Counters,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink._model.findings import Finding, Severity
from tracelink._model.graph import EventGraph, Rank, source_bounds
from tracelink._model.job import LinkedJob
from tracelink._model.trace import ListedPayloads, Payload, ProcessGroup, SourceInfo

SHARED = (
    "ranks",
    "sources",
    "groups",
    "collectives",
    "participations",
    "messages",
    "findings",
)
TABLES = ("events", "edges", "counters", "tracks", *SHARED)


def graph() -> EventGraph:
    """Two ranks: an operator that launches a kernel on rank 3, a span on rank 5."""
    edges = [
        Edges.of_relation(Relation.CALLS, np.array([0]), np.array([1])),
        Edges.of_relation(Relation.LAUNCHES, np.array([1]), np.array([2])),
        Edges.of_relation(Relation.DEPENDS_ON, np.array([2]), np.array([3])),
    ]
    return EventGraph(
        strings=["aten::add", "cudaLaunchKernel", "add_kernel", "step"],
        events=Events.of(
            kind=[EventKind.OPERATOR, EventKind.RUNTIME, EventKind.KERNEL, EventKind.SPAN],
            name=[0, 1, 2, 3],
            track=[0, 0, 1, 2],
            start=[10, 12, 20, 30],
            duration=[5, 1, 4, 9],
            source=[0, 0, 0, 1],
            payload=[0, 1, 2, 0],
        ),
        edges=Edges.concatenate(edges),
        tracks=[
            Track(TrackKind.THREAD, "100", "100", rank=3),
            Track(TrackKind.STREAM, "0", "7", rank=3),
            Track(TrackKind.PROCESS, "Spans", "x", rank=5),
            Track(TrackKind.COUNTER, "0", "memory", rank=5),
        ],
        ranks=[Rank(3, "node1", 8), Rank(5)],
        sources=[
            SourceInfo("a.json", "kineto", rank=3, header={"schemaVersion": 1}),
            SourceInfo("b", "other"),
        ],
        bounds=[0, 3, 4],
        keys={Key.CORRELATION: KeyColumn.of(rows=[1, 2], values=[7, 7])},
        counters=Counters(np.array([3], np.int32), np.array([15]), np.array([2.5])),
        groups=[ProcessGroup("0", "default_pg", (3, 5))],
        payloads=[
            ListedPayloads([b'{"External id": 4}', b"", memoryview(b'{"stream": 7}')]),
            ListedPayloads([b"[1, 2]"]),
        ],
        findings=[Finding(Severity.WARNING, "truncated", "a.json: cut off", source="a.json")],
    )


NOTHING = EventGraph(events=Events.empty(), edges=Edges.empty(), tracks=(), ranks=(), sources=(), bounds=(0,))


def test_what_one_event_is() -> None:
    made = graph()
    assert len(made) == 4
    assert [made.name(row) for row in range(4)] == ["aten::add", "cudaLaunchKernel", "add_kernel", "step"]
    assert made.rank_of_events().tolist() == [3, 3, 3, 5]
    assert [made.rows_of_source(source) for source in range(2)] == [slice(0, 3), slice(3, 4)]
    assert made.targets(1, Relation.LAUNCHES).tolist() == [2]
    assert made.targets(1, Relation.CALLS).tolist() == []
    assert made.key(Key.CORRELATION).dense(4, -1).tolist() == [-1, 7, 7, -1]
    assert len(made.key(Key.SEQUENCE)) == 0


def test_arguments_are_those_of_the_source() -> None:
    made = graph()
    assert [made.arguments(row) for row in range(4)] == [
        {"External id": 4},
        {},
        {"stream": 7},
        {"value": [1, 2]},
    ]


@dataclass(frozen=True)
class Forgetful:
    """Payloads of a file that is shorter than it was."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        yield from ()


def test_arguments_that_are_gone_are_none() -> None:
    made = replace(graph(), payloads=[Forgetful()] * 2)
    assert made.arguments(0) == {}
    assert made.arguments([0, 3]) == [{}, {}]
    with pytest.raises(UsageError, match=r"no event has an argument 'stream'\. There are: none"):
        made.column("stream")


def test_arguments_of_many_events_in_the_order_of_rows() -> None:
    made = graph()
    every = [{"External id": 4}, {}, {"stream": 7}, {"value": [1, 2]}]
    assert made.arguments(range(4)) == every
    assert made.arguments(np.array([2, 0, 2])) == [every[2], every[0], every[2]]
    assert made.arguments(np.array([True, False, False, True])) == [every[0], every[3]]
    assert made.arguments(np.int64(2)) == every[2]
    assert made.arguments([]) == []
    first, second = made.arguments([2, 2])
    assert first is not second


@dataclass(frozen=True)
class Numbered:
    """Payloads that can be read one at a time; counts those that are."""

    texts: Sequence[bytes]
    read: list[int]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        self.read.extend(range(first, len(self.texts) if last is None else last))
        yield first, self.texts[first:last]

    def near(self, numbers: np.ndarray) -> Iterator[tuple[int, Sequence[Payload]]]:
        for number in numbers.tolist():
            yield from self.batches(number, number + 1)


def test_arguments_are_read_only_where_they_are() -> None:
    read: list[int] = []
    made = replace(graph(), payloads=[Numbered([b'{"a": 1}', b"", b'{"b": 2}'], read), ListedPayloads([])])
    assert made.arguments([2, 0]) == [{"b": 2}, {"a": 1}]
    assert read == [0, 2]


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        ([b'{"a": 1}', b"{}", b'{"a": -5}'], "i", [1, None, -5]),
        ([b'{"a": 1}', b'{"a": 0.5}', b""], "f", [1.0, 0.5, None]),
        ([b'{"a": true}', b'{"a": false}', b'{"a": null}'], "b", [True, False, None]),
        ([b'{"a": 18446744073709551615}', b'{"a": 1}', b""], "u", [2**64 - 1, 1, None]),
        ([b'{"a": 18446744073709551615}', b'{"a": -1}', b""], "O", [2**64 - 1, -1, None]),
        ([b'{"a": "x"}', b'{"a": 1}', b"[1]"], "O", ["x", 1, None]),
        ([b'{"a": [[1, 2], []]}', b'{"a": []}', b"{}"], "O", [[[1, 2], []], [], None]),
    ],
)
def test_an_argument_as_a_column(texts: list[bytes], kind: str, values: list[object]) -> None:
    made = replace(graph(), payloads=[ListedPayloads(texts), ListedPayloads([b"7"])])
    column = made.column("a", [0, 1, 2])
    assert column.dtype.kind == kind
    assert column.tolist() == values
    assert made.column("a").tolist() == [*values, None]
    assert made.column("a", [2, 0]).tolist() == [values[2], values[0]]
    assert made.column("value", np.array([3])).tolist() == [7]
    assert len(made.column("a", [])) == 0


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(VALUES | st.dictionaries(st.sampled_from(["a", "b", "value"]), VALUES)))
def test_a_column_has_what_the_arguments_have(payloads: list[Any]) -> None:
    decoded = [payload if isinstance(payload, dict) else {"value": payload} for payload in payloads]
    texts = [json.dumps(payload).encode() for payload in payloads]
    made = replace(graph(), payloads=[ListedPayloads([*texts, b'{"a": 0, "value": 0}'])])
    made = replace(
        made,
        events=Events.of(len(texts) + 1, source=[0] * (len(texts) + 1), payload=range(len(texts) + 1)),
    )
    assert made.arguments(range(len(texts))) == decoded
    for name in ("a", "value"):
        assert made.column(name).tolist() == [*(one.get(name) for one in decoded), 0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda made, row: made.arguments(row),
        lambda made, row: made.arguments([0, row]),
        lambda made, row: made.column("stream", [row]),
        lambda made, row: made.stack(row),
        lambda made, row: made.launched_by(np.array([row])),
        lambda made, row: made.ancestors(row),
        lambda made, row: made.describe(row),
        lambda made, row: made.targets(row, "calls"),
    ],
)
@pytest.mark.parametrize("row", [UNKNOWN, 4])
def test_a_row_that_is_not_there_is_an_error(ask: Callable[[EventGraph, int], object], row: int) -> None:
    with pytest.raises(IndexError, match=f"there is no row {row}: the graph has 4 events"):
        ask(graph(), row)


def test_an_argument_that_no_event_has() -> None:
    with pytest.raises(UsageError) as caught:
        graph().column("Stream")
    assert str(caught.value) == (
        "no event has an argument 'Stream'. Did you mean stream? There are: External id, stream, value."
    )


def training() -> EventGraph:
    """A forward operator below a Python function, its backward operator on another thread, and their kernels."""
    names = [
        "train.py(9): step",
        "aten::mm",
        "cudaLaunchKernel",
        "gemm",
        "MmBackward0",
        "aten::mm_bwd",
        "flash_Gemm",
    ]
    kinds = ["python", "operator", "runtime", "kernel", "operator", "operator", "runtime", "kernel", "kernel"]
    edges = {
        Relation.CALLS: [(0, 1), (1, 2), (4, 5), (5, 6)],
        Relation.LAUNCHES: [(2, 3), (6, 7)],
        Relation.BACKWARD_OF: [(4, 1)],
        Relation.WAITS_FOR: [(8, 7)],
    }
    return EventGraph(
        strings=names,
        events=Events.of(
            kind=[EventKind[kind.upper()] for kind in kinds],
            name=[0, 1, 2, 3, 4, 5, 2, 6, 3],
            track=[0, 0, 0, 1, 0, 0, 0, 1, 2],
            start=[*range(10, 18), NO_TIME],
            duration=[*range(1, 9), UNKNOWN],
            source=[0] * 9,
            payload=[*range(9)],
        ),
        edges=Edges.concatenate(
            [Edges.of_relation(relation, *np.array(pairs).T) for relation, pairs in edges.items()]
        ),
        tracks=[
            Track(TrackKind.THREAD, "1", "1", rank=0),
            Track(TrackKind.STREAM, "0", "7", rank=0),
            Track(TrackKind.STREAM, "0", "7", rank=1),
        ],
        ranks=[Rank(0), Rank(1)],
        sources=[SourceInfo("a.json", "kineto")],
        bounds=[0, 9],
    )


def test_the_stack_of_a_kernel() -> None:
    table = training().stack(7)
    assert [(entry.row, entry.relation) for entry in table] == [
        (0, "calls"),
        (1, "forward of"),
        (4, "calls"),
        (5, "calls"),
        (6, "launches"),
        (7, None),
    ]
    assert table[1] == StackEntry(1, "operator", "aten::mm", 0, 11, 2, "forward of")
    assert [entry.row for entry in training().stack(7, forward=False)] == [4, 5, 6, 7]
    assert [entry.row for entry in training().stack(8)] == [8]


def test_what_launched_a_kernel() -> None:
    made = training()
    assert (made.launched_by(3), made.launched_by(7), made.launched_by(8)) == (1, 5, None)
    assert (made.launched_by(3, "runtime"), made.launched_by(3, kind="python")) == (2, 0)
    assert made.launched_by(made.find(kind="kernel")).tolist() == [1, 5, UNKNOWN]
    many = np.repeat([7, 8, 3], 10)
    assert made.launched_by(many).tolist() == np.repeat([5, UNKNOWN, 1], 10).tolist()


def test_what_led_to_an_event_and_what_followed_from_it() -> None:
    made = training()
    assert made.ancestors(8).tolist() == [0, 1, 4, 5, 6, 7]
    assert made.ancestors(7, "calls", "launches").tolist() == [4, 5, 6]
    assert made.descendants(1).tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert made.descendants(0, Relation.CALLS).tolist() == [1, 2]
    assert made.sources_of(3, "launches").tolist() == [2]
    with pytest.raises(UsageError, match="there is no relation 'call'"):
        made.ancestors(0, "call")


def test_events_by_name_kind_and_rank() -> None:
    made = training()
    assert made.find("GEMM").tolist() == [3, 7, 8]
    assert made.find("gemm", kind="kernel", rank=1).tolist() == [8]
    assert made.find(re.compile("^gemm$")).tolist() == [3, 8]
    assert made.find("mm(").tolist() == []
    assert made.find(kind=["python", EventKind.RUNTIME], rank=range(2)).tolist() == [0, 2, 6]
    assert made.find(rank=[]).tolist() == made.find().tolist() == [*range(9)]
    with pytest.raises(UsageError, match="there is no kind of events 'kernal'"):
        made.find(kind="kernal")


def test_events_as_a_table() -> None:
    made = training()
    assert list(made.describe([8, 0])) == [
        EventEntry(8, "kernel", "gemm", 1, None, None),
        EventEntry(0, "python", "train.py(9): step", 0, 10, 1),
    ]
    assert list(made.describe(0)) == list(made.describe([8, 0])[1:])


def test_a_changed_graph_has_no_old_edges() -> None:
    made = training()
    assert made.targets(2, "launches").tolist() == [3]
    assert replace(made, edges=Edges.empty()).targets(2, "launches").tolist() == []


def test_what_is_sorted_for_questions_is_not_pickled() -> None:
    made = training()
    before = len(pickle.dumps(made))
    made.stack(7)
    assert len(pickle.dumps(made)) < before + 200
    assert pickle.loads(pickle.dumps(made)).stack(7) == made.stack(7)


def test_tables_have_texts_instead_of_codes() -> None:
    made = graph()
    events = {name: list(column) for name, column in made.table("events").columns.items()}
    assert events == {
        "kind": ["operator", "runtime", "kernel", "span"],
        "name": ["aten::add", "cudaLaunchKernel", "add_kernel", "step"],
        "track": [0, 0, 1, 2],
        "start": [10, 12, 20, 30],
        "duration": [5, 1, 4, 9],
        "source": [0, 0, 0, 1],
        "payload": [0, 1, 2, 0],
        "rank": [3, 3, 3, 5],
    }
    edges = {name: list(column) for name, column in made.table("edges").columns.items()}
    assert edges == {
        "source": [0, 1, 2],
        "target": [1, 2, 3],
        "relation": ["calls", "launches", "depends_on"],
    }
    assert {name: list(column) for name, column in made.table("ranks").columns.items()} == {
        "rank": [3, 5],
        "host": ["node1", None],
        "world_size": [8, np.ma.masked],
        "clock_offset_ns": [0, 0],
        "clock_uncertainty_ns": [np.ma.masked, np.ma.masked],
        "clock_drift_ppm": [0.0, 0.0],
        "clock_low_ns": [np.ma.masked, np.ma.masked],
        "clock_high_ns": [np.ma.masked, np.ma.masked],
        "clock_constraints": [0, 0],
        "clock_reference_ns": [0, 0],
    }
    assert made.table("findings")["severity"] == ["warning"]
    assert made.table("tracks")["kind"] == ["thread", "stream", "process", "counter"]


def communicating() -> EventGraph:
    """Two ranks: one broadcast that only one of them is seen in, and a message whose group is unknown."""
    return replace(
        graph(),
        strings=["aten::add", "cudaLaunchKernel", "add_kernel", "step", "broadcast", "Float", "partial"],
        groups=[ProcessGroup("0", "default_pg", (3, 5)), ProcessGroup("7", "", (3, 5))],
        collectives=Collectives.of(
            1, group=[1], sequence=[12], order=[0], operation=[4], type=[5], verdict=[6], start=[20]
        ),
        participations=Participations.of(
            1, collective=[0], rank=[3], kernel=[2], start=[20], evidence=[Evidence.KERNEL]
        ),
        messages=Messages.of(1, source=[3], target=[5], tag=[0], order=[0], sent=[30]),
    )


COMMUNICATIONS = {
    "collectives": {
        "group": [1],
        "sequence": [12],
        "order": [0],
        "operation": ["broadcast"],
        "type": ["Float"],
        "bytes": [None],
        "start": [20],
        "end": [None],
        "last_rank": [None],
        "skew": [None],
        "duration": [None],
        "algorithm_gb_s": [None],
        "bus_gb_s": [None],
        "verdict": ["partial"],
        "root": [None],
        "group_name": ["7"],
    },
    "participations": {
        "collective": [0],
        "rank": [3],
        "record": [None],
        "operator": [None],
        "annotation": [None],
        "node": [None],
        "kernel": [2],
        "enqueued": [None],
        "start": [20],
        "end": [None],
        "evidence": ["kernel"],
        "wait": [None],
        "state": [None],
        "bytes_in": [None],
        "bytes_out": [None],
    },
    "messages": {
        "group": [None],
        "source": [3],
        "target": [5],
        "tag": [0],
        "order": [0],
        "bytes": [None],
        "send": [None],
        "receive": [None],
        "send_node": [None],
        "receive_node": [None],
        "sent": [30],
        "received": [None],
        "verdict": [None],
        "group_name": [None],
    },
}


@pytest.mark.parametrize("table", COMMUNICATIONS)
@pytest.mark.parametrize("made", [communicating(), LinkedJob.of(communicating())], ids=["graph", "job"])
def test_what_ranks_did_together_has_texts_and_says_what_is_unknown(
    made: EventGraph | LinkedJob, table: str
) -> None:
    columns = {name: column.tolist() for name, column in made.table(table).columns.items()}
    for rate in ("algorithm_gb_s", "bus_gb_s"):
        if rate in columns:
            columns[rate] = [None if np.isnan(value) else value for value in columns[rate]]
    assert columns == COMMUNICATIONS[table]


@pytest.mark.parametrize("table", COMMUNICATIONS)
def test_what_is_unknown_is_missing_in_frames(table: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    unknown = [name for name, column in COMMUNICATIONS[table].items() if column == [None]]
    made = communicating().to_pandas(table)
    assert made.columns[made.isna().all()].tolist() == unknown
    of_arrow = communicating().to_arrow(table)
    exact = [name for name in unknown if not name.endswith("gb_s")]
    assert [name for name in exact if of_arrow.column(name).null_count] == exact


def test_no_evidence_is_a_word_too() -> None:
    made = replace(NOTHING, participations=Participations.of(2, evidence=[Evidence.NONE, UNKNOWN]))
    assert made.table("participations")["evidence"].tolist() == ["none", "none"]


@pytest.mark.parametrize("table", SHARED)
def test_a_job_has_the_tables_of_its_graph_but_for_events(table: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    made, of_graph = LinkedJob.of(communicating()), communicating()
    assert list(made.table(table).columns) == list(of_graph.table(table).columns)
    assert made.to_pandas(table).columns.tolist() == of_graph.to_arrow(table).column_names
    assert made.to_arrow(table).num_rows == len(of_graph.to_pandas(table)) > 0
    with pytest.raises(UsageError, match=r"there is no table 'events'\. There are: ranks, sources, "):
        made.table("events")


def test_there_is_no_other_table() -> None:
    for method in (graph().table, graph().to_pandas, graph().to_arrow):
        with pytest.raises(UsageError) as caught:
            method("event")
        assert str(caught.value) == (
            "there is no table 'event'. Did you mean events? There are: events, edges, counters, tracks, ranks, "
            "sources, groups, collectives, participations, messages, findings."
        )


@pytest.mark.parametrize("table", TABLES)
def test_an_empty_table_has_the_same_columns(table: str) -> None:
    assert list(NOTHING.table(table).columns) == list(graph().table(table).columns)
    assert all(len(column) == 0 for column in NOTHING.table(table).columns.values())


@pytest.mark.parametrize("made", [graph(), NOTHING], ids=["some", "nothing"])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_a_pandas_frame_and_an_arrow_table(table: str, made: EventGraph) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    columns = made.table(table).columns
    length = len(next(iter(columns.values())))
    frame, arrow = made.to_pandas(table), made.to_arrow(table)
    assert (list(frame.columns), len(frame)) == (list(columns), length)
    assert (arrow.column_names, arrow.num_rows) == (list(columns), length)


def unknowing() -> EventGraph:
    """Everything that can be unknown in the graph and its tables is."""
    made = graph()
    return replace(
        made,
        events=replace(
            made.events,
            start=np.array([10, NO_TIME, 20, NO_TIME]),
            duration=np.array([5, UNKNOWN, UNKNOWN, UNKNOWN]),
        ),
        ranks=[Rank(3), Rank(5)],
        sources=[SourceInfo("a.json", "kineto")],
        groups=[ProcessGroup("0")],
        collectives=Collectives.of(1),
        participations=Participations.of(1, collective=[0]),
        messages=Messages.of(1),
    )


SENTINELS = (UNKNOWN, NO_TIME, "")


@pytest.mark.parametrize("table", TABLES)
def test_no_frame_holds_a_sentinel(table: str) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame, arrow = unknowing().to_pandas(table), unknowing().to_arrow(table)
    missing = {name for name in frame.columns if frame[name].isna().any()}
    assert {name for name in arrow.column_names if arrow.column(name).null_count} == missing
    values = {name: [*frame[name].dropna(), *arrow.column(name).drop_null().to_pylist()] for name in frame}
    assert {name for name, column in values.items() if any(value in SENTINELS for value in column)} == set()
    assert missing >= MISSING.get(table, set())


MISSING = {
    "events": {"start", "duration"},
    "ranks": {"host", "world_size", "clock_uncertainty_ns", "clock_low_ns", "clock_high_ns"},
    "sources": {"version", "rank", "host", "world_size", "pid", "start_ns", "end_ns", "header"},
    "groups": {"description", "ranks", "size", "backend"},
    "collectives": {*Collectives.empty().columns(), "group_name"},
    "participations": {*Participations.empty().columns()} - {"collective", "evidence"},
    "messages": {*Messages.empty().columns(), "group_name"},
}


def test_sums_leave_out_what_is_unknown() -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    import pyarrow.compute

    made = unknowing()
    assert made.table("events")["duration"].sum() == 5
    for frame in (made.to_pandas("events"), made.events.to_pandas()):
        assert (frame["duration"].sum(), frame["start"].min()) == (5, 10)
    for table in (made.to_arrow("events"), made.events.to_arrow()):
        assert pyarrow.compute.sum(table.column("duration")).as_py() == 5


def test_numbers_stay_whole_where_others_are_unknown() -> None:
    pytest.importorskip("pandas")
    time = 1_740_816_360_001_842_855
    made = replace(graph(), sources=[SourceInfo("a", "kineto", start_ns=time), SourceInfo("b", "other")])
    frame = made.to_pandas("sources")
    assert (str(frame["start_ns"].dtype), frame["start_ns"][0]) == ("Int64", time)


@pytest.mark.parametrize("made", [graph(), LinkedJob.of(graph())], ids=["graph", "job"])
def test_a_graph_in_an_interpreter_is_a_few_lines(made: EventGraph | LinkedJob) -> None:
    of_graph = isinstance(made, EventGraph)
    kind = "EventGraph" if of_graph else "Job"
    tables = "events 4, edges 3, counters 1, tracks 4, " if of_graph else ""
    assert repr(made).splitlines() == [
        f"<{kind}: 4 events of ranks 3, 5, 0.000 ms from 1970-01-01 00:00:00.000000 UTC",
        "  sources: 1 kineto, 1 other",
        f"  tables: {tables}ranks 2, sources 2, groups 1, collectives 0, participations 0, messages 0, findings 1",
        "  findings: 1 warning>",
    ]


def test_a_graph_of_many_ranks_and_formats_is_a_few_lines_too() -> None:
    sources = [SourceInfo(f"{number}", f"format-{number}") for number in range(1_000)]
    made = replace(NOTHING, sources=sources, ranks=[Rank(2 * number) for number in range(10_000)])
    assert len(repr(made).splitlines()) == 4
    assert len(repr(made)) < 800


def test_names_are_escaped_in_a_notebook() -> None:
    made = replace(graph(), sources=[SourceInfo("x", "<script>\x1b[31m")])
    page = made._repr_html_()
    assert "1 &lt;script&gt;\\x1b[31m" in page
    assert "<script" not in page
    assert page.count("<tr>") == 3


def test_a_table_in_an_interpreter_is_one_line() -> None:
    assert repr(graph().edges) == "<Edges: 3 rows of source, target, relation>"


def test_words_are_as_good_as_members() -> None:
    made = graph()
    assert made.edges.where("launches").source.tolist() == [1]
    assert made.targets(1, "launches").tolist() == [2]
    assert made.events.of_kind("kernel", "Span").tolist() == [False, False, True, True]
    assert len(made.key("correlation")) == 2


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (
            lambda: graph().edges.where("launch"),
            "there is no relation 'launch'. Did you mean launches? There are: ",
        ),
        (
            lambda: graph().targets(0, "called"),
            "there is no relation 'called'. Did you mean calls? There are: ",
        ),
        (lambda: graph().events.of_kind("telepathy"), "there is no kind of events 'telepathy'. There are: "),
        (lambda: graph().key("corelation"), "there is no link key 'corelation'. Did you mean correlation? "),
    ],
)
def test_words_that_there_are_not(use: Callable[[], object], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        use()
    assert str(caught.value).startswith(problem)


def test_columns_of_numbers_are_frames_too() -> None:
    pytest.importorskip("pandas")
    assert graph().events.to_pandas()["start"].tolist() == [10, 12, 20, 30]
    assert graph().key(Key.CORRELATION).to_pandas()["values"].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("module", "view", "extra"), [("pandas", "to_pandas", "pandas"), ("pyarrow", "to_arrow", "arrow")]
)
def test_a_view_that_needs_an_extra_says_which(
    monkeypatch: pytest.MonkeyPatch, module: str, view: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"{module} is not installed") as caught:
        getattr(graph(), view)()
    assert f"torch-tracelink[{extra}]" in caught.value.advice


@pytest.mark.parametrize(
    "selection",
    [[1, 2], np.array([1, 2]), np.array([False, True, True, False]), (row for row in (1, 2))],
)
def test_selected_events_as_a_network(selection: object) -> None:
    network = graph().to_networkx(selection)  # type: ignore[arg-type]
    assert dict(network.nodes(data=True)) == {
        1: {"name": "cudaLaunchKernel", "kind": "runtime", "rank": 3, "start": 12, "duration": 1},
        2: {"name": "add_kernel", "kind": "kernel", "rank": 3, "start": 20, "duration": 4},
    }
    assert list(network.edges(data=True)) == [(1, 2, {"relation": "launches"})]


def test_a_network_has_no_times_that_are_unknown() -> None:
    nodes = unknowing().to_networkx([0, 1, 2]).nodes
    assert [
        {name for name in ("start", "duration") if name in attributes} for _, attributes in nodes(data=True)
    ] == [
        {"start", "duration"},
        set(),
        {"start"},
    ]


def test_the_whole_graph_as_a_network() -> None:
    network = graph().to_networkx()
    assert list(network.nodes) == [0, 1, 2, 3]
    assert [(a, b) for a, b, _ in network.edges] == [(0, 1), (1, 2), (2, 3)]
    assert len(graph().to_networkx([])) == len(NOTHING.to_networkx()) == 0


@pytest.mark.parametrize(
    ("source", "sources", "bounds"),
    [([], 0, [0]), ([], 2, [0, 0, 0]), ([0, 0, 2], 3, [0, 2, 2, 3]), ([1], 2, [0, 0, 1])],
)
def test_bounds_of_sources(source: list[int], sources: int, bounds: list[int]) -> None:
    assert source_bounds(np.array(source, np.int32), sources) == bounds
