"""Recorded waits and uses of tensor storages: what sources contain about order, in addition to events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tracelink.model.columns import Bools, Int64s, Table


class Awaited(IntEnum):
    """What is waited for, and by whom."""

    STREAM = 0
    """The host waits for all that a stream has been given."""
    DEVICE = 1
    """The host waits for all that a device has been given."""
    EVENT = 2
    """The host waits for what a stream had been given when the event was recorded."""
    EVENT_BY_STREAM = 3
    """A stream waits for that."""


@dataclass(frozen=True, slots=True)
class Synchronizations(Table):
    """One row per wait that a profiler recorded; UNKNOWN where it was not recorded."""

    row: Int64s
    """The event of the record."""
    awaited: Int64s
    """A value of `Awaited`."""
    device: Int64s
    stream: Int64s
    """Number of the stream: of the one waited for, and where a stream waits, of that one."""
    event_stream: Int64s
    """Number of the stream on which the event was recorded."""
    event_record: Int64s
    """Correlation of the call that recorded the event."""

    @classmethod
    def empty(cls) -> Synchronizations:
        """No waits: the profiler was not configured to record them."""
        return cls(*(np.empty(0, np.int64) for _ in range(6)))

    def where(self, *awaited: Awaited) -> Synchronizations:
        """Those that wait for one of these."""
        chosen = np.isin(self.awaited, awaited)
        return Synchronizations(*(column[chosen] for column in self.columns().values()))


@dataclass(frozen=True, slots=True)
class StorageUses(Table):
    """One row per storage that a node of an execution trace reads or writes."""

    row: Int64s
    """The node."""
    storage: Int64s
    writes: Bools
