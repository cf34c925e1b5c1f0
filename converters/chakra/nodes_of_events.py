"""Events to nodes: usually one each, but several messages that share a kernel are a node each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.chakra.communications import Communicating
from tracelink.converters.chakra.device import Device
from tracelink.converters.chakra.host import Host
from tracelink.events import Bools, Int64s
from tracelink.excerpt import NONE


@dataclass(frozen=True, slots=True)
class Spots:
    """The nodes of a rank before they are put in order: those of the host, those of devices, then further ones."""

    row: Int64s
    """The event of each."""
    place: Int64s
    """The place on the host, or NONE."""
    work: Int64s
    """The place among the device work, or NONE."""
    parent: Int64s
    """The spot of what encloses or launched it, or NONE."""
    communication: Int64s
    """The row of the rank's communications that it is, or NONE."""
    further: Int64s
    """Of which spot it is another message; itself where it is the first."""

    def __len__(self) -> int:
        return len(self.row)

    @property
    def on_host(self) -> Bools:
        """Which are on the host."""
        found: Bools = self.place != NONE
        return found

    def of_events(self, events: int) -> Int64s:
        """For each event the spot that it is first of all, or NONE."""
        spot = np.full(events, NONE, np.int64)
        first = np.flatnonzero(self.further == np.arange(len(self)))
        spot[self.row[first]] = first
        return spot


def spots_of(host: Host, device: Device, communications: Communicating) -> Spots:
    """All nodes of a rank; communication whose event is no node is not among them."""
    count = len(host) + len(device)
    row = np.concatenate([host.row, device.row])
    place = np.concatenate([np.arange(len(host)), np.full(len(device), NONE)])
    work = np.concatenate([np.full(len(host), NONE), np.arange(len(device))])
    parent = np.concatenate([host.parent, device.parent])
    spot = _spots_at(host, row, communications.row)
    numbers = np.flatnonzero(spot != NONE)
    numbers = numbers[np.argsort(spot[numbers], kind="stable")]
    spot = spot[numbers]
    first = np.ones(len(spot), np.bool_)
    first[1:] = spot[1:] != spot[:-1]
    communication = np.full(count, NONE, np.int64)
    communication[spot[first]] = numbers[first]
    more = spot[~first]
    return Spots(
        np.append(row, row[more]),
        np.append(place, place[more]),
        np.append(work, work[more]),
        np.append(parent, parent[more]),
        np.append(communication, numbers[~first]),
        np.append(np.arange(count), more),
    )


def _spots_at(host: Host, row: Int64s, wanted: Int64s) -> Int64s:
    """The spot at each row, which may be that of the operator or of its node in the execution trace; or NONE."""
    linked = np.flatnonzero(host.node != NONE)
    known = np.concatenate([row, host.node[linked]])
    spot = np.concatenate([np.arange(len(row)), linked])
    order = np.argsort(known, kind="stable")
    if not len(order):
        return np.full(len(wanted), NONE, np.int64)
    found = order[np.minimum(np.searchsorted(known[order], wanted), len(order) - 1)]
    return np.where(known[found] == wanted, spot[found], NONE)
