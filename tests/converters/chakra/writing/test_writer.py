"""`tracelink.converters.chakra.writing.writer`."""

from __future__ import annotations

import io
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracelink
from builders import kineto
from builders.chakra import EtTrace, traces
from builders.data import foreign
from builders.data import traces as inputs
from builders.job import JobBuilder
from builders.kineto import cpu_op
from builders.kineto import write as write_profile
from tracelink._api.functions import merge
from tracelink._model.columns import NO_TIME
from tracelink._model.errors import TraceError, UsageError
from tracelink._model.events import GPU_WORK, EventKind, Key, Relation, TrackKind
from tracelink._model.graph import EventGraph
from tracelink._model.job import rank_rows
from tracelink.converters.chakra.decode import decode, encoded
from tracelink.converters.chakra.schema import COMMUNICATION, SIMULATED, NodeType

# Which files `--to chakra` writes, how they are called, and what their metadata say.


def ranks(*numbers: int) -> EventGraph:
    builder = JobBuilder(host="node-1")
    for rank in numbers:
        builder.add(builder.track(rank=rank), f"of {rank}", 0, 10)
    return builder.build()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_file_for_each_rank_and_the_groups(tmp_path: Path, jobs: int) -> None:
    outputs = merge(ranks(0, 3), tmp_path / "new" / "job", to="chakra", jobs=jobs).outputs
    assert [(Path(output.path).name, output.format, output.rank, output.events) for output in outputs] == [
        ("job.0.et", "chakra", 0, 1),
        ("job.3.et", "chakra", 3, 1),
        ("job.groups.json", "chakra", None, 0),
    ]
    for output in outputs[:2]:
        assert output.bytes == Path(output.path).stat().st_size
        assert EtTrace.read(output.path).names == [f"of {output.rank}"]
    assert json.loads(Path(outputs[2].path).read_bytes()) == {}
    assert len(list((tmp_path / "new").iterdir())) == 3


@pytest.mark.parametrize(
    ("output", "numbers", "names"),
    [
        ("et/", (0, 1), ["job.0.et", "job.1.et", "job.groups.json"]),
        ("et/run.et", (0, 1), ["run.0.et", "run.1.et", "run.groups.json"]),
        ("et/run.0.et", (0, 1), ["run.0.et", "run.1.et", "run.groups.json"]),
        ("et/run.et", (5,), ["run.et", "run.groups.json"]),
        ("et/run.5.et", (5,), ["run.5.et", "run.groups.json"]),
        ("et/run", (5,), ["run.5.et", "run.groups.json"]),
    ],
)
def test_names(output: str, numbers: tuple[int, ...], names: list[str], tmp_path: Path) -> None:
    merge(ranks(*numbers), f"{tmp_path}/{output}", to="chakra")
    assert sorted(path.name for path in (tmp_path / "et").iterdir()) == names


def test_the_suffix_means_this_format(tmp_path: Path) -> None:
    assert {output.format for output in merge(ranks(0), tmp_path / "job.et").outputs} == {"chakra"}


def test_the_name_that_nobody_gave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_profile(tmp_path / "in" / "k.json", kineto.trace(cpu_op("aten::add", 2), rank=0))
    merged = merge([tmp_path / "in"], to="chakra")
    assert [Path(output.path).name for output in merged.outputs] == ["merged.0.et", "merged.groups.json"]


class TestStandardOutput:
    def test_takes_one_rank_without_the_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
        (output,) = merge(ranks(4), "-", to="chakra", jobs=1).outputs
        decoded = decode(io.BytesIO(buffer.getvalue()))
        assert (len(decoded.nodes), decoded.faults) == (1, [])
        assert (output.path, output.bytes) == ("-", len(buffer.getvalue()))

    def test_does_not_take_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        buffer = BytesIO()
        monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer))
        with pytest.raises(UsageError, match=r"takes one file, but the job has 2 ranks.*-o et/job"):
            merge(ranks(0, 1), "-", to="chakra")
        assert not buffer.getvalue()


def test_files_appear_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.0.et").write_bytes(b"before")
    monkeypatch.setattr("tracelink.converters.chakra.decode.BATCH", None)
    with pytest.raises((TypeError, TraceError)):
        merge(ranks(0), tmp_path / "job", to="chakra", jobs=1)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("job.0.et", b"before")]


