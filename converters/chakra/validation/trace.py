"""A rank as the rules see it; simulator order; groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from tracelink.converters.chakra.decode import Decoded
from tracelink.converters.chakra.schema import (
    COMMUNICATION,
    WHOLE_NUMBERS,
    CollectiveType,
    Kind,
    Name,
    NodeType,
    Variant,
)
from tracelink.converters.chakra.table import Attribute, NodeTable, chosen, signed, unsigned
from tracelink.converters.chakra.validation.rules import RULES, Found, Rule, Violation
from tracelink.io.sources import LARGEST_RANK
from tracelink.model.columns import UNKNOWN, Bools, Int64s

# Communicator groups: a JSON file beside the traces, or what our own files say of them.


EVERYBODY = 0
LARGEST_GROUP = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Groups:
    """The ranks of each group by its number; `source` is where that stands, empty where nothing says it."""

    members: Mapping[int, Sequence[int]] = field(default_factory=dict)
    source: str = ""
    problems: Sequence[str] = ()

    def numbers(self, names: Attribute, length: int) -> Int64s:
        """The group of each of `length` nodes; a node that names none is among all ranks."""
        column = np.full(length, EVERYBODY, np.int64)
        known: dict[str, int] = {}
        for row, name in zip(names.rows.tolist(), names.values, strict=True):
            text = name if isinstance(name, str) else None
            if text is None:
                column[row] = UNKNOWN
                continue
            if text not in known:
                known[text] = self.number(text)
            column[row] = known[text]
        return column

    def number(self, name: str) -> int:
        """The group that a node names, or `UNKNOWN`."""
        number = group_number(name)
        return number if number == EVERYBODY or number in self.members else UNKNOWN

    def of(self, number: int, world: int) -> Sequence[int]:
        """The ranks of a group in a job of `world` ranks."""
        return range(world) if number == EVERYBODY else self.members.get(number, ())

    @property
    def largest(self) -> int:
        """The largest rank of any group, or -1."""
        return max((rank for ranks in self.members.values() for rank in ranks), default=-1)


def group_number(name: str) -> int:
    """The number that a group's name is; `UNKNOWN` where it is none."""
    if not name:
        return EVERYBODY
    fits = name.isascii() and name.isdecimal() and len(name) <= len(str(LARGEST_GROUP))
    return int(name) if fits and int(name) <= LARGEST_GROUP else UNKNOWN


def groups_of(text: bytes | str, source: str, *, described: bool = False) -> Groups:
    """Groups from JSON; what cannot be used is a problem. `described` ones are objects with a name and ranks."""
    try:
        stated = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Groups(source=source, problems=[f"{source} is no JSON: {error}"])
    if not isinstance(stated, dict):
        return Groups(source=source, problems=[f"{source} is no object of groups"])
    members: dict[int, Sequence[int]] = {}
    problems = []
    for name, said in stated.items():
        ranks = said.get("ranks") if described and isinstance(said, dict) else said
        number = group_number(name) if name else UNKNOWN
        if problem := _problem(number, ranks, described=described):
            problems.append(f"{source}: group {name!r} {problem}")
        elif ranks and number != EVERYBODY:
            members[number] = tuple(ranks)
    return Groups(members, source, problems)


def _problem(number: int, ranks: Any, *, described: bool) -> str:
    if number == UNKNOWN:
        return "is no whole number"
    if number == EVERYBODY and not described:
        return "cannot be listed: 0 means all ranks"
    if not isinstance(ranks, list) or not ranks:
        return "has no list of ranks"
    if not all(type(rank) is int and 0 <= rank <= LARGEST_RANK for rank in ranks):
        return "has members that are no ranks"
    return "has a rank twice" if len(set(ranks)) < len(ranks) else ""


def united(parts: Sequence[Groups]) -> Groups:
    """What the files of several ranks say together; where two contradict each other that is a problem."""
    members: dict[int, Sequence[int]] = {}
    problems = []
    for part in parts:
        for number, ranks in part.members.items():
            if members.setdefault(number, ranks) != ranks:
                problems.append(
                    f"{part.source} says that group {number} is {_short(ranks)}, and another file"
                    f" {_short(members[number])}"
                )
    return Groups(members, parts[0].source if parts else "", problems)


def _short(ranks: Sequence[int]) -> str:
    from tracelink.ranges import Numbers

    return f"[{Numbers.of(ranks)}]"


# The order in which a simulator begins the nodes of a rank, and which it never begins.


@dataclass(frozen=True, slots=True)
class Issued:
    """Rows in the order in which they begin, and circles that keep others from beginning."""

    rows: Int64s
    """Every row; those that never begin come last, by id."""
    stuck: int
    """How many never begin."""
    cycles: tuple[tuple[int, ...], ...]
    """Rows of which each depends on the next, and the last on the first."""


