"""What is in a trace: counts, what is communicated, the longest chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.converters.chakra.precedence import Precedence, cycle, earliest
from tracelink.converters.chakra.roles import COMMUNICATION, ON_DEVICE, ROLES, Role, Roles, among, roles_of
from tracelink.converters.chakra.schema import CollectiveType, Name, NodeType
from tracelink.converters.chakra.table import NodeTable, unsigned
from tracelink.converters.chakra.times import durations_ns

UNSAID = -1
UNKNOWN = "unknown"


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
    device = among(roles, *ON_DEVICE) & ~nodes.on_host()
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
    groups = nodes.attribute(Name.GROUP).texts(len(nodes))
    sizes = nodes.attribute(Name.COMM_SIZE).whole_numbers(len(nodes), UNSAID).tolist()
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
    types = nodes.attribute(Name.COMM_TYPE).whole_numbers(len(nodes), UNSAID)
    kinds = {
        row: _kind(int(types[row])) for row in np.flatnonzero(nodes.of_type(NodeType.COMM_COLL)).tolist()
    }
    kinds |= dict.fromkeys(np.flatnonzero(nodes.of_type(NodeType.COMM_SEND)).tolist(), Role.SEND.value)
    kinds |= dict.fromkeys(np.flatnonzero(nodes.of_type(NodeType.COMM_RECV)).tolist(), Role.RECV.value)
    return kinds


def _kind(number: int) -> str:
    if number in set(CollectiveType):
        return CollectiveType(number).name.lower()
    return UNKNOWN if number == UNSAID else f"comm_type {number}"


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
