"""Calls on CPU backends, edges that sources state, and properties of the calls of any rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.data import foreign, traces
from builders.trace import TraceBuilder, pairs
from tracelink._io.sources import discover_inputs
from tracelink._join.ranks import read_ranks
from tracelink._link.rank import LinkedRank, link_rank
from tracelink._model.columns import UNKNOWN
from tracelink._model.communications import Calls, Evidence, RankCalls
from tracelink._model.events import EventKind, Relation, TrackKind
from tracelink._model.findings import Finding
from tracelink._model.graph import STATED
from tracelink._run.processes import Processes

# The work of CPU backends on threads of its own, and the calls that it is of.


@dataclass
class Gloo:
    """A rank that issues work to threads of a group each."""

    def __init__(self) -> None:
        self.build = TraceBuilder()
        self.workers: dict[str, int] = {}

    def worker(self, name: str) -> int:
        if name not in self.workers:
            self.workers[name] = self.build.lane(TrackKind.THREAD, name)
        return self.workers[name]

    def issue(self, start: int, operation: str = "allreduce_", group: str = "", **said: Any) -> int:
        """An operator of 10 ns, with a recorder's entry where a group is given."""
        number = {"record_function": said.pop("number")} if "number" in said else {}
        row = self.build.op(f"c10d::{operation}", start, start + 10, **number)
        self.build.communication(row, operation=f"c10d::{operation}", **said)
        if group:
            name = f"gloo:{'all_reduce' if 'reduce' in operation else operation.strip('_')}"
            record = self.build.record(name, start + 5)
            self.build.communication(record, operation=name, group=group, sequence=start)
        return row

    def work(self, start: int, worker: str, operation: str = "all_reduce", **said: Any) -> int:
        number = {"record_function": said.pop("number")} if "number" in said else {}
        row = self.build.annotation(f"gloo:{operation}", start, start + 20, self.worker(worker), **number)
        return self.build.communication(row, operation=f"gloo:{operation}", **said)

    def pairs(self) -> list[tuple[int, int]]:
        calls = link_rank(self.build.trace()).calls
        both = zip(calls.operator.tolist(), calls.annotation.tolist(), strict=True)
        return sorted((operator, work) for operator, work in both if work != -1)

    def annotations(self) -> tuple[int, int, dict[str, int], dict[str, int]]:
        reports = link_rank(self.build.trace()).reports
        (report,) = (report for report in reports if report.relation == "communication.annotation")
        return report.linked, report.candidates, dict(report.unlinked), dict(report.notes)


def test_the_number_of_the_work_lies_between_that_of_its_operator_and_the_next() -> None:
    gloo = Gloo()
    one = gloo.issue(0, number=10)
    gloo.build.op("aten::mm", 12, 18, record_function=15)
    other = gloo.issue(20, number=20)
    second = gloo.work(30, "a", number=22)
    first = gloo.work(40, "b", number=12)
    assert gloo.pairs() == [(one, first), (other, second)]
    assert gloo.annotations() == (2, 2, {}, {"on other threads, by record-function id": 2})


def test_a_number_that_was_given_after_the_operator_is_not_of_its_work() -> None:
    gloo = Gloo()
    gloo.issue(0, number=10)
    gloo.build.op("aten::mm", 12, 18, record_function=15)
    gloo.work(5, "a", operation="broadcast", number=17)
    assert gloo.annotations()[:3] == (0, 1, {"no profiled operator issued it": 1})


def test_of_several_threads_the_one_that_issued_it_last_is_meant() -> None:
    gloo = Gloo()
    gloo.issue(0, number=10)
    autograd = gloo.worker("autograd")
    later = gloo.build.op("c10d::allreduce_", 5, 15, autograd, record_function=14)
    work = gloo.work(30, "a", number=16)
    assert (later, work) in gloo.pairs()


