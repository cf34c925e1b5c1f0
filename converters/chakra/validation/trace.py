"""The nodes of one rank as rules need them: dependencies, issue order, attributes, and communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, UNKNOWN, Bools, Int64s, Table, scatter
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.decode import Decoded
from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.table import Attribute, Links, NodeTable, chosen, cycles_in, signed, unsigned
from tracelink.converters.chakra.validation.files import Groups
from tracelink.converters.chakra.validation.replay import RankSteps
from tracelink.converters.chakra.validation.rules import Broken, Rule, Violation

_LONGEST_NAME = 60


class Breach(Struct, frozen=True):
    """The rows of nodes that break a rule."""

    rule: Rule
    rows: Int64s
    """UNKNOWN for a breach of the file and not of its nodes."""
    message: Callable[[int], str]
    """The message for the node at an index of `rows`."""

    @classmethod
    def of_file(cls, rule: Rule, texts: Sequence[str]) -> Breach:
        """A breach of the file as a whole."""
        return cls(rule, np.full(len(texts), UNKNOWN, np.int64), texts.__getitem__)


class Dependencies(Struct, frozen=True):
    """Data and control dependencies, one row for each id that a node lists."""

    owner: Int64s
    """The row of the node that depends."""
    target: Int64s
    """The row of the node that it depends on, or UNKNOWN."""
    id: Int64s
    control: Bools

    @property
    def usable(self) -> Bools:
        """Dependencies on another node in the file."""
        usable: Bools = (self.target >= 0) & (self.target != self.owner)
        return usable


class NumberColumn(Struct, frozen=True):
    """A numeric attribute, one row for each node."""

    values: Int64s
    known: Bools
    """Nodes that have it with an expected kind."""
    present: Bools
    """Nodes that have it with any kind."""

    @classmethod
    def of(cls, attribute: Attribute, length: int, kinds: frozenset[schema.Kind]) -> NumberColumn:
        """The column of an attribute whose value must be of one of these kinds."""
        values, known, present = np.zeros(length, np.int64), np.zeros(length, bool), np.zeros(length, bool)
        present[attribute.rows] = True
        fits = np.flatnonzero(np.isin(attribute.kinds, np.array(sorted(kinds), np.uint8)))
        rows = attribute.rows[fits]
        values[rows] = signed(chosen(attribute.values, fits))
        known[rows] = True
        return cls(values, known, present)

    def equals(self, number: int) -> Bools:
        """Nodes with this value."""
        found: Bools = self.known & (self.values == number)
        return found

    @property
    def or_unknown(self) -> Int64s:
        """The values, UNKNOWN for nodes without one."""
        return np.where(self.known, self.values, UNKNOWN)


class Trace(Struct, frozen=True, dict=True):
    """A decoded file with its rank and its process groups."""

    path: str
    rank: int
    groups: Groups
    decoded: Decoded
    head: bytes = b""
    """The first bytes of the file."""
    compressed: bool = False
    lenient: bool = False
    """True if what only ASTRA-sim cannot run is a warning."""

    @property
    def nodes(self) -> NodeTable:
        """The nodes, in the order of the file."""
        return self.decoded.nodes

    @cached_property
    def dependencies(self) -> Dependencies:
        """Everything that nodes depend on."""
        data, control = self.nodes.data, self.nodes.control
        return Dependencies(
            np.concatenate([data.owners, control.owners]),
            np.concatenate([self.nodes.rows_of(data), self.nodes.rows_of(control)]),
            np.concatenate([data.ids, control.ids]),
            np.repeat([False, True], [len(data.ids), len(control.ids)]),
        )

    @cached_property
    def issue_order(self) -> IssueOrder:
        """The order in which a simulator issues the nodes."""
        dependencies = self.dependencies
        usable = dependencies.usable
        return issue_order(self.nodes.id, dependencies.owner[usable], dependencies.target[usable])

    @cached_property
    def earliest_ends(self) -> Int64s:
        """Microseconds after which each node ends if it waits for nothing but its dependencies."""
        dependencies = self.dependencies
        owner, target = dependencies.owner[dependencies.usable], dependencies.target[dependencies.usable]
        order = np.argsort(owner, kind="stable")
        targets = target[order].tolist()
        bounds = np.searchsorted(owner[order], np.arange(len(self.nodes) + 1)).tolist()
        durations, ends = self.nodes.duration.tolist(), [0] * len(self.nodes)
        for row in self.issue_order.rows.tolist():
            before = [ends[earlier] for earlier in targets[bounds[row] : bounds[row + 1]]]
            ends[row] = max(before, default=0) + durations[row]
        return np.array(ends, np.int64)

    @cached_property
    def communicates(self) -> Bools:
        """Communication nodes."""
        return self.nodes.of_type(*schema.COMMUNICATION)

    @cached_property
    def collectives(self) -> Bools:
        """Collectives."""
        return self.nodes.of_type(NodeType.COMM_COLL)

    @cached_property
    def messages(self) -> Bools:
        """Sends and receives."""
        return self.nodes.of_type(NodeType.COMM_SEND, NodeType.COMM_RECV)

    @cached_property
    def on_host(self) -> NumberColumn:
        """The attribute that marks operators of the host."""
        attribute = self.nodes.attribute(schema.Name.IS_CPU_OP)
        return NumberColumn.of(attribute, len(self.nodes), frozenset({schema.Kind.BOOL}))

    @cached_property
    def group(self) -> Int64s:
        """The group number of each node; UNKNOWN if the group is not listed."""
        return self.groups.numbers(self.nodes.attribute(schema.Name.GROUP), len(self.nodes))

    def number(self, name: str) -> NumberColumn:
        """An integer attribute."""
        if name not in self._numbers:
            self._numbers[name] = NumberColumn.of(
                self.nodes.attribute(name), len(self.nodes), schema.INTEGERS
            )
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, NumberColumn]:
        return {}

    def value(self, name: str, row: int) -> int:
        """An integer attribute of a node; 0 if it has none."""
        return int(self.number(name).values[row])

    def label(self, row: int) -> str:
        """A node by id and name."""
        name = self.nodes.text(row)
        shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        return f"node {self.id(row)} ({shown})" if shown else f"node {self.id(row)}"

    def id(self, row: int) -> int:
        """The id of a node."""
        return unsigned(self.nodes.id[row])

    def breach(self, rule: Rule, rows: Int64s, words: str | Callable[[int], str]) -> Breach:
        """Nodes that break a rule; `words` complete the sentence that starts with the node at an index of `rows`."""

        def message(at: int) -> str:
            return f"{self.label(int(rows[at]))} {words if isinstance(words, str) else words(at)}"

        return Breach(rule, rows, message)

    def violations(self, breach: Breach, limit: int | None) -> Broken:
        """A breach with the messages of its first `limit` nodes."""
        rule, rows = breach.rule, breach.rows
        violations = (
            Violation(rule, self.rank, self.id(row) if row >= 0 else None, breach.message(at), self.path)
            for at, row in enumerate(rows[:limit].tolist())
        )
        return Broken.of(rule, len(rows), violations, limit, lenient=self.lenient)


# Issue order: the order in which a simulator starts the nodes of a rank.


class IssueOrder(Struct, frozen=True):
    """Nodes in the order in which a simulator issues them."""

    rows: Int64s
    """Every row; nodes that are never issued come last, sorted by id."""
    stuck: int
    """The number of nodes that are never issued."""
    cycles: tuple[tuple[int, ...], ...]
    """Rows of dependency cycles: each node depends on the next, and the last on the first."""


def issue_order(ids: Int64s, owner: Int64s, target: Int64s) -> IssueOrder:
    """Issues a node once all nodes that it depends on are issued; of several free nodes the lowest id first.

    `owner` and `target` are the rows of dependent nodes and of what they depend on.
    """
    by_id = np.argsort(ids.view(np.uint64), kind="stable")
    rank = np.empty(len(ids), np.int64)
    rank[by_id] = np.arange(len(ids))
    if bool(np.all(rank[target] < rank[owner])):
        return IssueOrder(by_id, 0, ())  # then the lowest id is always free
    issued = _issued(rank[owner], rank[target], len(ids))
    stuck = np.setdiff1d(np.arange(len(ids)), issued, assume_unique=True)
    cycles = _cycles(stuck, rank[owner], rank[target])
    rows = by_id[np.concatenate([issued, stuck])]
    return IssueOrder(rows, len(stuck), tuple(tuple(by_id[list(cycle)].tolist()) for cycle in cycles))


def _issued(owner: Int64s, target: Int64s, count: int) -> Int64s:
    """Kahn's algorithm with the lowest number first."""
    waiting = np.bincount(owner, minlength=count).tolist()
    by_target = np.argsort(target, kind="stable")
    dependents = owner[by_target].tolist()
    bounds = np.searchsorted(target[by_target], np.arange(count + 1)).tolist()
    free = [number for number, dependencies in enumerate(waiting) if not dependencies]
    heapify(free)
    order = list[int]()
    while free:
        number = heappop(free)
        order.append(number)
        for dependent in dependents[bounds[number] : bounds[number + 1]]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                heappush(free, dependent)
    return np.array(order, np.int64)


