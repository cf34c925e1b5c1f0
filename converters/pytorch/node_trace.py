"""What every file of nodes gives: parents, link keys, process groups, payloads, and what did not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tracelink._io.json_array import ArrayDocument, ArrayFormat, as_json, damage_findings
from tracelink._io.salvage import Damage
from tracelink._io.sources import LARGEST_RANK
from tracelink._model.columns import UNKNOWN, Bools, Int64s, StringTable, own_ancestors, repeated
from tracelink._model.events import Key, KeyColumn
from tracelink._model.findings import Finding, NewerVersion, Severity
from tracelink._model.text import subject
from tracelink._model.trace import Payload, ProcessGroup
from tracelink.converters.pytorch import node_schema as schema
from tracelink.converters.pytorch.node_schema import NODES, PROCESS_ROOTS, THREAD_ROOTS, Group
from tracelink.converters.pytorch.nodes import (
    ID,
    TEXTS,
    NodeColumns,
    Piece,
    integer_in,
)

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
    parent = np.full(len(ids), UNKNOWN, np.int64)
    parent[parents.rows] = np.where(distinct[index] == parents.values, first[index], UNKNOWN)
    loops = own_ancestors(parent)
    kept = ~np.isin(parents.rows, loops)
    return KeyColumn(parents.rows[kept], parents.values[kept]), len(loops)


def _rows_named(name: Int64s, names: StringTable, wanted: Iterable[str]) -> Bools:
    return np.isin(name, [names.find(text) for text in wanted])


# Problems of a file.


class NodeProblems(Struct, frozen=True):
    """Counts of the problems in one file."""

    path: str
    nodes: int
    unknown_version: str
    truncated_at: tuple[int, str] | None
    damage: Sequence[Damage]
    not_nodes: int
    orphans: int
    orphan: str
    """The id of the first of them."""
    looping: int
    duplicates: int
    without_communication: int
    unreadable_groups: int


def node_problems(
    document: ArrayDocument[Piece],
    columns: NodeColumns,
    table: Mapping[str, Int64s],
    parents: Parents,
    unreadable_groups: int,
) -> NodeProblems:
    """The problems of a document that was read to its end."""
    ids = table[ID]
    version = str(document.header.get(schema.SCHEMA, ""))
    return NodeProblems(
        path=document.source.path,
        nodes=len(ids),
        unknown_version="" if version in schema.VERSIONS else version or "(missing)",
        truncated_at=None
        if document.truncated_at is None
        else (document.truncated_at, document.truncated_reason),
        damage=document.damage,
        not_nodes=columns.elements - len(ids),
        orphans=len(parents.orphans),
        orphan=str(ids[parents.orphans[0]]) if len(parents.orphans) else "",
        looping=parents.looping,
        duplicates=repeated(ids),
        without_communication=columns.without_communication,
        unreadable_groups=unreadable_groups,
    )


def findings_of(problems: NodeProblems) -> Iterator[Finding]:
    """One finding for each kind of problem."""
    yield from _damage(problems)
    yield from _structure(problems)
    yield from _content(problems)


def _damage(m: NodeProblems) -> Iterator[Finding]:
    hanging = f", {m.orphans} of them placed under the root of their thread because their parents are missing"
    yield from damage_findings(
        m.path, m.damage, m.truncated_at, m.nodes, "node", hanging if m.orphans else ""
    )


def _structure(m: NodeProblems) -> Iterator[Finding]:
    if m.orphans and not m.truncated_at:
        text = (
            f"{m.path}: {subject(m.orphans, 'node', 'have')} a parent that is not in the file, first node {m.orphan}; "
            "placed under the root of the thread. The observer omits operators that were running when it "
            "stopped, and operators that raised an exception."
        )
        yield Finding(Severity.WARNING, "missing_parent", text, m.orphans, m.path, f"node {m.orphan}")
    if m.looping:
        looping = subject(m.looping, "node", "are")
        text = f"{m.path}: {looping} in a loop of parents, and used without a parent. Record the trace again."
        yield Finding(Severity.WARNING, "parent_loop", text, m.looping, m.path)
    if m.duplicates:
        duplicates = subject(m.duplicates, "node", "have")
        text = f"{m.path}: {duplicates} the id of an earlier node; references to it mean the earlier one."
        yield Finding(Severity.WARNING, "duplicate_node", text, m.duplicates, m.path)
    if m.not_nodes:
        text = (
            f"{m.path}: {subject(m.not_nodes, 'element', 'are')} no node (null, or without an id): skipped."
        )
        yield Finding(Severity.WARNING, "not_a_node", text, m.not_nodes, m.path)
    if not m.nodes:
        yield Finding(Severity.WARNING, "no_nodes", f"{m.path}: the file has no nodes.", source=m.path)


def _content(m: NodeProblems) -> Iterator[Finding]:
    if m.unknown_version:
        yield NewerVersion(m.path, m.unknown_version, "").finding(example=m.unknown_version)
    if m.without_communication:
        text = (
            f"{m.path}: {m.without_communication} records of communication contain 'missing comms info': "
            "collective, group and sizes are unknown."
        )
        yield Finding(Severity.INFO, "missing_communication", text, m.without_communication, m.path)
    if m.unreadable_groups:
        text = f"{m.path}: {m.unreadable_groups} lists of process groups cannot be read."
        yield Finding(Severity.WARNING, "unreadable_groups", text, m.unreadable_groups, m.path)


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
    """How nodes that start with these keys are read again."""
    return ArrayFormat(NODES, first_keys, _texts, _converted)


def _texts(text: memoryview) -> list[Payload]:
    kept = bytes(text)
    if not kept.isascii():
        kept.decode()  # the decoder does not check the bytes of strings that it skips
    return list(TEXTS.decode(kept))


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]
