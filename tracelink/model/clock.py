"""Where each rank's clock stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.model.columns import NO_TIME, Int64s
from tracelink.model.ranges import Numbers
from tracelink.model.trace import SourceInfo


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
class Clocks:
    """The clocks of all ranks, and what contradicts itself."""

    clocks: Mapping[int, Clock]
    findings: Sequence[Finding] = ()
    sources: Sequence[SourceInfo] = ()
    """The files that the clocks were estimated from."""

    def for_ranks(self, hosts: Mapping[int, str]) -> Clocks:
        """The clocks of these ranks and hosts; one of which nothing is said is not corrected."""
        strangers = sorted(set(self.clocks) - set(hosts))
        findings: list[Finding] = []
        if strangers:
            message = f"Clocks are given for ranks that have no source: {Numbers.of(strangers)}."
            findings.append(Finding(Severity.WARNING, "clock_of_no_rank", message, len(strangers)))
        given = {rank: self.clocks.get(rank) or Clock(rank) for rank in hosts}
        named = {rank: replace(clock, host=clock.host or hosts[rank]) for rank, clock in given.items()}
        return Clocks(named, findings)
