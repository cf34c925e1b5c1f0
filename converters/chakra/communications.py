"""What each rank writes of communication; ASTRA-sim's terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.schema import SIMULATED, TYPE_OF_OPERATION, CollectiveType, NodeType
from tracelink.model.collectives import Messages, Participations
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, Table
from tracelink.model.events import EventKind, Events
from tracelink.model.job import Job, event_of
from tracelink.model.operations import Operation

# One order for all that ranks do together, which each of them can follow.


ROUNDS = 64
"""How often what one rank's program says is told to the others."""


def turns_of_job(job: Job) -> Int64s:
    """The place of each collective, then of each message, in one order for all ranks.

    Nobody leaves a collective before the last has entered it. So by the entering of the last, what any rank does
    one after the other is in that order, and ranks that follow it never wait for each other in a circle.
    Where nothing has a time, the ranks' programs say what comes after what.
    """
    whole, messages = job.collectives, job.messages
    entered = np.where(whole.start == NO_TIME, NO_TIME, whole.start + np.maximum(whole.skew, 0))
    by_group = np.lexsort((whole.order, whole.group))
    begin = np.flatnonzero(np.append(True, np.diff(whole.group[by_group]) != 0)) if len(whole) else by_group
    for rows in np.split(by_group, begin[1:]) if len(whole) else []:
        entered[rows] = np.maximum.accumulate(entered[rows])
    time = np.concatenate([entered, messages.sent])
    group = np.concatenate([whole.group, messages.group])
    place = np.concatenate([whole.order, messages.order])
    if (time == NO_TIME).all():
        time = _places_in_programs(job)
    turn = np.empty(len(time), np.int64)
    turn[np.lexsort((place, group, time))] = np.arange(len(time))
    return turn


def _places_in_programs(job: Job) -> Int64s:
    """For each collective, then each message, a number greater than that of what any of its ranks did before."""
    rank, row, number = _calls(job)
    order = np.lexsort((number, row, rank))
    rank, number = rank[order], number[order]
    begins = np.searchsorted(rank, np.unique(rank)).tolist()
    place = np.zeros(len(job.collectives) + len(job.messages), np.int64)
    for _ in range(ROUNDS):
        pushed = place[number]
        for mine in np.split(np.arange(len(number)), begins[1:]) if len(number) else []:
            step = np.arange(len(mine))
            pushed[mine] = np.maximum.accumulate(pushed[mine] - step) + step
        before = place.copy()
        np.maximum.at(place, number, pushed)
        if np.array_equal(place, before):
            break
    return place


def _calls(job: Job) -> tuple[Int64s, Int64s, Int64s]:
    """Rank and node of each call, and which collective or message it is."""
    parts, messages = job.participations, job.messages
    numbers = len(job.collectives) + np.arange(len(messages))
    rank = np.concatenate([parts.rank, messages.source, messages.target]).astype(np.int64)
    row = np.concatenate([parts.node, messages.send_node, messages.receive_node])
    known = row != UNKNOWN
    return rank[known], row[known], np.concatenate([parts.collective, numbers, numbers])[known]


# What each rank has to write as communication: its part in every collective, and its end of every message.


