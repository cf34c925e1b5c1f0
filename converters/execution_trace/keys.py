"""Link keys of nodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tracelink.converters.execution_trace import schema
from tracelink.converters.execution_trace.nodes import ID
from tracelink.converters.execution_trace.parents import Parents
from tracelink.events import Int64s, Key, KeyColumn


def keys_of(table: Mapping[str, Int64s], parents: Parents) -> dict[Key, KeyColumn]:
    """Those that nodes have: their ids and their parents', and what profiles know them by."""
    whole_table = KeyColumn(np.arange(len(table[ID])), table[ID])
    thread, scope = table[schema.THREAD], table[schema.SCOPE]
    keys = {
        Key.NODE_ID: whole_table,
        Key.NODE_PARENT: parents.column,
        Key.RECORD_FUNCTION: _where(table[schema.RECORD_FUNCTION], none=0),
        Key.SEQUENCE: _where(table[schema.SEQUENCE], none=-1),
        Key.FORWARD_THREAD: _where(table[schema.FORWARD_THREAD], none=0),
        Key.LOGICAL_THREAD: KeyColumn(whole_table.rows, thread),
        Key.SCOPE: KeyColumn(whole_table.rows, scope),
    }
    return {key: column for key, column in keys.items() if len(column)}


def _where(values: Int64s, none: int) -> KeyColumn:
    rows = np.flatnonzero(values != none)
    return KeyColumn(rows, values[rows])
