"""The nodes of one rank as rules need them: dependencies, issue order and attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.decode import Decoded
from tracelink.converters.chakra.table import Attribute, NodeTable, chosen, signed, unsigned
from tracelink.converters.chakra.validation.files import Groups
from tracelink.converters.chakra.validation.rules import RULES, Broken, Rule, Violation

WHOLE_FILE = np.array([UNKNOWN])
"""The rows of a breach that is of the file and not of its nodes."""

_LONGEST_NAME = 60


class Breach(Struct, frozen=True):
    """The rows of nodes that break a rule."""

    rule: Rule
    rows: Int64s
    message: Callable[[int], str]
    """The message for the node at an index of `rows`."""
    warns: bool = False


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

    def label(self, row: int) -> str:
        """A node by id and name."""
        name = self.nodes.text(row)
        shown = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
        return f"node {self.id(row)} ({shown})" if shown else f"node {self.id(row)}"

    def id(self, row: int) -> int:
        """The id of a node."""
        return unsigned(self.nodes.id[row])

    def breach(self, rule: Rule, rows: Int64s, predicate: Callable[[int], str]) -> Breach:
        """Nodes that break a rule; `predicate` completes the sentence that starts with the node at a row."""
        return Breach(rule, rows, lambda at: f"{self.label(int(rows[at]))} {predicate(int(rows[at]))}")

    def simulator_breach(self, rule: Rule, rows: Int64s, predicate: Callable[[int], str]) -> Breach:
        """Nodes that only ASTRA-sim cannot run: a warning for other consumers."""
        breach = self.breach(rule, rows, predicate)
        return Breach(breach.rule, breach.rows, breach.message, warns=self.lenient)

    def violations(self, breach: Breach, limit: int | None) -> list[Broken]:
        """A breach with the messages of its first `limit` nodes; empty if no node breaks the rule."""
        if not len(breach.rows):
            return []
        count = len(breach.rows) if limit is None else min(limit, len(breach.rows))
        listed = [
            Violation(
                breach.rule,
                self.rank,
                self.id(int(breach.rows[at])) if breach.rows[at] >= 0 else None,
                breach.message(at),
                self.path,
            )
            for at in range(count)
        ]
        return [Broken(breach.rule, breach.warns or RULES[breach.rule].warns, len(breach.rows), listed)]


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
    seen: dict[int, int] = {}
    cycles = []
    for start in stuck.tolist():
        number, walk = start, list[int]()
        while number not in seen:
            seen[number] = start
            walk.append(number)
            number = following[number]
        if walk and seen[number] == start:
            cycles.append(walk[walk.index(number) :])
    return cycles