def test_the_metadata(tmp_path: Path) -> None:
    trace = traces(ranks(0, 1, 2, 5), tmp_path, deps="time")[5]
    said = {
        name: trace.decoded.metadata_value(name)
        for name in ("producer", "variant", "deps", "rank", "host", "nodes")
    }
    assert said == {
        "producer": "tracelink",
        "variant": "full",
        "deps": "time",
        "rank": 5,
        "host": "node-1",
        "nodes": 1,
    }
    assert trace.decoded.metadata.version == "1.0.0"
    assert (trace.decoded.metadata_value("world_size"), trace.decoded.metadata_value("ranks")) == (
        6,
        "0-2, 5",
    )
    assert json.loads(trace.decoded.metadata_value("groups")) == {}


def test_options_reach_the_writer(tmp_path: Path) -> None:
    write_profile(tmp_path / "in" / "k.json", kineto.trace(cpu_op("aten::add", 2), rank=0))
    merged = merge(
        [tmp_path / "in"],
        output=tmp_path / "job",
        to="chakra",
        options={"variant": "astra-sim", "deps": "data"},
    )
    value = EtTrace.read(merged.outputs[0].path).decoded.metadata_value
    assert (value("variant"), value("deps")) == ("astra-sim", "data")


def test_options_that_a_format_does_not_have_are_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="perfetto-json has no option 'variant'"):
        merge([tmp_path / "is not there"], to="perfetto-json", options={"variant": "full"})


# Whatever ranks did and whatever their clocks say: files that every reader of Chakra traces can follow.


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
    builder = JobBuilder()
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


def _event(draw: st.DrawFn, builder: JobBuilder, tracks: list[int], number: int) -> int:
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


def _related(builder: JobBuilder, relation: Relation, source: int, target: int) -> None:
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


def _communicating(draw: st.DrawFn, builder: JobBuilder, rows: dict[int, list[int]]) -> None:
    world = builder.group(*rows, name="0")
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
        group = draw(st.sampled_from([world, pair]))
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
            _message(builder, world, send, receive, bytes=draw(st.integers(-1, 50)))


def _message(builder: JobBuilder, group: int, send: int, receive: int, **said: Any) -> None:
    builder.message(group, send, receive, **said)
    for end, row in (("send", send), ("receive", receive)):
        if builder.rows[row][0] == EventKind.NODE:
            builder.messages[-1] |= {end: -1, f"{end}_node": row}


def written(graph: EventGraph, **options: str) -> dict[int, EtTrace]:
    """Every file, of which the builder checks what must hold of all."""
    with tempfile.TemporaryDirectory() as folder:
        return traces(graph, Path(folder), **options)


SLOW = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(jobs(), st.sampled_from(["both", "time", "data"]), st.sampled_from(["no", "yes"]))
def test_every_file_can_be_followed(graph: EventGraph, deps: str, gaps: str) -> None:
    for rank, trace in written(graph, deps=deps, gaps=gaps).items():
        assert trace.decoded.metadata_value("rank") == rank
        assert trace.decoded.metadata_value("deps") == deps


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
    found = written(graph, variant="astra-sim", deps=deps)
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


# Real traces as Chakra traces: every file can be followed, nothing is lost, and the order is the real one.


TRACES = [
    *("cpu_job", "gpu_pair", "gpu_2021", "gpu_2023", "gpu_rocm"),
    *foreign(
        "pairs/simple_add",
        "pairs/torch213_gloo2",
        "pairs/dlrm8",
        "matched8",
        "kineto/cuda_graphs.json.gz",
        "kineto/mi300_resnet.json.gz",
        "kineto/nccl_data.json.gz",
        "kineto/h100_qwen.json.gz",
        "kineto/resnet50_2021.json.gz",
        "pairs/resnet_110_nccl",
    ),
]


