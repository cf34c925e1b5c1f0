"""Which device work a node had to wait for on the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.orders import HOST_WAIT, waits_for_devices
from tracelink.converters.chakra_json.device_work import DeviceWork
from tracelink.converters.chakra_json.turns import reached
from tracelink.events import Edges, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt

RELATIONS = (Relation.DEPENDS_ON, Relation.WAITS_FOR)


@dataclass(frozen=True, slots=True)
class DeviceWaits:
    """Places of nodes that waited, in order, and for each the number of the work among all work."""

    node: Int64s
    work: Int64s

    def of(self, place: int) -> list[int]:
        """The work that the node at one place waited for."""
        begin, end = np.searchsorted(self.node, [place, place + 1]).tolist()
        numbers: list[int] = self.work[begin:end].tolist()
        return numbers


def device_waits(part: Excerpt, node_of: Int64s, parent: Int64s, work: DeviceWork) -> DeviceWaits:
    """Without waits for work that was launched only afterwards: those would be circles."""
    waiting, done = _waits(part)
    number = np.full(len(part.events), NONE, np.int64)
    number[work.rows] = np.arange(len(work.rows))
    node, awaited = node_of[waiting], number[done]
    known = (node != NONE) & (awaited != NONE)
    node, awaited = node[known], awaited[known]
    if len(node):
        turn = reached(parent)
        launched = turn[work.node[awaited]] < turn[node]
        node, awaited = np.unique(np.stack([node[launched], awaited[launched]]), axis=1)
    return DeviceWaits(node, awaited)


def _waits(part: Excerpt) -> tuple[Int64s, Int64s]:
    """What waited for which work: as edges say, and as the calls of the runtime tell where they were recorded."""
    edges = Edges.concatenate([part.where(relation) for relation in RELATIONS])
    order = waits_for_devices(part).get(HOST_WAIT)
    if order is None:
        return edges.source, edges.target
    return np.concatenate([edges.source, order.after]), np.concatenate([edges.target, order.before])
