"""By which name device work knows its process group, where the profile recorded it."""

from __future__ import annotations

from tracelink.converters.chakra_json.schema import PROFILED_GROUP
from tracelink.events import Int64s
from tracelink.excerpt import texts_of
from tracelink.graph import EventGraph


def profiled_groups(graph: EventGraph, rows: Int64s) -> dict[int, bytes]:
    """The JSON text of the group's name for those of `rows` that have one."""
    found = ((row, PROFILED_GROUP.search(text)) for row, text in texts_of(graph, rows))
    return {row: bytes(match[1]) for row, match in found if match}
