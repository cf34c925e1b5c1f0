"""Communication in ASTRA-sim's terms: groups by number, and only what it can run to the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink._model.events import GPU_WORK
from tracelink._model.graph import Excerpt
from tracelink._model.job import Job
from tracelink.converters.chakra.communications import Communication, usable
from tracelink.converters.chakra.host import nodes_of_host
from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, NodeType

ALL_RANKS = 0
"""The number of the group of all ranks."""
LARGEST_NUMBER = 2000
"""The largest group name that is kept as a number: ASTRA-sim adds a million to each."""

REPLACEMENTS = {
    CollectiveType.BARRIER: CollectiveType.ALL_REDUCE,
    CollectiveType.REDUCE: CollectiveType.ALL_REDUCE,
    CollectiveType.GATHER: CollectiveType.ALL_GATHER,
    CollectiveType.SCATTER: CollectiveType.BROADCAST,
    CollectiveType.REDUCE_SCATTER_BLOCK: CollectiveType.REDUCE_SCATTER,
}
"""For types that ASTRA-sim cannot run, the type that moves nearly as much between the same ranks."""

MOST_SPLITS = 16
"""More than the system files of ASTRA-sim split a collective into (`preferred-dataset-splits`)."""
LEAST_GATHERED = MOST_SPLITS
"""ASTRA-sim never finishes an all-gather of fewer bytes than splits."""
LEAST_REDUCED = 2 * MOST_SPLITS
"""For each rank of the job: `halvingDoubling` halves each split of an all-reduce, and aborts at messages of 0 bytes."""
LEAST_SENT = 1

# Process groups by number.


class GroupNumbers(Struct, frozen=True):
    """The number, name and members of each group of a job, by its row."""

    numbers: Sequence[int]
    names: Sequence[str]
    descriptions: Sequence[str]
    members: Sequence[tuple[int, ...]]

    def number(self, row: int) -> int:
        """The number of a group; that of all ranks if the group is unknown."""
        return ALL_RANKS if row == UNKNOWN else self.numbers[row]

    def for_simulation(self, rows: Iterable[int]) -> GroupNumbers:
        """The numbers for a simulation in which the groups at `rows` communicate: 0 only if there is no other group.

        ASTRA-sim numbers the collectives of group 0 together with those of other groups, so that ranks in different
        groups number them differently. The collectives of a group with a number of its own are numbered separately.
        """
        several = {row for row in rows if len(self.members[row]) > 1}
        if not any(self.numbers[row] != ALL_RANKS for row in several):
            return self
        free = next(number for number in count(1) if number not in self.numbers)
        return replace(self, numbers=[number or free for number in self.numbers])

    @property
    def members_by_number(self) -> dict[int, tuple[int, ...]]:
        """All groups except that of all ranks, for the groups file of ASTRA-sim."""
        found = {
            number: members
            for number, members in zip(self.numbers, self.members, strict=True)
            if number != ALL_RANKS
        }
        return dict(sorted(found.items()))

    @property
    def described(self) -> dict[int, Mapping[str, object]]:
        """Every group with its name, for the metadata."""
        rows = zip(self.numbers, self.names, self.descriptions, self.members, strict=True)
        return {
            number: {"name": name, "description": description, "ranks": list(members)}
            for number, name, description, members in sorted(rows)
        }


def group_numbers(job: Job, participants: Mapping[int, tuple[int, ...]]) -> GroupNumbers:
    """Groups keep names that are numbers; others get the first free number.

    `participants` are the ranks that communicate in each group, for groups without a list of members.
    """
    members = [tuple(group.ranks) or participants.get(row, ()) for row, group in enumerate(job.groups)]
    ranks = all_ranks(job)
    numbers: dict[int, int] = {}
    for row, group in enumerate(job.groups):
        if members[row] == ranks and (not group.name.isdecimal() or int(group.name) == ALL_RANKS):
            numbers[row] = ALL_RANKS
        elif _is_kept(group.name) and int(group.name) not in numbers.values():
            numbers[row] = int(group.name)
    taken = set(numbers.values())
    free = (number for number in count(1) if number not in taken)
    for row in range(len(job.groups)):
        if row not in numbers:
            numbers[row] = next(free)
    return GroupNumbers(
        [numbers[row] for row in range(len(job.groups))],
        [group.name for group in job.groups],
        [group.description for group in job.groups],
        members,
    )


def all_ranks(job: Job) -> tuple[int, ...]:
    """All ranks of the job: by the largest world size or group, at least those that are recorded."""
    sizes = [rank.world_size for rank in job.ranks if rank.world_size]
    largest = max(
        [*sizes, *(group.size for group in job.groups), *(len(group.ranks) for group in job.groups), 0]
    )
    recorded = max((rank.rank for rank in job.ranks), default=UNKNOWN) + 1
    return tuple(range(max(largest, recorded)))


def _is_kept(name: str) -> bool:
    """True if the name is a number that ASTRA-sim can use."""
    return (
        name.isascii()
        and name.isdecimal()
        and 0 < int(name[:9]) <= LARGEST_NUMBER
        and str(int(name[:9])) == name
    )


# What ASTRA-sim can run; its source code shows what it cannot.


class Simulated(Struct, frozen=True):
    """The communication of a rank as it is written for ASTRA-sim, and counts of what was changed."""

    communication: Communication
    replaced: dict[str, int]
    """Collectives written as another type, by their own type."""
    alone: int
    """Communication of a rank with itself, which never completes: written as compute."""
    incomplete: int
    """Communication in which other written ranks do not take part, which never completes: written as compute."""
    equalized: int
    """Communication with different sizes on its ranks: written with the largest."""
    enlarged: int
    """Communication with fewer bytes than ASTRA-sim can split: written with more."""


def simulated(
    communication: Communication, groups: GroupNumbers, world_size: int, with_node: Bools
) -> Simulated:
    """The communication of a rank that ASTRA-sim can run to the end.

    Only rows `with_node` are written and counted; the recorder often knows of more, from before the profiled time.
    """
    alone = with_node & _alone(communication, groups, world_size)
    incomplete = with_node & ~alone & (communication.missing_ranks > 0)
    kept = np.flatnonzero(~alone & ~incomplete)
    communication, with_node = communication.take(kept), with_node[kept]
    types, replaced = _types(communication, with_node)
    least = np.where(types == CollectiveType.ALL_GATHER, LEAST_GATHERED, 0)
    least[types == CollectiveType.ALL_REDUCE] = LEAST_REDUCED * world_size
    least = np.where(communication.type == NodeType.COMM_COLL, least, LEAST_SENT)
    size = np.maximum(communication.size, communication.largest_size)
    equalized, enlarged = with_node & (size > communication.size), with_node & (size < least)
    counts = (alone, incomplete, equalized, enlarged)
    changed = replace(communication, collective_type=types, size=np.maximum(size, least))
    return Simulated(changed, replaced, *(int(np.count_nonzero(chosen)) for chosen in counts))


def _types(communication: Communication, with_node: Bools) -> tuple[Int64s, dict[str, int]]:
    """Types that ASTRA-sim runs, and the number of replaced collectives with a node by their own type."""
    types = communication.collective_type.copy()
    replaced: dict[str, int] = {}
    for kind, replacement in REPLACEMENTS.items():
        chosen = communication.collective_type == kind
        types[chosen] = replacement
        if count := int(np.count_nonzero(chosen & with_node)):
            replaced[kind.name] = count
    assert set(types[types != UNKNOWN].tolist()) <= SIMULATED
    return types, replaced


def _alone(communication: Communication, groups: GroupNumbers, world_size: int) -> Bools:
    """Collectives of groups with one member, and messages of a rank to itself."""
    sizes: Int64s = np.array(_sizes(groups, world_size), np.int64)
    alone: Bools = (communication.type == NodeType.COMM_COLL) & (sizes[communication.group] == 1)
    alone |= (communication.type != NodeType.COMM_COLL) & (communication.source == communication.target)
    return alone


def _sizes(groups: GroupNumbers, world_size: int) -> Sequence[int]:
    """The number of members of each group; the last one is for communication of an unknown group."""
    return [*_members(groups, world_size), world_size]


def _members(groups: GroupNumbers, world_size: int) -> Iterator[int]:
    for number, members in zip(groups.numbers, groups.members, strict=True):
        yield world_size if number == ALL_RANKS else len(members)


# Ranks compared: ASTRA-sim deadlocks unless all ranks take part with the same size.


def positions_with_nodes(part: Excerpt, communication: Communication) -> Int64s:
    """The shared positions of the communication of a rank that is written as nodes."""
    written, _ = usable(communication.with_events(part.events))
    positions: Int64s = written.position[have_nodes(part, written)]
    return positions


def have_nodes(part: Excerpt, communication: Communication) -> Bools:
    """Whether the events of the communication of a rank become nodes."""
    is_node = nodes_of_host(part) | (part.events.of_kind(*GPU_WORK) & part.events.timed)
    found: Bools = np.append(is_node, False)[communication.row]
    return found


def compared(
    communication: Communication, groups: GroupNumbers, ranks: Sequence[int], positions: Sequence[Int64s]
) -> Communication:
    """The communication with its largest size on any rank, and the number of `ranks` that do not take part.

    `positions` are the shared positions that each of these ranks writes.
    """
    count = int(communication.position.max(initial=UNKNOWN)) + 1
    taking_part = np.bincount(np.concatenate([np.empty(0, np.int64), *positions]), minlength=count)
    written = np.array(sorted(ranks), np.int64)
    members = [len(np.intersect1d(written, np.array(group, np.int64))) for group in groups.members]
    expected = np.array([*members, len(written)], np.int64)[communication.group]
    source, target = np.isin(communication.source, written), np.isin(communication.target, written)
    ends = source.astype(np.int64) + target
    expected = np.where(communication.type == NodeType.COMM_COLL, expected, ends)
    largest = np.full(count, communication.size.min(initial=0), np.int64)
    np.maximum.at(largest, communication.position, communication.size)
    missing = np.maximum(expected - taking_part[communication.position], 0)
    return replace(communication, largest_size=largest[communication.position], missing_ranks=missing)
