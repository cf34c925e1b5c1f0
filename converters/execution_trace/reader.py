"""Execution trace to rank trace."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink._io.engine import Engine
from tracelink._io.sources import Source
from tracelink._model.columns import NO_TIME, SECOND, UNKNOWN, Int64s
from tracelink._model.events import EventKind, Track, TrackKind
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import RankTrace
from tracelink.converters.pytorch import is_linked
from tracelink.converters.pytorch import node_schema as schema
from tracelink.converters.pytorch.node_trace import NodeFile, keys_of, parents_of
from tracelink.converters.pytorch.nodes import ID, INDEX, NAME, PARENT, NodeColumns, convert, decode


class ExecutionTraceReader:
    """Reads what torch's `ExecutionTraceObserver` writes, every schema since 1.0.1."""

    name = "execution-trace"

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node, on the track of its logical thread."""
        file = NodeFile.read(source, engine, NodeColumns(), decode, convert)
        table = file.table
        threads, track = np.unique(table[schema.THREAD], return_inverse=True)
        parents = parents_of(table[ID], table[PARENT], table[schema.THREAD], table[NAME], file.columns.names)
        time = _local_time(file.document.header.get(schema.TIME))
        built = file.builder(self.name, schema.HEADER, local_time_ns=time)
        names = table[NAME].astype(np.int32)
        built.events(names, NO_TIME, UNKNOWN, kind=EventKind.NODE, track=track, payload=table[INDEX])
        tracks, keys = _tracks(threads, file.pid), keys_of(table, parents)
        trace = file.build(built, parents, tracks=tracks, keys=keys)
        if is_linked(source.head()):
            trace.findings.append(linked_trace(source.path))
        return trace


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
