"""Two graphs with the same contents, whatever the codes of their strings are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracelink.model.events import Key
from tracelink.model.graph import TABLES, EventGraph
from tracelink.model.trace import TEXT_KEYS


def assert_same_graph(graph: EventGraph, expected: EventGraph, *, arguments: bool = True) -> None:
    """Every table, key, edge, sample and report is equal; and so are the arguments of all events."""
    for name in TABLES:
        columns, of = graph.table(name), expected.table(name)
        assert list(columns) == list(of)
        for column in of:
            assert (name, column, listed(columns[column])) == (name, column, listed(of[column]))
    assert keys_of(graph) == keys_of(expected)
    assert graph.bounds == expected.bounds
    assert list(graph.sources) == list(expected.sources)
    assert list(graph.tracks) == list(expected.tracks)
    assert reports_of(graph) == reports_of(expected)
    if arguments:
        rows = np.arange(len(expected))
        assert graph.arguments(rows) == expected.arguments(rows)


def listed(column: Any) -> list[Any]:
    """The values of a column, in which unknown ones are None."""
    values = column.tolist() if isinstance(column, np.ndarray) else list(column)
    return [None if isinstance(value, float) and np.isnan(value) else value for value in values]


def keys_of(graph: EventGraph) -> dict[Key, list[tuple[int, Any]]]:
    """The rows and values of all link keys that events have, with text in place of codes."""
    found = {}
    for key, column in graph.keys.items():
        values = column.values.tolist()
        if key in TEXT_KEYS:
            values = [graph.strings[code] for code in values]
        if len(column):
            found[key] = list(zip(column.rows.tolist(), values, strict=True))
    return found


def reports_of(graph: EventGraph) -> dict[int, list[tuple[Any, ...]]]:
    """The link reports of each rank as plain values."""
    return {
        rank: [
            (each.relation, each.linked, each.candidates, dict(each.unlinked), dict(each.notes))
            for each in reports
        ]
        for rank, reports in graph.reports.items()
        if reports
    }
