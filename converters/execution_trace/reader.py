"""Execution trace to rank trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink._io.engine import Engine
from tracelink._io.json_array import ArrayDocument, ArrayFormat, RereadPayloads
from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, SECOND, UNKNOWN, Int64s
from tracelink._model.events import EventKind, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import RankTrace
from tracelink.converters.pytorch import first_keys_of, is_linked
from tracelink.converters.pytorch import node_schema as schema
from tracelink.converters.pytorch.node_trace import (
    findings_of,
    groups_of,
    keys_of,
    node_payloads,
    node_problems,
    parents_of,
)
from tracelink.converters.pytorch.nodes import (
    ID,
    INDEX,
    NAME,
    PARENT,
    NodeColumns,
    Piece,
    convert,
    decode,
    integer_in,
)
from tracelink.plugins.traces import TraceBuilder


class ExecutionTraceReader:
    """Reads what torch's `ExecutionTraceObserver` writes, every schema since 1.0.1."""

    name = "execution-trace"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node, on the track of its logical thread."""
        head = source.head()
        first_keys = first_keys_of(head)
        document: ArrayDocument[Piece] = ArrayDocument(
            source, ArrayFormat(schema.NODES, first_keys, decode, convert)
        )
        columns = NodeColumns()
        for offset, piece in document.pieces(engine.meter.add):
            columns.add(offset, piece)
        payloads = RereadPayloads(source, node_payloads(first_keys), columns.offsets, columns.counts)
        trace = _assemble(document, columns, payloads)
        if is_linked(head):
            trace.findings.append(linked_trace(source.path))
        return trace


def _assemble(document: ArrayDocument[Piece], columns: NodeColumns, payloads: RereadPayloads) -> RankTrace:
    table, header = columns.table(), document.header
    pid = integer_in(header.get(schema.PID))
    threads, track = np.unique(table[schema.THREAD], return_inverse=True)
    parents = parents_of(table[ID], table[PARENT], table[schema.THREAD], table[NAME], columns.names)
    groups, unreadable_groups = groups_of(columns.group_nodes)
    problems = node_problems(document, columns, table, parents, unreadable_groups)
    trace = TraceBuilder(
        document.source,
        ExecutionTraceReader.name,
        version=str(header.get(schema.SCHEMA, "")),
        pid=pid,
        records=columns.elements,
        local_time_ns=_local_time(header.get(schema.TIME)),
        header={key: header[key] for key in schema.HEADER if key in header},
    )
    names = table[NAME].astype(np.int32)
    trace.events(names, NO_TIME, UNKNOWN, kind=EventKind.NODE, track=track, payload=table[INDEX])
    return trace.build(
        strings=columns.names,
        tracks=_tracks(threads, pid),
        keys=keys_of(table, parents),
        groups=groups,
        communications=columns.communications(),
        payloads=[payloads],
        findings=list(findings_of(problems)),
    )


def _local_time(text: Any) -> int | None:
    """`2023-07-12 12:47:27` as ns since 1970 in UTC; the time zone is unknown."""
    try:
        time = np.datetime64(text, "s") if isinstance(text, str) else np.datetime64("NaT")
    except ValueError:
        return None
    return None if np.isnat(time) else int(time.astype(np.int64)) * SECOND


def _tracks(threads: Int64s, pid: int | None) -> list[Track]:
    process = "" if pid is None else str(pid)
    numbers = map(str, threads.tolist())
    return [Track(TrackKind.NODES, process, number, f"logical thread {number}") for number in numbers]


def linked_trace(path: str) -> Finding:
    """The finding for a linked trace that was given as an execution trace (--et)."""
    text = f"{path}: the file has times and device work (ET+ JSON), which were not read. Give the file without --et."
    return Finding(Severity.WARNING, "linked_trace", text, source=path)
