"""Execution trace to rank trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelink.converters.execution_trace import schema
from tracelink.converters.execution_trace.columns import NAME, PLACE, Columns
from tracelink.converters.execution_trace.findings import Misfits, findings_of
from tracelink.converters.execution_trace.groups import groups_of
from tracelink.converters.execution_trace.nodes import ID, PARENT, Piece, convert, decode, whole
from tracelink.converters.execution_trace.parents import Parents, parents_of
from tracelink.converters.execution_trace.payloads import whole_nodes
from tracelink.elements import ArrayDocument, ArrayFormat
from tracelink.engine import Engine
from tracelink.events import NO_TIME, UNFINISHED, EventKind, Events, Int64s, Key, KeyColumn, Track, TrackKind
from tracelink.rereading import RereadPayloads
from tracelink.sources import Source
from tracelink.trace import RankTrace, SourceInfo


class ExecutionTraceReader:
    """Reads what torch's `ExecutionTraceObserver` writes, every schema since 1.0.1."""

    name = "execution-trace"
    summary = "torch ExecutionTraceObserver JSON, schemas 1.0.1 to 1.1.1: .json, .json.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """An object with a list of nodes, and the schema or the keys of a node that only this format has."""
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") or not schema.NODES_MARK.search(head):
            return False
        return bool(schema.VERSION_MARK.search(head)) or any(mark in head for mark in schema.NODE_MARKS)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node, on the track of its logical thread."""
        first_keys = _first_keys(source.head())
        document: ArrayDocument[Piece] = ArrayDocument(
            source, ArrayFormat(schema.NODES, first_keys, decode, convert)
        )
        columns = Columns()
        for offset, piece in document.pieces(engine.meter.add):
            columns.add(offset, piece)
        payloads = RereadPayloads(source, whole_nodes(first_keys), columns.offsets, columns.counts)
        return _assemble(document, columns, payloads)


def _first_keys(head: bytes) -> tuple[str, ...]:
    """The keys that nodes begin with; `name` begins attributes too, so it serves only where there are none."""
    if not schema.ATTRIBUTES_MARK.search(head):
        return schema.FLAT_FIRST_KEYS
    match = schema.FIRST_KEY.search(head)
    first = match[1].decode() if match else ""
    return (first,) if first not in ("", "name") else schema.USUAL_FIRST_KEYS


def _assemble(document: ArrayDocument[Piece], columns: Columns, payloads: RereadPayloads) -> RankTrace:
    table = columns.table()
    threads, track = np.unique(table[schema.THREAD], return_inverse=True)
    parents = parents_of(table[ID], table[PARENT], table[schema.THREAD], table[NAME], columns.names)
    groups, unreadable_groups = groups_of(columns.group_nodes)
    info = _info(document.source, document.header, len(table[ID]), columns.elements)
    misfits = Misfits(
        path=document.source.path,
        nodes=len(table[ID]),
        unknown_version="" if info.version in schema.VERSIONS else info.version or "(none)",
        cut_off=None if document.cut_off is None else (document.cut_off, document.cut_off_reason),
        damage=document.damage,
        not_nodes=columns.elements - len(table[ID]),
        orphans=len(parents.orphans),
        orphan=str(table[ID][parents.orphans[0]]) if len(parents.orphans) else "",
        duplicates=len(table[ID]) - len(np.unique(table[ID])),
        without_communication=columns.without_communication,
        unreadable_groups=unreadable_groups,
    )
    return RankTrace(
        sources=[info],
        strings=columns.names,
        events=_events(table, track),
        tracks=_tracks(threads, info.pid),
        keys=_keys(table, parents),
        groups=groups,
        communications=columns.communications(),
        payloads=[payloads],
        findings=list(findings_of(misfits)),
    )


def _info(source: Source, header: Mapping[str, Any], nodes: int, elements: int) -> SourceInfo:
    return SourceInfo(
        path=source.path,
        format=ExecutionTraceReader.name,
        version=str(header.get(schema.SCHEMA, "")),
        pid=whole(header.get(schema.PID)),
        events=nodes,
        records=elements,
        bytes=source.bytes,
        header={key: header[key] for key in schema.HEADER if key in header},
    )


def _events(table: Mapping[str, Int64s], track: Int64s) -> Events:
    count = len(track)
    return Events(
        np.full(count, EventKind.NODE, np.uint8),
        table[NAME].astype(np.int32),
        track.astype(np.int32),
        np.full(count, NO_TIME, np.int64),
        np.full(count, UNFINISHED, np.int64),
        np.zeros(count, np.int32),
        table[PLACE],
    )


def _tracks(threads: Int64s, pid: int | None) -> list[Track]:
    process = "" if pid is None else str(pid)
    numbers = map(str, threads.tolist())
    return [Track(TrackKind.NODES, process, number, f"logical thread {number}") for number in numbers]


def _keys(table: Mapping[str, Int64s], parents: Parents) -> dict[Key, KeyColumn]:
    whole_table = KeyColumn(np.arange(len(table[ID])), table[ID])
    thread, scope = table[schema.THREAD], table[schema.SCOPE]
    keys = {
        Key.NODE_ID: whole_table,
        Key.NODE_PARENT: parents.column,
        Key.RECORD_FUNCTION: _where(table[schema.RECORD_FUNCTION], none=0),
        Key.SEQUENCE: _where(table[schema.SEQUENCE], none=-1),
        Key.FORWARD_THREAD: _where(table[schema.FORWARD_THREAD], none=0),
        Key.LOGICAL_THREAD: KeyColumn(whole_table.rows, thread),
        Key.SCOPE: KeyColumn(whole_table.rows, scope),
    }
    return {key: column for key, column in keys.items() if len(column)}


def _where(values: Int64s, none: int) -> KeyColumn:
    rows = np.flatnonzero(values != none)
    return KeyColumn(rows, values[rows])
