"""Calls of a device's runtime, by what they do."""

from __future__ import annotations

import re

import numpy as np

from tracelink.events import EventKind, Int64s
from tracelink.excerpt import Excerpt

EVENT_RECORDS = re.compile(r"EventRecord")


def calls_named(part: Excerpt, name: re.Pattern[str]) -> Int64s:
    """The rows of the runtime calls whose name matches, in the order of their starts."""
    rows = part.rows(EventKind.RUNTIME)
    matches = np.array([bool(name.search(text)) for text in part.graph.strings], np.bool_)
    rows = rows[matches[part.events.name[rows]] & part.events.timed[rows]] if len(rows) else rows
    return rows[np.argsort(part.events.start[rows], kind="stable")]
