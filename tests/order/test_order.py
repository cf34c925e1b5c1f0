"""Order by tensors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.job import JobBuilder
from builders.ordering import named
from tracelink._model.causes import greatest_inside
from tracelink._model.events import EventKind, Key, Relation, TrackKind
from tracelink._model.graph import Excerpt
from tracelink._model.trace import StorageUses
from tracelink._order.order import Order, tensor_order


class Nodes:
    """Nodes in the order of their ids, and what they use."""

    def __init__(self) -> None:
        self.graph = JobBuilder()
        self.track = self.graph.track(TrackKind.NODES)
        self.thread = self.graph.track(TrackKind.THREAD, identity="main")
        self.uses: list[tuple[int, int, bool]] = []

    def add(
        self,
        name: str,
        parent: int = -1,
        *,
        reads: tuple[int, ...] = (),
        writes: tuple[int, ...] = (),
        ran: tuple[int, int] | None = None,
    ) -> int:
        row = self.graph.add(self.track, name, None, -1, EventKind.NODE)
        keys = self.graph.keys
        keys.setdefault(Key.NODE_ID, []).append((row, 2 + row))
        if parent != -1:
            keys.setdefault(Key.NODE_PARENT, []).append((row, 2 + parent))
        self.uses += [(row, storage, False) for storage in reads] + [
            (row, storage, True) for storage in writes
        ]
        if ran:
            operator = self.graph.add(self.thread, name, ran[0], ran[1] - ran[0])
            self.graph.edge(row, Relation.SAME, operator)
        return row

    def order(self) -> Order:
        rows, storages, writes = zip(*self.uses, strict=True) if self.uses else ((), (), ())
        uses = StorageUses(np.array(rows, np.int64), np.array(storages, np.int64), np.array(writes, np.bool_))
        return tensor_order(self.part(), uses)

    def part(self) -> Excerpt:
        return Excerpt(self.graph.build())

    def pairs(self) -> list[tuple[str, str]]:
        return named(self.part(), self.order())


def test_a_reader_follows_the_last_writer_and_not_an_earlier_owner_of_the_address() -> None:
    nodes = Nodes()
    nodes.add("earlier owner", writes=(7,))
    nodes.add("writer", writes=(7,))
    nodes.add("reader", reads=(7, 9))
    nodes.add("later owner", writes=(7,))
    assert nodes.pairs() == [("writer", "reader")]
    assert nodes.order().counts == {
        "reads": 2,
        "with_writer": 1,
        "writer_not_recorded": 1,
        "contradicted_by_times": 0,
    }


def test_nobody_waits_for_what_only_reads() -> None:
    nodes = Nodes()
    nodes.add("writer", writes=(7,))
    nodes.add("reader", reads=(7,))
    nodes.add("another reader", reads=(7,))
    nodes.add("writer again", writes=(7,))
    assert nodes.pairs() == [("writer", "another reader"), ("writer", "reader")]


def test_the_outer_writer_counts_outside_it_and_the_inner_one_inside() -> None:
    nodes = Nodes()
    linear = nodes.add("linear", writes=(7,))
    nodes.add("addmm", linear, writes=(7,))
    nodes.add("relu in linear", linear, reads=(7,))
    nodes.add("relu", reads=(7,))
    assert nodes.pairs() == [("addmm", "relu in linear"), ("linear", "relu")]


def test_a_node_waits_for_nothing_that_encloses_it_or_is_itself() -> None:
    nodes = Nodes()
    nodes.add("first", writes=(7,))
    outer = nodes.add("outer", writes=(7,))
    nodes.add("in place", outer, reads=(7,), writes=(7,))
    assert nodes.pairs() == [("first", "in place")]


def test_times_decide_between_threads() -> None:
    nodes = Nodes()
    nodes.add("overlapping writer", writes=(7,), ran=(0, 30))
    nodes.add("reader", reads=(7,), ran=(20, 40))
    order = nodes.order()
    assert (len(order), order.counts["contradicted_by_times"]) == (0, 1)


def test_several_storages_of_one_writer_are_one_pair() -> None:
    nodes = Nodes()
    nodes.add("writer", writes=(7, 9))
    nodes.add("reader", reads=(7, 9))
    assert nodes.pairs() == [("writer", "reader")]


def test_no_nodes() -> None:
    assert len(Nodes().order()) == 0


TREES = st.lists(st.integers(-1, 9), max_size=10)


@given(TREES)
def test_greatest_inside(drawn: list[int]) -> None:
    parents = [parent if parent < place else -1 for place, parent in enumerate(drawn)]

    def encloses(outer: int, inner: int) -> bool:
        while inner not in (-1, outer):
            inner = parents[inner]
        return inner == outer

    expected = [max(n for n in range(len(parents)) if encloses(place, n)) for place in range(len(parents))]
    assert greatest_inside(np.array(parents, np.int64), np.arange(len(parents))).tolist() == expected


USED = st.lists(st.integers(1, 3), max_size=2)


@given(TREES, st.lists(st.tuples(USED, USED), min_size=10, max_size=10))
def test_every_read_follows_the_last_complete_writer(
    drawn: list[int], used: list[tuple[list[int], list[int]]]
) -> None:
    """Nodes nest as on one thread: a node is inside one that is still open."""
    nodes, stack, parents = Nodes(), [-1], []
    for number, depth in enumerate(drawn):
        del stack[max(1, min(len(stack), depth + 2)) :]
        parents.append(stack[-1])
        reads, writes = used[number]
        stack.append(nodes.add(str(number), stack[-1], reads=tuple(reads), writes=tuple(writes)))
    last = greatest_inside(np.array(parents, np.int64), np.arange(len(parents))).tolist()
    expected = set()
    for reader in range(len(drawn)):
        for storage in used[reader][0]:
            complete = [n for n in range(reader) if last[n] < reader and storage in used[n][1]]
            if complete:
                expected.add((max(complete, key=lambda n: (last[n], -n)), reader))
    order = nodes.order()
    assert set(zip(order.before.tolist(), order.after.tolist(), strict=True)) == expected
