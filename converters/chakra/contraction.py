"""A rank without the nodes of its host: what device work and communication waited for through the host stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tracelink.converters.chakra.program import FIRST_ID
from tracelink.converters.chakra.table import Attribute, Links, NodeTable
from tracelink.events import Bools, Int64s
from tracelink.excerpt import NONE

Reached = dict[int, int]
"""For each chain of nodes the last one in it that had to end before."""


def contracted(nodes: NodeTable, keep: Bools, lane: Int64s) -> NodeTable:
    """The nodes to keep, in the same order, by new ids and without control dependencies.

    Nodes must depend on earlier ones only. `lane` says what usually runs one after the other.
    """
    dependencies = list(_dependencies(nodes.places(nodes.data), nodes.data.bounds, keep, lane))
    rows = np.flatnonzero(keep)
    place = np.cumsum(keep) - 1
    links = Links.of([(place[ids] + FIRST_ID).tolist() if len(ids) else [] for ids in dependencies])
    return replace(
        nodes,
        id=np.arange(len(rows)) + FIRST_ID,
        name=nodes.name[rows],
        type=nodes.type[rows],
        start=nodes.start[rows],
        duration=nodes.duration[rows],
        data=links,
        control=Links.of([[]] * len(rows)),
        attributes={
            name: kept for name, column in nodes.attributes.items() if len(kept := taken(column, keep))
        },
    )


def taken(column: Attribute, keep: Bools) -> Attribute:
    """The attribute of the nodes to keep, by their new places."""
    chosen = np.flatnonzero(keep[column.rows])
    values = (
        column.values[chosen]
        if isinstance(column.values, np.ndarray)
        else [column.values[place] for place in chosen.tolist()]
    )
    return Attribute((np.cumsum(keep) - 1)[column.rows[chosen]], values, column.kinds[chosen])


class _Chains:
    """Nodes that are kept, each after the one before it in its chain: the last of a chain stands for all.

    What shares a lane usually makes a chain; where a node of a lane did not wait for the one before, it does not.
    """

    def __init__(self) -> None:
        self._of_lane: dict[int, int] = {}
        self._last: list[int] = []
        self._known: list[Reached] = []

    def added(self, node: int, lane: int, reached: Reached) -> tuple[int, Sequence[int]]:
        """The chain of a node, and those that it waits for and the one before it in the chain did not."""
        chain = self._continued(lane, reached)
        self._of_lane[lane] = chain
        known = self._known[chain]
        fresh = {of: last for of, last in reached.items() if last > known.get(of, NONE)}
        known.update(fresh)
        self._last[chain] = node
        return chain, sorted(fresh.values())

    def _continued(self, lane: int, reached: Reached) -> int:
        usual = self._of_lane.get(lane, NONE)
        if usual != NONE and reached.get(usual) == self._last[usual]:
            return usual
        for chain, last in reached.items():
            if last == self._last[chain]:
                return chain
        self._last.append(NONE)
        self._known.append({})
        return len(self._last) - 1


def _dependencies(places: Int64s, bounds: Int64s, keep: Bools, lane: Int64s) -> Iterator[Sequence[int]]:
    """For each node that is kept those that it waits for, directly or through what is not kept."""
    waited, ends = places.tolist(), bounds.tolist()
    lanes, chains = lane.tolist(), _Chains()
    through: list[Reached] = []
    for node, kept in enumerate(keep.tolist()):
        reached = _reached(waited[ends[node] : ends[node + 1]], through)
        if not kept:
            through.append(reached)
            continue
        chain, dependencies = chains.added(node, lanes[node], reached)
        through.append({chain: node})
        yield dependencies


def _reached(before: Sequence[int], through: Sequence[Reached]) -> Reached:
    """What several nodes together had to wait for."""
    if len(before) == 1:
        return through[before[0]]
    reached: Reached = {}
    for node in before:
        for lane, last in through[node].items():
            if last > reached.get(lane, NONE):
                reached[lane] = last
    return reached
