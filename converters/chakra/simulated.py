"""Communication in terms that ASTRA-sim can run; its own source says what it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.chakra.communications import Communicating
from tracelink.converters.chakra.group_numbers import EVERYBODY, GroupNumbers
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, NodeType
from tracelink.events import Bools, Int64s

INSTEAD = {
    CollectiveType.BARRIER: CollectiveType.ALL_REDUCE,
    CollectiveType.REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveType.GATHER: CollectiveType.ALL_GATHER,
    CollectiveType.SCATTER: CollectiveType.BROADCAST,
    CollectiveType.REDUCE_SCATTER_BLOCK: CollectiveType.REDUCE_SCATTER,
}
"""What moves most nearly as much between the same ranks."""

LEAST_GATHERED = 16
"""An all-gather of fewer bytes than it is split into never ends."""
LEAST_SENT = 1


@dataclass(frozen=True, slots=True)
class Simulated:
    """What is written as communication, and what is written in another way than it happened."""

    communications: Communicating
    replaced: dict[str, int]
    """How many collectives by name of their type."""
    alone: int
    """Communications of one rank with itself, which never end: they are computation."""
    incomplete: int
    """Those that others who are written should take part in and do not: they are computation too."""
    equalized: int
    """Those whose ranks tell of different sizes: all have the largest."""
    enlarged: int


def simulated(told: Communicating, groups: GroupNumbers, world_size: int) -> Simulated:
    """The communication of a rank as ASTRA-sim can run it."""
    alone = _alone(told, groups, world_size)
    incomplete = ~alone & (told.lacking > 0)
    told = told.take(np.flatnonzero(~alone & ~incomplete))
    types, replaced = _types(told)
    least = np.where(types == CollectiveType.ALL_GATHER, LEAST_GATHERED, 0)
    least = np.where(told.type == NodeType.COMM_COLL, least, LEAST_SENT)
    size = np.maximum(told.size, told.most)
    counts = (alone, incomplete, size > told.size, size < least)
    changed = replace(told, collective_type=types, size=np.maximum(size, least))
    return Simulated(changed, replaced, *(int(np.count_nonzero(chosen)) for chosen in counts))


def _types(told: Communicating) -> tuple[Int64s, dict[str, int]]:
    """Types that ASTRA-sim knows, and how many collectives were of another one."""
    types = told.collective_type.copy()
    replaced: dict[str, int] = {}
    for kind, instead in INSTEAD.items():
        chosen = told.collective_type == kind
        if count := int(np.count_nonzero(chosen)):
            replaced[kind.name] = count
            types[chosen] = instead
    assert set(types[types != UNKNOWN].tolist()) <= SIMULATED
    return types, replaced


def _alone(told: Communicating, groups: GroupNumbers, world_size: int) -> Bools:
    """Which are collectives of groups that have one member, or messages of a rank to itself."""
    sizes: Int64s = np.array(_sizes(groups, world_size), np.int64)
    alone: Bools = (told.type == NodeType.COMM_COLL) & (sizes[told.group] == 1)
    alone |= (told.type != NodeType.COMM_COLL) & (told.source == told.target)
    return alone


def _sizes(groups: GroupNumbers, world_size: int) -> Sequence[int]:
    """How many members each group has; the last is for what is in no known group."""
    return [*_members(groups, world_size), world_size]


def _members(groups: GroupNumbers, world_size: int) -> Iterator[int]:
    for number, members in zip(groups.numbers, groups.members, strict=True):
        yield world_size if number == EVERYBODY else len(members)
