"""The clocks of ranks: how far each is from the reference clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import numpy as np
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, Int64s
from tracelink._model.fields import (
    Count,
    Doc,
    PartsPerMillion,
    RankNumber,
    Row,
    Shown,
    SignedNanoseconds,
    UnixNanoseconds,
)
from tracelink._model.findings import Finding, Severity
from tracelink._model.results import Result
from tracelink._model.selection import Numbers


class ClockMode(StrEnum):
    """What is assumed about the clocks of ranks."""

    NONE = "none"
    """All clocks are equal: times are not corrected."""
    HOST = "host"
    """Ranks of one host share a clock; a rank of unknown host has a clock of its own."""
    COLLECTIVES = "collectives"
    """Every rank has a clock of its own."""


class Clock(Row, frozen=True):
    """The clock of one rank relative to the reference clock."""

    rank: RankNumber
    host: Annotated[str, Doc("Empty if no source names it."), Shown(drop=2)] = ""
    offset_ns: Annotated[
        SignedNanoseconds,
        Doc("What the rank's clock shows more than the reference clock, at `reference_ns`."),
        Shown(signed=True),
    ] = 0
    drift_ppm: Annotated[
        PartsPerMillion,
        Doc("How much faster than the reference clock it runs, in parts per million."),
        Shown(signed=True),
    ] = 0.0
    low_ns: Annotated[
        SignedNanoseconds | None,
        Doc("Lower bound of the offset; null if there is no bound."),
        Shown("at least", signed=True),
    ] = None
    high_ns: Annotated[
        SignedNanoseconds | None,
        Doc("Upper bound of the offset; null if there is no bound."),
        Shown("at most", signed=True),
    ] = None
    constraints: Annotated[
        Count, Doc("How many pairs of an entry and an exit the bounds are estimated from."), Shown(drop=1)
    ] = 0
    reference_ns: Annotated[
        UnixNanoseconds, Doc("When the offset holds, by the reference clock."), Shown(hidden=True)
    ] = 0

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


class Clocks(Result, frozen=True):
    """The clocks of all ranks, and findings on observations that contradict each other."""

    mode: Annotated[str, Doc("What offsets are from: none, host, collectives, or a clock file.")]
    reference_rank: Annotated[RankNumber | None, Doc("A rank whose clock needs no correction.")]
    reference_ns: Annotated[
        UnixNanoseconds | None, Doc("When the offsets hold, in ns since 1970 on the reference clock.")
    ]
    ranks: Sequence[Clock]
    findings: Sequence[Finding]

    drawn_by = "tracelink._match.report"

    @classmethod
    def of(cls, ranks: Iterable[Clock], findings: Sequence[Finding] = (), mode: str = "") -> Clocks:
        """The clocks of these ranks."""
        clocks = list(ranks)
        reference = (clock.rank for clock in clocks if not (clock.offset_ns or clock.drift_ppm))
        times = (clock.reference_ns for clock in clocks)
        return cls(mode, next(reference, None), next(times, None), clocks, list(findings))

    @property
    def by_rank(self) -> dict[int, Clock]:
        """The clock of each rank."""
        return {clock.rank: clock for clock in self.ranks}

    def for_ranks(self, hosts: Mapping[int, str]) -> Clocks:
        """The clocks of these ranks, with their hosts; a rank without a clock is not corrected."""
        unmatched = sorted({clock.rank for clock in self.ranks} - set(hosts))
        findings: list[Finding] = []
        if unmatched:
            message = f"Clocks are given for ranks that have no source: {Numbers.of(unmatched)}."
            findings.append(Finding(Severity.WARNING, "clock_of_no_rank", message, len(unmatched)))
        known = self.by_rank
        given = (known.get(rank) or Clock(rank) for rank in hosts)
        named = [replace(clock, host=clock.host or hosts[clock.rank]) for clock in given]
        return Clocks.of(named, findings, self.mode)