def _cycles(stuck: Int64s, owner: Int64s, target: Int64s) -> list[list[int]]:
    """The cycles found by following one dependency of each stuck node."""
    inside = np.isin(owner, stuck) & np.isin(target, stuck)
    following = dict(zip(owner[inside].tolist(), target[inside].tolist(), strict=True))
    return cycles_in(dict(sorted(following.items())))


# The communication of one rank: what is compared with other ranks, and what each op waits for in a replay.

_START = -1
"""Represents the start of the trace among the ops that a node waits for."""
_MOST_WAITS = 256
"""Of more ops that a node waits for, the last ones in issue order are kept."""


class Collectives(Table, frozen=True):
    """The collectives of a rank in issue order."""

    node: Int64s
    group: Int64s
    type: Int64s
    """UNKNOWN if the node has no integer here; likewise `size`."""
    size: Int64s

    def of_group(self, group: int) -> Collectives:
        """The collectives of one group."""
        return self.take(self.group == group)

    def label(self, index: int) -> str:
        """One collective by type and size."""
        return collective_label(int(self.type[index]), int(self.size[index]))


def collective_label(kind: int, size: int) -> str:
    """A collective by type and size."""
    known = 0 <= kind < len(CollectiveType)
    name = CollectiveType(kind).name if known else "collective of unknown type"
    return f"{name} of {'unknown size' if size == UNKNOWN else f'{size:,} bytes'}"


