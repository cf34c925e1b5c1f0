"""The nodes of one rank in order, their device work, and what they wait for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tracelink._model.causes import callers, exclusive_time, innermost, outside
from tracelink._model.columns import UNKNOWN, Bools, Int64s, scatter, values_at
from tracelink._model.events import GPU_WORK, Edges, EventKind, Key, Relation
from tracelink._model.graph import Excerpt
from tracelink._model.operations import RECORD_OPERATOR
from tracelink._order.host import host_waits
from tracelink._order.order import launched_work
from tracelink.converters.chakra_json import schema
from tracelink.converters.pytorch import node_schema as traced
from tracelink.converters.pytorch.arguments import base_time, recorded_synchronizations

# The tree of the nodes of an execution trace.


class Tree(Struct, frozen=True):
    """Nodes in the order of their ids; other modules refer to a node by its index here."""

    rows: Int64s
    """The row of each node, UNKNOWN for a root that was added."""
    parent: Int64s
    """The index of each node's parent; the root is its own parent."""
    moved: int
    """The number of nodes whose parent is missing or inside the node itself."""

    def __len__(self) -> int:
        return len(self.rows)


def nodes_of(part: Excerpt, source: int) -> Int64s:
    """The rows of one source's nodes, in the order of their ids, which is that in which they began."""
    rows = part.graph.key(Key.NODE_ID).rows
    rows = rows[~part.events.of_kind(*GPU_WORK)[rows]]
    rows = rows[part.events.source[rows] == source]
    ordered: Int64s = rows[np.argsort(part.key(Key.NODE_ID, 0)[rows], kind="stable")]
    return ordered


def tree_of(part: Excerpt, rows: Int64s, around: Int64s) -> Tree:
    """The tree of `rows`; `around` is the place of the node that encloses each one in the profile, or -1.

    A root is put before them where they have none, or several.
    """
    recorded = _recorded(part, rows)
    roots = recorded == UNKNOWN
    thread = _thread_roots(part, rows)
    parent = _earlier(recorded, recorded == np.arange(len(rows)), around, thread)
    circular = innermost(parent, roots) == UNKNOWN
    parent = _earlier(parent, circular & (parent >= np.arange(len(rows))), around, thread)
    roots |= parent == UNKNOWN
    moved = int(np.count_nonzero(parent != recorded))
    if roots[0] and np.count_nonzero(roots) == 1:
        parent[0] = 0
        return Tree(rows, parent, moved)
    return Tree(np.append(UNKNOWN, rows), np.append(0, parent + 1), moved)


def _earlier(parent: Int64s, wrong: Bools, *better: Int64s) -> Int64s:
    """The parents, those marked wrong replaced by the first of `better` that is an earlier node, or by -1."""
    place = np.arange(len(parent))
    parent = np.where(wrong, UNKNOWN, parent)
    for candidate in better:
        parent = np.where(wrong & (parent == UNKNOWN) & (candidate < place), candidate, parent)
    return parent


def _recorded(part: Excerpt, rows: Int64s) -> Int64s:
    """The place of each node's parent as recorded: -1 for a root, its own place where there is no such node."""
    ids = part.key(Key.NODE_ID, 0)[rows]
    named, given = _key(part, Key.NODE_PARENT, rows)
    place = np.arange(len(rows))
    found = np.minimum(np.searchsorted(ids, named), max(len(ids) - 1, 0))
    parent = np.where(ids[found] == named, found, place)
    return np.where(given & (named != ids), parent, UNKNOWN)


def _key(part: Excerpt, key: Key, rows: Int64s) -> tuple[Int64s, Bools]:
    """The values of a key at `rows`, and which of them have one."""
    absent = np.iinfo(np.int64).min
    values = part.key(key, absent)[rows]
    return values, values != absent


def _thread_roots(part: Excerpt, rows: Int64s) -> Int64s:
    """The place of the root of each node's logical thread, or -1."""
    strings = part.graph.strings
    codes = [code for code, text in enumerate(strings) if text in traced.THREAD_ROOTS]
    roots = np.flatnonzero(np.isin(part.events.name[rows], codes))[::-1]
    threads = part.key(Key.LOGICAL_THREAD, 0)[rows]
    numbers, thread = np.unique(threads, return_inverse=True)
    root = scatter(len(numbers), thread[roots], roots)
    return root[thread]


# Device work and the nodes that launched it.


