"""Reads Chakra traces and their JSON: every node is an event, every dependency an edge, communication a statement."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import groupby
from operator import attrgetter
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
from msgspec import Struct, field

from tracelink._io.engine import Engine
from tracelink._io.framing import FramingError
from tracelink._io.json_array import RereadPayloads
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import NO_TIME, UNKNOWN, Int32s, Int64s, StringTable
from tracelink._model.communications import (
    Communications,
    Statement,
    communications,
    number_in,
    rank_in,
    text_in,
)
from tracelink._model.events import Edges, EventKind, Key, KeyColumn
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.operations import Operation, item_bytes, operation_of
from tracelink._model.text import counted
from tracelink._model.trace import Payload, Payloads, ProcessGroup, RankTrace
from tracelink.converters.chakra import schema
from tracelink.converters.chakra.decode import (
    BROKEN_OFF,
    EMPTY_MESSAGE,
    UNREADABLE_METADATA,
    UNREADABLE_NODE,
    Decoded,
    Fault,
    buffered,
    decode,
    frames,
    too_few_nodes,
)
from tracelink.converters.chakra.json_form import NODES, Rebuilt, texts_format
from tracelink.converters.chakra.node_events import (
    Dependencies,
    Kinds,
    Times,
    dependencies_of,
    estimated_starts,
    kinds_of,
    times_of,
    tracks_of,
)
from tracelink.converters.chakra.table import UNSIGNED, NodeTable, unsigned
from tracelink.plugins import Inspected
from tracelink.plugins.traces import TraceBuilder

MESSAGES, NODE_LIST = "chakra", "chakra-nodes"
_VALIDATION = "tracelink.converters.chakra.validation.validate"
_PROFILE, _LINKED, _EXECUTION_TRACE, _RECORDER = "kineto", "chakra-json", "execution-trace", "flight-recorder"
_BATCH = 1024
"""Nodes in a batch of payloads."""
_FAULTS = {
    EMPTY_MESSAGE: (
        "1 message is empty; some readers stop at it",
        "messages are empty; some readers stop at them",
    ),
    UNREADABLE_NODE: (
        "1 message is not a valid node and was skipped",
        "messages are not valid nodes and were skipped",
    ),
    UNREADABLE_METADATA: (
        "the first message is not valid metadata, which were skipped",
        "messages are not valid metadata",
    ),
}
"""One and several faults in words, by their reason."""
_MISSING = int(np.iinfo(np.int64).min)
_KEYS = {
    Key.RECORD_FUNCTION: (schema.Name.RECORD_FUNCTION, 0),
    Key.SEQUENCE: (schema.Name.SEQUENCE, -1),
    Key.FORWARD_THREAD: (schema.Name.FORWARD_THREAD, 0),
    Key.CORRELATION: (schema.Name.CORRELATION, -1),
    Key.SCOPE: (schema.Name.SCOPE, _MISSING),
    Key.WAITED: (schema.Name.WAITED, 0),
}
"""The attribute of each key, and the value that means that a node has none."""


class ChakraReader:
    """Reads the `.et` files that simulators load, from any producer."""

    name = MESSAGES

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        return self._read(source, engine)[0]

    def inspect(self, source: Source, engine: Engine) -> list[Inspected]:
        """The description of the file, with its census and its verdict: all of that from one decoding."""
        trace, decoded = self._read(source, engine)
        # Rules know the reader's modules, so the reader finds them by name.
        content = import_module(_VALIDATION).content_of(source, decoded)
        return [Inspected(source, trace.source, trace.findings, trace.devices, content)]

    def _read(self, source: Source, engine: Engine) -> tuple[RankTrace, Decoded]:
        with buffered(source, engine.meter.add) as (stream, opened):
            decoded = decode(stream)
            damage = opened.damage
        payloads, numbers = _NodePayloads(source, decoded.offsets), np.arange(len(decoded.nodes))
        return _trace_of(_Reading(source, self.name, decoded, payloads, numbers, damage)), decoded


class ChakraNodesReader:
    """Reads the JSON of an `.et` file, by way of the messages that it represents."""

    name = NODE_LIST

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        rebuilt = Rebuilt(source, engine)
        with tempfile.TemporaryFile() as spool:
            for chunk in rebuilt.chunks():
                spool.write(chunk)
            spool.seek(0)
            decoded = decode(cast(BinaryIO, spool))
        read = np.searchsorted(rebuilt.positions, decoded.offsets)
        numbers = np.array(rebuilt.elements, np.int64)[read]
        payloads = RereadPayloads(source, texts_format(source.head()), rebuilt.offsets, rebuilt.counts)
        return _trace_of(_Reading(source, self.name, decoded, payloads, numbers, findings=rebuilt.findings))


class _Reading(Struct, frozen=True):
    """A decoded file, and its nodes as payloads."""

    source: Source
    format: str
    decoded: Decoded
    payloads: Payloads
    payload: Int64s
    """The number of each node among the payloads."""
    damage: str = ""
    findings: list[Finding] = field(default_factory=list)


def _trace_of(reading: _Reading) -> RankTrace:
    """Every node as an event, every dependency as an edge."""
    decoded, nodes = reading.decoded, reading.decoded.nodes
    rank, groups = decoded.metadata_integer(schema.MetadataName.RANK, LARGEST_RANK), _groups(reading)
    kinds = kinds_of(nodes)
    dependencies, times = dependencies_of(nodes, kinds), times_of(nodes, kinds)
    process = decoded.metadata_integer(schema.MetadataName.PROCESS, UNSIGNED)
    track, tracks = tracks_of(nodes, kinds, "" if process is None else str(process))
    reading.findings.extend(_byte_findings(reading.source.path, decoded, reading.damage))
    reading.findings.extend(_node_findings(reading.source.path, nodes, dependencies, times.unusable))
    start = _starts(reading, kinds, dependencies.edges, times, track)
    strings = StringTable.of(nodes.strings)
    first, last = times.span()
    header = {attribute.name: schema.value_of(attribute) for attribute in decoded.metadata.attr}
    trace = TraceBuilder(
        reading.source,
        reading.format,
        version=decoded.metadata.version or text_in(header.get(schema.MetadataName.SCHEMA)),
        rank=rank,
        host=text_in(header.get(schema.MetadataName.HOST)),
        world_size=groups.world_size or None,
        pid=process,
        start_ns=first,
        end_ns=last,
        header={name: value for name, value in header.items() if name != schema.MetadataName.GROUPS},
    )
    trace.events(nodes.name, start, times.duration, kind=kinds, track=track, payload=reading.payload)
    return trace.build(
        strings=strings,
        tracks=tracks,
        keys=_keys(nodes, dependencies.parent),
        groups=list(groups.by_number.values()),
        communications=communications_of(nodes, groups, rank, strings),
        edges=dependencies.edges,
        payloads=[reading.payloads],
        findings=reading.findings,
        derived_from=_derived_from(kinds, reading.format),
    )


def _starts(reading: _Reading, kinds: Kinds, edges: Edges, times: Times, track: Int32s) -> Int64s:
    """The recorded starts; if there are none, estimated ones."""
    untimed = kinds == EventKind.NODE
    if untimed.all() or (times.start != NO_TIME).any():
        return times.start
    start = estimated_starts(edges, np.maximum(times.duration, 0), track)
    reading.findings.extend(_estimate_findings(reading.source.path, reading.decoded.nodes, start))
    start[untimed] = NO_TIME
    return start


def _keys(nodes: NodeTable, parent: Int64s) -> dict[Key, KeyColumn]:
    rows, enclosed = np.arange(len(nodes)), np.flatnonzero(parent != UNKNOWN)
    keys = {
        Key.NODE_ID: KeyColumn(rows, nodes.id),
        Key.NODE_PARENT: KeyColumn(enclosed, nodes.id[parent[enclosed]]),
        Key.LOGICAL_THREAD: _key(nodes, schema.Name.THREAD, _MISSING),
        **{key: _key(nodes, name, missing) for key, (name, missing) in _KEYS.items()},
    }
    return {key: column for key, column in keys.items() if len(column)}


def _key(nodes: NodeTable, name: schema.Name, missing: int) -> KeyColumn:
    values = nodes.attribute(name).integers(len(nodes), missing)
    rows = np.flatnonzero(values != missing)
    return KeyColumn(rows, values[rows])


def _groups(reading: _Reading) -> Groups:
    """The groups and the world size in the metadata."""
    value = reading.decoded.metadata_value
    text = value(schema.MetadataName.GROUPS)
    try:
        described = msgspec.json.decode(text) if isinstance(text, str) else {}
    except msgspec.DecodeError:
        described = {}
        problem = f"{reading.source.path}: the process groups in the metadata are not valid JSON."
        reading.findings.append(
            Finding(Severity.WARNING, "unreadable_groups", problem, source=reading.source.path)
        )
    return Groups(
        groups_in(described),
        reading.decoded.metadata_integer(schema.MetadataName.WORLD_SIZE, LARGEST_RANK) or 0,
    )


# Nodes read again from their file as payloads.


class _NodePayloads(Struct, frozen=True):
    """The JSON of the nodes of an `.et` file."""

    source: Source
    offsets: Sequence[int]
    """The offset of the message of each node."""

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive nodes."""
        texts: list[Payload] = []
        for text in self._texts(self.offsets[first:last]):
            texts.append(text)
            if len(texts) == _BATCH:
                yield first, texts
                first, texts = first + len(texts), []
        if texts:
            yield first, texts

    def _texts(self, offsets: Sequence[int]) -> Iterator[Payload]:
        if not len(offsets):
            return
        index, begin = 0, offsets[0]
        with buffered(self.source, offset=begin) as (stream, _):
            try:
                for frame in frames(stream):
                    if begin + frame.offset == offsets[index]:
                        yield NODES.json(frame.body)
                        index += 1
                        if index == len(offsets):
                            return
            except FramingError:
                return


