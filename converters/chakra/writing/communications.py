"""The communication of a job as rows to write, in the order that all ranks share, and in ASTRA-sim's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink._model.communications import Messages, Participations
from tracelink._model.events import EventKind, Events
from tracelink._model.job import LinkedJob, event_of
from tracelink._model.operations import Operation
from tracelink.converters.chakra.schema import SIMULATED, TYPE_OF_OPERATION, CollectiveType, NodeType

_ROUNDS = 64
"""The most rounds in which the program order of one rank is applied to the others."""


class Communication(Table, frozen=True):
    """One row for each part of a rank in a collective, and for each end of a message; of one rank or of all."""

    rank: Int32s
    row: Int64s
    """The event that becomes the node, or UNKNOWN; several messages can share one kernel."""
    node: Int64s
    """The node of the execution trace that requested it, or UNKNOWN."""
    operator: Int64s
    """The operator that requested it, if that is another event; else UNKNOWN."""
    type: npt.NDArray[np.uint8]
    """A `NodeType`."""
    collective: Int64s
    """Row of the job's collectives, or UNKNOWN for a message."""
    collective_type: Int64s
    """UNKNOWN for a message, and for a collective that Chakra has no type for."""
    operation: Int32s
    """Code of the job's strings, or UNKNOWN for a message."""
    group: Int32s
    """Row of the job's groups, or UNKNOWN."""
    size: Int64s
    """Bytes that one rank contributes, or UNKNOWN."""
    bytes_in: Int64s
    bytes_out: Int64s
    source: Int64s
    target: Int64s
    tag: Int64s
    root: Int64s
    sequence: Int64s
    element_type: Int32s
    position: Int64s
    """The position in the shared order, the same for all ranks that take part."""
    largest_size: Int64s
    """The largest size on any rank; UNKNOWN unless ranks were compared."""
    missing_ranks: Int64s
    """The number of written ranks that should take part but do not; UNKNOWN unless ranks were compared."""

    def of_rank(self, rank: int) -> Communication:
        """The rows of one rank that have an event."""
        return self.take((self.rank == rank) & ((self.row != UNKNOWN) | (self.node != UNKNOWN)))

    def with_events(self, events: Events) -> Communication:
        """The rows in the order of their events; the event is the operator or its node if there is no other.

        An entry of the flight recorder is used only without an execution trace and a profile.
        """
        recorded = (self.row == UNKNOWN) | np.append(events.of_kind(EventKind.RECORD), False)[self.row]
        request = np.where(self.operator != UNKNOWN, self.operator, self.node)
        row = np.where(recorded & (request != UNKNOWN), request, self.row)
        return replace(self, row=row).take(np.lexsort((self.position, row)))


def communication_of(job: LinkedJob) -> Communication:
    """The collectives and messages of a job as they were matched across its ranks."""
    messages = job.messages
    collectives, position = np.split(shared_order(job), [len(job.collectives)])
    return Communication.concatenate(
        [
            _collectives(job, collectives),
            _ends(messages, NodeType.COMM_SEND, messages.source, messages.send, messages.send_node, position),
            _ends(
                messages,
                NodeType.COMM_RECV,
                messages.target,
                messages.receive,
                messages.receive_node,
                position,
            ),
        ]
    )


def participants_of(communication: Communication) -> dict[int, tuple[int, ...]]:
    """The ranks that communicate in each group."""
    known = communication.group != UNKNOWN
    pairs = np.unique(np.stack([communication.group[known], communication.rank[known]]), axis=1)
    return {group: tuple(pairs[1][pairs[0] == group].tolist()) for group in np.unique(pairs[0]).tolist()}


def collective_groups(communication: Communication) -> list[int]:
    """The rows of the groups that have collectives."""
    groups: list[int] = np.unique(
        communication.group[(communication.collective != UNKNOWN) & (communication.group != UNKNOWN)]
    ).tolist()
    return groups


