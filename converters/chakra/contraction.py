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
"""For each lane the last node in it that had to end before."""


def contracted(nodes: NodeTable, keep: Bools, lane: Int64s) -> NodeTable:
    """The nodes to keep, in the same order, by new ids and without control dependencies.

    Nodes must depend on earlier ones only. What lies in one lane runs in order, so the last of it stands for all.
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


def _dependencies(places: Int64s, bounds: Int64s, keep: Bools, lane: Int64s) -> Iterator[Sequence[int]]:
    """For each node that is kept those that it waits for, directly or through what is not kept."""
    waited, ends = places.tolist(), bounds.tolist()
    lanes = lane.tolist()
    through: list[Reached] = []
    known: dict[int, Reached] = {}
    for node, kept in enumerate(keep.tolist()):
        before = waited[ends[node] : ends[node + 1]]
        reached = _reached(before, through)
        if not kept:
            through.append(reached)
            continue
        mine = known.setdefault(lanes[node], {})
        fresh = {of: last for of, last in reached.items() if last > mine.get(of, NONE)}
        mine.update(fresh)
        through.append({lanes[node]: node})
        yield sorted(fresh.values())


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