def _derived_from(kinds: Kinds, format_name: str) -> frozenset[str]:
    """Formats that a Chakra trace may be made from, whose sources would contain the same events.

    A trace with times of a profile adds to an execution trace, and is not a copy of it.
    """
    formats = {_PROFILE, _LINKED}
    if format_name == NODE_LIST:
        formats.add(MESSAGES)
    if len(kinds) and (kinds == EventKind.NODE).all():
        formats.add(_EXECUTION_TRACE)
    if (kinds == EventKind.RECORD).any():
        formats.add(_RECORDER)
    return frozenset(formats)


# Findings.


def _byte_findings(path: str, decoded: Decoded, damage: str) -> Iterator[Finding]:
    """The faults in the bytes of a file."""
    kept = len(decoded.nodes)
    broken = [fault for fault in decoded.faults if fault.reason == BROKEN_OFF]
    for fault in broken:
        problem = f"{fault.message} ({damage})" if damage else fault.message
        yield Truncated(path, problem, kept, "node", fault.offset).finding()
    if damage and not broken:
        last = decoded.offsets[-1] if decoded.offsets else 0
        yield Truncated(path, damage, kept, "node", last).finding()
    skipped = sorted((fault for fault in decoded.faults if fault not in broken), key=attrgetter("reason"))
    for reason, faults in groupby(skipped, attrgetter("reason")):
        yield _skipped(path, reason, list(faults))
    expected = decoded.metadata_value(schema.MetadataName.NODES)
    if type(expected) is int and expected > kept and not broken and not damage:
        yield too_few_nodes(path, expected, kept)
    if not kept:
        yield Finding(Severity.WARNING, "no_nodes", f"{path}: the file has no nodes.", source=path)