class Messages(Struct, frozen=True):
    """The messages of a rank, in the order of the file."""

    node: Int64s
    sent: Bools
    peer: Int64s
    tag: Int64s
    size: Int64s
    complete: Bools
    """Messages with a peer, a tag and a size."""


def collectives_of(trace: Trace) -> Collectives:
    """The collectives of a rank."""
    order = trace.issue_order.rows
    rows = order[trace.nodes.type[order] == NodeType.COMM_COLL]
    return Collectives(
        trace.nodes.id[rows],
        trace.group[rows],
        trace.number(Name.COMM_TYPE).or_unknown[rows],
        trace.number(Name.COMM_SIZE).or_unknown[rows],
    )


def messages_of(trace: Trace) -> Messages:
    """The messages of a rank."""
    rows = np.flatnonzero(trace.messages)
    sent = trace.nodes.type[rows] == NodeType.COMM_SEND
    target, source = trace.number(Name.COMM_TARGET), trace.number(Name.COMM_SOURCE)
    tag, size = trace.number(Name.COMM_TAG), trace.number(Name.COMM_SIZE)
    known = np.where(sent, target.known[rows], source.known[rows])
    return Messages(
        trace.nodes.id[rows],
        sent,
        np.where(sent, target.or_unknown[rows], source.or_unknown[rows]),
        tag.values[rows],
        size.values[rows],
        known & tag.known[rows] & size.known[rows],
    )


# The replay: each op with the ops that it waits for through any computation.


def steps_of(trace: Trace) -> RankSteps:
    """The communication of a rank in issue order, with the ops that each op directly waits for."""
    order = trace.issue_order
    issued = order.rows[: len(order.rows) - order.stuck]
    rows = issued[trace.communicates[issued]]
    steps = _steps(trace, rows)
    position = scatter(len(trace.nodes), rows)
    dependencies = trace.dependencies
    owner, target = dependencies.owner[dependencies.usable], dependencies.target[dependencies.usable]
    if _is_chain(position[owner], position[target], len(rows)):
        return steps
    if len(rows):
        issued = issued[: int(np.flatnonzero(issued == rows[-1])[0]) + 1]
    waits = _Waits(trace, issued, owner, target)
    waits.run()
    if waits.in_order:
        return steps
    return replace(
        steps,
        before=Links.of(waits.before),
        delay=np.array([number for row in waits.delays for number in row], np.int64),
        first_delay=np.array(waits.first_delays, np.int64),
    )


def _steps(trace: Trace, rows: Int64s) -> RankSteps:
    kind = trace.nodes.type[rows].astype(np.int64)
    collective, sent = kind == NodeType.COMM_COLL, kind == NodeType.COMM_SEND
    target, source = trace.number(Name.COMM_TARGET), trace.number(Name.COMM_SOURCE)
    tag, size = trace.number(Name.COMM_TAG), trace.number(Name.COMM_SIZE)
    peer = np.where(sent, target.or_unknown[rows], source.or_unknown[rows])
    complete = tag.known[rows] & size.known[rows]
    return RankSteps(
        trace.nodes.id[rows],
        kind,
        np.where(collective, trace.group[rows], UNKNOWN),
        np.where(collective, trace.number(Name.COMM_TYPE).or_unknown[rows], UNKNOWN),
        size.or_unknown[rows],
        np.where(collective | ~complete, UNKNOWN, peer),
        np.where(collective, 0, tag.values[rows]),
    )


