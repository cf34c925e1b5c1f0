"""What did not fit in a Chakra trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import numpy as np

from tracelink.converters.chakra.decoding import Decoded, Fault
from tracelink.converters.chakra.reading.dependencies import Dependencies
from tracelink.converters.chakra.schema import Said
from tracelink.converters.chakra.streaming import cut_off, too_few
from tracelink.converters.chakra.table import NodeTable, unsigned
from tracelink.events import NO_TIME, Int64s
from tracelink.findings import Finding, Severity

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
        yield cut_off(path, problem, kept, fault.offset)
    if damage and not broken:
        yield cut_off(path, damage, kept, decoded.offsets[-1] if decoded.offsets else 0)
    others = sorted((fault for fault in decoded.faults if fault not in broken), key=attrgetter("reason"))
    for reason, alike in groupby(others, attrgetter("reason")):
        yield _of_faults(path, reason, list(alike))
    said = decoded.said(Said.NODES)
    if type(said) is int and said > kept and not broken and not damage:
        yield too_few(path, said, kept)
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
