"""Which work on a device needs what other work made: operators say it of tensors, and work runs for operators."""

from __future__ import annotations

import numpy as np

from tracelink.converters.chakra.device import Device
from tracelink.converters.chakra.host import Host
from tracelink.converters.chakra.program import Pairs
from tracelink.enclosing import greatest_inside
from tracelink.events import Events, Int64s
from tracelink.excerpt import NONE

NOBODY = int(np.iinfo(np.int64).max)


def device_flow(events: Events, host: Host, device: Device, writers: Int64s, readers: Int64s) -> Pairs:
    """The first work of each reader after the last work of its writer, as places of work.

    `writers` and `readers` are places of the host. Times must confirm a pair.
    """
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != NONE]
    first, last = np.full(len(host), NOBODY), np.full(len(host), NONE, np.int64)
    rank = np.argsort(np.argsort(events.start[device.row], kind="stable"), kind="stable")
    np.minimum.at(first, device.parent[order], rank[order])
    np.maximum.at(last, device.parent[order], rank[order])
    first, last = -greatest_inside(host.parent, -first), greatest_inside(host.parent, last)
    before, after = last[writers], first[readers]
    known = (before != NONE) & (after != NOBODY)
    by_start = np.argsort(events.start[device.row], kind="stable")
    before, after = by_start[before[known]], by_start[after[known]]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])


def one_after_the_other(events: Events, device: Device) -> Pairs:
    """The works of one operator in their order, as places of work."""
    order = np.lexsort((events.start[device.row], device.parent))
    order = order[device.parent[order] != NONE]
    same = device.parent[order][1:] == device.parent[order][:-1]
    before, after = order[:-1][same], order[1:][same]
    confirmed = events.end[device.row[before]] <= events.start[device.row[after]]
    return Pairs(before[confirmed], after[confirmed])