def _is_chain(owner: Int64s, target: Int64s, count: int) -> bool:
    """True if each op depends on the one before it."""
    linked: Bools = np.zeros(count, bool)
    linked[owner[(owner > 0) & (target == owner - 1)]] = True
    return bool(linked[1:].all())


class _Frontier(Struct, frozen=True, eq=False):
    """The ops that nodes wait for.

    A chain is a sequence of ops of which each one waits for the one before it, so its last op represents all of them.
    """

    waits: dict[int, tuple[int, int]]
    """The last op of each chain, and the computation since, by the number of the chain."""
    covered: int
    """All ops before this number are waited for."""

    def includes(self, offset: int, other: _Frontier, other_offset: int) -> bool:
        """True if nodes that wait for this frontier need not wait for the other one; offsets are more computation."""
        if other.covered > self.covered:
            return False
        more = other_offset - offset
        for chain, (op, delay) in other.waits.items():
            if self.covered and op < self.covered:
                continue
            own = self.waits.get(chain)
            if own is None or own < (op, delay + more):
                return False
        return True


class _Waits:
    """The ops that each op waits for, by one pass over the nodes in issue order.

    Most nodes wait for the ops of one other node, and share its frontier.
    """

    def __init__(self, trace: Trace, issued: Int64s, owner: Int64s, target: Int64s) -> None:
        position = scatter(len(trace.nodes), issued)
        chosen = position[owner] != UNKNOWN
        owner, target = position[owner[chosen]], position[target[chosen]]
        order = np.argsort(owner, kind="stable")
        self.targets: list[int] = target[order].tolist()
        self.bounds: list[int] = np.searchsorted(owner[order], np.arange(len(issued) + 1)).tolist()
        self.communicates: list[bool] = trace.communicates[issued].tolist()
        self.durations: list[int] = np.maximum(trace.nodes.duration[issued] * MICROSECOND, 1).tolist()
        self.tails: list[int] = []
        """The last op of each chain."""
        self.before: list[list[int]] = []
        self.delays: list[list[int]] = []
        self.first_delays: list[int] = []
        self.in_order = True
        """True if each op waits for all ops before it."""

    def run(self) -> None:
        """Fills the columns of all ops."""
        start = _Frontier({_START: (_START, 0)}, 0)
        frontiers, offsets = [start] * len(self.communicates), [0] * len(self.communicates)
        targets, bounds, durations = self.targets, self.bounds, self.durations
        for node, communicates in enumerate(self.communicates):
            begin, end = bounds[node], bounds[node + 1]
            frontier, offset = start, 0
            if begin < end:
                frontier, offset = frontiers[targets[begin]], offsets[targets[begin]]
                for target in targets[begin + 1 : end]:
                    if frontiers[target] is frontier:
                        offset = max(offset, offsets[target])
                    else:
                        frontier, offset = self._merged(frontier, offset, frontiers[target], offsets[target])
            if communicates:
                frontiers[node] = self._op(frontier, offset)
            else:
                frontiers[node], offsets[node] = frontier, offset + durations[node]

    def _op(self, frontier: _Frontier, offset: int) -> _Frontier:
        """Adds an op that waits for a frontier; returns the frontier of nodes that wait for the op."""
        number = len(self.before)
        waits = sorted((op, delay + offset, chain) for chain, (op, delay) in frontier.waits.items())
        self.first_delays.append(next((delay for op, delay, _ in waits if op == _START), 0))
        waits = [wait for wait in waits if wait[0] != _START]
        self.before.append([op for op, _, _ in waits])
        self.delays.append([delay for _, delay, _ in waits])
        covered = frontier.covered
        for op, _, _ in waits:
            covered += op == covered
        self.in_order &= covered == number
        chain = next((chain for op, _, chain in reversed(waits) if self.tails[chain] == op), len(self.tails))
        self.tails[chain : chain + 1] = [number]
        return _Frontier({chain: (number, 0)}, covered)

    def _merged(
        self, first: _Frontier, offset: int, second: _Frontier, other_offset: int
    ) -> tuple[_Frontier, int]:
        """The frontier of a node that waits for two frontiers; one of them, if possible, for nodes to share."""
        if first.includes(offset, second, other_offset):
            return first, offset
        if second.includes(other_offset, first, offset):
            return second, other_offset
        merged = {chain: (op, delay + offset) for chain, (op, delay) in first.waits.items()}
        for chain, (op, delay) in second.waits.items():
            merged[chain] = max(merged.get(chain, (op, 0)), (op, delay + other_offset))
        covered = max(first.covered, second.covered)
        if covered:
            merged = {chain: wait for chain, wait in merged.items() if wait[0] >= covered}
        if len(merged) > _MOST_WAITS:
            merged = dict(sorted(merged.items(), key=lambda item: item[1])[-_MOST_WAITS:])
        return _Frontier(merged, covered), 0
