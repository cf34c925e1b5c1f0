"""One clock: where each rank's clock stands, from what matched collectives and messages allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import numpy as np

from tracelink.events import NO_TIME, Bools, Columns, Int32s, Int64s
from tracelink.findings import Finding


class ClockMode(StrEnum):
    """What is assumed of the ranks' clocks."""

    NONE = "none"
    """They agree: nothing is corrected."""
    HOST = "host"
    """Ranks of one host share a clock; a rank whose host is not known has one of its own."""
    COLLECTIVES = "collectives"
    """Every rank has a clock of its own."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where one rank's clock stands: at `reference_ns` it shows `offset_ns` more than the reference clock."""

    rank: int
    host: str = ""
    offset_ns: int = 0
    drift_ppm: float = 0.0
    """How much faster than the reference clock it goes."""
    low_ns: int | None = None
    high_ns: int | None = None
    """The offset must lie between these; None where nothing bounds it."""
    constraints: int = 0
    """On how many pairs of an entering and a leaving that rests."""
    reference_ns: int = 0

    @property
    def uncertainty_ns(self) -> int | None:
        """How far the offset can be from the true one at most."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return max(self.offset_ns - self.low_ns, self.high_ns - self.offset_ns)

    def corrected_time(self, time: int) -> int:
        """One time of this clock on the reference clock."""
        return int(self.corrected(np.array([time], np.int64))[0])

    def corrected(self, times: Int64s) -> Int64s:
        """Times of this clock on the reference clock; NO_TIME stays."""
        if not self.offset_ns and not self.drift_ppm:
            return times
        drift = np.rint((times - self.reference_ns - self.offset_ns) * (self.drift_ppm * 1e-6)).astype(
            np.int64
        )
        return np.where(times == NO_TIME, NO_TIME, times - self.offset_ns - drift)


@dataclass(frozen=True, slots=True)
class Crossings(Columns):
    """One row for each rank's passing through something that ranks do together, by the rank's own clock.

    Of one `meeting`, nobody who `waits` leaves before everybody who is `awaited` has entered.
    """

    meeting: Int64s
    rank: Int32s
    entered: Int64s
    """No later than it truly entered. Or NO_TIME."""
    left: Int64s
    """No earlier than it truly left. Or NO_TIME."""
    waits: Bools
    awaited: Bools
    together: Bools
    """Whether those who wait leave at about the same time, so that their leaving compares clocks."""

    def __len__(self) -> int:
        return len(self.meeting)

    @classmethod
    def of(cls, **columns: Any) -> Crossings:
        """Crossings from plain sequences."""
        kinds = {"meeting": np.int64, "rank": np.int32, "entered": np.int64, "left": np.int64}
        return cls(*(np.asarray(columns[f.name], kinds.get(f.name, np.bool_)) for f in fields(cls)))


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of all ranks, and what contradicts itself."""

    clocks: Mapping[int, Clock]
    findings: Sequence[Finding] = ()


def estimate_clocks(crossings: Crossings, hosts: Mapping[int, str], mode: ClockMode) -> Clocks:
    """The clock of every rank in `hosts` (rank to host name, empty where not known)."""
    return Clocks({rank: Clock(rank, host) for rank, host in hosts.items()})


def read_clocks(path: object) -> Clocks:
    """(stub)"""
    raise NotImplementedError
