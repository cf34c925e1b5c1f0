"""A decoded file to a rank trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.chakra.decoding import Decoded
from tracelink.converters.chakra.reading.communication import Groups, communications_of, groups_in
from tracelink.converters.chakra.reading.dependencies import dependencies_of
from tracelink.converters.chakra.reading.findings import byte_findings, node_findings, placing_findings
from tracelink.converters.chakra.reading.kinds import Kinds, kinds_of, tracks_of
from tracelink.converters.chakra.reading.moments import Moments, moments_of
from tracelink.converters.chakra.reading.origins import origins_of
from tracelink.converters.chakra.reading.placing import placed
from tracelink.converters.chakra.schema import Name, Said
from tracelink.converters.chakra.table import UNSIGNED, NodeTable
from tracelink.converters.chakra.values import value_of
from tracelink.events import NO_TIME, Edges, EventKind, Events, Int32s, Int64s, Key, KeyColumn
from tracelink.excerpt import NONE
from tracelink.findings import Finding, Severity
from tracelink.ranks import LARGEST_RANK
from tracelink.sources import Source
from tracelink.statements import text_in
from tracelink.strings import StringTable
from tracelink.trace import Payloads, RankTrace, SourceInfo

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
    rank, groups = _whole(decoded.said(Said.RANK), LARGEST_RANK), _groups(reading)
    kinds = kinds_of(nodes)
    dependencies, moments = dependencies_of(nodes, kinds), moments_of(nodes, kinds)
    process = _whole(decoded.said(PID), UNSIGNED)
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
        retells=origins_of(kinds, reading.format),
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
    rows, enclosed = np.arange(len(nodes)), np.flatnonzero(parent != NONE)
    keys = {
        Key.NODE_ID: KeyColumn(rows, nodes.id),
        Key.NODE_PARENT: KeyColumn(enclosed, nodes.id[parent[enclosed]]),
        Key.LOGICAL_THREAD: _key(nodes, Name.THREAD, UNSAID),
        **{key: _key(nodes, name, none) for key, (name, none) in KEYS.items()},
    }
    return {key: column for key, column in keys.items() if len(column)}


def _key(nodes: NodeTable, name: Name, none: int) -> KeyColumn:
    values = nodes.attribute(name).whole_numbers(len(nodes), none)
    rows = np.flatnonzero(values != none)
    return KeyColumn(rows, values[rows])


def _groups(reading: Reading) -> Groups:
    """The groups that the metadata list, and how many ranks there are."""
    said = reading.decoded.said
    text = said(Said.GROUPS)
    try:
        described = msgspec.json.decode(text) if isinstance(text, str) else {}
    except msgspec.DecodeError:
        described = {}
        problem = f"{reading.source.path}: the list of process groups in its metadata is no JSON."
        reading.findings.append(
            Finding(Severity.WARNING, "unreadable_groups", problem, source=reading.source.path)
        )
    return Groups(groups_in(described), _whole(said(Said.WORLD_SIZE), LARGEST_RANK) or 0)


def _info(reading: Reading, rank: int | None, world_size: int | None, moments: Moments) -> SourceInfo:
    decoded, source = reading.decoded, reading.source
    begun, ended = moments.span()
    header = {attribute.name: value_of(attribute) for attribute in decoded.metadata.attr}
    return SourceInfo(
        path=source.path,
        format=reading.format,
        version=decoded.metadata.version or text_in(header.get(SCHEMA)),
        rank=rank,
        host=text_in(header.get(Said.HOST)),
        world_size=world_size,
        pid=_whole(header.get(PID), UNSIGNED),
        events=len(decoded.nodes),
        records=len(decoded.nodes),
        bytes=source.bytes,
        start_ns=begun,
        end_ns=ended,
        header={name: value for name, value in header.items() if name != Said.GROUPS},
    )


def _whole(value: Any, largest: int) -> int | None:
    return value if type(value) is int and 0 <= value <= largest else None
