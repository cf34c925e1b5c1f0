"""What tracelink found out of single events, as more arguments of theirs: of links without an arrow, of collectives."""

from __future__ import annotations

from collections.abc import Mapping

from tracelink.converters.perfetto.drawing import Drawing
from tracelink.converters.perfetto.membership import memberships
from tracelink.converters.perfetto.schema import COLLECTIVE, DURATION_ARGUMENT, LINK, NODE_ARGUMENT
from tracelink.converters.perfetto.wanted import Wanted
from tracelink.events import Key
from tracelink.graph import EventGraph
from tracelink.job import Job

SaidOf = Mapping[str, Mapping[int, bytes]]
"""For each argument that others stand in, the rows that have it: its members as those of a JSON object."""


def said_of(graph: EventGraph, drawing: Drawing, job: Job, wanted: Wanted) -> SaidOf:
    """What is said of the events of one rank that are drawn."""
    if wanted == Wanted.NONE:
        return {}
    shown = drawing.shown.tolist()
    parts = memberships(job, graph.ranks[0].rank)
    return {
        LINK: said_of_links(graph, drawing),
        COLLECTIVE: {row: members for row, members in parts.items() if shown[row]},
    }


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
