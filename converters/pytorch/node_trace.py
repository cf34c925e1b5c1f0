"""Files of nodes, read to their end: parents, link keys, process groups, payloads, and what did not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.json_array import ArrayDocument, ArrayFormat, RereadPayloads, as_json, damage_findings
from tracelink._io.sources import LARGEST_RANK, Source
from tracelink._model.columns import UNKNOWN, Bools, Int64s, StringTable, own_ancestors, repeated, scatter
from tracelink._model.events import Key, KeyColumn
from tracelink._model.findings import Finding, NewerVersion, Severity
from tracelink._model.text import subject
from tracelink._model.trace import Payload, ProcessGroup, RankTrace
from tracelink.converters.pytorch import first_keys_of
from tracelink.converters.pytorch import node_schema as schema
from tracelink.converters.pytorch.node_schema import NODES, PROCESS_ROOTS, THREAD_ROOTS, Group
from tracelink.converters.pytorch.nodes import (
    ID,
    TEXTS,
    NodeColumns,
    Piece,
    integer_in,
)
from tracelink.plugins.traces import TraceBuilder

# Parents: the ids as written, corrected where they lead to no node.


NO_NODE = 0
"""The id that means "no node", unless a node has it."""


class Parents(Struct, frozen=True):
    """The id of each node's parent, and the rows of nodes with a parent that is not in the file."""

    column: KeyColumn
    orphans: Int64s
    looping: int = 0
    """Number of nodes that were their own ancestors; they have no parent."""


def parents_of(ids: Int64s, written: Int64s, thread: Int64s, name: Int64s, names: StringTable) -> Parents:
    """Parents; a node without its parent in the file gets the root of its thread, else of the process."""
    known = np.isin(written, ids)
    given = (written != ids) & (known | (written != NO_NODE))
    process = _rows_named(name, names, PROCESS_ROOTS)
    roots = _rows_named(name, names, THREAD_ROOTS)
    orphans = given & ~known
    parent = np.where(orphans, ids[process][-1] if process.any() else NO_NODE, written)
    for row in np.flatnonzero(roots).tolist():
        parent[orphans & (thread == thread[row]) & ~roots] = ids[row]
    given &= (parent != NO_NODE) | known
    given &= parent != ids
    rows = np.flatnonzero(given)
    column, looping = without_loops(ids, KeyColumn(rows, parent[rows]))
    return Parents(column, np.flatnonzero(orphans), looping)


def without_loops(ids: Int64s, parents: KeyColumn) -> tuple[KeyColumn, int]:
    """The parents without those of nodes that are their own ancestors, and the number of these nodes."""
    if not np.any(parents.values >= ids[parents.rows]):  # observers count a node after its parent
        return parents, 0
    distinct, first = np.unique(ids, return_index=True)
    index = np.minimum(np.searchsorted(distinct, parents.values), len(distinct) - 1)
    parent = scatter(
        len(ids), parents.rows, np.where(distinct[index] == parents.values, first[index], UNKNOWN)
    )
    loops = own_ancestors(parent)
    kept = ~np.isin(parents.rows, loops)
    return KeyColumn(parents.rows[kept], parents.values[kept]), len(loops)


def _rows_named(name: Int64s, names: StringTable, wanted: Iterable[str]) -> Bools:
    return np.isin(name, [names.find(text) for text in wanted])


# What did not fit.


def _findings_of(file: NodeFile, parents: Parents, unreadable_groups: int) -> Iterator[Finding]:
    """One finding for each kind of problem."""
    document, ids, orphans = file.document, file.table[ID], parents.orphans
    path, version = document.source.path, str(document.header.get(schema.SCHEMA, ""))
    orphan = f"node {ids[orphans[0]]}" if len(orphans) else ""
    cut = None if document.truncated_at is None else (document.truncated_at, document.truncated_reason)
    hanging = (
        f", {len(orphans)} of them placed under the root of their thread because their parents are missing"
    )
    yield from damage_findings(path, document.damage, cut, len(ids), "node", hanging if orphan else "")
    if orphan and not cut:
        text = (
            f"{path}: {subject(len(orphans), 'node', 'have')} a parent that is not in the file, first {orphan}; "
            "placed under the root of the thread. The observer omits operators that were running when it "
            "stopped, and operators that raised an exception."
        )
        yield Finding(Severity.WARNING, "missing_parent", text, len(orphans), path, orphan)
    yield from _findings_on_nodes(path, ids, parents.looping, file.columns.elements - len(ids))
    if version not in schema.VERSIONS:
        version = version or "(missing)"
        yield NewerVersion(path, version, "").finding(example=version)
    if undescribed := file.columns.without_communication:
        text = (
            f"{path}: {undescribed} records of communication contain 'missing comms info': "
            "collective, group and sizes are unknown."
        )
        yield Finding(Severity.INFO, "missing_communication", text, undescribed, path)
    if unreadable_groups:
        text = f"{path}: {unreadable_groups} lists of process groups cannot be read."
        yield Finding(Severity.WARNING, "unreadable_groups", text, unreadable_groups, path)


def _findings_on_nodes(path: str, ids: Int64s, looping: int, not_nodes: int) -> Iterator[Finding]:
    for reason, count, thing, verb, words in (
        (
            "parent_loop",
            looping,
            "node",
            "are",
            "in a loop of parents, and used without a parent. Record the trace again.",
        ),
        (
            "duplicate_node",
            repeated(ids),
            "node",
            "have",
            "the id of an earlier node; references to it mean the earlier one.",
        ),
        ("not_a_node", not_nodes, "element", "are", "no node (null, or without an id): skipped."),
    ):
        if count:
            text = f"{path}: {subject(count, thing, verb)} {words}"
            yield Finding(Severity.WARNING, reason, text, count, path)
    if not len(ids):
        yield Finding(Severity.WARNING, "no_nodes", f"{path}: the file has no nodes.", source=path)


