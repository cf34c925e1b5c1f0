"""What is in a trace; the longest chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.table import (
    COMMUNICATION,
    ON_DEVICE,
    ROLES,
    NodeTable,
    Role,
    Roles,
    durations_ns,
    has_role,
    roles_of,
    unsigned,
)
from tracelink.model.columns import UNKNOWN, Bools, Int64s

# What of a trace must come before what, and when each node could begin at the earliest.


RELEASED = 0


@dataclass(frozen=True, slots=True)
class Precedence:
    """Pairs of rows, each pair once: the effect waits for the cause."""

    count: int
    """How many nodes there are."""
    cause: Int64s
    effect: Int64s
    data: Bools
    """Whether it is a data dependency."""
    control: Bools
    """Whether it is a control dependency; it can be both."""
    missing: int = 0
    """Dependencies on nodes that do not exist."""
    itself: int = 0
    """Dependencies of nodes on themselves."""

    @classmethod
    def of(cls, nodes: NodeTable) -> Precedence:
        """The union of data and control dependencies; of several nodes with one id the first is meant."""
        pairs, missing, itself = list[Int64s](), 0, 0
        for links in (nodes.data, nodes.control):
            cause, effect = nodes.rows_of(links), links.owners
            missing += int((cause == UNKNOWN).sum())
            itself += int((cause == effect).sum())
            fits = (cause != UNKNOWN) & (cause != effect)
            pairs.append(np.unique(cause[fits] * len(nodes) + effect[fits]))
        both = np.union1d(*pairs)
        cause, effect = np.divmod(both, max(len(nodes), 1))
        data, control = (np.isin(both, some, assume_unique=True) for some in pairs)
        return cls(len(nodes), cause, effect, data, control, missing, itself)


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order in which causes come first, and how early each node can begin."""

    order: Sequence[int]
    """Rows; those of a cycle, and those that wait for one, have no place in it."""
    begins: Sequence[float]
    """For each row when all its causes have ended; 0 where it has none."""
    last_cause: Sequence[int]
    """For each row that cause of it which ends last, or -1."""

    def chain(self, row: int) -> list[int]:
        """The rows that `row` waited for, one for the other, and itself."""
        rows = [row]
        while (row := self.last_cause[row]) != UNKNOWN:
            rows.append(row)
        return rows[::-1]


def earliest(precedence: Precedence, durations: Sequence[float], *, through_cycles: bool = False) -> Schedule:
    """Every node begins as soon as all that it waits for has ended. Linear, and a cycle only leaves nodes out.

    `through_cycles` lets a node of a cycle begin where nothing else can, so that none is left out.
    """
    count = precedence.count
    waiting = np.bincount(precedence.effect, minlength=count).tolist()
    bounds = np.searchsorted(precedence.cause, np.arange(count + 1)).tolist()
    effects = precedence.effect.tolist()
    begins: list[float] = [0] * count
    last_cause = [UNKNOWN] * count
    order = [row for row, causes in enumerate(waiting) if not causes]
    for row in _growing(order, waiting) if through_cycles else order:
        end = begins[row] + durations[row]
        for effect in effects[bounds[row] : bounds[row + 1]]:
            if end > begins[effect] or last_cause[effect] == UNKNOWN:
                begins[effect], last_cause[effect] = max(end, begins[effect]), row
            waiting[effect] -= 1
            if not waiting[effect]:
                order.append(effect)
    return Schedule(order, begins, last_cause)


def _growing(order: list[int], waiting: list[int]) -> Iterator[int]:
    """The rows of a list that grows meanwhile; where it ends, the next row that still waits is put behind it."""
    yield from order
    done = len(order)
    for row in range(len(waiting)):
        if waiting[row] > 0:
            waiting[row] = RELEASED
            order.append(row)
            while done < len(order):
                yield order[done]
                done += 1


def cycle(precedence: Precedence, schedule: Schedule) -> list[int]:
    """Rows of which each waits for the one before, and the first for the last; empty where there are none."""
    left = np.ones(precedence.count, np.bool_)
    left[np.array(schedule.order, np.int64)] = False
    among = left[precedence.cause] & left[precedence.effect]
    cause_of = dict(zip(precedence.effect[among].tolist(), precedence.cause[among].tolist(), strict=True))
    if not cause_of:
        return []
    row, place = next(iter(cause_of)), dict[int, int]()
    while row not in place:
        place[row] = len(place)
        row = cause_of[row]
    return list(place)[place[row] :][::-1]


