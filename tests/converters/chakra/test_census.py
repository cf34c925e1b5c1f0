"""`tracelink.converters.chakra.census`."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.chakra_files import EtFile, nodes_of, put, take
from tracelink.converters.chakra.census import (
    Communication,
    LongestChain,
    Precedence,
    census,
    communication,
    cycle,
    earliest,
)
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.table import Links, NodeTable, Role

US = 1000


def table(data: list[list[int]], control: list[list[int]] | None = None, duration: int = 1) -> NodeTable:
    """Nodes 0, 1, ... that wait for these."""
    count = len(data)
    return NodeTable(
        np.arange(count),
        np.zeros(count, np.int32),
        np.full(count, NodeType.COMP, np.uint8),
        np.zeros(count, np.int64),
        np.full(count, duration, np.int64),
        Links.of(data),
        Links.of(control or [[]] * count),
        ["node"],
    )


class TestRoles:
    def test_every_sort_of_node_is_counted(self) -> None:
        trace = EtFile()
        trace.operator("aten::mm", 0, 5)
        put(trace.operator("gap", 5, 5), "cat", "string_val", "idle")
        trace.kernel("gemm", 0, 5)
        put(trace.kernel("copy", 0, 5), "cat", "string_val", "gpu_memcpy")
        put(trace.kernel("zero", 0, 5), "cat", "string_val", "gpu_memset")
        trace.collective()
        trace.send(1)
        trace.receive(1)
        for kind in (NodeType.METADATA, NodeType.MEM_LOAD, NodeType.MEM_STORE, NodeType.INVALID):
            trace.node(kind, kind.name)
        assert census(nodes_of(trace)).nodes == dict.fromkeys(Role, 1)

    def test_copies_without_a_category_go_by_the_profilers_names(self) -> None:
        trace = EtFile()
        for name in ("Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "MemcpyKernel_like"):
            trace.kernel(name, 0, 1)
        trace.operator("Memcpy of the host", 0, 1)
        assert census(nodes_of(trace)).nodes == {Role.MEMCPY: 2, Role.MEMSET: 1, Role.HOST: 1}


class TestCommunication:
    def test_kinds_are_summed_for_each_group_the_most_bytes_first(self) -> None:
        trace = EtFile()
        trace.collective(CollectiveType.ALL_REDUCE, 100, "1")
        trace.collective(CollectiveType.ALL_REDUCE, 20, "1")
        trace.collective(CollectiveType.ALL_REDUCE, 7, "2")
        trace.collective(CollectiveType.REDUCE_SCATTER_BLOCK, 9)
        trace.send(1, size=64)
        trace.receive(1, size=64)
        assert communication(nodes_of(trace)) == [
            Communication("all_reduce", "1", 2, 120),
            Communication("recv", "", 1, 64),
            Communication("send", "", 1, 64),
            Communication("reduce_scatter_block", "", 1, 9),
            Communication("all_reduce", "2", 1, 7),
        ]

    def test_what_says_no_size_and_no_type_is_counted_as_that(self) -> None:
        trace = EtFile()
        node = trace.collective()
        take(node, "comm_size")
        take(node, "comm_type")
        put(trace.collective(), "comm_size", "int64_val", -1)
        put(trace.collective(size=8), "comm_type", "int64_val", 42)
        assert communication(nodes_of(trace)) == [
            Communication("comm_type 42", "", 1, 8),
            Communication("all_reduce", "", 1, 0, without_size=1),
            Communication("unknown", "", 1, 0, without_size=1),
        ]


class TestLongestChain:
    def test_it_is_the_longest_and_not_the_one_of_most_nodes(self) -> None:
        trace = EtFile()
        step = trace.operator("step", 0, 3)
        copy = trace.kernel("copy", 3, 4, step)
        reduce = trace.collective(after=[copy])
        reduce.duration_micros = 50
        short = [trace.kernel("a", 3, 5, step)]
        for name in ("b", "c", "d", "e"):
            short.append(trace.kernel(name, 3, 5))
            short[-1].data_deps.append(short[-2].id)
        last = trace.kernel("last", 60, 2)
        last.data_deps.extend([reduce.id, short[-1].id])
        assert census(nodes_of(trace)).longest_chain == LongestChain(
            ns=59 * US, compute_ns=6 * US, communication_ns=50 * US, host_ns=3 * US, nodes=4
        )

    def test_exact_durations_count_where_they_say_the_same_as_the_field(self) -> None:
        trace = EtFile()
        first, second = trace.compute("a"), trace.compute("b")
        second.data_deps.append(first.id)
        put(first, "duration_ns", "int64_val", 10_400)
        put(second, "duration_ns", "int64_val", 99_000)
        assert census(nodes_of(trace)).longest_chain.ns == 10_400 + 10_000

    def test_a_cycle_and_what_is_behind_it_are_left_out_and_named(self) -> None:
        trace = EtFile()
        a, b, c = (trace.compute(name) for name in "abc")
        alone = trace.compute("alone")
        a.data_deps.append(c.id)
        b.ctrl_deps.append(a.id)
        c.data_deps.append(b.id)
        trace.compute("behind", [c, alone])
        found = census(nodes_of(trace))
        assert (found.longest_chain, found.nodes_without_order) == (
            LongestChain(10 * US, 10 * US, nodes=1),
            4,
        )
        assert sorted(found.cycle) == [a.id, b.id, c.id]

    def test_missing_and_own_dependencies_do_not_count(self) -> None:
        trace = EtFile()
        node = trace.compute("a")
        node.data_deps.extend([node.id, 99, (1 << 64) - 1])
        found = census(nodes_of(trace))
        assert (found.longest_chain.nodes, found.missing_dependencies, found.nodes_without_order) == (1, 2, 0)

    def test_numbers_of_64_bits_are_taken_as_they_are(self) -> None:
        trace = EtFile()
        huge = trace.compute("huge")
        huge.id, huge.duration_micros = (1 << 64) - 1, (1 << 64) - 1
        after = trace.compute("after", [huge])
        after.duration_micros = 1
        assert census(nodes_of(trace)).longest_chain.ns == (1 << 64) * US

    def test_no_nodes_no_chain(self) -> None:
        assert census(nodes_of(EtFile())).longest_chain == LongestChain()


class TestDevice:
    def test_those_that_wait_for_another_one_directly_are_counted(self) -> None:
        trace = EtFile()
        launch = trace.operator("launch", 0, 1)
        first = trace.kernel("first", 1, 1, launch)
        trace.kernel("second", 2, 1, first)
        wait = trace.operator("wait", 3, 1, first)
        trace.kernel("behind the host", 4, 1, wait)
        trace.collective(after=[first])
        found = census(nodes_of(trace))
        assert (found.device_nodes, found.device_nodes_after_device) == (4, 2)


@given(
    st.lists(
        st.lists(st.integers(0, 20), max_size=3),
        max_size=20,
    )
)
def test_the_schedule_is_that_of_the_definition(waits: list[list[int]]) -> None:
    nodes = table(waits)
    precedence = Precedence.of(nodes)
    schedule = earliest(precedence, [1] * len(waits))
    causes = {row: {one for one in some if one < len(waits)} - {row} for row, some in enumerate(waits)}
    done: dict[int, int] = {}
    while ready := [row for row in causes if row not in done and causes[row] <= done.keys()]:
        done |= {row: max((done[cause] for cause in causes[row]), default=0) + 1 for row in ready}
    assert {row: schedule.begins[row] + 1 for row in schedule.order} == done
    circle = cycle(precedence, schedule)
    assert bool(circle) == (len(done) < len(waits))
    assert all(before in causes[row] for before, row in zip([*circle[-1:], *circle], circle, strict=False))


@pytest.mark.parametrize("shape", ["chain", "circle"])
def test_a_hundred_thousand_nodes_take_less_than_a_second(shape: str) -> None:
    count = 100_000
    first = [] if shape == "chain" else [count - 1]
    nodes = table([first, *([row] for row in range(count - 1))])
    began = time.process_time()
    found = census(nodes)
    assert time.process_time() - began < 1
    assert (found.longest_chain.nodes, found.nodes_without_order) == (
        (count, 0) if shape == "chain" else (0, count)
    )
