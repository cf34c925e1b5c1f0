"""Nodes to a rank trace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.converters.chakra.decode import (
    Decoded,
    Fault,
    buffered,
    decode,
    frames,
    too_few_nodes,
    truncated_at,
)
from tracelink.converters.chakra.json_form import NODES, Rebuilt, texts_format
from tracelink.converters.chakra.schema import (
    COMMUNICATION,
    TYPE_OF_OPERATION,
    Category,
    CollectiveType,
    MetadataName,
    Name,
    NodeType,
    value_of,
)
from tracelink.converters.chakra.table import (
    ROLES,
    UNSIGNED,
    NodeTable,
    Role,
    inclusive_ns,
    roles_of,
    starts_ns,
    unsigned,
)
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity
from tracelink.io.framing import FramingError
from tracelink.io.json_array import RereadPayloads
from tracelink.io.sources import LARGEST_RANK, Source
from tracelink.model.call_tree import innermost
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, StringTable
from tracelink.model.communications import (
    Communications,
    Statement,
    communications,
    number_in,
    rank_in,
    text_in,
)
from tracelink.model.events import (
    GPU_WORK,
    Edges,
    EventKind,
    Events,
    Key,
    KeyColumn,
    Relation,
    Track,
    TrackKind,
)
from tracelink.model.operations import Operation, item_bytes, operation_of
from tracelink.model.trace import Payload, Payloads, ProcessGroup, RankTrace, SourceInfo

# What nodes say of communication, in the terms in which it is matched across ranks.


OPERATION_OF_TYPE = {int(number): operation.value for operation, number in TYPE_OF_OPERATION.items()}
OPERATION_OF_TYPE[CollectiveType.REDUCE_SCATTER_BLOCK] = Operation.REDUCE_SCATTER.value
OPERATION_OF_NODE = {NodeType.COMM_SEND: Operation.SEND.value, NodeType.COMM_RECV: Operation.RECV.value}
EVERYBODY = "0"
"""How simulators call the group of all ranks, which nodes need not name."""
BYTE = "Byte"


@dataclass(frozen=True, slots=True)
class Groups:
    """The process groups that the metadata list, by the number that nodes name them by."""

    by_number: Mapping[str, ProcessGroup]
    world_size: int = 0

    def named(self, number: str) -> str:
        """The name of a group."""
        known = self.by_number.get(number or EVERYBODY)
        return known.name if known else number or EVERYBODY

    def size(self, number: str) -> int:
        """How many ranks a group has; 0 where nobody says it."""
        known = self.by_number.get(number or EVERYBODY)
        if known and known.size:
            return known.size
        return self.world_size if number in ("", EVERYBODY) else 0


def communications_of(
    nodes: NodeTable, groups: Groups, rank: int | None, strings: StringTable
) -> Communications:
    """One row for each node of communication."""
    communicates = nodes.of_type(*COMMUNICATION)
    rows = np.flatnonzero(communicates).tolist()
    said: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for name in Name:
        attribute = nodes.attribute(name)
        for row, value in attribute.items(np.flatnonzero(communicates[attribute.rows])):
            said[row][name] = value
    statements = [_statement(NodeType(nodes.type[row]), said[row], groups, rank) for row in rows]
    return communications(rows, statements, strings)


def _statement(kind: NodeType, said: Mapping[str, Any], groups: Groups, rank: int | None) -> Statement:
    number = text_in(said.get(Name.GROUP)).strip()
    statement = Statement(
        _operation(kind, said),
        group=text_in(said.get(Name.GROUP_NAME)) or groups.named(number),
        sequence=number_in(said.get(Name.COLLECTIVE_SEQUENCE)),
        point_to_point=kind != NodeType.COMM_COLL,
        global_ranks=True,
        size=groups.size(number) or UNKNOWN,
    )
    _name_ranks(statement, kind, said, rank)
    _count_elements(statement, said)
    return statement


def _operation(kind: NodeType, said: Mapping[str, Any]) -> str:
    if kind in OPERATION_OF_NODE:
        return OPERATION_OF_NODE[kind]
    if told := text_in(said.get(Name.OPERATION)):
        return told
    number = said.get(Name.COMM_TYPE)
    if type(number) is not int:
        return ""
    return OPERATION_OF_TYPE.get(number, f"{Name.COMM_TYPE} {number}")


def _name_ranks(statement: Statement, kind: NodeType, said: Mapping[str, Any], rank: int | None) -> None:
    own = UNKNOWN if rank is None else rank
    if kind == NodeType.COMM_COLL:
        statement.source = rank_in(said.get(Name.ROOT))
        return
    source, target = rank_in(said.get(Name.COMM_SOURCE)), rank_in(said.get(Name.COMM_TARGET))
    sends = kind == NodeType.COMM_SEND
    statement.source = own if sends and source == UNKNOWN else source
    statement.target = own if not sends and target == UNKNOWN else target
    statement.tag = number_in(said.get(Name.COMM_TAG))


def _count_elements(statement: Statement, said: Mapping[str, Any]) -> None:
    """Elements of the type that is told; where none is, every byte is one."""
    given, gotten = number_in(said.get(Name.BYTES_IN)), number_in(said.get(Name.BYTES_OUT))
    if given == gotten == UNKNOWN:
        given, gotten = _parts(statement, number_in(said.get(Name.COMM_SIZE)))
    statement.type = text_in(said.get(Name.ELEMENT_TYPE))
    width = item_bytes(statement.type)
    if max(given, gotten) > 0 and (width is None or max(given, 0) % width or max(gotten, 0) % width):
        statement.type, width = BYTE, 1
    statement.elements_in, statement.elements_out = (
        count if count <= 0 or width is None else count // width for count in (given, gotten)
    )


def _parts(statement: Statement, size: int) -> tuple[int, int]:
    """What a rank gives and gets, where `size` is what simulators take: what one rank puts in."""
    members = statement.size
    match operation_of(statement.operation):
        case Operation.ALL_GATHER:
            return size, size * members if UNKNOWN not in (size, members) else UNKNOWN
        case Operation.REDUCE_SCATTER:
            return size, size // members if UNKNOWN not in (size, members) else UNKNOWN
        case Operation.SCATTER:
            return UNKNOWN, size
        case Operation.GATHER:
            return size, UNKNOWN
        case Operation.BARRIER:
            return UNKNOWN, UNKNOWN
    return size, size


def groups_in(described: Any) -> dict[str, ProcessGroup]:
    """The groups in the metadata's object: number to name, description and ranks."""
    found: dict[str, ProcessGroup] = {}
    for number, told in (described if isinstance(described, dict) else {}).items():
        if not isinstance(told, dict):
            continue
        ranks = _ranks(told.get("ranks"))
        name = text_in(told.get("name")) or text_in(number)
        found[number] = ProcessGroup(name, text_in(told.get("description")), ranks, len(ranks))
    return found


