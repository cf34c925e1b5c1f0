"""What the arguments of single events say of links that have no arrow."""

from __future__ import annotations

from tracelink.converters.perfetto.drawing import Drawing
from tracelink.converters.perfetto.schema import DURATION_ARGUMENT, NODE_ARGUMENT
from tracelink.events import Key
from tracelink.graph import EventGraph


def said_of_links(graph: EventGraph, drawing: Drawing) -> dict[int, bytes]:
    """Members of a JSON object for some rows: that the end is unknown, the node that is the same."""
    said = dict.fromkeys(drawing.open_ended.tolist(), b'"%s":false' % DURATION_ARGUMENT.encode())
    ids = graph.key(Key.NODE_ID).dense(len(graph), -1) if drawing.nodes else drawing.open_ended
    for row, node in drawing.nodes.items():
        add_member(said, row, b'"%s":%d' % (NODE_ARGUMENT.encode(), ids[node]))
    return said


def add_member(members: dict[int, bytes], row: int, member: bytes) -> None:
    """Puts a member behind those that the row has."""
    members[row] = members[row] + b"," + member if row in members else member
