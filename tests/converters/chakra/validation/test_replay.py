"""The replay of all ranks: which jobs finish, and where the others stop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.chakra_files import EtFile, trace_of
from tracelink._model.columns import UNKNOWN
from tracelink.converters.chakra.chakra_pb2 import Node
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.validation.replay import (
    INSTANT,
    SLOW,
    Deadlock,
    RankSteps,
    Replay,
    Wait,
    replay_in_order,
    replay_in_time,
)
from tracelink.converters.chakra.validation.trace import steps_of

Groups = Mapping[int, Sequence[int]]

PAIR = {1: (0, 1), 2: (0, 1)}
"""Two groups of the same two ranks."""


def steps(files: Sequence[EtFile], groups: Groups) -> dict[int, RankSteps]:
    return {trace.rank: steps_of(trace_of(trace, groups)) for trace in files}


def replayed(files: Sequence[EtFile], groups: Groups) -> Replay:
    return replay_in_order(steps(files, groups), groups)


def sequences(*ranks: Sequence[int], members: Groups) -> Replay:
    """The replay of ranks that run collectives of these groups one after the other."""
    files = [EtFile(rank) for rank in range(len(ranks))]
    for trace, groups in zip(files, ranks, strict=True):
        for group in groups:
            trace.collective(group=str(group), after=trace.nodes[-1:])
    return replayed(files, members)


class TestCollectives:
    def test_one_order_on_all_ranks_finishes(self) -> None:
        assert sequences([1, 2, 1], [1, 2, 1], members=PAIR) == Replay({})

    def test_two_groups_in_crossed_order(self) -> None:
        replay = sequences([1, 1, 2], [1, 2, 1], members=PAIR)
        assert replay == Replay({0: 2, 1: 2}, [Deadlock([Wait(0, 1, 2), Wait(1, 1, 2)])])

    def test_a_circle_of_three_groups_of_two(self) -> None:
        replay = sequences([1, 3], [2, 1], [3, 2], members={1: (0, 1), 2: (1, 2), 3: (0, 2)})
        circle = [Wait(0, 0, 1), Wait(1, 0, 1), Wait(2, 0, 1)]
        assert replay == Replay({0: 2, 1: 2, 2: 2}, [Deadlock(circle)])

    def test_ranks_behind_a_circle_are_unfinished_and_not_part_of_it(self) -> None:
        replay = sequences([1, 2, 3], [2, 1], [3], members={1: (0, 1), 2: (0, 1), 3: (0, 2)})
        assert replay == Replay({0: 3, 1: 2, 2: 1}, [Deadlock([Wait(0, 0, 1), Wait(1, 0, 1)])])

    def test_two_circles_are_two_deadlocks(self) -> None:
        members = {1: (0, 1), 2: (0, 1), 3: (2, 3), 4: (2, 3)}
        replay = sequences([1, 2], [2, 1], [3, 4], [4, 3], members=members)
        assert replay.deadlocks == [
            Deadlock([Wait(0, 0, 1), Wait(1, 0, 1)]),
            Deadlock([Wait(2, 0, 1), Wait(3, 0, 1)]),
        ]

    def test_members_without_a_file_take_part(self) -> None:
        members = {1: (0, 1), 2: (1, 2), 3: (0, 2)}
        files = [EtFile(0), EtFile(1)]
        for trace, groups in zip(files, ("13", "21"), strict=True):
            for group in groups:
                trace.collective(group=group, after=trace.nodes[-1:])
        assert replayed(files, members).finishes

    def test_a_broadcast_waits_for_no_rank(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace, groups in zip(files, ("12", "21"), strict=True):
            for group in groups:
                trace.collective(CollectiveType.BROADCAST, group=group, after=trace.nodes[-1:])
        assert replayed(files, PAIR).finishes

    def test_one_op_at_a_time_crosses_what_dependencies_do_not_order(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace, groups in zip(files, ("12", "21"), strict=True):
            for group in groups:
                trace.collective(group=group)
        ranks = steps(files, PAIR)
        assert replay_in_order(ranks, PAIR).unfinished == {0: 2, 1: 2}
        assert replay_in_order(ranks, PAIR, one_at_a_time=False).finishes


class TestMessages:
    def test_both_ends_receive_before_they_send(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            trace.send(1 - trace.rank, after=[trace.receive(1 - trace.rank)])
        replay = replayed(files, {})
        assert replay == Replay({0: 2, 1: 2}, [Deadlock([Wait(0, 0, 1), Wait(1, 0, 1)])])

    def test_a_receive_does_not_occupy_its_rank(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            trace.receive(1 - trace.rank)
            trace.send(1 - trace.rank)
        assert replayed(files, {}).finishes

    def test_a_send_waits_for_no_receive(self) -> None:
        first, second = EtFile(0), EtFile(1)
        first.collective(group="1", after=[first.send(1)])
        second.receive(0, after=[second.collective(group="1")])
        assert replayed([first, second], {1: (0, 1)}).finishes

    def test_a_send_behind_a_receive_runs_out_of_order(self) -> None:
        """The second send of rank 0 does not wait for the first one, which waits for rank 1."""
        first, second = EtFile(0), EtFile(1)
        first.send(1, tag=1, after=[first.receive(1)])
        first.send(1, tag=2)
        second.send(0, after=[second.receive(0, tag=2)])
        second.receive(0, tag=1)
        assert replayed([first, second], {}).finishes

    def test_messages_are_matched_by_tag_and_size(self) -> None:
        first, second = EtFile(0), EtFile(1)
        first.send(1, tag=2, size=8)
        second.receive(0, tag=2, size=16)
        assert replayed([first, second], {}).unfinished == {1: 1}


class TestTime:
    def race(self) -> list[EtFile]:
        """On each rank another collective waits for a kernel."""
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            gemm = trace.compute()
            for group in (0, 1):
                trace.collective(group=str(1 + group), after=[gemm] * (group == trace.rank))
        return files

    def test_ranks_that_wait_for_computation_in_different_order_deadlock(self) -> None:
        ranks = steps(self.race(), PAIR)
        assert replay_in_order(ranks, PAIR).finishes
        for duration in (INSTANT, SLOW):
            replay = replay_in_time(ranks, PAIR, duration)
            assert replay.deadlocks == [Deadlock([Wait(0, 1, 1), Wait(1, 0, 0)])]

    def test_different_collectives_of_one_group_at_once_disagree(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            gemm = trace.compute()
            for number in (0, 1):
                trace.collective(size=64 << number, group="1", after=[gemm] * (number == trace.rank))
        ranks = steps(files, PAIR)
        assert replay_in_order(ranks, PAIR).finishes
        replay = replay_in_time(ranks, PAIR, INSTANT)
        assert replay.deadlocks == [Deadlock([Wait(0, 1, 0), Wait(1, 0, 0)], disagrees=True)]

    def test_equal_ranks_finish_whatever_takes_longer(self) -> None:
        files = [EtFile(0), EtFile(1)]
        for trace in files:
            for group in "12" * 3:
                trace.collective(group=group, after=[trace.compute()])
        ranks = steps(files, PAIR)
        for duration in (INSTANT, SLOW):
            assert replay_in_time(ranks, PAIR, duration).finishes


class TestWaits:
    """What each op waits for, through computation."""

    def before(self, trace: EtFile) -> list[list[int]] | None:
        found = steps_of(trace_of(trace, {1: (0, 1)}))
        return None if found.before is None else [found.before[row] for row in range(len(found))]

    def test_ops_in_a_chain_need_no_list(self) -> None:
        trace = EtFile()
        for _ in range(3):
            trace.collective(group="1", after=trace.nodes[-1:])
        assert self.before(trace) is None

    def test_ops_in_order_through_computation_need_no_list(self) -> None:
        trace = EtFile()
        first = trace.collective(group="1")
        trace.collective(group="1", after=[trace.compute(after=[first])])
        trace.collective(group="1", after=trace.nodes[-2:])
        assert self.before(trace) is None

    def test_computation_passes_on_what_it_waits_for(self) -> None:
        trace = EtFile()
        first, second = trace.collective(group="1"), trace.collective(group="1")
        gemm = trace.compute(after=[first])
        trace.collective(group="1", after=[trace.compute(after=[gemm, second])])
        assert self.before(trace) == [[], [], [0, 1]]

    def test_the_last_op_of_a_chain_represents_it(self) -> None:
        trace = EtFile()
        trace.collective(group="1")
        first = trace.collective(group="1")
        trace.collective(group="1", after=[trace.compute(after=[first])])
        trace.collective(group="1", after=trace.nodes[-2:])
        assert self.before(trace) == [[], [], [1], [2]]

    def test_computation_between_ops_takes_its_time(self) -> None:
        trace = EtFile()
        trace.collective(group="1")
        gemm = trace.compute(after=[trace.compute()])
        first = trace.collective(group="1", after=[gemm])
        trace.collective(group="1", after=[trace.compute(after=[first])])
        found = steps_of(trace_of(trace, {1: (0, 1)}))
        assert found.first_delay is not None
        assert found.delay is not None
        assert (found.first_delay.tolist(), found.delay.tolist()) == ([0, 20_000, 0], [10_000])


# Properties.


@st.composite
def graphs(draw: st.DrawFn) -> EtFile:
    """Collectives and computation of one rank, after any earlier nodes."""
    trace = EtFile()
    for communicates in draw(st.lists(st.booleans(), max_size=12)):
        after = draw(st.lists(st.sampled_from(trace.nodes), unique_by=id, max_size=3)) if trace.nodes else []
        if communicates:
            trace.collective(group="1", after=after)
        else:
            trace.compute(after=after)
    return trace


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_ops_wait_for_all_ops_from_which_a_path_of_dependencies_leads_to_them(trace: EtFile) -> None:
    reached: dict[int, set[int]] = {}
    for node in trace.nodes:
        reached[node.id] = set(node.data_deps).union(*(reached[earlier] for earlier in node.data_deps))
    ops = [node.id for node in trace.nodes if node.type == NodeType.COMM_COLL]
    expected = [{ops.index(node) for node in reached[op] if node in ops} for op in ops]
    found = steps_of(trace_of(trace, {1: (0, 1)}))
    waits: list[set[int]] = []
    for row in range(len(found)):
        direct = ([row - 1] if row else []) if found.before is None else found.before[row]
        waits.append(set(direct).union(*(waits[earlier] for earlier in direct)))
    assert waits == expected


def groups_of(world: int) -> st.SearchStrategy[dict[int, tuple[int, ...]]]:
    members = st.sets(st.integers(0, world - 1), min_size=2).map(lambda ranks: tuple(sorted(ranks)))
    return st.lists(members, min_size=1, max_size=4).map(lambda found: dict(enumerate(found, 1)))


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[EtFile], Groups]:
    """Ranks with collectives and messages in one order, or in any order, between computation."""
    world = draw(st.integers(2, 4))
    groups = draw(groups_of(world))
    ops: list[tuple[int, ...]] = draw(
        st.lists(
            st.sampled_from(sorted(groups)).map(lambda group: (group,))
            | st.tuples(st.integers(0, world - 1), st.integers(1, world - 1)),
            max_size=7,
        )
    )
    files = [EtFile(rank) for rank in range(world)]
    for trace in files:
        own = list(enumerate(ops))
        for number, op in draw(st.permutations(own)) if draw(st.booleans()) else own:
            earlier = st.lists(st.sampled_from(trace.nodes), unique_by=id, max_size=3)
            if draw(st.booleans()):
                trace.compute(after=draw(earlier) if trace.nodes else [])
            add(trace, op, number, groups, draw(earlier) if trace.nodes else [])
    return files, groups


def add(trace: EtFile, op: tuple[int, ...], tag: int, groups: Groups, after: Sequence[Node]) -> None:
    """What a rank does for a collective `(group,)` or for a message `(source, distance)`."""
    if len(op) == 1:
        if trace.rank in groups[op[0]]:
            trace.collective(group=str(op[0]), after=after)
        return
    source, target = op[0], sum(op) % 4
    if trace.rank == source != target:
        trace.send(target, tag, after=after)
    elif trace.rank == target != source:
        trace.receive(source, tag, after=after)


class Naive:
    """The same replay, node by node, by looking at everything again after each step."""

    def __init__(self, files: Sequence[EtFile], groups: Groups) -> None:
        self.files, self.groups = files, groups
        self.done: set[tuple[int, int]] = set()
        self.issued: list[tuple[int, Node]] = []

    def unfinished(self) -> Counter[int]:
        while self.advance():
            pass
        return Counter(
            trace.rank
            for trace in self.files
            for node in trace.nodes
            if node.type != NodeType.COMP and (trace.rank, node.id) not in self.done
        )

    def advance(self) -> bool:
        return self.complete() or self.start(in_order=True) or self.start(in_order=False)

    def complete(self) -> bool:
        """Completes what can complete."""
        before = len(self.done)
        for trace in self.files:
            for node in trace.nodes:
                if node.type == NodeType.COMP and self.free(trace, node):
                    self.done.add((trace.rank, node.id))
        for ops in self.matches().values():
            ranks = {rank for rank, _ in ops}
            kind, group = ops[0][1].type, attribute(ops[0][1], "pg_name")
            if kind == NodeType.COMM_COLL and len(ranks) < len(self.groups[int(group)]):
                continue
            sent = [node for _, node in ops if node.type == NodeType.COMM_SEND]
            self.done |= {(rank, node.id) for rank, node in ops if kind == NodeType.COMM_COLL or sent}
        return len(self.done) > before

    def matches(self) -> dict[object, list[tuple[int, Node]]]:
        """The issued ops of each collective and of each message."""
        counts, found = Counter[object](), defaultdict[object, list[tuple[int, Node]]](list)
        for rank, node in self.issued:
            if node.type == NodeType.COMM_COLL:
                group = attribute(node, "pg_name")
                counts[rank, group] += 1
                found[group, counts[rank, group]].append((rank, node))
            else:
                found["message", attribute(node, "comm_tag")].append((rank, node))
        return found

    def start(self, *, in_order: bool) -> bool:
        """Issues receives and the next op of each rank; out of order, sends only if there are some."""
        before = len(self.issued)
        chosen = []
        for trace in self.files:
            left = [
                node
                for node in trace.nodes
                if node.type != NodeType.COMP and (trace.rank, node) not in self.issued
            ]
            receives = [node for node in left if node.type == NodeType.COMM_RECV and self.free(trace, node)]
            self.issued += [(trace.rank, node) for node in receives]
            ops = [node for node in left if node.type != NodeType.COMM_RECV]
            running = [
                node
                for rank, node in self.issued
                if rank == trace.rank and node.type != NodeType.COMM_RECV and (rank, node.id) not in self.done
            ]
            free = [node for node in (ops[:1] if in_order else ops) if self.free(trace, node)]
            chosen += [(trace.rank, node) for node in free[:1] if not running]
        if len(self.issued) == before:
            sends = [op for op in chosen if op[1].type == NodeType.COMM_SEND]
            self.issued += (sends or chosen) if not in_order else chosen
        return len(self.issued) > before

    def free(self, trace: EtFile, node: Node) -> bool:
        before = {*node.data_deps, *node.ctrl_deps}
        return (trace.rank, node.id) not in self.done and all(
            (trace.rank, other) in self.done for other in before
        )


def attribute(node: Node, name: str) -> str:
    return next(
        (str(getattr(found, found.WhichOneof("value"))) for found in node.attr if found.name == name), ""
    )


@given(programs())
@settings(max_examples=150, deadline=None)
def test_the_replay_ends_where_a_naive_one_ends(program: tuple[list[EtFile], Groups]) -> None:
    files, groups = program
    assert replayed(files, groups).unfinished == Naive(files, groups).unfinished()


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_job_of_ordered_groups_finishes_and_a_crossed_pair_never_does(data: st.DataObject) -> None:
    world = data.draw(st.integers(2, 5))
    groups = data.draw(groups_of(world))
    ops = data.draw(st.lists(st.sampled_from(sorted(groups)), min_size=1, max_size=8))
    files = [EtFile(rank) for rank in range(world)]
    for trace in files:
        for number in ops:
            if trace.rank in groups[number]:
                gemm = [trace.compute()] if data.draw(st.booleans()) else []
                trace.collective(group=str(number), after=[*trace.nodes[-1:], *gemm][-2:])
    ranks = steps(files, groups)
    assert replay_in_order(ranks, groups) == Replay({})
    assert replay_in_time(ranks, groups, SLOW).finishes
    first, second = groups[data.draw(st.sampled_from(ops))][:2]
    crossed = {**groups, 8: (first, second), 9: (first, second)}
    at = data.draw(st.integers(0, 3))
    for trace in files:
        for group in {first: "89", second: "98"}.get(trace.rank, ""):
            trace.collective(group=group, after=trace.nodes[-1 - at :])
    replay = replay_in_order(steps(files, crossed), crossed)
    assert replay.unfinished == {first: 2, second: 2}
    (deadlock,) = replay.deadlocks
    assert [wait.rank for wait in deadlock.waits] == [first, second]


def test_many_ops_of_many_ranks_take_linear_time() -> None:
    """Ten thousand collectives on each of eight ranks, of all ranks and of two in turn."""
    count = 10_000
    members = {1: tuple(range(8)), **{2 + pair: (2 * pair, 2 * pair + 1) for pair in range(4)}}
    numbers = np.arange(count)
    ranks = {
        rank: RankSteps(
            node=numbers,
            kind=np.full(count, int(NodeType.COMM_COLL)),
            group=np.where(numbers % 2 == 0, 1, 2 + rank // 2),
            type=np.zeros(count, np.int64),
            size=np.full(count, 64),
            peer=np.full(count, UNKNOWN),
            tag=np.zeros(count, np.int64),
        )
        for rank in range(8)
    }
    assert replay_in_order(ranks, members).finishes
