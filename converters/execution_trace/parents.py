"""Which node encloses which: the ids as written, put right where they lead nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tracelink.converters.execution_trace.schema import PROCESS_ROOTS, THREAD_ROOTS
from tracelink.events import Bools, Int64s, KeyColumn
from tracelink.strings import StringTable

NONE = 0
"""The id that stands for no node, unless a node has it."""


@dataclass(frozen=True, slots=True)
class Parents:
    """The id of each node's parent, and the rows whose own parent is not in the file."""

    column: KeyColumn
    orphans: Int64s


def parents_of(ids: Int64s, written: Int64s, thread: Int64s, name: Int64s, names: StringTable) -> Parents:
    """A node whose parent is not in the file hangs under the root of its thread, else of the process."""
    known = np.isin(written, ids)
    given = (written != ids) & (known | (written != NONE))
    process = _rows_named(name, names, PROCESS_ROOTS)
    roots = _rows_named(name, names, THREAD_ROOTS)
    orphans = given & ~known
    parent = np.where(orphans, ids[process][-1] if process.any() else NONE, written)
    for row in np.flatnonzero(roots).tolist():
        parent[orphans & (thread == thread[row]) & ~roots] = ids[row]
    given &= (parent != NONE) | known
    rows = np.flatnonzero(given)
    return Parents(KeyColumn(rows, parent[rows]), np.flatnonzero(orphans))


def _rows_named(name: Int64s, names: StringTable, wanted: Iterable[str]) -> Bools:
    return np.isin(name, [names.find(text) for text in wanted])
