"""The category of each event: its kind, in the words of profilers."""

from __future__ import annotations

import numpy as np

from tracelink.converters.perfetto.schema import CATEGORIES, DRIVER_CALL, DRIVER_CATEGORY
from tracelink.events import Bools, EventKind, Int64s
from tracelink.graph import EventGraph

DRIVER = 32
"""Added to the kind where the event is a call of the driver and not of the runtime."""


def driver_calls(graph: EventGraph) -> Bools:
    """For each name, whether it is one of the driver's."""
    return np.array([bool(DRIVER_CALL.match(text)) for text in graph.strings], np.bool_)


def categories_of(graph: EventGraph, driver: Bools, rows: Int64s) -> Int64s:
    """A code for the category of each row; `driver` is what `driver_calls` says."""
    kind = graph.events.kind[rows]
    codes: Int64s = kind + (driver[graph.events.name[rows]] & (kind == EventKind.RUNTIME)) * np.int64(DRIVER)
    return codes


def category(code: int) -> str:
    """The text of a code."""
    return DRIVER_CATEGORY if code & DRIVER else CATEGORIES[EventKind(code)]
