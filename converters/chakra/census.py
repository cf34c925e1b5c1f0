"""The census of a trace: nodes by role, communication by group, and the longest chain of dependencies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink._model.fields import Bytes, Count, Doc, Nanoseconds, Positive, Row, Shown, Text
from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.table import (
    COMMUNICATION,
    ON_DEVICE,
    ROLES,
    NodeTable,
    Role,
    Roles,
    cycles_in,
    durations_ns,
    has_role,
    roles_of,
    unsigned,
)

LONGEST_CYCLE = 100
"""Nodes of a cycle that are listed."""


class Communication(Row, frozen=True):
    """Communication nodes of one kind in one group."""

    kind: Annotated[Text, Shown("communication")]
    group: Annotated[str, Doc("As the nodes name it; empty means all ranks.")]
    count: Annotated[Positive, Shown("nodes")]
    bytes: Bytes
    without_size: Annotated[Count, Shown("of unknown size")] = 0


class LongestChain(Row, frozen=True):
    """The chain of nodes, each depending on the previous one, that takes the most time."""

    ns: Annotated[Nanoseconds, Shown("time")] = 0
    compute_ns: Nanoseconds = 0
    communication_ns: Nanoseconds = 0
    host_ns: Nanoseconds = 0
    nodes: Count = 0


class Census(Row, frozen=True):
    """The contents of a Chakra trace in numbers."""

    nodes: Annotated[
        Mapping[Role, Positive],
        Doc(
            "Number of nodes of each kind; kinds without nodes are left out.",
            extra_json_schema={"propertyNames": {"enum": [role.value for role in Role]}},
        ),
    ]
    communication: Annotated[Sequence[Communication], Doc("Each kind in each group, most bytes first.")] = ()
    longest_chain: LongestChain = LongestChain()
    device_nodes: Count = 0
    device_nodes_after_device: Annotated[
        Count, Doc("How many of them depend on another device node directly.")
    ] = 0
    missing_dependencies: Annotated[Count, Doc("Dependencies on nodes that do not exist.")] = 0
    nodes_without_order: Annotated[
        Count, Doc("Nodes on a cycle, or dependent on one; they are not in the longest chain.")
    ] = 0
    cycle: Annotated[
        Sequence[Count],
        Doc(
            f"Ids of the nodes of a cycle, the first {LONGEST_CYCLE} of them: each depends on the previous one, and "
            "the first on the last.",
            max_length=LONGEST_CYCLE,
        ),
    ] = ()


def census(nodes: NodeTable) -> Census:
    """The census of the nodes of one rank."""
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
        communication(nodes),
        LongestChain() if last is None else _chain(schedule.chain(last), roles, durations),
        int(device.sum()),
        len(np.unique(following)),
        precedence.missing,
        len(nodes) - len(schedule.order),
        [unsigned(number) for number in nodes.id[rows[:LONGEST_CYCLE]].tolist()],
    )


def communication(nodes: NodeTable) -> list[Communication]:
    """Communication by kind and group, sorted by bytes."""
    kinds = kinds_of(nodes)
    groups = nodes.attribute(Name.GROUP).strings(len(nodes))
    sizes = nodes.attribute(Name.COMM_SIZE).integers(len(nodes), UNKNOWN).tolist()
    counts, bytes_, sizeless = (
        Counter[tuple[str, str]](),
        Counter[tuple[str, str]](),
        Counter[tuple[str, str]](),
    )
    for row, kind in kinds.items():
        key = kind, groups[row]
        counts[key] += 1
        bytes_[key] += max(sizes[row], 0)
        sizeless[key] += sizes[row] < 0
    rows = [Communication(*key, count, bytes_[key], sizeless[key]) for key, count in counts.items()]
    return sorted(rows, key=lambda row: (-row.bytes, row.kind, row.group))


def kinds_of(nodes: NodeTable) -> dict[int, str]:
    """The kind of each communication node, by row: `all_reduce`, `send`."""
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
    time = Counter[str]()
    for row in rows:
        time[_share(ROLES[roles[row]])] += durations[row]
    return LongestChain(sum(time.values()), time["compute"], time["communication"], time["host"], len(rows))


def _share(role: Role) -> str:
    if role in COMMUNICATION:
        return "communication"
    return "compute" if role in ON_DEVICE else "host"


# Precedence: which nodes must end before others, and the earliest start of each node.

_RELEASED = 0


class Precedence(Struct, frozen=True):
    """Dependencies as pairs of rows without duplicates: the effect waits for the cause."""

    count: int
    """The number of nodes."""
    cause: Int64s
    effect: Int64s
    data: Bools
    """True for a data dependency."""
    control: Bools
    """True for a control dependency; a pair can be both."""
    missing: int = 0
    """Dependencies on nodes that do not exist."""
    itself: int = 0
    """Dependencies of nodes on themselves."""

    @classmethod
    def of(cls, nodes: NodeTable) -> Precedence:
        """The data and control dependencies of nodes; a duplicate id means its first node."""
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


class Schedule(Struct, frozen=True):
    """An order with causes before effects, and the earliest start of each node."""

    order: Sequence[int]
    """Rows; those in a cycle or behind one are not in it."""
    begins: Sequence[float]
    """For each row the time when all its causes have ended; 0 without causes."""
    last_cause: Sequence[int]
    """For each row the cause that ends last, or UNKNOWN."""

    def chain(self, row: int) -> list[int]:
        """The chain of last causes up to `row`."""
        rows = [row]
        while (row := self.last_cause[row]) != UNKNOWN:
            rows.append(row)
        return rows[::-1]


def earliest(precedence: Precedence, durations: Sequence[float], *, through_cycles: bool = False) -> Schedule:
    """Starts every node as soon as its causes have ended, in linear time; nodes in cycles are left out.

    `through_cycles` starts a node of a cycle whenever no other node can start, so that no node is left out.
    """
    count = precedence.count
    waiting = np.bincount(precedence.effect, minlength=count).tolist()
    bounds = np.searchsorted(precedence.cause, np.arange(count + 1)).tolist()
    effects = precedence.effect.tolist()
    begins: list[float] = [0] * count
    last_cause = [UNKNOWN] * count
    order = [row for row, causes in enumerate(waiting) if not causes]
    for row in _with_cycles(order, waiting) if through_cycles else order:
        end = begins[row] + durations[row]
        for effect in effects[bounds[row] : bounds[row + 1]]:
            if end > begins[effect] or last_cause[effect] == UNKNOWN:
                begins[effect], last_cause[effect] = max(end, begins[effect]), row
            waiting[effect] -= 1
            if not waiting[effect]:
                order.append(effect)
    return Schedule(order, begins, last_cause)


def _with_cycles(order: list[int], waiting: list[int]) -> Iterator[int]:
    """The rows of a list that grows meanwhile; at its end, the next row that still waits is appended."""
    yield from order
    done = len(order)
    for row in range(len(waiting)):
        if waiting[row] > 0:
            waiting[row] = _RELEASED
            order.append(row)
            while done < len(order):
                yield order[done]
                done += 1


def cycle(precedence: Precedence, schedule: Schedule) -> list[int]:
    """The rows of a cycle: each waits for the previous one, and the first for the last; empty without a cycle."""
    left = np.ones(precedence.count, np.bool_)
    left[np.array(schedule.order, np.int64)] = False
    inside = left[precedence.cause] & left[precedence.effect]
    cause_of = dict(zip(precedence.effect[inside].tolist(), precedence.cause[inside].tolist(), strict=True))
    return next(iter(cycles_in(cause_of)), [])[::-1]