def test_without_numbers_work_is_of_the_oldest_that_waits_for_the_same() -> None:
    gloo = Gloo()
    first = gloo.issue(0, elements_in=8)
    other = gloo.issue(20, elements_in=4)
    second = gloo.issue(40, elements_in=8)
    expected = [
        (other, gloo.work(45, "a", elements_in=4)),
        (first, gloo.work(50, "a", elements_in=8)),
        (second, gloo.work(90, "a", elements_in=8)),
    ]
    assert gloo.pairs() == sorted(expected)
    assert gloo.annotations() == (3, 3, {}, {"on other threads, by order": 3})


def test_work_that_swaps_between_groups_is_told_by_the_threads_of_the_groups() -> None:
    """As it is in real runs: each group has threads of its own, and one group can overtake the other."""
    gloo = Gloo()
    learned = [
        (gloo.issue(0, group="tp"), gloo.work(12, "a")),
        (gloo.issue(50, group="dp"), gloo.work(62, "b")),
    ]
    one, other = gloo.issue(100, group="tp"), gloo.issue(120, group="dp")
    overtaking, overtaken = gloo.work(135, "b"), gloo.work(140, "a")
    assert gloo.pairs() == sorted([*learned, (one, overtaken), (other, overtaking)])


def test_nothing_is_learned_of_threads_where_work_could_be_of_several_calls() -> None:
    gloo = Gloo()
    one, other = gloo.issue(0, group="tp"), gloo.issue(20, group="dp")
    first, second = gloo.work(35, "b"), gloo.work(40, "a")
    again, last = gloo.issue(100, group="dp"), gloo.issue(200, group="tp")
    third, fourth = gloo.work(120, "b"), gloo.work(220, "a")
    assert gloo.pairs() == [(one, second), (other, first), (again, third), (last, fourth)]


def test_gloo_does_a_reduce_scatter_as_an_all_reduce() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "_reduce_scatter_base_", elements_in=8)
    work = gloo.work(20, "a", elements_in=8)
    assert gloo.pairs() == [(operator, work)]


def test_a_barrier_has_a_tensor_only_in_its_operator() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "barrier", elements_in=1)
    work = gloo.work(20, "a", "barrier", elements_in=0)
    assert gloo.pairs() == [(operator, work)]


def test_sending_is_annotated_on_the_issuing_thread() -> None:
    gloo = Gloo()
    operator = gloo.issue(0, "send")
    work = gloo.build.annotation("gloo:send", 5, 90)
    assert gloo.pairs() == [(operator, work)]


def test_work_that_began_before_anything_was_issued_stands_alone() -> None:
    gloo = Gloo()
    work = gloo.work(0, "a")
    operator = gloo.issue(20)
    gloo.work(40, "a", operation="broadcast")
    calls = link_rank(gloo.build.trace()).calls
    assert (work, operator) not in gloo.pairs()
    assert sorted(calls.annotation.tolist()) == [-1, work, operator + 1]
    assert gloo.annotations()[:3] == (0, 2, {"no profiled operator issued it": 2})


def test_entries_from_before_the_profile_wait_for_no_work() -> None:
    gloo = Gloo()
    gloo.build.communication(gloo.build.record("gloo:all_reduce", -100), operation="gloo:all_reduce")
    operator = gloo.issue(0)
    work = gloo.work(20, "a")
    assert gloo.pairs() == [(operator, work)]


ISSUED = st.lists(
    st.tuples(
        st.sampled_from(["allreduce_", "broadcast_"]),
        st.integers(1, 3),
        st.sampled_from(["tp", "dp"]),
        st.integers(1, 60),
        st.booleans(),
    ),
    max_size=25,
)
ANNOTATED = {"allreduce_": "all_reduce", "broadcast_": "broadcast"}