@cache
def graph(path: str) -> EventGraph:
    return tracelink.load([inputs(path)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> object:
    """What a path is made into, once."""

    @cache
    def files(path: str, variant: str = "full", **options: str) -> Mapping[int, EtTrace]:
        folder = tmp_path_factory.mktemp("et")
        merged = merge(
            [inputs(path)], output=folder / "job", to="chakra", options={"variant": variant, **options}
        )
        return {
            output.rank: EtTrace.read(output.path, output)
            for output in merged.outputs
            if output.rank is not None
        }

    return files


def device_rows(trace: EtTrace) -> list[int]:
    nodes = trace.decoded.nodes
    categories = nodes.attribute("cat").strings(len(nodes))
    return [row for row, word in enumerate(categories) if word in ("kernel", "gpu_memcpy", "gpu_memset")]


@pytest.mark.parametrize("variant", ["full", "astra-sim"])
@pytest.mark.parametrize("path", ["cluster", *TRACES])
def test_every_file_can_be_followed_and_is_read_again_as_it_was(made, path: str, variant: str) -> None:  # type: ignore[no-untyped-def]
    for trace in made(path, variant).values():
        assert trace.output is not None
        nodes = trace.decoded.nodes
        assert len(nodes) == trace.output.events
        again = decode(io.BytesIO(b"".join(encoded({}, nodes)))).nodes
        for name in ("id", "name", "type", "start", "duration"):
            assert np.array_equal(getattr(again, name), getattr(nodes, name))
        for links in ("data", "control"):
            assert np.array_equal(getattr(again, links).ids, getattr(nodes, links).ids)
            assert np.array_equal(getattr(again, links).bounds, getattr(nodes, links).bounds)
        assert set(again.attributes) == set(nodes.attributes)
        for name, column in nodes.attributes.items():
            assert np.array_equal(again.attributes[name].rows, column.rows)
            assert list(again.attributes[name].values) == list(column.values)


@pytest.mark.parametrize("path", TRACES)
def test_all_work_on_devices_is_there_with_its_exact_times(made, path: str) -> None:  # type: ignore[no-untyped-def]
    events = graph(path).events
    work = events.take(events.of_kind(*GPU_WORK))
    expected = sorted(zip(work.start.tolist(), work.duration.tolist(), strict=True))
    for variant in ("full", "astra-sim"):
        found = []
        for trace in made(path, variant).values():
            nodes = trace.decoded.nodes
            start, duration = (
                nodes.attribute(name).integers(len(nodes), -1) for name in ("start_ns", "duration_ns")
            )
            found += [(int(start[row]), int(duration[row])) for row in device_rows(trace)]
        assert sorted(found) == expected


class TestGpuPair:
    """Kernels of NCCL, with their arguments."""

    @pytest.fixture
    def trace(self, made) -> EtTrace:  # type: ignore[no-untyped-def]
        found: EtTrace = made("gpu_pair")[0]
        return found

    def test_nccl_kernels_stand_under_the_innermost_nccl_operator(self, trace: EtTrace) -> None:
        nodes = trace.decoded.nodes
        rows = np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
        assert len(rows) == 14
        above = {trace.names[number - 1] for row in rows for number in nodes.control[row]}
        assert above == {"nccl:_all_gather_base", "nccl:all_reduce"}
        assert all(len(nodes.control[row]) == 1 for row in rows)

    def test_all_work_but_the_first_waits_for_other_work(self, trace: EtTrace) -> None:
        device = set(device_rows(trace))
        following = [
            row for row in device if any(number - 1 in device for number in trace.decoded.nodes.data[row])
        ]
        assert (len(device), len(following)) == (66, 65)


@pytest.mark.parametrize(
    ("path", "without"), [("gpu_2023", 0), ("gpu_rocm", 9), *foreign(("pairs/dlrm8", 2 * 64))]
)
def test_the_parent_of_every_kernel_encloses_its_launch(made, path: str, without: int) -> None:  # type: ignore[no-untyped-def]
    """Also where External ids do not line up; what was launched before the recording began has none."""
    whole, found = graph(path), []
    for rank, trace in made(path).items():
        called, nodes, said = calls_of(whole, rank), trace.decoded.nodes, times(trace)
        numbers = nodes.attribute("correlation").integers(len(nodes), -1)
        for row in device_rows(trace):
            found.append(nodes.control[row])
            for parent in found[-1]:
                begin, end = called[int(numbers[row])]
                start, length = said[parent - 1]
                assert start <= begin <= end <= start + length
    assert sum(len(parents) == 0 for parents in found) == without
    assert {len(parents) for parents in found} <= {0, 1}
    assert len(found) > 60


DLRM = ("pairs/dlrm8", [6, 6, 6, 6, 0, 6, 0, 0])


@pytest.mark.parametrize(("path", "kinds"), [("gpu_2023", [0, 2, 0, 0, 0, 0, 0] * 2), *foreign(DLRM)])
def test_collectives_agree_on_all_ranks(made, path: str, kinds: list[int]) -> None:  # type: ignore[no-untyped-def]
    files = made(path).values()
    found = [[call for call in trace.communication() if call[0] == "COMM_COLL"] for trace in files]
    assert [kind for _, kind, _, _ in found[0]] == kinds
    assert all(calls == found[0] for calls in found)
    numbers = [list(trace.decoded.nodes.attribute("collective_id").values) for trace in files]
    assert len(files) > 1
    assert all(number == numbers[0] for number in numbers)


def calls_of(whole: EventGraph, rank: int) -> dict[int, tuple[int, int]]:
    """When the call ran that launched the work of each correlation of a rank."""
    rows = rank_rows(whole, rank)
    events, edges = whole.events, whole.edges
    launches = (
        (edges.relation == Relation.LAUNCHES) & (edges.source >= rows.start) & (edges.source < rows.stop)
    )
    numbers = whole.key(Key.CORRELATION).dense(len(events), -1)
    return {
        int(numbers[work]): (int(events.start[call]), int(events.end[call]))
        for call, work in zip(edges.source[launches].tolist(), edges.target[launches].tolist(), strict=True)
    }


def times(trace: EtTrace) -> list[tuple[int, int]]:
    """Start of each node, and how long it took with all that it encloses."""
    nodes = trace.decoded.nodes
    start, own, whole = (
        nodes.attribute(name).integers(len(nodes), -1).tolist()
        for name in ("start_ns", "duration_ns", "inclusive_ns")
    )
    return [(begin, max(lengths)) for begin, *lengths in zip(start, own, whole, strict=True)]


@pytest.mark.parametrize("path", ["cluster", "cpu_job", *foreign("pairs/dlrm8", "matched8")])
def test_collectives_of_a_group_are_in_one_order_on_all_ranks(made, path: str) -> None:  # type: ignore[no-untyped-def]
    by_group: dict[str, set[tuple[int, ...]]] = {}
    for trace in made(path).values():
        nodes = trace.decoded.nodes
        numbers = nodes.attribute("collective_id").integers(len(nodes), -1)
        for group in set(nodes.attribute("group_name").values):
            texts = nodes.attribute("group_name").strings(len(nodes))
            mine = [
                int(numbers[row]) for row, text in enumerate(texts) if text == group and numbers[row] >= 0
            ]
            if mine:
                members = by_group.setdefault(group, set())
                members.add(tuple(mine))
    for group, orders in by_group.items():
        longest = max(orders, key=len)
        assert all(list(order) == [number for number in longest if number in order] for order in orders), (
            group
        )


def test_gloo_runs_on_threads_of_its_own(made) -> None:  # type: ignore[no-untyped-def]
    for trace in made("cpu_job").values():
        nodes = trace.decoded.nodes
        rows = np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
        assert rows
        assert {trace.names[row] for row in rows} <= {
            "gloo:all_reduce",
            "gloo:broadcast",
            "gloo:barrier",
            "gloo:all_gather",
        }
        for row in rows:
            assert any(re.match("c10d::", trace.names[number - 1]) for number in nodes.data[row])


@pytest.mark.parametrize(("path", "most"), [("gpu_pair", 3), *foreign(("kineto/cuda_graphs.json.gz", 11))])
def test_kernels_of_graphs_are_all_there(made, path: str, most: int) -> None:  # type: ignore[no-untyped-def]
    """Several kernels stand under one operator: the one that launched their graph."""
    trace = made(path)[0]
    nodes = trace.decoded.nodes
    parents = [nodes.control[row][0] for row in device_rows(trace) if nodes.control[row]]
    counts = np.bincount(parents)
    assert counts.max() >= most


def test_execution_traces_alone(tmp_path: Path) -> None:
    """Without a profile: messages are known from the nodes, and no time is made up."""
    paths = sorted(inputs("cluster").glob("et_*.json"))
    merged = merge(paths, output=tmp_path / "job", to="chakra", options={"variant": "astra-sim"})
    found = [EtTrace.read(output.path) for output in merged.outputs if output.rank is not None]
    assert len(found) == 8
    kinds = [kind for trace in found for kind, *_ in trace.communication()]
    assert (kinds.count("COMM_SEND"), kinds.count("COMM_RECV")) == (24, 24)
    assert all(not trace.decoded.nodes.start.any() for trace in found)


def test_recorders_alone(tmp_path: Path) -> None:
    merged = merge(fr=inputs("gloo/healthy"), output=tmp_path / "job", to="chakra")
    found = [EtTrace.read(output.path) for output in merged.outputs if output.rank is not None]
    assert len(found) == 8
    assert all(set(trace.decoded.nodes.attribute("cat").values) == {"record"} for trace in found)
    assert len({tuple(trace.communication()) for trace in found if trace.communication()}) <= 8
    assert all(trace.decoded.nodes.of_type(NodeType.COMM_COLL).any() for trace in found)