def _skipped(path: str, reason: str, faults: Sequence[Fault]) -> Finding:
    one, several = _FAULTS.get(reason, (faults[0].message, faults[0].message))
    words = one if len(faults) == 1 else f"{len(faults):,} {several}"
    text = f"{path}: {words} (first at byte {faults[0].offset:,})."
    return Finding(Severity.WARNING, reason, text, len(faults), path, f"byte {faults[0].offset}")


def _node_findings(
    path: str, nodes: NodeTable, dependencies: Dependencies, unusable: Int64s
) -> Iterator[Finding]:
    """Invalid ids, dependencies and times."""
    _, counts = np.unique(nodes.id, return_counts=True)
    if duplicates := int((counts - 1).sum()):
        text = (
            f"{path}: {counted(duplicates, 'node')} with a duplicate id;"
            " dependencies on such an id mean the first node."
        )
        yield Finding(Severity.WARNING, "duplicate_node", text, duplicates, path)
    for rows, reason, thing, words in (
        (dependencies.missing, "missing_dependency", "dependency", "on a node that is not in the file"),
        (dependencies.on_itself, "own_dependency", "dependency", "on the node itself"),
        (unusable, "unusable_time", "node", "with an invalid time"),
    ):
        if len(rows):
            example = f"node {unsigned(nodes.id[rows[0]])}"
            text = f"{path}: {counted(len(rows), thing)} {words}, first {example}."
            yield Finding(Severity.WARNING, reason, text, len(rows), path, example)