def usable(communication: Communication) -> tuple[Communication, Mapping[str, int]]:
    """The rows that can be written as communication, and the number of others by what is unknown."""
    messages = communication.collective == UNKNOWN
    unknown = {
        "operation": ~messages & (communication.collective_type == UNKNOWN),
        "size": communication.size == UNKNOWN,
        "peer": messages & ((communication.source == UNKNOWN) | (communication.target == UNKNOWN)),
    }
    unusable, counts = np.zeros(len(communication), np.bool_), dict[str, int]()
    for name, rows in unknown.items():
        if count := int(np.count_nonzero(rows & ~unusable)):
            counts[name] = count
        unusable |= rows
    return communication.take(np.flatnonzero(~unusable)), counts


def _collectives(job: LinkedJob, position: Int64s) -> Communication:
    parts, collectives = job.participations, job.collectives
    row = parts.collective
    types = {
        code: TYPE_OF_OPERATION[Operation(text)]
        for code, text in enumerate(job.strings)
        if text in TYPE_OF_OPERATION
    }
    kind = np.array([types.get(code, UNKNOWN) for code in range(len(job.strings))] + [UNKNOWN], np.int64)
    return Communication.of(
        len(parts),
        rank=parts.rank,
        row=event_of(parts),
        node=parts.node,
        operator=parts.operator,
        type=np.full(len(parts), NodeType.COMM_COLL, np.uint8),
        collective=row,
        collective_type=kind[collectives.operation[row]],
        operation=collectives.operation[row],
        group=collectives.group[row],
        size=consumer_sizes(job),
        bytes_in=parts.bytes_in,
        bytes_out=parts.bytes_out,
        root=collectives.root[row].astype(np.int64),
        sequence=collectives.sequence[row],
        element_type=collectives.type[row],
        position=position[row],
    )


def _ends(
    messages: Messages, kind: NodeType, rank: Int32s, row: Int64s, node: Int64s, position: Int64s
) -> Communication:
    chosen = np.flatnonzero((row != UNKNOWN) | (node != UNKNOWN))
    count = len(chosen)
    unknown = np.full(count, UNKNOWN, np.int32)
    return Communication.of(
        count,
        rank=rank[chosen],
        row=row[chosen],
        node=node[chosen],
        type=np.full(count, kind, np.uint8),
        operation=unknown,
        group=messages.group[chosen],
        size=messages.bytes[chosen],
        source=messages.source[chosen].astype(np.int64),
        target=messages.target[chosen].astype(np.int64),
        tag=np.maximum(messages.tag[chosen], 0),
        element_type=unknown,
        position=position[chosen],
    )


# The shared order of collectives and messages, which every rank can follow without a deadlock.


def shared_order(job: LinkedJob) -> Int64s:
    """The position of each collective, then of each message, in one order that all ranks share.

    No rank leaves a collective before the last one enters it. So in the order of the last entries, everything that a
    rank does one after the other is in order, and ranks that follow it never deadlock. Without times, the order is
    derived from the program order of the ranks.
    """
    collectives, messages = job.collectives, job.messages
    start = collectives.start
    entered = np.where(start == NO_TIME, NO_TIME, start + np.maximum(collectives.skew, 0))
    by_group = np.lexsort((collectives.order, collectives.group))
    if len(collectives):
        bounds = np.flatnonzero(np.diff(collectives.group[by_group]) != 0) + 1
        for rows in np.split(by_group, bounds):
            entered[rows] = np.maximum.accumulate(entered[rows])
    time = np.concatenate([entered, messages.sent])
    group = np.concatenate([collectives.group, messages.group])
    index = np.concatenate([collectives.order, messages.order])
    if (time == NO_TIME).all():
        time = _program_positions(job)
    position = np.empty(len(time), np.int64)
    position[np.lexsort((index, group, time))] = np.arange(len(time))
    return position