@dataclass(frozen=True, slots=True)
class Communicating(Table):
    """One row for each node of communication that is to be written, of one rank or of all."""

    rank: Int32s
    row: Int64s
    """The event that becomes the node, or UNKNOWN; several messages can share one."""
    node: Int64s
    """The node of the execution trace that asked for it, or UNKNOWN."""
    operator: Int64s
    """The operator that asked for it, where it is another event; or UNKNOWN."""
    type: npt.NDArray[np.uint8]
    collective: Int64s
    """Row of the job's collectives, or UNKNOWN for a message."""
    collective_type: Int64s
    """UNKNOWN for a message, and for a collective that Chakra has no word for."""
    operation: Int32s
    """Code of the job's strings; UNKNOWN for messages."""
    group: Int32s
    """Row of the job's groups, or UNKNOWN."""
    size: Int64s
    """Bytes as consumers take them, or UNKNOWN."""
    bytes_in: Int64s
    bytes_out: Int64s
    source: Int64s
    target: Int64s
    tag: Int64s
    root: Int64s
    sequence: Int64s
    element_type: Int32s
    turn: Int64s
    """The place among everything that the ranks do together, the same for all who take part."""
    most: Int64s
    """The largest size that any of its ranks tells; UNKNOWN where nobody has asked."""
    lacking: Int64s
    """How many of those who are written should take part and do not; UNKNOWN where nobody has asked."""

    def of_rank(self, rank: int) -> Communicating:
        """Those of one rank that anything is recorded of."""
        return self.take((self.rank == rank) & ((self.row != UNKNOWN) | (self.node != UNKNOWN)))

    def settled(self, events: Events) -> Communicating:
        """The same in the order of their events, where an operator, or its node, stands for what has no other.

        An entry of the recorder becomes no node beside an execution trace or a profile.
        """
        recorded = (self.row == UNKNOWN) | np.append(events.of_kind(EventKind.RECORD), False)[self.row]
        asked = np.where(self.operator != UNKNOWN, self.operator, self.node)
        row = np.where(recorded & (asked != UNKNOWN), asked, self.row)
        return replace(self, row=row).take(np.lexsort((self.turn, row)))


def communicating(job: Job) -> Communicating:
    """Everything that the ranks of a job do together, by what was matched across them."""
    messages = job.messages
    turn = turns_of_job(job)
    collectives, turn = turn[: len(job.collectives)], turn[len(job.collectives) :]
    return Communicating.concatenate(
        [
            _collectives(job, collectives),
            _ends(messages, NodeType.COMM_SEND, messages.source, messages.send, messages.send_node, turn),
            _ends(
                messages, NodeType.COMM_RECV, messages.target, messages.receive, messages.receive_node, turn
            ),
        ]
    )


def participants_of(told: Communicating) -> dict[int, tuple[int, ...]]:
    """The ranks that are seen in each group."""
    known = told.group != UNKNOWN
    pairs = np.unique(np.stack([told.group[known], told.rank[known]]), axis=1)
    return {group: tuple(pairs[1][pairs[0] == group].tolist()) for group in np.unique(pairs[0]).tolist()}


def collective_groups(told: Communicating) -> list[int]:
    """The rows of the groups that have collectives."""
    groups: list[int] = np.unique(told.group[(told.collective != UNKNOWN) & (told.group != UNKNOWN)]).tolist()
    return groups


def usable(told: Communicating) -> tuple[Communicating, Mapping[str, int]]:
    """What can be written as communication, and how much cannot, by what is not known of it."""
    messages = told.collective == UNKNOWN
    lacking = {
        "operation": ~messages & (told.collective_type == UNKNOWN),
        "size": told.size == UNKNOWN,
        "peer": messages & ((told.source == UNKNOWN) | (told.target == UNKNOWN)),
    }
    unusable, counts = np.zeros(len(told), np.bool_), dict[str, int]()
    for name, lacks in lacking.items():
        if count := int(np.count_nonzero(lacks & ~unusable)):
            counts[name] = count
        unusable |= lacks
    return told.take(np.flatnonzero(~unusable)), counts


def _collectives(job: Job, turn: Int64s) -> Communicating:
    parts, whole = job.participations, job.collectives
    place = parts.collective
    types = {
        code: TYPE_OF_OPERATION[Operation(text)]
        for code, text in enumerate(job.strings)
        if text in TYPE_OF_OPERATION
    }
    kind = np.array([types.get(code, UNKNOWN) for code in range(len(job.strings))] + [UNKNOWN], np.int64)
    return Communicating.of(
        len(parts),
        rank=parts.rank,
        row=event_of(parts),
        node=parts.node,
        operator=parts.operator,
        type=np.full(len(parts), NodeType.COMM_COLL, np.uint8),
        collective=place,
        collective_type=kind[whole.operation[place]],
        operation=whole.operation[place],
        group=whole.group[place],
        size=consumer_sizes(job),
        bytes_in=parts.bytes_in,
        bytes_out=parts.bytes_out,
        root=whole.root[place].astype(np.int64),
        sequence=whole.sequence[place],
        element_type=whole.type[place],
        turn=turn[place],
    )