def _estimate_findings(path: str, nodes: NodeTable, start: Int64s) -> Iterator[Finding]:
    """That starts are estimated, and which nodes have none."""
    estimated = counted(int((start != NO_TIME).sum()), "node")
    text = (
        f"{path}: the file has no start times. The starts of {estimated} are estimated: a node starts when its"
        " dependencies have ended and its thread or stream is free."
    )
    yield Finding(Severity.INFO, "placed", text, source=path)
    in_cycles = np.flatnonzero(start == NO_TIME)
    if len(in_cycles):
        example = f"node {unsigned(nodes.id[in_cycles[0]])}"
        count = counted(len(in_cycles), "node")
        text = f"{path}: {count} in dependency cycles or behind them; they have no time."
        yield Finding(Severity.WARNING, "circular_dependency", text, len(in_cycles), path, example)


# What communication nodes declare, in the terms in which communication is matched across ranks.

_OPERATION_OF_TYPE = {int(number): operation.value for operation, number in schema.TYPE_OF_OPERATION.items()}
_OPERATION_OF_TYPE[schema.CollectiveType.REDUCE_SCATTER_BLOCK] = Operation.REDUCE_SCATTER.value
_OPERATION_OF_NODE = {
    schema.NodeType.COMM_SEND: Operation.SEND.value,
    schema.NodeType.COMM_RECV: Operation.RECV.value,
}
_ALL_RANKS = "0"
"""The name of the group of all ranks for simulators; nodes may leave it out."""
_BYTE = "Byte"


class Groups(Struct, frozen=True):
    """The process groups in the metadata."""

    by_number: Mapping[str, ProcessGroup]
    """By the number with which nodes name them."""
    world_size: int = 0

    def name(self, number: str) -> str:
        """The name of a group; its number if it is not listed."""
        known = self.by_number.get(number or _ALL_RANKS)
        return known.name if known else number or _ALL_RANKS

    def size(self, number: str) -> int:
        """The number of ranks of a group; 0 if unknown."""
        known = self.by_number.get(number or _ALL_RANKS)
        if known and known.size:
            return known.size
        return self.world_size if number in ("", _ALL_RANKS) else 0


def communications_of(
    nodes: NodeTable, groups: Groups, rank: int | None, strings: StringTable
) -> Communications:
    """One row for each communication node."""
    communicates = nodes.of_type(*schema.COMMUNICATION)
    rows = np.flatnonzero(communicates).tolist()
    attributes: dict[int, dict[str, Any]] = {row: {} for row in rows}
    for name in schema.Name:
        attribute = nodes.attribute(name)
        for row, value in attribute.items(np.flatnonzero(communicates[attribute.rows])):
            attributes[row][name] = value
    statements = [_statement(schema.NodeType(nodes.type[row]), attributes[row], groups, rank) for row in rows]
    return communications(rows, statements, strings)


