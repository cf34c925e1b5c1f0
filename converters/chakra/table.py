"""Nodes of one rank as columns; sizes, times, roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.schema import WHOLE_NUMBERS, Category, Kind, Name, NodeType
from tracelink.model.collectives import Participations
from tracelink.model.columns import MICROSECOND, UNKNOWN, Bools, Columns, Int32s, Int64s
from tracelink.model.job import Job
from tracelink.model.operations import Operation

# The nodes of one rank, as columns.


UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF
WHOLE = np.array([*WHOLE_NUMBERS, Kind.BOOL], np.uint8)


@dataclass(frozen=True, slots=True)
class Links:
    """For each node the ids of others: those of node `i` are `ids[bounds[i]:bounds[i + 1]]`."""

    bounds: Int64s
    ids: Int64s
    """Ids of 64 unsigned bits, as signed numbers of the same bits."""

    @classmethod
    def of(cls, lists: Sequence[Iterable[int]]) -> Links:
        """Links from plain numbers."""
        rows = [list(ids) for ids in lists]
        return cls(
            np.cumsum([0, *map(len, rows)], dtype=np.int64),
            signed([number for row in rows for number in row]),
        )

    @property
    def owners(self) -> Int64s:
        """The row of the node that each id belongs to."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def __getitem__(self, row: int) -> list[int]:
        """The ids of one node."""
        ids: list[int] = (self.ids[self.bounds[row] : self.bounds[row + 1]].view(np.uint64)).tolist()
        return ids


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of those nodes that have it; a node that has it twice has two rows here."""

    rows: Int64s
    values: Sequence[Any] | npt.NDArray[Any]
    """Numbers, texts, bytes, or lists of them, as `kinds` says."""
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, kind: Kind, rows: Int64s, values: Sequence[Any] | npt.NDArray[Any]) -> Attribute:
        """An attribute that is of one kind everywhere."""
        return cls(rows, values, np.full(len(rows), kind, np.uint8))

    def __len__(self) -> int:
        return len(self.rows)

    def told(self, places: Int64s) -> Iterator[tuple[int, Any]]:
        """The node and the plain value at some places."""
        values = chosen(self.values, places)
        plain = values.tolist() if isinstance(values, np.ndarray) else values
        return zip(self.rows[places].tolist(), plain, strict=True)

    def whole_numbers(self, length: int, default: int) -> Int64s:
        """One number for each of `length` nodes, `default` where a node has none or something else."""
        column = np.full(length, default, np.int64)
        whole = np.isin(self.kinds, WHOLE)
        values = self.values if whole.all() else chosen(self.values, np.flatnonzero(whole))
        try:
            column[self.rows[whole]] = np.asarray(values, np.int64)
        except OverflowError:
            column[self.rows[whole]] = signed(values)
        return column

    def texts(self, length: int, default: str = "") -> list[str]:
        """One text for each of `length` nodes."""
        column = [default] * length
        for row, value in zip(self.rows.tolist(), self.values, strict=True):
            if isinstance(value, str):
                column[row] = value
        return column


@dataclass(frozen=True, slots=True)
class NodeTable(Columns):
    """One row for each node, in the order of the file; `name` is a code of `strings`."""

    id: Int64s
    """64 unsigned bits, as a signed number of the same bits."""
    name: Int32s
    type: npt.NDArray[np.uint8]
    start: Int64s
    """Microseconds."""
    duration: Int64s
    data: Links
    """What must have ended before the node begins."""
    control: Links
    """What encloses it, or put it on a device."""
    strings: Sequence[str]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.id)

    def attribute(self, name: str) -> Attribute:
        """An attribute; one that no node has is empty."""
        return self.attributes.get(name) or Attribute(np.empty(0, np.int64), [], np.empty(0, np.uint8))

    def text(self, row: int) -> str:
        """The name of a node."""
        return self.strings[int(self.name[row])]

    def of_type(self, *types: NodeType) -> Bools:
        """Which nodes are of these types."""
        chosen: Bools = np.isin(self.type, np.array(types, np.uint8))
        return chosen

    def on_host(self) -> Bools:
        """Which nodes say that they are operators of the host."""
        told: Bools = self.attribute(Name.IS_CPU_OP).whole_numbers(len(self), 0) != 0
        return told

    def places(self, links: Links) -> Int64s:
        """The row of the node that each id of `links` names, or -1; of several nodes with one id the first."""
        order = np.argsort(self.id, kind="stable")
        place = np.searchsorted(self.id[order], links.ids)
        place = np.minimum(place, max(len(order) - 1, 0))
        if not len(order):
            return np.full(len(links.ids), -1, np.int64)
        found = self.id[order][place] == links.ids
        return np.where(found, order[place], -1)


def chosen(values: Sequence[Any] | npt.NDArray[Any], places: Int64s) -> Sequence[Any] | npt.NDArray[Any]:
    """Some of the values of an attribute."""
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places.tolist()]


def signed(numbers: Sequence[int] | npt.NDArray[Any]) -> Int64s:
    """Numbers of 64 unsigned bits as signed ones of the same bits, so that columns need one type only."""
    if isinstance(numbers, np.ndarray):
        return numbers.astype(np.int64)
    return np.array([number & UNSIGNED for number in numbers], np.uint64).view(np.int64)


def unsigned(number: int) -> int:
    """The number that a signed one of the same bits stands for."""
    return int(number) & UNSIGNED


# What each node is to whoever counts or draws: where its type alone does not say it, its attributes do.


Roles = npt.NDArray[np.uint8]


class Role(StrEnum):
    """What a node does."""

    HOST = "host"
    """Computation on the host."""
    IDLE = "idle"
    """A gap between operators of a thread."""
    DEVICE = "device"
    """Computation on a device."""
    MEMCPY = "memcpy"
    MEMSET = "memset"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    LOAD = "load"
    STORE = "store"
    METADATA = "metadata"
    UNKNOWN = "unknown"
    """Of no type that the format knows."""


ROLES = tuple(Role)
COMMUNICATION = (Role.COLLECTIVE, Role.SEND, Role.RECV)
ON_DEVICE = (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.LOAD, Role.STORE, *COMMUNICATION)
"""Roles of nodes that work on a device, where they do not say that they are of the host."""

ROLE_OF_TYPE = {
    NodeType.METADATA: Role.METADATA,
    NodeType.MEM_LOAD: Role.LOAD,
    NodeType.MEM_STORE: Role.STORE,
    NodeType.COMM_SEND: Role.SEND,
    NodeType.COMM_RECV: Role.RECV,
    NodeType.COMM_COLL: Role.COLLECTIVE,
}
ROLE_OF_CATEGORY = {
    Category.IDLE: Role.IDLE,
    Category.MEMCPY: Role.MEMCPY,
    Category.MEMSET: Role.MEMSET,
}
ROLE_OF_NAME = {"Memcpy": Role.MEMCPY, "Memset": Role.MEMSET}
"""How the profiler begins the names of copies, for traces whose nodes have no category."""


def roles_of(nodes: NodeTable) -> Roles:
    """One place in `ROLES` for each node."""
    roles = np.full(len(nodes), ROLES.index(Role.UNKNOWN), np.uint8)
    for node_type, role in ROLE_OF_TYPE.items():
        roles[nodes.type == node_type] = ROLES.index(role)
    computing, host = nodes.of_type(NodeType.COMP), nodes.on_host()
    roles[computing] = np.where(host[computing], ROLES.index(Role.HOST), ROLES.index(Role.DEVICE))
    for beginning, role in ROLE_OF_NAME.items():
        codes = [code for code, text in enumerate(nodes.strings) if text.startswith(beginning)]
        roles[computing & ~host & np.isin(nodes.name, codes)] = ROLES.index(role)
    category = nodes.attribute(Name.CATEGORY)
    for word, role in ROLE_OF_CATEGORY.items():
        roles[_saying(category, word, len(nodes)) & computing] = ROLES.index(role)
    return roles


def among(roles: Roles, *wanted: Role) -> Bools:
    """Which nodes have one of these roles."""
    found: Bools = np.isin(roles, np.array([ROLES.index(role) for role in wanted], np.uint8))
    return found


def _saying(attribute: Attribute, word: str, length: int) -> Bools:
    said = np.zeros(length, np.bool_)
    said[attribute.rows[np.array([value == word for value in attribute.values], np.bool_)]] = True
    return said


# How many bytes a collective has, as those who read Chakra traces count them.


OUTPUT = (Operation.SCATTER,)
"""Only the root puts something in; what counts is what each rank gets."""
EITHER = (Operation.BROADCAST, Operation.ALL_REDUCE, Operation.REDUCE)
"""What is put in is as large as what comes out; some sources record only one of the two."""
UNEVEN = (
    Operation.ALL_TO_ALL,
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.GATHER,
    Operation.SCATTER,
)


def consumer_sizes(job: Job) -> Int64s:
    """The size of each participation, or UNKNOWN."""
    parts = job.participations
    if not len(parts):
        return np.empty(0, np.int64)
    members = np.array([max(group.size, len(group.ranks)) for group in job.groups] + [0], np.int64)
    count = members[job.collectives.group[parts.collective]]
    size = _given(job, parts, count)
    most = np.full(len(job.collectives), UNKNOWN, np.int64)
    np.maximum.at(most, parts.collective, size)
    shared = _is_one_of(job, UNEVEN) | (size == UNKNOWN)
    size = np.where(shared, most[parts.collective], size)
    return np.where((size == UNKNOWN) & _is_one_of(job, (Operation.BARRIER,)), 0, size)


def _given(job: Job, parts: Participations, count: Int64s) -> Int64s:
    """What each rank puts in, told from what it gets where only that is known."""
    given, gotten = parts.bytes_in, parts.bytes_out
    known, several = gotten != UNKNOWN, np.maximum(count, 1)
    size = given.copy()
    for names, told in (
        ((Operation.ALL_GATHER,), gotten // several),
        ((Operation.REDUCE_SCATTER,), gotten * several),
        ((Operation.ALL_TO_ALL,), gotten),
    ):
        lacking = (size == UNKNOWN) & known & (count > 0) & _is_one_of(job, names)
        size[lacking] = told[lacking]
    either = _is_one_of(job, EITHER)
    size[either] = np.maximum(given, gotten)[either]
    output = _is_one_of(job, OUTPUT)
    size[output] = gotten[output]
    return size


def _is_one_of(job: Job, names: tuple[str, ...]) -> Bools:
    """Whether the collective of each participation is one of these."""
    wanted = np.array([text in names for text in job.strings] + [False], np.bool_)
    chosen: Bools = wanted[job.collectives.operation[job.participations.collective]]
    return chosen


# When nodes begin and how long they take, to the nanosecond where they say it.


def starts_ns(nodes: NodeTable) -> list[int]:
    """When each node begins; 0 where it does not say it."""
    return _exact(nodes, nodes.start, Name.START)


def durations_ns(nodes: NodeTable) -> list[int]:
    """How long each node takes."""
    return _exact(nodes, nodes.duration, Name.DURATION)


def inclusive_ns(nodes: NodeTable) -> list[int]:
    """How long each node takes with all that it encloses; its own duration where it does not say it."""
    said = nodes.attribute(Name.INCLUSIVE).whole_numbers(len(nodes), UNKNOWN).tolist()
    return [max(pair) for pair in zip(said, durations_ns(nodes), strict=True)]


def _exact(nodes: NodeTable, micros: Int64s, name: Name) -> list[int]:
    """The attribute `name` where it says the same as the field, only finer; simulators go by the field."""
    exact: Sequence[int] = nodes.attribute(name).whole_numbers(len(nodes), UNKNOWN).tolist()
    coarse = [(number & UNSIGNED) * MICROSECOND for number in micros.tolist()]
    return [
        fine if fine >= 0 and abs(fine - rough) <= MICROSECOND else rough
        for fine, rough in zip(exact, coarse, strict=True)
    ]