# What is in a trace: counts, what is communicated, the longest chain.


@dataclass(frozen=True, slots=True)
class Communicated:
    """What the nodes of one kind in one group communicate."""

    kind: str
    group: str
    """The number of the group as nodes say it; empty stands for all ranks."""
    count: int
    bytes: int
    sizeless: int = 0
    """How many of them say no size."""


@dataclass(frozen=True, slots=True)
class LongestChain:
    """The nodes of which each waits for the one before, and which take the most time together."""

    total_ns: int = 0
    compute_ns: int = 0
    communication_ns: int = 0
    host_ns: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Census:
    """What is in the trace of one rank."""

    nodes: Mapping[Role, int]
    communicated: Sequence[Communicated] = ()
    longest: LongestChain = field(default_factory=LongestChain)
    device_nodes: int = 0
    device_nodes_after_device: int = 0
    """How many of them wait for another one, directly."""
    missing: int = 0
    """Dependencies on nodes that do not exist."""
    unordered: int = 0
    """Nodes on a cycle or behind one; the longest chain is without them."""
    cycle: Sequence[int] = ()
    """Ids of nodes of which each waits for the one before, and the first for the last."""


def census(nodes: NodeTable) -> Census:
    """Counts everything in the nodes of one rank."""
    roles = roles_of(nodes)
    precedence = Precedence.of(nodes)
    durations = durations_ns(nodes)
    schedule = earliest(precedence, durations)
    last = max(schedule.order, key=lambda row: schedule.begins[row] + durations[row], default=None)
    device = has_role(roles, *ON_DEVICE) & ~nodes.on_host()
    following = precedence.effect[device[precedence.cause] & device[precedence.effect]]
    rows = cycle(precedence, schedule)
    return Census(
        _counts(roles),
        communicated(nodes),
        LongestChain() if last is None else _chain(schedule.chain(last), roles, durations),
        int(device.sum()),
        len(np.unique(following)),
        precedence.missing,
        len(nodes) - len(schedule.order),
        [unsigned(number) for number in nodes.id[rows].tolist()],
    )


def communicated(nodes: NodeTable) -> list[Communicated]:
    """What is communicated, by kind and group, the most bytes first."""
    kinds = kinds_of(nodes)
    groups = nodes.attribute(Name.GROUP).strings(len(nodes))
    sizes = nodes.attribute(Name.COMM_SIZE).integers(len(nodes), UNKNOWN).tolist()
    counts, bytes_, sizeless = (
        Counter[tuple[str, str]](),
        Counter[tuple[str, str]](),
        Counter[tuple[str, str]](),
    )
    for row, kind in kinds.items():
        what = kind, groups[row]
        counts[what] += 1
        bytes_[what] += max(sizes[row], 0)
        sizeless[what] += sizes[row] < 0
    rows = [Communicated(*what, count, bytes_[what], sizeless[what]) for what, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.kind, row.group))


def kinds_of(nodes: NodeTable) -> dict[int, str]:
    """What each communication node does, by row: `all_reduce`, `send`."""
    types = nodes.attribute(Name.COMM_TYPE).integers(len(nodes), UNKNOWN)
    kinds = {
        row: _kind(int(types[row])) for row in np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
    }
    kinds |= dict.fromkeys(np.flatnonzero(nodes.of_type(NodeType.COMM_SEND)).tolist(), Role.SEND.value)
    kinds |= dict.fromkeys(np.flatnonzero(nodes.of_type(NodeType.COMM_RECV)).tolist(), Role.RECV.value)
    return kinds


def _kind(number: int) -> str:
    if number in set(CollectiveType):
        return CollectiveType(number).name.lower()
    return "unknown" if number == UNKNOWN else f"comm_type {number}"


def _counts(roles: Roles) -> dict[Role, int]:
    counts = np.bincount(roles, minlength=len(ROLES)).tolist()
    return {role: count for role, count in zip(ROLES, counts, strict=True) if count}


def _chain(rows: Sequence[int], roles: Roles, durations: Sequence[int]) -> LongestChain:
    taken = Counter[str]()
    for row in rows:
        taken[_share(ROLES[roles[row]])] += durations[row]
    return LongestChain(
        sum(taken.values()), taken["compute"], taken["communication"], taken["host"], len(rows)
    )


def _share(role: Role) -> str:
    if role in COMMUNICATION:
        return "communication"
    return "compute" if role in ON_DEVICE else "host"
