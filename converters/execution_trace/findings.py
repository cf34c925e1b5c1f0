"""What did not fit in an execution trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.converters.execution_trace import schema
from tracelink.converters.execution_trace.columns import Columns
from tracelink.converters.execution_trace.nodes import ID, Piece
from tracelink.converters.execution_trace.parents import Parents
from tracelink.damage import damage_findings
from tracelink.elements import ArrayDocument
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity
from tracelink.salvage import Damage


@dataclass(frozen=True, slots=True)
class Misfits:
    """What the reader came across in one file."""

    path: str
    nodes: int
    unknown_version: str
    cut_off: tuple[int, str] | None
    damage: Sequence[Damage]
    not_nodes: int
    orphans: int
    orphan: str
    """The id of the first of them."""
    duplicates: int
    without_communication: int
    unreadable_groups: int


def misfits_of(
    document: ArrayDocument[Piece],
    columns: Columns,
    table: Mapping[str, Int64s],
    parents: Parents,
    unreadable_groups: int,
) -> Misfits:
    """What is told of a document that was read to its end."""
    ids = table[ID]
    version = str(document.header.get(schema.SCHEMA, ""))
    return Misfits(
        path=document.source.path,
        nodes=len(ids),
        unknown_version="" if version in schema.VERSIONS else version or "(none)",
        cut_off=None if document.cut_off is None else (document.cut_off, document.cut_off_reason),
        damage=document.damage,
        not_nodes=columns.elements - len(ids),
        orphans=len(parents.orphans),
        orphan=str(ids[parents.orphans[0]]) if len(parents.orphans) else "",
        duplicates=len(ids) - len(np.unique(ids)),
        without_communication=columns.without_communication,
        unreadable_groups=unreadable_groups,
    )


def linked_trace(path: str) -> Finding:
    """What to say of a linked trace that the user named as an execution trace."""
    text = f"{path}: it has times and device work (ET+ JSON), which are not read. Name the file without --et."
    return Finding(Severity.WARNING, "linked_trace", text, source=path)


def findings_of(misfits: Misfits) -> Iterator[Finding]:
    """One finding for each kind of misfit."""
    yield from _damage(misfits)
    yield from _structure(misfits)
    yield from _content(misfits)


def _damage(m: Misfits) -> Iterator[Finding]:
    hanging = f", {m.orphans} of them under the root of their thread because their parents are lost"
    yield from damage_findings(m.path, m.damage, m.cut_off, m.nodes, "nodes", hanging if m.orphans else "")


def _structure(m: Misfits) -> Iterator[Finding]:
    if m.orphans and not m.cut_off:
        text = (
            f"{m.path}: {m.orphans} nodes name a parent that is not in the file, first node {m.orphan}; they "
            "hang under the root of their thread. The observer leaves out what was open when it stopped, and "
            "operators that raised an exception."
        )
        yield Finding(Severity.WARNING, "missing_parent", text, m.orphans, m.path, f"node {m.orphan}")
    if m.duplicates:
        text = f"{m.path}: {m.duplicates} nodes repeat the id of an earlier node; the earlier one is meant."
        yield Finding(Severity.WARNING, "duplicate_node", text, m.duplicates, m.path)
    if m.not_nodes:
        text = f"{m.path}: {m.not_nodes} elements are no nodes (null, or without an id)."
        yield Finding(Severity.WARNING, "not_a_node", text, m.not_nodes, m.path)
    if not m.nodes:
        yield Finding(Severity.WARNING, "no_nodes", f"{m.path}: it holds no nodes.", source=m.path)


def _content(m: Misfits) -> Iterator[Finding]:
    if m.unknown_version:
        text = f"{m.path}: schema {m.unknown_version} is not one known here; what is known of it was read."
        yield Finding(Severity.INFO, "newer_version", text, source=m.path, example=m.unknown_version)
    if m.without_communication:
        text = (
            f"{m.path}: {m.without_communication} records of communication say 'missing comms info': "
            "collective, group and sizes are unknown."
        )
        yield Finding(Severity.INFO, "missing_communication", text, m.without_communication, m.path)
    if m.unreadable_groups:
        text = f"{m.path}: {m.unreadable_groups} lists of process groups cannot be read."
        yield Finding(Severity.WARNING, "unreadable_groups", text, m.unreadable_groups, m.path)