def _ranks(told: Any) -> tuple[int, ...]:
    ranks: Sequence[int] = [rank_in(rank) for rank in told] if isinstance(told, list) else []
    return () if UNKNOWN in ranks else tuple(ranks)


# What kind of event each node is, and the track on which it was.


KIND_OF_ROLE = {
    Role.HOST: EventKind.OPERATOR,
    Role.IDLE: EventKind.OTHER,
    Role.DEVICE: EventKind.KERNEL,
    Role.MEMCPY: EventKind.MEMCPY,
    Role.MEMSET: EventKind.MEMSET,
    Role.COLLECTIVE: EventKind.KERNEL,
    Role.SEND: EventKind.KERNEL,
    Role.RECV: EventKind.KERNEL,
    Role.LOAD: EventKind.MEMCPY,
    Role.STORE: EventKind.MEMCPY,
    Role.METADATA: EventKind.NODE,
    Role.UNKNOWN: EventKind.OTHER,
}
KIND_OF_CATEGORY = {
    Category.OPERATOR: EventKind.OPERATOR,
    Category.ANNOTATION: EventKind.ANNOTATION,
    Category.NODE: EventKind.NODE,
    Category.RECORD: EventKind.RECORD,
    Category.KERNEL: EventKind.KERNEL,
    Category.MEMCPY: EventKind.MEMCPY,
    Category.MEMSET: EventKind.MEMSET,
}
TRACK_OF_KIND = {
    EventKind.NODE: TrackKind.NODES,
    EventKind.RECORD: TrackKind.COMMUNICATOR,
    EventKind.KERNEL: TrackKind.STREAM,
    EventKind.MEMCPY: TrackKind.STREAM,
    EventKind.MEMSET: TrackKind.STREAM,
}
"""Everything else is on a thread."""
TRACK_KINDS = tuple(TrackKind)
LABELS = {TrackKind.NODES: "logical thread", TrackKind.THREAD: "thread", TrackKind.STREAM: "stream"}