def _statement(
    kind: schema.NodeType, attributes: Mapping[str, Any], groups: Groups, rank: int | None
) -> Statement:
    number = text_in(attributes.get(schema.Name.GROUP)).strip()
    statement = Statement(
        _operation(kind, attributes),
        group=text_in(attributes.get(schema.Name.GROUP_NAME)) or groups.name(number),
        sequence=number_in(attributes.get(schema.Name.COLLECTIVE_SEQUENCE)),
        point_to_point=kind != schema.NodeType.COMM_COLL,
        global_ranks=True,
        size=groups.size(number) or UNKNOWN,
    )
    _name_ranks(statement, kind, attributes, rank)
    _count_elements(statement, attributes)
    return statement


def _operation(kind: schema.NodeType, attributes: Mapping[str, Any]) -> str:
    if kind in _OPERATION_OF_NODE:
        return _OPERATION_OF_NODE[kind]
    if name := text_in(attributes.get(schema.Name.OPERATION)):
        return name
    number = attributes.get(schema.Name.COMM_TYPE)
    if type(number) is not int:
        return ""
    return _OPERATION_OF_TYPE.get(number, f"{schema.Name.COMM_TYPE} {number}")


def _name_ranks(
    statement: Statement, kind: schema.NodeType, attributes: Mapping[str, Any], rank: int | None
) -> None:
    own = UNKNOWN if rank is None else rank
    if kind == schema.NodeType.COMM_COLL:
        statement.source = rank_in(attributes.get(schema.Name.ROOT))
        return
    source, target = (
        rank_in(attributes.get(schema.Name.COMM_SOURCE)),
        rank_in(attributes.get(schema.Name.COMM_TARGET)),
    )
    sends = kind == schema.NodeType.COMM_SEND
    statement.source = own if sends and source == UNKNOWN else source
    statement.target = own if not sends and target == UNKNOWN else target
    statement.tag = number_in(attributes.get(schema.Name.COMM_TAG))


def _count_elements(statement: Statement, attributes: Mapping[str, Any]) -> None:
    """Counts elements of the recorded type; bytes if it is unknown."""
    bytes_in, bytes_out = (
        number_in(attributes.get(schema.Name.BYTES_IN)),
        number_in(attributes.get(schema.Name.BYTES_OUT)),
    )
    if bytes_in == bytes_out == UNKNOWN:
        bytes_in, bytes_out = _bytes_in_and_out(statement, number_in(attributes.get(schema.Name.COMM_SIZE)))
    statement.type = text_in(attributes.get(schema.Name.ELEMENT_TYPE))
    width = item_bytes(statement.type)
    sizes = max(bytes_in, 0), max(bytes_out, 0)
    if any(sizes) and (width is None or any(size % width for size in sizes)):
        statement.type, width = _BYTE, 1
    statement.elements_in, statement.elements_out = (
        count if count <= 0 or width is None else count // width for count in (bytes_in, bytes_out)
    )


def _bytes_in_and_out(statement: Statement, size: int) -> tuple[int, int]:
    """The bytes that a rank contributes and receives, from the size for simulators: what one rank contributes."""
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
    """The groups in the object of the metadata: number to name, description and ranks."""
    found: dict[str, ProcessGroup] = {}
    for number, group in (described if isinstance(described, dict) else {}).items():
        if not isinstance(group, dict):
            continue
        ranks = _ranks(group.get("ranks"))
        name = text_in(group.get("name")) or text_in(number)
        found[number] = ProcessGroup(name, text_in(group.get("description")), ranks, len(ranks))
    return found


def _ranks(listed: Any) -> tuple[int, ...]:
    ranks: Sequence[int] = [rank_in(rank) for rank in listed] if isinstance(listed, list) else []
    return () if UNKNOWN in ranks else tuple(ranks)
