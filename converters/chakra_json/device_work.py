"""Which node put which work on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra_json.schema import BACKEND_CALL, COLLECTIVE_KERNEL, COMMUNICATION
from tracelink.converters.chakra_json.tree import Tree
from tracelink.events import GPU_WORK, Bools, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Work on devices, by the place of its node and then by start."""

    rows: Int64s
    node: Int64s
    """The place of the node for each."""
    unlaunched: int
    """Work that no recorded call launched."""
    unlinked: int
    """Work whose launch no node of the execution trace encloses."""


def device_work(part: Excerpt, tree: Tree, node_around: Int64s) -> DeviceWork:
    """All work of a rank; `node_around` is the place of the innermost node around each row, itself included."""
    work = part.rows(*GPU_WORK)
    launches = part.where(Relation.LAUNCHES)
    launch = np.full(len(part.events), NONE, np.int64)
    launch[launches.target] = launches.source
    call = launch[work]
    node = np.where(call == NONE, NONE, node_around[call])
    communication = _named(part, work, lambda name: bool(COLLECTIVE_KERNEL.search(name))) & (node != NONE)
    node[communication] = _backend_calls(part, tree)[node[communication]]
    chosen = np.flatnonzero(node != NONE)
    order = np.lexsort((work[chosen], part.events.start[work[chosen]], node[chosen]))
    unlaunched = int(np.count_nonzero(call == NONE))
    return DeviceWork(
        work[chosen][order], node[chosen][order], unlaunched, len(work) - len(chosen) - unlaunched
    )


def _backend_calls(part: Excerpt, tree: Tree) -> Int64s:
    """For each place that of the one call of the library that it records, else its own.

    The profile may lack the call; the execution trace has it.
    """
    records = _named(part, tree.rows, lambda name: name == COMMUNICATION)
    calls = _named(part, tree.rows, lambda name: name.startswith(BACKEND_CALL))
    inside = np.flatnonzero(calls & records[tree.parent])
    count = np.bincount(tree.parent[inside], minlength=len(tree))
    place = np.arange(len(tree))
    place[tree.parent[inside]] = inside
    return np.where(count == 1, place, np.arange(len(tree)))


def _named(part: Excerpt, rows: Int64s, wanted: Callable[[str], bool]) -> Bools:
    """Which rows have a name that is wanted; row -1 has none."""
    named = np.array([wanted(text) for text in part.graph.strings], np.bool_)
    found: Bools = (rows != NONE) & named[part.events.name[rows]]
    return found