@settings(max_examples=40)
@given(ISSUED)
def test_every_pair_can_be_and_numbers_find_the_true_ones(
    issued: list[tuple[str, int, str, int, bool]],
) -> None:
    """Groups work in order, one at a time, each at its own speed."""
    for numbered in (True, False):
        gloo, truth, free = Gloo(), [], {"tp": 0, "dp": 0}
        seen: dict[int, tuple[str, int, int]] = {}
        for place, (operation, elements, group, delay, is_annotated) in enumerate(issued):
            start, number = place * 20, place * 10 + 1
            mine = {"number": number} if numbered else {}
            row = gloo.issue(start, operation, group, elements_in=elements, **mine)
            seen[row] = operation, elements, start
            free[group] = max(free[group], start) + delay
            if is_annotated:
                mine = {"number": number + 1} if numbered else {}
                work = gloo.work(free[group], group, ANNOTATED[operation], elements_in=elements, **mine)
                seen[work] = operation, elements, free[group]
                truth.append((row, work))
        found = [(row, work) for row, work in gloo.pairs() if row != -1]
        assert all(seen[row][:2] == seen[work][:2] and seen[row][2] <= seen[work][2] for row, work in found)
        assert len({row for row, _ in found}) == len(found)
        if len({group for _, _, group, _, _ in issued}) == 1 and len(truth) == len(issued):
            assert len(found) == len(truth)
        if numbered:
            assert found == sorted(truth)


# Edges that a source states itself, beside those that linkers find.


def linked(build: TraceBuilder) -> tuple[LinkedRank, dict[str, tuple[int, int, int]]]:
    """The rank, and of each report what was linked, of how many, and how much of it was stated."""
    rank = link_rank(build.trace())
    reports = rank.reports
    return rank, {r.relation: (r.linked, r.candidates, r.notes.get(STATED, 0)) for r in reports}


def test_what_nesting_finds_too_stands_once() -> None:
    build = TraceBuilder()
    outer, inner = build.op("outer", 0, 9), build.op("inner", 1, 5)
    build.edge(outer, Relation.CALLS, inner)
    rank, reports = linked(build)
    assert pairs(rank.edges) == [(outer, inner)]
    assert reports == {"calls": (1, 1, 1)}


def test_a_stated_caller_is_the_only_one() -> None:
    build = TraceBuilder()
    outer, inner = build.op("outer", 0, 9), build.op("inner", 1, 5)
    root = build.node("[pytorch|profiler|execution_trace|thread]", 2)
    leaf = build.op("leaf", 2, 3)
    build.edge(root, Relation.CALLS, inner)
    rank, _ = linked(build)
    assert pairs(rank.edges) == sorted([(root, inner), (inner, leaf)])
    assert outer not in rank.edges.source


def test_nodes_without_times_call_each_other_where_the_source_says_so() -> None:
    build = TraceBuilder()
    root, child = build.node("root", 1), build.node("aten::add", 2)
    build.edge(root, Relation.CALLS, child)
    rank, reports = linked(build)
    assert pairs(rank.edges, Relation.CALLS) == [(root, child)]
    assert reports == {"calls": (1, 1, 1)}


def test_work_whose_launch_is_stated_needs_no_correlation() -> None:
    build = TraceBuilder()
    stream = build.lane(TrackKind.STREAM, "7")
    operator = build.op("aten::mm", 0, 5)
    call = build.event(EventKind.RUNTIME, "cudaLaunchKernel", 1, 2, correlation=4)
    stated = build.kernel("gemm", 6, 8, stream, correlation=4)
    other = build.kernel("gemm", 9, 10, stream, correlation=4)
    build.edge(operator, Relation.LAUNCHES, stated)
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
        build.edge(second, Relation.DEPENDS_ON, first)
        build.edge(third, Relation.DEPENDS_ON, second)
        build.edge(third, Relation.WAITS_FOR, second)
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
        build.edge(source, relation, target)
    edges = link_rank(build.trace()).edges
    told = zip(edges.relation.tolist(), edges.source.tolist(), edges.target.tolist(), strict=True)
    assert sorted(told) == sorted(set(stated))