Kinds = npt.NDArray[np.uint8]


def kinds_of(nodes: NodeTable) -> Kinds:
    """By what a node says that it was in its source, else by its type."""
    of_role = np.array([KIND_OF_ROLE[role] for role in ROLES], np.uint8)
    kinds: Kinds = of_role[roles_of(nodes)]
    on_host = nodes.on_host() & np.isin(kinds, [EventKind.KERNEL])
    kinds[on_host] = EventKind.OPERATOR
    category = nodes.attribute(Name.CATEGORY)
    for row, word in zip(category.rows.tolist(), category.values, strict=True):
        if (kind := KIND_OF_CATEGORY.get(word)) is not None:
            kinds[row] = kind
    return kinds


def tracks_of(nodes: NodeTable, kinds: Kinds, process: str) -> tuple[Int32s, list[Track]]:
    """The track of each node; `process` is that of nodes which name none."""
    of_kind = np.full(256, TRACK_KINDS.index(TrackKind.THREAD))
    for kind, track_kind in TRACK_OF_KIND.items():
        of_kind[kind] = TRACK_KINDS.index(track_kind)
    columns = [
        of_kind[kinds],
        *_places(nodes, of_kind[kinds] == TRACK_KINDS.index(TrackKind.STREAM), process),
    ]
    names = [np.unique(column, return_inverse=True) for column in columns]
    code = np.zeros(len(nodes), np.int64)
    for values, place in names:
        code = code * len(values) + place
    _, first, track = np.unique(code, return_index=True, return_inverse=True)
    rows = ([column[row] for column in columns] for row in first.tolist())
    return track.astype(np.int32), [
        _track(TRACK_KINDS[kind], process, str(lane)) for kind, process, lane in rows
    ]


def _places(
    nodes: NodeTable, on_device: npt.NDArray[np.bool_], process: str
) -> Iterator[npt.NDArray[np.str_] | Int64s]:
    """The process or device of each node, and the thread or stream there."""
    count = len(nodes)
    processes = np.array(nodes.attribute(Name.PROCESS).strings(count, process), np.str_)
    devices = nodes.attribute(Name.DEVICE).integers(count, 0).astype(np.str_)
    yield np.where(on_device, devices, processes)
    threads = nodes.attribute(Name.THREAD).integers(count, 0)
    yield np.where(on_device, nodes.attribute(Name.STREAM).integers(count, 0), threads)


def _track(kind: TrackKind, process: str, lane: str) -> Track:
    return Track(kind, process, lane, f"{LABELS.get(kind, kind)} {lane}", sort=0)


