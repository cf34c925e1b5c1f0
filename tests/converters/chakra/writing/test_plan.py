"""Waiting times, dependencies of nodes by their origin, and device work ordered by operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from builders.chakra import TracedJob, only
from builders.data import shared
from builders.execution_trace import node, process_root, tensor
from builders.job import START
from builders.ordering import RankBuilder
from generators import jobs
from generators.job import Job as Training
from generators.machine import Machine
from tracelink._api.functions import merge
from tracelink._model.columns import Int64s
from tracelink._model.events import Relation
from tracelink._order.order import Order
from tracelink.converters.chakra.census import census
from tracelink.converters.chakra.decode import decode
from tracelink.converters.chakra.schema import Name
from tracelink.converters.chakra.writing.plan import (
    HAND_OVER,
    HOST_WAIT,
    RESUMPTION,
    device_flow,
    waiting_times,
    work_order,
)
from tracelink.converters.chakra.writing.slots import (
    Pairs,
    device_of,
    host_of,
)


def column(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def listed(pairs: Pairs) -> list[tuple[int, int]]:
    return sorted(zip(pairs.before.tolist(), pairs.after.tolist(), strict=True))


def waits(rank: RankBuilder, orders: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Who waited how long, where these are the orders: what ended before what began."""
    part = rank.part()
    host = host_of(part)
    pairs = {
        name: Order.of(np.array([before]), np.array([after])) for name, (before, after) in orders.items()
    }
    time = waiting_times(part, host, pairs)
    return {part.graph.name(int(host.row[place])): int(time[place]) for place in np.flatnonzero(time)}


def test_within_a_call_until_the_device_is_done() -> None:
    rank = RankBuilder()
    item = rank.op("item", 0, 100)
    rank.call("cudaStreamSynchronize", 20, 95, inside=item)
    kernel = rank.work("kernel", 5, 90)
    after = rank.op("next", 110, 120)
    assert waits(rank, {HOST_WAIT: (kernel, after)}) == {"item": 70}


def test_nobody_waits_for_what_was_done_before_the_call() -> None:
    rank = RankBuilder()
    item = rank.op("item", 0, 100)
    rank.call("cudaStreamSynchronize", 20, 95, inside=item)
    kernel = rank.work("kernel", 5, 15)
    after = rank.op("next", 110, 120)
    assert waits(rank, {HOST_WAIT: (kernel, after)}) == {}


@pytest.mark.parametrize("name", [HAND_OVER, RESUMPTION])
def test_while_another_thread_works(name: str) -> None:
    rank = RankBuilder()
    step = rank.op("step", 0, 100)
    rank.op("loss", 10, 20, inside=step)
    backward = rank.op("backward", 25, 70, thread="autograd")
    after = rank.op("optimizer", 75, 90, inside=step)
    assert waits(rank, {name: (backward, after)}) == {"step": 50}


def test_a_thread_that_did_something_meanwhile_did_not_wait() -> None:
    rank = RankBuilder()
    step = rank.op("step", 0, 100)
    backward = rank.op("backward", 25, 40, thread="autograd")
    rank.op("between", 50, 60, inside=step)
    after = rank.op("optimizer", 75, 90, inside=step)
    assert waits(rank, {HAND_OVER: (backward, after)}) == {}


def test_outside_of_operators_nobody_is_made_shorter() -> None:
    rank = RankBuilder()
    rank.op("loss", 10, 20)
    backward = rank.op("backward", 25, 70, thread="autograd")
    after = rank.op("optimizer", 75, 90)
    assert waits(rank, {HAND_OVER: (backward, after)}) == {}