class DeviceWork(Struct, frozen=True):
    """Work on devices, by the place of its node and then by start."""

    rows: Int64s
    node: Int64s
    """The place of the node for each."""
    unlaunched: int
    """The amount of work without a recorded launch."""
    unlinked: int
    """The amount of work whose launch is not enclosed by a node of the execution trace."""


def device_work(part: Excerpt, tree: Tree, node_around: Int64s) -> DeviceWork:
    """All work of a rank; `node_around` is the place of the innermost node around each row, itself included."""
    work = part.rows(*GPU_WORK)
    launches = part.where(Relation.LAUNCHES)
    launch = scatter(len(part.events), launches.target, launches.source)
    call = launch[work]
    node = np.where(call == UNKNOWN, UNKNOWN, node_around[call])
    communication = _named(part, work, lambda name: bool(schema.COLLECTIVE_KERNEL.search(name))) & (
        node != UNKNOWN
    )
    node[communication] = _backend_calls(part, tree)[node[communication]]
    chosen = np.flatnonzero(node != UNKNOWN)
    order = np.lexsort((work[chosen], part.events.start[work[chosen]], node[chosen]))
    unlaunched = int(np.count_nonzero(call == UNKNOWN))
    return DeviceWork(
        work[chosen][order], node[chosen][order], unlaunched, len(work) - len(chosen) - unlaunched
    )


def _backend_calls(part: Excerpt, tree: Tree) -> Int64s:
    """For each place that of the one call of the library that it records, else its own.

    The profile may lack the call; the execution trace has it.
    """
    records = _named(part, tree.rows, lambda name: name == RECORD_OPERATOR)
    calls = _named(part, tree.rows, lambda name: name.startswith(schema.BACKEND_CALL))
    inside = np.flatnonzero(calls & records[tree.parent])
    count = np.bincount(tree.parent[inside], minlength=len(tree))
    place = np.arange(len(tree))
    place[tree.parent[inside]] = inside
    return np.where(count == 1, place, np.arange(len(tree)))


def _named(part: Excerpt, rows: Int64s, wanted: Callable[[str], bool]) -> Bools:
    """The rows with a name that is wanted; row -1 has none."""
    named = np.array([wanted(text) for text in part.graph.strings], np.bool_)
    found: Bools = (rows != UNKNOWN) & named[part.events.name[rows]]
    return found


# The order in which a reader that runs each thread in order reaches nodes.


def reached(parent: Int64s) -> Int64s:
    """For each node the latest one that its thread has come to when its turn is.

    `chakra_converter` makes every node wait for the one before it: a node, then what is inside it, by id. Where a
    node waits only for nodes of other threads that are reached earlier, nothing waits for itself in a circle.
    """
    by_parent = np.argsort(parent, kind="stable").tolist()
    bounds = np.searchsorted(parent[by_parent], np.arange(len(parent) + 1)).tolist()
    latest = np.arange(len(parent))
    for top in by_parent[bounds[0] : bounds[1]]:
        highest, stack = 0, [top] if top else []
        while stack:
            node = stack.pop()
            highest = max(highest, node)
            latest[node] = highest
            stack += reversed(by_parent[bounds[node] : bounds[node + 1]])
    return latest


# Device work that nodes waited for.


RELATIONS = (Relation.DEPENDS_ON, Relation.WAITS_FOR)


class DeviceWaits(Struct, frozen=True):
    """Places of nodes that waited, in order, and for each the number of the work among all work."""

    node: Int64s
    work: Int64s

    def of(self, place: int) -> list[int]:
        """The work that the node at one place waited for."""
        begin, end = np.searchsorted(self.node, [place, place + 1]).tolist()
        numbers: list[int] = self.work[begin:end].tolist()
        return numbers


def device_waits(part: Excerpt, node_of: Int64s, parent: Int64s, work: DeviceWork) -> DeviceWaits:
    """Waits of nodes for device work, without work that was launched later: such waits would form cycles."""
    waiting, done = _waits(part)
    number = scatter(len(part.events), work.rows)
    node, awaited = node_of[waiting], number[done]
    known = (node != UNKNOWN) & (awaited != UNKNOWN)
    node, awaited = node[known], awaited[known]
    if len(node):
        turn = reached(parent)
        launched = turn[work.node[awaited]] < turn[node]
        node, awaited = np.unique(np.stack([node[launched], awaited[launched]]), axis=1)
    return DeviceWaits(node, awaited)