def issued(ids: Int64s, owner: Int64s, place: Int64s) -> Issued:
    """A node begins when all that it depends on have; of those that are free the lowest id is first.

    `owner` and `place` are rows of a node and of what it depends on.
    """
    by_id = np.argsort(ids.view(np.uint64), kind="stable")
    rank = np.empty(len(ids), np.int64)
    rank[by_id] = np.arange(len(ids))
    if bool(np.all(rank[place] < rank[owner])):
        return Issued(by_id, 0, ())  # then the lowest id is always free
    order = _released(rank[owner], rank[place], len(ids))
    left = np.setdiff1d(np.arange(len(ids)), order, assume_unique=True)
    cycles = _cycles(left, rank[owner], rank[place])
    rows = by_id[np.concatenate([order, left])]
    return Issued(rows, len(left), tuple(tuple(by_id[list(cycle)].tolist()) for cycle in cycles))


def _released(owner: Int64s, place: Int64s, count: int) -> Int64s:
    """Kahn's algorithm with the lowest number first."""
    waiting = np.bincount(owner, minlength=count).tolist()
    by_place = np.argsort(place, kind="stable")
    followers = owner[by_place].tolist()
    bounds = np.searchsorted(place[by_place], np.arange(count + 1)).tolist()
    free = [number for number, others in enumerate(waiting) if not others]
    heapify(free)
    order = list[int]()
    while free:
        number = heappop(free)
        order.append(number)
        for follower in followers[bounds[number] : bounds[number + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(free, follower)
    return np.array(order, np.int64)


def _cycles(left: Int64s, owner: Int64s, place: Int64s) -> list[list[int]]:
    """One circle for each that is found by following, from what is left, one dependency that is left too."""
    inside = np.isin(owner, left) & np.isin(place, left)
    following = dict(zip(owner[inside].tolist(), place[inside].tolist(), strict=True))
    seen: dict[int, int] = {}
    cycles = []
    for start in left.tolist():
        number, walk = start, list[int]()
        while number not in seen:
            seen[number] = start
            walk.append(number)
            number = following[number]
        if walk and seen[number] == start:
            cycles.append(walk[walk.index(number) :])
    return cycles


# One rank's nodes as the rules look at them.


LONGEST_NAME = 60
FILE = np.array([-1])
"""In place of rows: the file as a whole."""


@dataclass(frozen=True, slots=True)
class Breach:
    """The nodes that break a rule; `says` tells what is wrong with the one at a place of `rows`."""

    rule: Rule
    rows: Int64s
    says: Callable[[int], str]
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Both sorts, one row for each id that a node states."""

    owner: Int64s
    """The row of the node that depends."""
    place: Int64s
    """The row of the node that it depends on, or -1."""
    id: Int64s
    control: Bools

    @property
    def usable(self) -> Bools:
        """Those on another node that there is."""
        usable: Bools = (self.place >= 0) & (self.place != self.owner)
        return usable


@dataclass(frozen=True, slots=True)
class Told:
    """An attribute that is a number, one row for each node."""

    values: Int64s
    known: Bools
    """Which nodes have it as the kind that it must be."""
    present: Bools
    """Which nodes have it, whatever it is."""


@dataclass(frozen=True)
class Trace:
    """A file that was read, and what is known around it."""

    path: str
    rank: int
    variant: Variant
    groups: Groups
    decoded: Decoded
    head: bytes = b""
    """The first bytes of the file."""
    compressed: bool = False

    @property
    def nodes(self) -> NodeTable:
        """Its nodes."""
        return self.decoded.nodes

    @cached_property
    def dependencies(self) -> Dependencies:
        """What its nodes depend on."""
        data, control = self.nodes.data, self.nodes.control
        return Dependencies(
            np.concatenate([data.owners, control.owners]),
            np.concatenate([self.nodes.places(data), self.nodes.places(control)]),
            np.concatenate([data.ids, control.ids]),
            np.repeat([False, True], [len(data.ids), len(control.ids)]),
        )

    @cached_property
    def issued(self) -> Issued:
        """The order in which a simulator begins its nodes."""
        dependencies = self.dependencies
        usable = dependencies.usable
        return issued(self.nodes.id, dependencies.owner[usable], dependencies.place[usable])

    @cached_property
    def communicates(self) -> Bools:
        """Which nodes are communication."""
        return self.nodes.of_type(*COMMUNICATION)

    @cached_property
    def on_host(self) -> Told:
        """Which nodes are operators of the host."""
        return told(self.nodes.attribute(Name.IS_CPU_OP), len(self.nodes), frozenset({Kind.BOOL}))

    @cached_property
    def group(self) -> Int64s:
        """The number of each communication's group, `UNKNOWN` where it is in none that is known."""
        return self.groups.numbers(self.nodes.attribute(Name.GROUP), len(self.nodes))

    def number(self, name: str) -> Told:
        """An attribute that is a whole number."""
        if name not in self._numbers:
            self._numbers[name] = told(self.nodes.attribute(name), len(self.nodes), WHOLE_NUMBERS)
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[str, Told]:
        return {}

    def called(self, row: int) -> str:
        """A node by id and name."""
        text = self.nodes.text(row)
        shown = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
        return f"node {self.id(row)} ({shown})" if shown else f"node {self.id(row)}"

    def id(self, row: int) -> int:
        """The id of a node."""
        return unsigned(self.nodes.id[row])

    def breach(self, rule: Rule, rows: Int64s, says: Callable[[int], str]) -> Breach:
        """Nodes that break a rule; `says` is given a row, and tells what is wrong after the node's name."""
        return Breach(rule, rows, lambda place: f"{self.called(int(rows[place]))} {says(int(rows[place]))}")

    def limit(self, rule: Rule, rows: Int64s, says: Callable[[int], str]) -> Breach:
        """The same of what ASTRA-sim only cannot run: a trace of all that happened may have it."""
        breach = self.breach(rule, rows, says)
        return Breach(breach.rule, breach.rows, breach.says, warns=self.variant is Variant.FULL)

    def found(self, breach: Breach, limit: int | None) -> list[Found]:
        """A breach in words, the first `limit` of them."""
        if not len(breach.rows):
            return []
        shown = len(breach.rows) if limit is None else min(limit, len(breach.rows))
        listed = [
            Violation(
                breach.rule,
                self.rank,
                self.id(int(breach.rows[place])) if breach.rows[place] >= 0 else None,
                breach.says(place),
                self.path,
            )
            for place in range(shown)
        ]
        return [Found(breach.rule, breach.warns or RULES[breach.rule].warns, len(breach.rows), listed)]


def told(attribute: Attribute, length: int, kinds: frozenset[Kind]) -> Told:
    """An attribute as numbers, where it is of one of these kinds."""
    values, known, present = np.zeros(length, np.int64), np.zeros(length, bool), np.zeros(length, bool)
    present[attribute.rows] = True
    fits = np.flatnonzero(np.isin(attribute.kinds, np.array(sorted(kinds), np.uint8)))
    rows = attribute.rows[fits]
    values[rows] = signed(chosen(attribute.values, fits))
    known[rows] = True
    return Told(values, known, present)


# What a rank does with others: all that must be kept of it when the next is read.


@dataclass(frozen=True, slots=True)
class Collectives:
    """The collectives of a rank as a simulator begins them."""

    node: Int64s
    group: Int64s
    type: Int64s
    size: Int64s

    def of(self, group: int) -> Collectives:
        """Those of one group."""
        return self.where(self.group == group)

    def where(self, chosen: Bools) -> Collectives:
        """Some of them."""
        return Collectives(self.node[chosen], self.group[chosen], self.type[chosen], self.size[chosen])

    def __len__(self) -> int:
        return len(self.node)

    def called(self, place: int) -> str:
        """One of them in words."""
        kind, size = int(self.type[place]), int(self.size[place])
        known = 0 <= kind < len(CollectiveType)
        name = CollectiveType(kind).name if known else "collective of unknown type"
        return f"{name} of {'unknown size' if size == UNKNOWN else f'{size:,} bytes'}"


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a rank, by row."""

    node: Int64s
    sent: Bools
    peer: Int64s
    tag: Int64s
    size: Int64s
    complete: Bools
    """Which state peer, tag and size."""


def collectives_of(trace: Trace) -> Collectives:
    """The collectives of a rank."""
    order = trace.issued.rows
    rows = order[trace.nodes.type[order] == NodeType.COMM_COLL]
    return Collectives(
        trace.nodes.id[rows],
        trace.group[rows],
        _known(trace.number(Name.COMM_TYPE))[rows],
        _known(trace.number(Name.COMM_SIZE))[rows],
    )


def messages_of(trace: Trace) -> Messages:
    """The messages of a rank."""
    rows = np.flatnonzero(trace.nodes.of_type(NodeType.COMM_SEND, NodeType.COMM_RECV))
    sent = trace.nodes.type[rows] == NodeType.COMM_SEND
    target, source = trace.number(Name.COMM_TARGET), trace.number(Name.COMM_SOURCE)
    tag, size = trace.number(Name.COMM_TAG), trace.number(Name.COMM_SIZE)
    known = np.where(sent, target.known[rows], source.known[rows])
    return Messages(
        trace.nodes.id[rows],
        sent,
        np.where(sent, _known(target)[rows], _known(source)[rows]),
        tag.values[rows],
        size.values[rows],
        known & tag.known[rows] & size.known[rows],
    )


def in_no_group(collectives: Collectives) -> Collectives:
    """Those whose group nobody knows."""
    return collectives.where(collectives.group == UNKNOWN)


def _known(told: Told) -> Int64s:
    return np.where(told.known, told.values, UNKNOWN)