@pytest.mark.parametrize("rank", [0, 1])
def test_the_longest_chain_is_about_as_long_as_the_step(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = Machine.wait_for_device

    def wait_in_an_operator(machine: Machine) -> None:
        with machine.operation("aten::item"):
            wait(machine)

    monkeypatch.setattr(Machine, "wait_for_device", wait_in_an_operator)
    jobs.write(Training(), tmp_path / "traces")
    merge(tmp_path / "traces", output=tmp_path / "job", to="chakra")
    is_as_long_as_the_step(tmp_path, rank)


@pytest.mark.foreign
@pytest.mark.parametrize("rank", range(8))
def test_the_longest_chain_of_a_recorded_step(rank: int, tmp_path: Path) -> None:
    paths = [shared(f"pairs/dlrm8/{kind}.{rank}.json.gz") for kind in ("host", "device")]
    merge(paths, output=tmp_path / "job", to="chakra")
    is_as_long_as_the_step(tmp_path, rank)


def is_as_long_as_the_step(folder: Path, rank: int) -> None:
    with (folder / f"job.{rank}.et").open("rb") as file:
        nodes = decode(file).nodes
    start = nodes.attribute(Name.START).integers(len(nodes), 0)
    length = nodes.attribute(Name.INCLUSIVE).integers(len(nodes), 0)
    length = np.maximum(length, nodes.attribute(Name.DURATION).integers(len(nodes), 0))
    timed = start > 0
    real = int((start + length)[timed].max() - start[timed].min())
    assert 0.95 * real < census(nodes).longest_chain.ns < 1.02 * real


# What nodes wait for: their thread, their launch, their stream, what the host waited for, and their tensors.


US = 1000


def launched(
    job: TracedJob, name: str, at: float, called: float, caller: int | None = None, stream: str = "7"
) -> int:
    return job.work(name, at, at + 5, stream, by=job.call("cudaLaunchKernel", called, inside=caller))


def test_a_thread_runs_one_operator_after_the_other_the_enclosing_one_first(tmp_path: Path) -> None:
    job = TracedJob()
    outer = job.op("outer", 0, 50)
    job.op("inner", 0, 50, inside=outer)
    job.op("next", 60, 65)
    job.op("elsewhere", 30, 35, "other")
    job.op("elsewhere next", 65, 70, "other")
    trace = only(job.build(), tmp_path)
    assert trace.names == ["outer", "inner", "elsewhere", "next", "elsewhere next"]
    assert {name: trace.waits(name) for name in trace.names} == {
        "outer": [],
        "inner": ["outer"],
        "elsewhere": [],
        "next": ["inner"],
        "elsewhere next": ["elsewhere"],
    }
    assert {name: trace.inside(name) for name in trace.names} == {
        "outer": [],
        "inner": ["outer"],
        "elsewhere": [],
        "next": [],
        "elsewhere next": [],
    }


def test_work_waits_for_what_launched_it_and_for_what_ran_before_on_its_stream(tmp_path: Path) -> None:
    job = TracedJob()
    one = job.op("one", 0, 10)
    two = job.op("two", 20, 30)
    launched(job, "first", 40, 2, one)
    launched(job, "second", 50, 21, two)
    launched(job, "aside", 50, 24, two, stream="9")
    trace = only(job.build(), tmp_path)
    assert trace.waits("first") == ["one"]
    assert trace.waits("second") == ["two", "first"]
    assert trace.waits("aside") == ["two"]
    assert trace.reasons["device_order"] == 1


def test_work_that_clocks_put_before_its_launch_comes_after_it(tmp_path: Path) -> None:
    """The clock of a device can be off by microseconds; the time of the node is then that of its launch."""
    job = TracedJob()
    late = job.op("late", 30, 40)
    launched(job, "early", 20, 31, late)
    trace = only(job.build(), tmp_path)
    assert trace.names == ["late", "early"]
    assert trace.times("early")[0] == START // 1000 + 30
    assert trace.attributes_of("early")["start_ns"] == START + 20_000


def test_the_host_goes_on_when_the_stream_that_it_waited_for_has_ended(tmp_path: Path) -> None:
    job = TracedJob()
    one = job.op("one", 0, 10)
    launched(job, "gemm", 15, 2, one)
    job.call("cudaStreamSynchronize", 12, 22)
    job.op("after", 30, 35)
    trace = only(job.build(), tmp_path)
    assert trace.waits("after") == ["one", "gemm"]
    assert trace.reasons["inferred_waits"] == 1


def test_said_dependencies_are_kept(tmp_path: Path) -> None:
    job = TracedJob()
    cause = job.op("cause", 0, 5)
    waiting = job.op("waiting", 10, 15, "other")
    dependent = job.op("dependent", 10, 15, "third")
    job.edge(waiting, Relation.WAITS_FOR, cause)
    job.edge(dependent, Relation.DEPENDS_ON, cause)
    job.edge(cause, Relation.DEPENDS_ON, cause)
    trace = only(job.build(), tmp_path)
    assert (trace.waits("waiting"), trace.waits("dependent"), trace.waits("cause")) == (
        ["cause"],
        ["cause"],
        [],
    )


def test_a_dependency_against_the_order_of_starts_is_left_out_and_counted(tmp_path: Path) -> None:
    job = TracedJob()
    cause = job.op("cause", 20, 25)
    job.edge(job.op("earlier", 0, 5, "other"), Relation.WAITS_FOR, cause)
    trace = only(job.build(), tmp_path)
    assert trace.waits("earlier") == []
    assert trace.reasons["against_order"] == 1


@pytest.fixture
def of_tensors() -> TracedJob:
    """`make` writes what `use` on another thread reads; `other` runs between them on the thread of `use`."""
    job = TracedJob()
    job.node(process_root())
    make = node(3, "make", parent=1, outputs=[tensor()])
    use = node(5, "use", parent=1, inputs=[tensor()])
    made = job.op("make", 0, 10, node=make)
    job.op("other", 20, 30, "second", node=node(4, "other", parent=1))
    used = job.op("use", 40, 50, "second", node=use)
    launched(job, "writing", 12, 5, made)
    launched(job, "reading", 50, 45, used, stream="9")
    return job


@pytest.mark.parametrize(
    ("deps", "use", "reading"),
    [
        ("time", ["other"], ["use"]),
        ("data", ["make"], ["writing", "use"]),
        ("both", ["make", "other"], ["writing", "use"]),
    ],
)
def test_by_time_by_tensors_or_both(
    of_tensors: TracedJob, deps: str, use: list[str], reading: list[str], tmp_path: Path
) -> None:
    trace = only(of_tensors.build(), tmp_path, deps=deps)
    assert [name for name in trace.waits("use") if "process" not in name] == use
    assert trace.waits("reading") == reading


def test_without_threads_what_is_inside_an_operator_still_comes_after_it(tmp_path: Path) -> None:
    job = TracedJob()
    outer = job.op("outer", 0, 50)
    job.op("inner", 10, 20, inside=outer)
    job.op("next", 60, 65)
    trace = only(job.build(), tmp_path, deps="data")
    assert trace.waits("inner") == ["outer"]
    assert trace.waits("next") == []


def test_works_of_one_operator_are_in_order_where_streams_are_not(tmp_path: Path) -> None:
    job = TracedJob()
    outer = job.op("outer", 0, 50)
    launched(job, "first", 10, 2, outer)
    launched(job, "second", 20, 4, outer)
    launched(job, "of another", 30, 52, job.op("another", 51, 56))
    trace = only(job.build(), tmp_path, deps="data")
    assert trace.waits("second") == ["outer", "first"]
    assert trace.waits("of another") == ["another"]


class TestWorkForTensors:
    """The first work of who reads a tensor after the last work of who wrote it."""

    @pytest.fixture
    def rank(self) -> RankBuilder:
        return RankBuilder()

    def flow(self, rank: RankBuilder, *both: tuple[int, int]) -> list[tuple[str, str]]:
        part = rank.part()
        host = host_of(part)
        device = device_of(part, host)
        place = {row: number for number, row in enumerate(host.row.tolist())}
        writers, readers = (column([place[pair[side]] for pair in both]) for side in (0, 1))
        found = device_flow(part.events, host, device, writers, readers)
        rows = device.row.tolist()
        return [
            (part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in listed(found)
        ]

    def test_the_last_after_the_first(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        for name, at, inside, stream in (
            ("a", 40, make, 7),
            ("b", 50, make, 7),
            ("c", 70, use, 9),
            ("d", 80, use, 9),
        ):
            rank.work(name, at, at + 5, stream, launched=1 if inside == make else 21, inside=inside)
        assert self.flow(rank, (make, use)) == [("b", "c")]

    def test_work_of_inner_operators_is_that_of_the_outer_one_too(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        inner = rank.op("inner", 1, 9, inside=make)
        use = rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=inner)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == [("a", "b")]

    def test_times_must_not_contradict_it(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 90, launched=2, inside=make)
        rank.work("b", 60, 65, 9, launched=21, inside=use)
        assert self.flow(rank, (make, use)) == []

    def test_operators_without_work_put_nothing_in_order(self, rank: RankBuilder) -> None:
        make, use = rank.op("make", 0, 10), rank.op("use", 20, 30)
        rank.work("a", 40, 45, launched=2, inside=make)
        assert self.flow(rank, (make, use), (use, make)) == []

    def test_works_of_one_operator(self, rank: RankBuilder) -> None:
        make = rank.op("make", 0, 10)
        other = rank.op("other", 10, 20)
        for name, at, inside in (("a", 40, make), ("c", 60, make), ("b", 50, other), ("d", 62, make)):
            rank.work(name, at, at + 5, at, launched=11 if inside == other else 1, inside=inside)
        part = rank.part()
        device = device_of(part, host_of(part))
        rows = device.row.tolist()
        found = listed(work_order(part.events, device))
        assert [(part.graph.name(rows[before]), part.graph.name(rows[after])) for before, after in found] == [
            ("a", "c")
        ]
