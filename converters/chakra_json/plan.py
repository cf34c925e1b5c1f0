"""Everything that will be written of one rank, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.durations import exclusive
from tracelink.converters.chakra_json.device_waits import DeviceWaits, device_waits
from tracelink.converters.chakra_json.device_work import DeviceWork, device_work
from tracelink.converters.chakra_json.hand_overs import HandOvers, hand_overs
from tracelink.converters.chakra_json.tree import Tree, nodes_of, tree_of
from tracelink.converters.kineto.header import base_time
from tracelink.enclosing import callers, innermost, outside
from tracelink.events import Int64s, Relation
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class Plan:
    """One rank: its nodes by place, the operator that each one is, and the device work under each."""

    part: Excerpt
    source: int
    """The execution trace."""
    tree: Tree
    operator: Int64s
    """The row of the profiled operator that each node is, or -1."""
    exclusive: Int64s
    """Nanoseconds that each row ran itself."""
    hand_overs: HandOvers
    work: DeviceWork
    device_waits: DeviceWaits
    ids: Int64s
    """The new id of each node; the work under it has the numbers that follow."""
    base: int
    """What the times in the file count from: as those of the profile do that most nodes have their times from."""

    def id_of_work(self, number: int) -> int:
        """The id of a piece of work, by its number among all work."""
        node = int(self.work.node[number])
        first = int(np.searchsorted(self.work.node, node))
        return int(self.ids[node]) + 1 + number - first

    @property
    def linked(self) -> int:
        """How many nodes have a time."""
        return int(np.count_nonzero(self.operator != NONE))


def plan_of(part: Excerpt, source: int) -> Plan:
    """Puts the nodes of one execution trace and the rank's device work in order."""
    rows = nodes_of(part, source)
    operator = _operators(part, rows)
    node_of = _nodes(operator, len(part.events))
    caller = callers(part)
    nearest = innermost(caller, node_of != NONE)
    around = outside(caller, nearest)
    tree = tree_of(part, rows, _at(node_of, _at(around, operator)))
    if len(tree) > len(rows):
        operator = np.append(NONE, operator)
        node_of = np.where(node_of == NONE, NONE, node_of + 1)
    work = device_work(part, tree, _at(node_of, nearest))
    events = part.events
    inside = np.where(node_of == NONE, NONE, around)
    return Plan(
        part,
        source,
        tree,
        operator,
        exclusive(events.start, events.end, inside),
        hand_overs(part, node_of, tree.parent),
        work,
        device_waits(part, node_of, tree.parent, work),
        np.arange(len(tree)) + np.searchsorted(work.node, np.arange(len(tree))),
        _base(part, np.concatenate([operator[operator != NONE], work.rows])),
    )


def _base(part: Excerpt, rows: Int64s) -> int:
    """0 where the profile does not say."""
    if not len(rows):
        return 0
    source = int(np.bincount(part.events.source[rows]).argmax())
    return base_time(part.graph.sources[source].header) or 0


def _operators(part: Excerpt, rows: Int64s) -> Int64s:
    """The row of the timed operator that each node is the same as, or that it is itself, or -1."""
    same = part.where(Relation.SAME)
    timed = part.events.timed[same.target]
    operator = np.where(part.events.timed, np.arange(len(part.events)), NONE)
    operator[same.source[timed]] = same.target[timed]
    return operator[rows]


def _nodes(operator: Int64s, rows: int) -> Int64s:
    """The place of the node that each row is; of nodes that are the same operator, the first."""
    node_of = np.full(rows, NONE, np.int64)
    linked = np.flatnonzero(operator != NONE)[::-1]
    node_of[operator[linked]] = linked
    return node_of


def _at(values: Int64s, rows: Int64s) -> Int64s:
    """`values[rows]`, -1 where the row is -1."""
    return np.where(rows == NONE, NONE, np.append(values, NONE)[rows])
