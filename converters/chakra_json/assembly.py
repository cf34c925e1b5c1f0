"""Linked trace to rank trace."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelink.converters.chakra_json import schema
from tracelink.converters.chakra_json.linked_nodes import (
    CATEGORY,
    DURATION,
    ON_CPU,
    START,
    LinkedColumns,
    convert_linked,
    decode_linked,
)
from tracelink.converters.chakra_json.places import Places, places_of
from tracelink.converters.chakra_json.stated import stated_edges
from tracelink.converters.chakra_json.unread import unread_findings
from tracelink.converters.execution_trace import schema as traced
from tracelink.converters.execution_trace.columns import NAME, PLACE
from tracelink.converters.execution_trace.findings import findings_of, misfits_of
from tracelink.converters.execution_trace.groups import groups_of
from tracelink.converters.execution_trace.keys import keys_of
from tracelink.converters.execution_trace.nodes import ID, PARENT, Piece, whole
from tracelink.converters.execution_trace.parents import Parents, parents_of
from tracelink.converters.execution_trace.payloads import whole_nodes
from tracelink.converters.kineto.header import base_time
from tracelink.elements import ArrayDocument, ArrayFormat
from tracelink.engine import Engine
from tracelink.events import NO_TIME, Events, Int64s, Key, KeyColumn
from tracelink.rereading import RereadPayloads
from tracelink.sources import Source
from tracelink.trace import RankTrace, SourceInfo

FORMAT, PROFILE = "chakra-json", "kineto"


def read_linked(source: Source, engine: Engine) -> RankTrace:
    """The trace of a whole source."""
    first_keys = traced.first_keys(source.head())
    document: ArrayDocument[Piece] = ArrayDocument(
        source, ArrayFormat(schema.NODES, first_keys, decode_linked, convert_linked)
    )
    columns = LinkedColumns()
    for offset, piece in document.pieces(engine.meter.add):
        columns.add(offset, piece)
    payloads = RereadPayloads(source, whole_nodes(first_keys), columns.offsets, columns.counts)
    return _assemble(document, columns, payloads)


def _assemble(document: ArrayDocument[Piece], columns: LinkedColumns, payloads: RereadPayloads) -> RankTrace:
    table = columns.table()
    header = document.header
    base = base_time(header)
    pid = whole(header.get(schema.PID))
    places = places_of(table, "" if pid is None else str(pid))
    parents = _parents(table, columns)
    events = _events(table, places, base or 0)
    stated = stated_edges(table, parents, places.on_device)
    groups, unreadable_groups = groups_of(columns.group_nodes)
    misfits = misfits_of(document, columns, table, parents, unreadable_groups)
    path = document.source.path
    return RankTrace(
        sources=[_info(document.source, header, events, columns.elements)],
        strings=columns.names,
        events=events,
        tracks=places.tracks,
        keys=_keys(table, parents, places),
        groups=groups,
        communications=columns.communications(),
        edges=stated.edges,
        payloads=[payloads],
        findings=[*findings_of(misfits), *unread_findings(path, table, stated, header, base)],
        retells=frozenset({PROFILE}),
    )


def _parents(table: Mapping[str, Int64s], columns: LinkedColumns) -> Parents:
    """Of work on a device whose launch is missing none is made up; everything else hangs under its thread's root."""
    rows = np.flatnonzero(table[CATEGORY] == ON_CPU)
    ids, written, thread, name = (table[key][rows] for key in (ID, PARENT, traced.THREAD, NAME))
    found = parents_of(ids, written, thread, name, columns.names)
    work = np.flatnonzero((table[CATEGORY] != ON_CPU) & np.isin(table[PARENT], ids))
    column = KeyColumn(
        np.concatenate([rows[found.column.rows], work]),
        np.concatenate([found.column.values, table[PARENT][work]]),
    )
    return Parents(column, rows[found.orphans])


def _events(table: Mapping[str, Int64s], places: Places, base: int) -> Events:
    start = table[START]
    return Events(
        places.kind,
        table[NAME].astype(np.int32),
        places.track,
        np.where(start == NO_TIME, start, start + base),
        table[DURATION],
        np.zeros(len(start), np.int32),
        table[PLACE],
    )


def _keys(table: Mapping[str, Int64s], parents: Parents, places: Places) -> dict[Key, KeyColumn]:
    """Work on a device has a copy of what its node says of itself, which is not its own."""
    own = dict(table)
    for name, none in traced.COLUMNS.items():
        if name not in (traced.THREAD, traced.SCOPE):
            own[name] = np.where(places.on_device, none, table[name])
    return keys_of(own, parents)


def _info(source: Source, header: Mapping[str, object], events: Events, elements: int) -> SourceInfo:
    timed = events.timed
    return SourceInfo(
        path=source.path,
        format=FORMAT,
        version=str(header.get(schema.SCHEMA, "")),
        pid=whole(header.get(schema.PID)),
        events=len(events),
        records=elements,
        bytes=source.bytes,
        start_ns=int(events.start[timed].min()) if timed.any() else None,
        end_ns=int(events.end[timed].max()) if timed.any() else None,
        header={key: header[key] for key in (*traced.HEADER, schema.BASE_TIME) if key in header},
    )