def _waits(part: Excerpt) -> tuple[Int64s, Int64s]:
    """The events that waited for work, and this work: from edges, and from the calls of the runtime if recorded."""
    edges = Edges.concatenate([part.where(relation) for relation in RELATIONS])
    if not len(part.rows(EventKind.RUNTIME)):
        return edges.source, edges.target
    order = host_waits(part, launched_work(part), recorded_synchronizations(part.graph))
    return np.concatenate([edges.source, order.after]), np.concatenate([edges.target, order.before])


# Nodes of other threads that nodes waited for.


RELATIONS_HAND_OVERS = (Relation.BACKWARD_OF, Relation.DEPENDS_ON, Relation.WAITS_FOR)
"""A backward operator needs the result of its forward operator; the others are recorded waits."""


class HandOvers(Struct, frozen=True):
    """For each place of a node that of the last to end among those it waits for on other threads, or -1."""

    awaited: Int64s
    circular: int
    """The number of waits left out because a reader that runs nodes in order would deadlock."""


def hand_overs(part: Excerpt, node_of: Int64s, parent: Int64s) -> HandOvers:
    """The waits of nodes for nodes of other threads; `node_of` is the place of the node that each row is."""
    edges = Edges.concatenate([part.where(relation) for relation in RELATIONS_HAND_OVERS])
    tracks = part.events.track
    waiting, awaited = node_of[edges.source], node_of[edges.target]
    between = (waiting != UNKNOWN) & (awaited != UNKNOWN) & (tracks[edges.source] != tracks[edges.target])
    waiting, awaited, end = waiting[between], awaited[between], part.events.end[edges.target[between]]
    turn = reached(parent)
    possible = turn[awaited] < turn[waiting]
    order = np.flatnonzero(possible)[np.argsort(end[possible], kind="stable")]
    found = scatter(len(parent), waiting[order], awaited[order])
    return HandOvers(found, int(np.count_nonzero(~possible)))


# The plan.


class Plan(Struct, frozen=True):
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
    """The base of the times in the file: that of the profile that most nodes have their times from."""

    def id_of_work(self, number: int) -> int:
        """The id of a piece of work, by its number among all work."""
        node = int(self.work.node[number])
        first = int(np.searchsorted(self.work.node, node))
        return int(self.ids[node]) + 1 + number - first

    @property
    def linked(self) -> int:
        """The number of nodes with a time."""
        return int(np.count_nonzero(self.operator != UNKNOWN))


def plan_of(part: Excerpt, source: int) -> Plan:
    """Puts the nodes of one execution trace and the rank's device work in order."""
    rows = nodes_of(part, source)
    operator = _operators(part, rows)
    node_of = _nodes(operator, len(part.events))
    caller = callers(part)
    nearest = innermost(caller, node_of != UNKNOWN)
    around = outside(caller, nearest)
    tree = tree_of(part, rows, values_at(node_of, values_at(around, operator)))
    if len(tree) > len(rows):
        operator = np.append(UNKNOWN, operator)
        node_of = np.where(node_of == UNKNOWN, UNKNOWN, node_of + 1)
    work = device_work(part, tree, values_at(node_of, nearest))
    events = part.events
    inside = np.where(node_of == UNKNOWN, UNKNOWN, around)
    return Plan(
        part,
        source,
        tree,
        operator,
        exclusive_time(events.start, events.end, inside),
        hand_overs(part, node_of, tree.parent),
        work,
        device_waits(part, node_of, tree.parent, work),
        np.arange(len(tree)) + np.searchsorted(work.node, np.arange(len(tree))),
        _base(part, np.concatenate([operator[operator != UNKNOWN], work.rows])),
    )


def _base(part: Excerpt, rows: Int64s) -> int:
    """The base time of the profile; 0 if unknown."""
    if not len(rows):
        return 0
    source = int(np.bincount(part.events.source[rows]).argmax())
    return base_time(part.graph.sources[source].header) or 0


def _operators(part: Excerpt, rows: Int64s) -> Int64s:
    """The row of the timed operator that each node is the same as, or that it is itself, or -1."""
    same = part.where(Relation.SAME)
    timed = part.events.timed[same.target]
    operator = np.where(part.events.timed, np.arange(len(part.events)), UNKNOWN)
    operator[same.source[timed]] = same.target[timed]
    return operator[rows]


def _nodes(operator: Int64s, rows: int) -> Int64s:
    """The place of the node that each row is; of nodes that are the same operator, the first."""
    node_of = np.full(rows, UNKNOWN, np.int64)
    linked = np.flatnonzero(operator != UNKNOWN)[::-1]
    node_of[operator[linked]] = linked
    return node_of