# Process groups, from the node that lists them.


GROUPS = msgspec.json.Decoder(list[Group])


def groups_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[list[ProcessGroup], int]:
    """The distinct groups that nodes list, and the number of nodes that cannot be parsed."""
    groups: dict[ProcessGroup, None] = {}
    unreadable = 0
    for node in nodes:
        try:
            for text in _texts_groups(node):
                groups |= dict.fromkeys(map(_group, GROUPS.decode(text)))
        except msgspec.DecodeError:
            unreadable += 1
    return list(groups), unreadable


def _texts_groups(node: Mapping[str, Any]) -> Iterator[str]:
    inputs = node.get("inputs")
    values = inputs.get("values") if isinstance(inputs, dict) else inputs
    for value in values if isinstance(values, list) else ():
        if isinstance(value, str):
            yield value


def _group(group: Group) -> ProcessGroup:
    """The default group has no list of ranks: it contains all ranks."""
    numbers = [integer_in(rank) for rank in (group.ranks if isinstance(group.ranks, list | dict) else ())]
    usable = all(number is not None and 0 <= number <= LARGEST_RANK for number in numbers)
    ranks = tuple(number for number in numbers if number is not None and usable)
    return ProcessGroup(
        name=str(group.pg_name or group.backend_id),
        description=str(group.pg_desc),
        ranks=ranks,
        size=integer_in(group.group_size) or len(ranks),
        backend=str(group.backend_config),
    )


# Link keys of nodes.


def keys_of(table: Mapping[str, Int64s], parents: Parents) -> dict[Key, KeyColumn]:
    """Link keys of nodes: their ids and parents, and the ids that profiles have too."""
    node_ids = KeyColumn(np.arange(len(table[ID])), table[ID])
    thread, scope = table[schema.THREAD], table[schema.SCOPE]
    keys = {
        Key.NODE_ID: node_ids,
        Key.NODE_PARENT: parents.column,
        Key.RECORD_FUNCTION: _where(table[schema.RECORD_FUNCTION], missing=0),
        Key.SEQUENCE: _where(table[schema.SEQUENCE], missing=-1),
        Key.FORWARD_THREAD: _where(table[schema.FORWARD_THREAD], missing=0),
        Key.LOGICAL_THREAD: KeyColumn(node_ids.rows, thread),
        Key.SCOPE: KeyColumn(node_ids.rows, scope),
    }
    return {key: column for key, column in keys.items() if len(column)}


def _where(values: Int64s, missing: int) -> KeyColumn:
    rows = np.flatnonzero(values != missing)
    return KeyColumn(rows, values[rows])


# Nodes as payloads: a piece of the node array is read again.


def node_payloads(first_keys: tuple[str, ...]) -> ArrayFormat[list[Payload]]:
    """The format by which nodes that start with these keys are read again."""
    return ArrayFormat(NODES, first_keys, _texts, _converted)


def _texts(text: memoryview) -> list[Payload]:
    kept = bytes(text)
    if not kept.isascii():
        kept.decode()  # the decoder does not check the bytes of strings that it skips
    return list(TEXTS.decode(kept))


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]


# A file of nodes, read to its end.


class NodeFile(Struct, frozen=True):
    """The nodes of a file as columns, and as payloads."""

    document: ArrayDocument[Piece]
    columns: NodeColumns
    table: Mapping[str, Int64s]
    payloads: RereadPayloads

    @classmethod
    def read(
        cls,
        source: Source,
        engine: Engine,
        columns: NodeColumns,
        decode: Callable[[memoryview], Piece],
        convert: Callable[[list[Any]], Piece],
    ) -> NodeFile:
        """Reads a source into `columns`."""
        first_keys = first_keys_of(source.head())
        document = ArrayDocument(source, ArrayFormat(NODES, first_keys, decode, convert))
        for offset, piece in document.pieces(engine.meter.add):
            columns.add(offset, piece)
        payloads = RereadPayloads(source, node_payloads(first_keys), columns.offsets, columns.counts)
        return cls(document, columns, columns.table(), payloads)

    @property
    def pid(self) -> int | None:
        """The process."""
        return integer_in(self.document.header.get(schema.PID))

    def builder(self, format_: str, keys: Sequence[str], local_time_ns: int | None = None) -> TraceBuilder:
        """The trace to be, without its events; `keys` are those of the header that are kept."""
        header = self.document.header
        return TraceBuilder(
            self.document.source,
            format_,
            version=str(header.get(schema.SCHEMA, "")),
            pid=self.pid,
            records=self.columns.elements,
            header={key: header[key] for key in keys if key in header},
            local_time_ns=local_time_ns,
        )

    def build(self, trace: TraceBuilder, parents: Parents, **parts: Any) -> RankTrace:
        """The trace, with the groups, the communication and the findings of every file of nodes."""
        groups, unreadable = groups_of(self.columns.group_nodes)
        return trace.build(
            strings=self.columns.names,
            groups=groups,
            communications=self.columns.communications(),
            payloads=[self.payloads],
            findings=list(_findings_of(self, parents, unreadable)),
            **parts,
        )