def _program_positions(job: LinkedJob) -> Int64s:
    """For each collective, then each message, a number greater than that of what any of its ranks did before."""
    rank, row, number = _calls(job)
    order = np.lexsort((number, row, rank))
    rank, number = rank[order], number[order]
    starts = np.searchsorted(rank, np.unique(rank)).tolist()
    position = np.zeros(len(job.collectives) + len(job.messages), np.int64)
    for _ in range(_ROUNDS):
        of_calls = position[number]
        for calls in np.split(np.arange(len(number)), starts[1:]) if len(number) else []:
            step = np.arange(len(calls))
            of_calls[calls] = np.maximum.accumulate(of_calls[calls] - step) + step
        before = position.copy()
        np.maximum.at(position, number, of_calls)
        if np.array_equal(position, before):
            break
    return position


def _calls(job: LinkedJob) -> tuple[Int64s, Int64s, Int64s]:
    """Rank and node of each call, and the number of its collective or message."""
    parts, messages = job.participations, job.messages
    numbers = len(job.collectives) + np.arange(len(messages))
    rank = np.concatenate([parts.rank, messages.source, messages.target]).astype(np.int64)
    row = np.concatenate([parts.node, messages.send_node, messages.receive_node])
    known = row != UNKNOWN
    return rank[known], row[known], np.concatenate([parts.collective, numbers, numbers])[known]


# The size of a collective as consumers of Chakra traces count it: the bytes that one rank contributes.

_SIZED_BY_OUTPUT = (Operation.SCATTER,)
"""Only the root contributes bytes; the size is what each rank receives."""
_EQUAL_SIZES = (Operation.BROADCAST, Operation.ALL_REDUCE, Operation.REDUCE)
"""Input and output have the same size; some sources record only one of them."""
_UNEVEN = (
    Operation.ALL_TO_ALL,
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.GATHER,
    Operation.SCATTER,
)


def consumer_sizes(job: LinkedJob) -> Int64s:
    """The size in bytes of each participation, or UNKNOWN."""
    parts = job.participations
    if not len(parts):
        return np.empty(0, np.int64)
    members = np.array([max(group.size, len(group.ranks)) for group in job.groups] + [0], np.int64)
    count = members[job.collectives.group[parts.collective]]
    size = _contributed(job, parts, count)
    largest = np.full(len(job.collectives), UNKNOWN, np.int64)
    np.maximum.at(largest, parts.collective, size)
    shared = _is_one_of(job, _UNEVEN) | (size == UNKNOWN)
    size = np.where(shared, largest[parts.collective], size)
    return np.where((size == UNKNOWN) & _is_one_of(job, (Operation.BARRIER,)), 0, size)


def _contributed(job: LinkedJob, parts: Participations, members: Int64s) -> Int64s:
    """The bytes that each rank contributes, derived from the bytes that it receives if only these are known."""
    bytes_in, bytes_out = parts.bytes_in, parts.bytes_out
    known, count = bytes_out != UNKNOWN, np.maximum(members, 1)
    size = bytes_in.copy()
    for names, derived in (
        ((Operation.ALL_GATHER,), bytes_out // count),
        ((Operation.REDUCE_SCATTER,), bytes_out * count),
        ((Operation.ALL_TO_ALL,), bytes_out),
    ):
        missing = (size == UNKNOWN) & known & (members > 0) & _is_one_of(job, names)
        size[missing] = derived[missing]
    equal = _is_one_of(job, _EQUAL_SIZES)
    size[equal] = np.maximum(bytes_in, bytes_out)[equal]
    by_output = _is_one_of(job, _SIZED_BY_OUTPUT)
    size[by_output] = bytes_out[by_output]
    return size


def _is_one_of(job: LinkedJob, names: tuple[str, ...]) -> Bools:
    """Participations in one of these operations."""
    wanted = np.array([name in names for name in job.strings] + [False], np.bool_)
    chosen: Bools = wanted[job.collectives.operation[job.participations.collective]]
    return chosen


# Communication in ASTRA-sim's terms: groups by number, and only what it can run to the end.

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


def group_numbers(job: LinkedJob, participants: Mapping[int, tuple[int, ...]]) -> GroupNumbers:
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


def all_ranks(job: LinkedJob) -> tuple[int, ...]:
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
