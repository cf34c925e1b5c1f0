"""By which name device work knows its process group, where the profile recorded it."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra_json.schema import PROFILED_GROUP
from tracelink.events import Events, Int64s
from tracelink.graph import EventGraph


def profiled_groups(graph: EventGraph, events: Events, rows: Int64s) -> dict[int, bytes]:
    """The JSON text of the group's name for those of `rows` that have one."""
    groups: dict[int, bytes] = {}
    for source in np.unique(events.source[rows]).tolist():
        chosen = rows[events.source[rows] == source]
        chosen = chosen[np.argsort(events.payload[chosen], kind="stable")]
        numbers = events.payload[chosen]
        for first, texts in graph.payloads[source].batches(int(numbers[0]), int(numbers[-1]) + 1):
            begin, end = np.searchsorted(numbers, [first, first + len(texts)]).tolist()
            for row, number in zip(chosen[begin:end].tolist(), numbers[begin:end].tolist(), strict=True):
                if match := PROFILED_GROUP.search(texts[number - first]):
                    groups[row] = bytes(match[1])
    return groups