def _ends(
    messages: Messages, kind: NodeType, rank: Int32s, row: Int64s, node: Int64s, turn: Int64s
) -> Communicating:
    chosen = np.flatnonzero((row != UNKNOWN) | (node != UNKNOWN))
    count = len(chosen)
    unknown = np.full(count, UNKNOWN, np.int32)
    return Communicating.of(
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
        turn=turn[chosen],
    )


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


def consumer_sizes(job: Job) -> Int64s:
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


def _contributed(job: Job, parts: Participations, members: Int64s) -> Int64s:
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


def _is_one_of(job: Job, names: tuple[str, ...]) -> Bools:
    """Participations in one of these operations."""
    wanted = np.array([name in names for name in job.strings] + [False], np.bool_)
    chosen: Bools = wanted[job.collectives.operation[job.participations.collective]]
    return chosen


# Process groups by number: simulators know groups by whole numbers, and 0 is all ranks.


EVERYBODY = 0
LARGEST = 2000


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """The number of each group of a job, by its row, and who its members are."""

    numbers: Sequence[int]
    names: Sequence[str]
    descriptions: Sequence[str]
    members: Sequence[tuple[int, ...]]

    def number(self, row: int) -> int:
        """The number of a group; what is in no known group is among all."""
        return EVERYBODY if row == UNKNOWN else self.numbers[row]

    def among(self, rows: Iterable[int]) -> GroupNumbers:
        """The same for simulations in which the groups at `rows` communicate: 0 only where there is no other.

        ASTRA-sim counts the collectives of all ranks on with those of groups, so where ranks are in different
        groups it takes different collectives of all ranks for one. Under a number of its own a group is counted alone.
        """
        several = {row for row in rows if len(self.members[row]) > 1}
        if not any(self.numbers[row] != EVERYBODY for row in several):
            return self
        free = next(number for number in count(1) if number not in self.numbers)
        return replace(self, numbers=[number or free for number in self.numbers])

    @property
    def members_by_number(self) -> dict[int, tuple[int, ...]]:
        """Everything but the group of all ranks, as ASTRA-sim reads it."""
        found = {
            number: members
            for number, members in zip(self.numbers, self.members, strict=True)
            if number != EVERYBODY
        }
        return dict(sorted(found.items()))

    @property
    def described(self) -> dict[int, Mapping[str, object]]:
        """Every group with its name."""
        rows = zip(self.numbers, self.names, self.descriptions, self.members, strict=True)
        return {
            number: {"name": name, "description": description, "ranks": list(members)}
            for number, name, description, members in sorted(rows)
        }


def group_numbers(job: Job, participants: Mapping[int, tuple[int, ...]]) -> GroupNumbers:
    """Groups keep names that are numbers; others get the first that is free.

    `participants` are the ranks seen in each group, for groups whose members no source lists.
    """
    members = [tuple(group.ranks) or participants.get(row, ()) for row, group in enumerate(job.groups)]
    all_ranks = everybody(job)
    numbers: dict[int, int] = {}
    for row, group in enumerate(job.groups):
        if members[row] == all_ranks and (not group.name.isdecimal() or int(group.name) == EVERYBODY):
            numbers[row] = EVERYBODY
        elif _fits(group.name) and int(group.name) not in numbers.values():
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


def everybody(job: Job) -> tuple[int, ...]:
    """All ranks of the job, by what its sources say of the world, else by who is there."""
    told = [rank.world_size for rank in job.ranks if rank.world_size]
    largest = max(
        [*told, *(group.size for group in job.groups), *(len(group.ranks) for group in job.groups), 0]
    )
    seen = max((rank.rank for rank in job.ranks), default=-1) + 1
    return tuple(range(max(largest, seen)))


def _fits(name: str) -> bool:
    """Whether the name is a number that a simulator can keep: ASTRA-sim counts a million on from each."""
    return name.isascii() and name.isdecimal() and 0 < int(name[:9]) <= LARGEST and str(int(name[:9])) == name


# Communication in terms that ASTRA-sim can run; its own source says what it cannot.


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