# What nodes depend on, as edges: callers, launches, and everything that must have ended before.


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Edges, and the dependencies that cannot be one."""

    edges: Edges
    parent: Int64s
    """The row of what encloses or launched each node, or UNKNOWN."""
    missing: Int64s
    """Rows of nodes that name a node which is not there, once for each."""
    on_itself: Int64s
    """Rows of nodes that depend on themselves."""


def dependencies_of(nodes: NodeTable, kinds: Kinds) -> Dependencies:
    """The first control dependency is the caller or launch; the others, and those of data, are dependencies."""
    after, before, control, missing, on_itself = _pairs(nodes)
    on_device = np.isin(kinds, np.array(GPU_WORK, np.uint8))
    first = _first_of_each(after, control & ~on_device[before], len(nodes))
    parent = np.full(len(nodes), UNKNOWN, np.int64)
    parent[after[first]] = before[first]
    endless = innermost(parent, parent == UNKNOWN) == UNKNOWN
    first = first[~endless[after[first]]]
    parent[endless] = UNKNOWN
    ranked = np.full(len(after), Relation.DEPENDS_ON, np.uint8)
    ranked[first] = np.where(on_device[after[first]], Relation.LAUNCHES, Relation.CALLS)
    down = ranked != Relation.DEPENDS_ON
    edges = Edges(np.where(down, before, after), np.where(down, after, before), ranked)
    return Dependencies(edges, parent, missing, on_itself)


def _pairs(nodes: NodeTable) -> tuple[Int64s, Int64s, Bools, Int64s, Int64s]:
    """Each node and what it depends on: rows, whether by control, and what is wrong."""
    owners = np.concatenate([nodes.control.owners, nodes.data.owners])
    places = np.concatenate([nodes.rows_of(nodes.control), nodes.rows_of(nodes.data)])
    control = np.arange(len(owners)) < len(nodes.control.ids)
    known, itself = places != UNKNOWN, places == owners
    usable = known & ~itself
    return owners[usable], places[usable], control[usable], owners[~known], owners[known & itself]


def _first_of_each(owner: Int64s, chosen: Bools, count: int) -> Int64s:
    """The place of the first chosen one of each owner."""
    first = np.full(count, UNKNOWN, np.int64)
    places = np.flatnonzero(chosen)[::-1]
    first[owner[places]] = places
    given: Int64s = first[first != UNKNOWN]
    return given


# What did not fit in a Chakra trace.


BROKEN_OFF = "broken_off"
WORDS = {
    "empty_message": "messages are empty, and some readers take one for the end of the file",
    "unreadable_node": "messages are no nodes and are left out",
    "unreadable_metadata": "first message is no metadata: what the file says of itself is lost",
}


def byte_findings(path: str, decoded: Decoded, damage: str) -> Iterator[Finding]:
    """What is wrong with the bytes of a file."""
    kept = len(decoded.nodes)
    broken = [fault for fault in decoded.faults if fault.reason == BROKEN_OFF]
    for fault in broken:
        problem = f"{fault.message} ({damage})" if damage else fault.message
        yield truncated_at(path, problem, kept, fault.offset)
    if damage and not broken:
        yield truncated_at(path, damage, kept, decoded.offsets[-1] if decoded.offsets else 0)
    others = sorted((fault for fault in decoded.faults if fault not in broken), key=attrgetter("reason"))
    for reason, alike in groupby(others, attrgetter("reason")):
        yield _of_faults(path, reason, list(alike))
    said = decoded.metadata_value(MetadataName.NODES)
    if type(said) is int and said > kept and not broken and not damage:
        yield too_few_nodes(path, said, kept)
    if not kept:
        yield Finding(Severity.WARNING, "no_nodes", f"{path}: it holds no nodes.", source=path)


def _of_faults(path: str, reason: str, faults: Sequence[Fault]) -> Finding:
    words = WORDS.get(reason, faults[0].message)
    text = f"{path}: {len(faults):,} {words}; first at byte {faults[0].offset:,}."
    return Finding(Severity.WARNING, reason, text, len(faults), path, f"byte {faults[0].offset}")


def node_findings(
    path: str, nodes: NodeTable, dependencies: Dependencies, unusable: Int64s
) -> Iterator[Finding]:
    """What is wrong with nodes and what they name."""
    _, counts = np.unique(nodes.id, return_counts=True)
    if repeated := int((counts - 1).sum()):
        text = f"{path}: {repeated:,} nodes repeat the id of an earlier node; the earlier one is meant."
        yield Finding(Severity.WARNING, "duplicate_node", text, repeated, path)
    for rows, reason, words in (
        (dependencies.missing, "missing_dependency", "dependencies name a node that is not in the file"),
        (dependencies.on_itself, "own_dependency", "dependencies are on the node itself"),
        (unusable, "unusable_time", "nodes have a time that cannot be one"),
    ):
        if len(rows):
            example = f"node {unsigned(nodes.id[rows[0]])}"
            text = f"{path}: {len(rows):,} {words}, first {example}."
            yield Finding(Severity.WARNING, reason, text, len(rows), path, example)


def placing_findings(path: str, nodes: NodeTable, start: Int64s) -> Iterator[Finding]:
    """That times are made up, and which nodes got none."""
    text = (
        f"{path}: it says of no node when it began; {int((start != NO_TIME).sum()):,} nodes are placed as if each "
        "began when what it depends on had ended and its thread or stream was free."
    )
    yield Finding(Severity.INFO, "placed", text, source=path)
    circular = np.flatnonzero(start == NO_TIME)
    if len(circular):
        example = f"node {unsigned(nodes.id[circular[0]])}"
        text = f"{path}: {len(circular):,} nodes wait for each other in a circle, or for such; they have no time."
        yield Finding(Severity.WARNING, "circular_dependency", text, len(circular), path, example)


# When nodes began and how long they took, where they say it.


FARTHEST = 1 << 62
LONGEST = 10**16
"""Nothing takes longer, 116 days."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Nanoseconds; and the rows of numbers that cannot be times."""

    start: Int64s
    duration: Int64s
    unusable: Int64s

    def span(self) -> tuple[int | None, int | None]:
        """When the first node began and the last one ended, if any says it."""
        timed = self.start != NO_TIME
        if not timed.any():
            return None, None
        end = self.start[timed] + np.maximum(self.duration[timed], 0)
        return int(self.start[timed].min()), int(end.max())