# What holds of the calls of any rank: nothing is lost, nothing is twice, and the reports add up.


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
    tracks = [0, build.lane(TrackKind.THREAD, "101")]
    stream = build.lane(TrackKind.STREAM, "20")
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
    return link_rank(build.trace())


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
    there = [getattr(calls, name) != UNKNOWN for name in Calls.event_columns()]
    assert all(any(column[place] for column in there) for place in range(len(calls)))
    order = [
        next((time for time in times if time > -1), None)
        for times in zip(calls.enqueued.tolist(), calls.start.tolist(), calls.end.tolist(), strict=True)
    ]
    timed = [time for time in order if time is not None]
    assert timed == sorted(timed)


# The calls that are known to be in traces, and what each is joined from.


RECORDER = frozenset({"record"})
ALL_OF_GLOO = frozenset({"record", "operator", "annotation", "node"})
ALL_OF_GLOO_BUT_RECORDED = ALL_OF_GLOO - RECORDER
ALL_OF_NCCL = frozenset({"operator", "annotation", "kernel"})
KERNEL = frozenset({"kernel"})


class ReadRank(NamedTuple):
    """The calls of a rank, and what was found when it was read."""

    calls: RankCalls
    findings: Sequence[Finding]


def ranks(*paths: str) -> dict[int, ReadRank]:
    gathered = read_ranks(discover_inputs([traces(path) for path in paths]), Processes(1), with_events=False)
    return {
        rank.rank: ReadRank(gathered.store.get(rank.calls.calls), rank.findings) for rank in gathered.ranks
    }


def joined(rank: RankCalls) -> Counter[frozenset[str]]:
    """How many calls have which events."""
    calls = rank.calls
    columns = {name: getattr(calls, name) != UNKNOWN for name in Calls.event_columns()}
    return Counter(
        frozenset(name for name, there in columns.items() if there[place]) for place in range(len(calls))
    )


def operations(rank: RankCalls) -> Counter[str]:
    return Counter(rank.strings[code] for code in rank.calls.operation.tolist())


def contradictions(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.reason == "communication_contradiction"]


NCCL_OF_2023 = (
    ("kineto/cuda_graphs.json.gz",),
    {ALL_OF_NCCL: 75, ALL_OF_NCCL - KERNEL: 10, KERNEL: 5},
)
KNOWN = [
    (("gpu_pair",), {ALL_OF_NCCL | {"node", "record"}: 16}),
    (("gpu_pair/kineto_0.json.gz",), {ALL_OF_NCCL: 16}),
    (("gpu_2021/kineto_0.json",), {ALL_OF_NCCL - {"annotation"}: 16}),
    (("gpu_2023",), {ALL_OF_NCCL | {"node"}: 16}),
    (("gpu_2023/kineto_0.json",), {ALL_OF_NCCL: 16}),
    (("gpu_rocm/kineto_0.json",), {ALL_OF_NCCL: 14, KERNEL: 2}),
    (("compile_job",), {ALL_OF_GLOO - {"node"}: 9}),
    (("gloo/healthy",), {RECORDER: 44}),
    *foreign(
        (("kineto/four_ranks_derived",), {ALL_OF_NCCL: 21}),
        (("pairs/dlrm8",), {ALL_OF_NCCL | {"node"}: 8}),
        (("kineto/mi300_resnet.json.gz",), {ALL_OF_NCCL: 12, KERNEL: 5}),
        NCCL_OF_2023,
        (("kineto/pair_rank0.json.gz",), {ALL_OF_NCCL: 10}),
        (("pairs/resnet_110_nccl",), {ALL_OF_NCCL | {"node"}: 21}),
        (("matched8",), {ALL_OF_GLOO: 46, ALL_OF_GLOO_BUT_RECORDED: 8, RECORDER: 13}),
    ),
]


@pytest.mark.parametrize(("paths", "known"), KNOWN)
def test_calls_have_all_that_their_sources_show(
    paths: Sequence[str], known: dict[frozenset[str], int]
) -> None:
    """Kernels that were launched before the recording are alone; only traced calls are none."""
    for rank in ranks(*paths).values():
        assert joined(rank.calls) == known


