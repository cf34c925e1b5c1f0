"""The nodes of an execution trace in order, and which one encloses which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra_json.schema import THREAD_ROOTS
from tracelink.enclosing import innermost
from tracelink.events import GPU_WORK, Bools, Int64s, Key
from tracelink.excerpt import NONE, Excerpt


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes in the order of their ids; a node's place here is how the other modules know it."""

    rows: Int64s
    """The row of each node, -1 for a root that the file does not have."""
    parent: Int64s
    """The place of each node's parent; the root's is its own."""
    moved: int
    """Nodes whose parent is not in the file, or stands inside them."""

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
    roots = recorded == NONE
    thread = _thread_roots(part, rows)
    parent = _earlier(recorded, recorded == np.arange(len(rows)), around, thread)
    circular = innermost(parent, roots) == NONE
    parent = _earlier(parent, circular & (parent >= np.arange(len(rows))), around, thread)
    roots |= parent == NONE
    moved = int(np.count_nonzero(parent != recorded))
    if roots[0] and np.count_nonzero(roots) == 1:
        parent[0] = 0
        return Tree(rows, parent, moved)
    return Tree(np.append(NONE, rows), np.append(0, parent + 1), moved)


def _earlier(parent: Int64s, wrong: Bools, *better: Int64s) -> Int64s:
    """The parents, those marked wrong replaced by the first of `better` that is an earlier node, or by -1."""
    place = np.arange(len(parent))
    parent = np.where(wrong, NONE, parent)
    for candidate in better:
        parent = np.where(wrong & (parent == NONE) & (candidate < place), candidate, parent)
    return parent


def _recorded(part: Excerpt, rows: Int64s) -> Int64s:
    """The place of each node's parent as recorded: -1 for a root, its own place where there is no such node."""
    ids = part.key(Key.NODE_ID, 0)[rows]
    named, given = _key(part, Key.NODE_PARENT, rows)
    place = np.arange(len(rows))
    found = np.minimum(np.searchsorted(ids, named), max(len(ids) - 1, 0))
    parent = np.where(ids[found] == named, found, place)
    return np.where(given & (named != ids), parent, NONE)


def _key(part: Excerpt, key: Key, rows: Int64s) -> tuple[Int64s, Bools]:
    """The values of a key at `rows`, and which of them have one."""
    absent = np.iinfo(np.int64).min
    values = part.key(key, absent)[rows]
    return values, values != absent


def _thread_roots(part: Excerpt, rows: Int64s) -> Int64s:
    """The place of the root of each node's logical thread, or -1."""
    strings = part.graph.strings
    codes = [code for code, text in enumerate(strings) if text in THREAD_ROOTS]
    roots = np.flatnonzero(np.isin(part.events.name[rows], codes))[::-1]
    threads = part.key(Key.LOGICAL_THREAD, 0)[rows]
    numbers, thread = np.unique(threads, return_inverse=True)
    root = np.full(len(numbers), NONE, np.int64)
    root[thread[roots]] = roots
    return root[thread]