def moments_of(nodes: NodeTable, kinds: Kinds) -> Moments:
    """Nodes of an execution trace have no time, whatever stands there for simulators to sort by."""
    start, far = _below(starts_ns(nodes), FARTHEST, NO_TIME)
    duration, long = _below(inclusive_ns(nodes), LONGEST, UNKNOWN)
    untimed = ~_says_start(nodes) | (kinds == EventKind.NODE)
    start[untimed] = NO_TIME
    duration[kinds == EventKind.NODE] = UNKNOWN
    return Moments(start, duration, np.flatnonzero(far | long))


def _says_start(nodes: NodeTable) -> Bools:
    """Whether each node says when it began; 0 says so only beside nodes that began later."""
    said = np.zeros(len(nodes), np.bool_)
    said[nodes.attribute(Name.START).rows] = True
    if said.any():
        return said
    return np.full(len(nodes), (nodes.start != 0).any())


def _below(numbers: list[int], limit: int, instead: int) -> tuple[Int64s, Bools]:
    """The numbers as a column, and which of them are beyond the limit."""
    beyond = np.array([number >= limit for number in numbers], np.bool_)
    column = np.array([min(number, limit) for number in numbers], np.int64)
    column[beyond] = instead
    return column, beyond


# Of which formats a Chakra trace says again what is there already, where both are read.


MESSAGES, NODE_LIST = "chakra", "chakra-nodes"
PROFILE, LINKED, TRACE, RECORDER = "kineto", "chakra-json", "execution-trace", "flight-recorder"


def origins_of(kinds: Kinds, format_name: str) -> frozenset[str]:
    """The formats; beside an execution trace only what has no times of a profile is told twice."""
    origins = {PROFILE, LINKED}
    if format_name == NODE_LIST:
        origins.add(MESSAGES)
    if len(kinds) and (kinds == EventKind.NODE).all():
        origins.add(TRACE)
    if (kinds == EventKind.RECORD).any():
        origins.add(RECORDER)
    return frozenset(origins)


# Times for nodes that have none: each begins when what it depends on has ended, and its thread or stream is free.


DOWN = (Relation.CALLS, Relation.LAUNCHES)
"""Relations that run from cause to effect."""
LATEST = 1 << 62


def placed(edges: Edges, duration: Int64s, track: Int32s) -> Int64s:
    """When each node begins, counted from the first; NO_TIME for nodes that wait for each other in a circle."""
    count = len(duration)
    down = np.isin(edges.relation, np.array(DOWN, np.uint8))
    before = np.where(down, edges.source, edges.target)
    after = np.where(down, edges.target, edges.source)
    order = np.argsort(before, kind="stable")
    bounds = np.searchsorted(before[order], np.arange(count + 1)).tolist()
    followers = after[order].tolist()
    waiting = np.bincount(after, minlength=count).tolist()
    start, lengths, tracks = [NO_TIME] * count, duration.tolist(), track.tolist()
    ready, free = [0] * count, [0] * (max(tracks, default=-1) + 1)
    heap = [(0, row) for row in range(count) if not waiting[row]]
    heapify(heap)
    while heap:
        time, row = heappop(heap)
        begin = max(time, free[tracks[row]])
        start[row], end = begin, min(begin + lengths[row], LATEST)
        free[tracks[row]] = end
        for follower in followers[bounds[row] : bounds[row + 1]]:
            ready[follower] = max(ready[follower], end)
            waiting[follower] -= 1
            if not waiting[follower]:
                heappush(heap, (ready[follower], follower))
    return np.array(start, np.int64)


