"""The clocks of ranks: how far each is from the reference clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.model.columns import MILLISECOND, NO_TIME, Int64s
from tracelink.model.errors import Finding, Severity
from tracelink.model.ranges import Numbers
from tracelink.model.trace import SourceInfo

SHOWN = 8
"""Ranks that the representation of clocks lists."""


class ClockMode(StrEnum):
    """What is assumed about the clocks of ranks."""

    NONE = "none"
    """All clocks are equal: times are not corrected."""
    HOST = "host"
    """Ranks of one host share a clock; a rank of unknown host has a clock of its own."""
    COLLECTIVES = "collectives"
    """Every rank has a clock of its own."""


class Clock(Struct, frozen=True):
    """The clock of one rank relative to the reference clock."""

    rank: int
    host: str = ""
    offset_ns: int = 0
    """This clock minus the reference clock, at `reference_ns`."""
    drift_ppm: float = 0.0
    """How much faster than the reference clock it runs."""
    low_ns: int | None = None
    """The smallest possible offset; None if unbounded."""
    high_ns: int | None = None
    """The largest possible offset; None if unbounded."""
    constraints: int = 0
    """Number of pairs of an entry and an exit that the bounds are based on."""
    reference_ns: int = 0
    """The time, by the reference clock, of the offset."""

    @property
    def uncertainty_ns(self) -> int | None:
        """The largest possible error of the offset; None if unbounded."""
        if self.low_ns is None or self.high_ns is None:
            return None
        return max(self.offset_ns - self.low_ns, self.high_ns - self.offset_ns)

    def corrected_time(self, time: int) -> int:
        """A time of this clock, on the reference clock."""
        return int(self.corrected(np.array([time], np.int64))[0])

    def corrected(self, times: Int64s) -> Int64s:
        """Times of this clock, on the reference clock; NO_TIME stays."""
        if not self.offset_ns and not self.drift_ppm:
            return times
        drift = np.rint((times - self.reference_ns - self.offset_ns) * (self.drift_ppm * 1e-6)).astype(
            np.int64
        )
        return np.where(times == NO_TIME, NO_TIME, times - self.offset_ns - drift)


class Clocks(Struct, frozen=True):
    """The clocks of all ranks, and findings on observations that contradict each other."""

    clocks: Mapping[int, Clock]
    findings: Sequence[Finding] = ()
    sources: Sequence[SourceInfo] = ()
    """The files that the clocks were estimated from."""

    def __repr__(self) -> str:
        offsets = [f"{clock.rank}: {clock.offset_ns / MILLISECOND:+.3f} ms" for clock in self.clocks.values()]
        rest = f", and {len(offsets) - SHOWN} more" if len(offsets) > SHOWN else ""
        return f"<Clocks: offsets by rank {', '.join(offsets[:SHOWN])}{rest}>"

    def for_ranks(self, hosts: Mapping[int, str]) -> Clocks:
        """The clocks of these ranks, with their hosts; a rank without a clock is not corrected."""
        unmatched = sorted(set(self.clocks) - set(hosts))
        findings: list[Finding] = []
        if unmatched:
            message = f"Clocks are given for ranks that have no source: {Numbers.of(unmatched)}."
            findings.append(Finding(Severity.WARNING, "clock_of_no_rank", message, len(unmatched)))
        given = {rank: self.clocks.get(rank) or Clock(rank) for rank in hosts}
        named = {rank: replace(clock, host=clock.host or hosts[rank]) for rank, clock in given.items()}
        return Clocks(named, findings)