def test_gloo_has_recorder_operator_annotation_and_node_of_every_collective() -> None:
    """Steps before and after those of the profile are in the recorder; gloo does not record messages."""
    known = {"all_reduce": 10, "all_gather": 6, "broadcast": 4, "barrier": 5, "send": 2, "recv": 2}
    found = ranks("cpu_job")
    assert sorted(found) == [0, 1]
    for rank in found.values():
        calls = rank.calls.calls
        assert joined(rank.calls) == {ALL_OF_GLOO: 8, ALL_OF_GLOO_BUT_RECORDED: 4, RECORDER: 17}
        assert operations(rank.calls) == known
        in_profile = calls.operator != UNKNOWN
        assert set(calls.evidence[in_profile].tolist()) == {Evidence.ANNOTATION}
        assert set(calls.evidence[~in_profile].tolist()) == {Evidence.NONE}
        recorded = calls.record != UNKNOWN
        assert (calls.sequence[recorded] != UNKNOWN).all()
        assert (calls.group[recorded] != UNKNOWN).all()
        assert (calls.enqueued[1:] >= calls.enqueued[:-1]).all()
        assert (calls.start[in_profile] >= calls.enqueued[in_profile]).all()
        assert contradictions(rank.findings) == []


def test_messages_of_gloo_have_their_peers_and_sizes() -> None:
    for number, rank in ranks("cpu_job").items():
        calls = rank.calls.calls
        texts = [rank.calls.strings[code] for code in calls.operation.tolist()]
        sent = calls.take([place for place, text in enumerate(texts) if text == "send"])
        received = calls.take([place for place, text in enumerate(texts) if text == "recv"])
        assert sent.target.tolist() == received.source.tolist() == [1 - number] * 2
        assert sent.elements_in.tolist() == received.elements_out.tolist() == [32] * 2
        assert sent.point_to_point.all()
        assert received.point_to_point.all()


def test_without_execution_traces_the_order_of_the_work_tells_as_much() -> None:
    """A profile numbers its events only where an execution trace is recorded beside it."""
    known = {ALL_OF_GLOO - {"node"}: 8, ALL_OF_GLOO_BUT_RECORDED - {"node"}: 4, RECORDER: 17}
    paths = [f"cpu_job/kineto_{rank}.json.gz" for rank in range(2)]
    assert all(joined(rank.calls) == known for rank in ranks(*paths, "cpu_job/fr").values())


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("data_parallel", {"all_reduce": 15}),
        *foreign(("kineto/nccl_data.json.gz", {"all_reduce": 15, "broadcast": 6})),
    ],
)
def test_nccl_with_arguments(path: str, known: dict[str, int]) -> None:
    for rank in ranks(path).values():
        calls = rank.calls.calls
        assert operations(rank.calls) == known
        assert {rank.calls.strings[code] for code in calls.group.tolist()} == {"0"}
        assert set(calls.evidence.tolist()) == {Evidence.KERNEL}
        assert (calls.end > calls.start).all()


@pytest.mark.parametrize(
    ("path", "numbers"),
    [
        ("gpu_2023", [1, 2, 3, 4, -1, 1, 2, 3, 5, 6, 7, 8, -1, 4, 5, 6]),
        *foreign(("pairs/dlrm8", [*range(147, 155)]), ("pairs/resnet_110_nccl", [*range(33, 54)])),
    ],
)
def test_nccl_without_arguments_has_its_numbers_from_the_execution_traces(
    path: str, numbers: list[int]
) -> None:
    for rank in ranks(path).values():
        assert rank.calls.calls.sequence.tolist() == numbers


@pytest.mark.foreign
def test_a_compiled_run_has_no_calls_that_were_only_traced() -> None:
    found = ranks("torch_trace/multirank_matched/matched")
    assert [joined(found[rank].calls) for rank in range(4)] == [
        {ALL_OF_GLOO: count} for count in (12, 12, 20, 12)
    ]


def test_a_recorder_alone_numbers_its_calls() -> None:
    assert all((rank.calls.calls.sequence != UNKNOWN).all() for rank in ranks("gloo/healthy").values())