# A decoded file to a rank trace.


PID, SCHEMA = "pid", "schema"
"""What other writers say in the metadata."""
UNSAID = int(np.iinfo(np.int64).min)
KEYS = {
    Key.RECORD_FUNCTION: (Name.RECORD_FUNCTION, 0),
    Key.SEQUENCE: (Name.SEQUENCE, -1),
    Key.FORWARD_THREAD: (Name.FORWARD_THREAD, 0),
    Key.CORRELATION: (Name.CORRELATION, -1),
    Key.SCOPE: (Name.SCOPE, UNSAID),
    Key.WAITED: (Name.WAITED, 0),
}
"""Link keys, and the number by which a node says that it has none."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One file as it was decoded, and how its nodes are read again."""

    source: Source
    format: str
    decoded: Decoded
    payloads: Payloads
    places: Int64s
    """The number of each node among the payloads."""
    damage: str = ""
    findings: list[Finding] = field(default_factory=list)


def trace_of(reading: Reading) -> RankTrace:
    """Every node as an event, every dependency as an edge."""
    decoded, nodes = reading.decoded, reading.decoded.nodes
    rank, groups = _whole(decoded.metadata_value(MetadataName.RANK), LARGEST_RANK), _groups(reading)
    kinds = kinds_of(nodes)
    dependencies, moments = dependencies_of(nodes, kinds), moments_of(nodes, kinds)
    process = _whole(decoded.metadata_value(PID), UNSIGNED)
    track, tracks = tracks_of(nodes, kinds, "" if process is None else str(process))
    reading.findings.extend(byte_findings(reading.source.path, decoded, reading.damage))
    reading.findings.extend(node_findings(reading.source.path, nodes, dependencies, moments.unusable))
    start = _starts(reading, kinds, dependencies.edges, moments, track)
    strings = StringTable.of(nodes.strings)
    return RankTrace(
        sources=[_info(reading, rank, groups.world_size or None, moments)],
        strings=strings,
        events=_events(nodes, kinds, track, start, moments.duration, reading.places),
        tracks=tracks,
        keys=_keys(nodes, dependencies.parent),
        groups=list(groups.by_number.values()),
        communications=communications_of(nodes, groups, rank, strings),
        edges=dependencies.edges,
        payloads=[reading.payloads],
        findings=reading.findings,
        derived_from=origins_of(kinds, reading.format),
    )


def _starts(reading: Reading, kinds: Kinds, edges: Edges, moments: Moments, track: Int32s) -> Int64s:
    """When nodes began; where no node says it, as if each had begun when it could."""
    untimed = kinds == EventKind.NODE
    if untimed.all() or (moments.start != NO_TIME).any():
        return moments.start
    start = placed(edges, np.maximum(moments.duration, 0), track)
    reading.findings.extend(placing_findings(reading.source.path, reading.decoded.nodes, start))
    start[untimed] = NO_TIME
    return start


def _events(
    nodes: NodeTable, kinds: Kinds, track: Int32s, start: Int64s, duration: Int64s, places: Int64s
) -> Events:
    source = np.zeros(len(nodes), np.int32)
    return Events(kinds, nodes.name, track, start, duration, source, places)


def _keys(nodes: NodeTable, parent: Int64s) -> dict[Key, KeyColumn]:
    rows, enclosed = np.arange(len(nodes)), np.flatnonzero(parent != UNKNOWN)
    keys = {
        Key.NODE_ID: KeyColumn(rows, nodes.id),
        Key.NODE_PARENT: KeyColumn(enclosed, nodes.id[parent[enclosed]]),
        Key.LOGICAL_THREAD: _key(nodes, Name.THREAD, UNSAID),
        **{key: _key(nodes, name, none) for key, (name, none) in KEYS.items()},
    }
    return {key: column for key, column in keys.items() if len(column)}


def _key(nodes: NodeTable, name: Name, none: int) -> KeyColumn:
    values = nodes.attribute(name).integers(len(nodes), none)
    rows = np.flatnonzero(values != none)
    return KeyColumn(rows, values[rows])


def _groups(reading: Reading) -> Groups:
    """The groups that the metadata list, and how many ranks there are."""
    said = reading.decoded.metadata_value
    text = said(MetadataName.GROUPS)
    try:
        described = msgspec.json.decode(text) if isinstance(text, str) else {}
    except msgspec.DecodeError:
        described = {}
        problem = f"{reading.source.path}: the list of process groups in its metadata is no JSON."
        reading.findings.append(
            Finding(Severity.WARNING, "unreadable_groups", problem, source=reading.source.path)
        )
    return Groups(groups_in(described), _whole(said(MetadataName.WORLD_SIZE), LARGEST_RANK) or 0)


def _info(reading: Reading, rank: int | None, world_size: int | None, moments: Moments) -> SourceInfo:
    decoded, source = reading.decoded, reading.source
    begun, ended = moments.span()
    header = {attribute.name: value_of(attribute) for attribute in decoded.metadata.attr}
    return SourceInfo(
        path=source.path,
        format=reading.format,
        version=decoded.metadata.version or text_in(header.get(SCHEMA)),
        rank=rank,
        host=text_in(header.get(MetadataName.HOST)),
        world_size=world_size,
        pid=_whole(header.get(PID), UNSIGNED),
        events=len(decoded.nodes),
        records=len(decoded.nodes),
        bytes=source.bytes,
        start_ns=begun,
        end_ns=ended,
        header={name: value for name, value in header.items() if name != MetadataName.GROUPS},
    )


def _whole(value: Any, largest: int) -> int | None:
    return value if type(value) is int and 0 <= value <= largest else None


# Whole nodes, read again from their file when someone asks.


TOGETHER = 1024


@dataclass(frozen=True, slots=True)
class NodePayloads:
    """The JSON of each node of an `.et` file."""

    source: Source
    offsets: Sequence[int]
    """Where the message of each node begins."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive nodes."""
        wanted = self.offsets[first:last]
        texts: list[Payload] = []
        for text in self._texts(wanted):
            texts.append(text)
            if len(texts) == TOGETHER:
                yield first, texts
                first, texts = first + len(texts), []
        if texts:
            yield first, texts

    def _texts(self, wanted: Sequence[int]) -> Iterator[Payload]:
        if not len(wanted):
            return
        place, begin = 0, wanted[0]
        with buffered(self.source, offset=begin) as (stream, _):
            try:
                for frame in frames(stream):
                    if begin + frame.offset == wanted[place]:
                        yield NODES.text(frame.body)
                        place += 1
                        if place == len(wanted):
                            return
            except FramingError:
                return


# Sources of both forms, `.et` and its JSON, to rank traces.


class ChakraReader:
    """Reads the `.et` files that simulators load, from any producer."""

    name = MESSAGES

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        with buffered(source, engine.meter.add) as (stream, opened):
            decoded = decode(stream)
            damage = opened.damage
        places = np.arange(len(decoded.nodes))
        payloads = NodePayloads(source, decoded.offsets)
        return trace_of(Reading(source, self.name, decoded, payloads, places, damage))


class ChakraNodesReader:
    """Reads the JSON of an `.et` file, by way of the messages that it represents."""

    name = NODE_LIST

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        rebuilt = Rebuilt(source, engine)
        with tempfile.TemporaryFile() as spool:
            for piece in rebuilt.pieces():
                spool.write(piece)
            spool.seek(0)
            decoded = decode(cast(BinaryIO, spool))
        read = np.searchsorted(rebuilt.positions, decoded.offsets)
        places = np.array(rebuilt.elements, np.int64)[read]
        payloads = RereadPayloads(source, texts_format(source.head()), rebuilt.offsets, rebuilt.counts)
        return trace_of(Reading(source, self.name, decoded, payloads, places, findings=rebuilt.findings))
