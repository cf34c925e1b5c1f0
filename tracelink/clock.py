"""One clock: where each rank's clock stands, from what matched collectives and messages allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from tracelink.clocks.passages import meetings_of
from tracelink.clocks.sharing import Difference, share_clocks
from tracelink.clocks.solution import Contradiction, Solution, solve
from tracelink.events import NO_TIME, Bools, Columns, Int32s, Int64s
from tracelink.findings import Finding, Severity
from tracelink.ranges import Numbers


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

    def for_ranks(self, hosts: Mapping[int, str]) -> Clocks:
        """The clocks of these ranks and hosts; one of which nothing is said is not corrected."""
        strangers = sorted(set(self.clocks) - set(hosts))
        findings = list(self.findings)
        if strangers:
            message = f"Clocks are given for ranks that have no source: {Numbers.of(strangers)}."
            findings.append(Finding(Severity.WARNING, "clock_of_no_rank", message, len(strangers)))
        given = {rank: self.clocks.get(rank) or Clock(rank) for rank in hosts}
        named = {rank: replace(clock, host=clock.host or hosts[rank]) for rank, clock in given.items()}
        return Clocks(named, findings)


def estimate_clocks(crossings: Crossings, hosts: Mapping[int, str], mode: ClockMode) -> Clocks:
    """The clock of every rank in `hosts` (rank to host name, empty where not known)."""
    ranks = np.unique(np.concatenate([np.array(list(hosts), np.int64), crossings.rank.astype(np.int64)]))
    names = [hosts.get(rank, "") for rank in ranks.tolist()]
    if mode is ClockMode.NONE:
        return Clocks({rank: Clock(rank, host) for rank, host in zip(ranks.tolist(), names, strict=True)})
    rank = np.searchsorted(ranks, crossings.rank)
    entered = np.where(crossings.awaited, crossings.entered, NO_TIME)
    left = np.where(crossings.waits, crossings.left, NO_TIME)
    shared = share_clocks(
        crossings.meeting, rank, entered, left, names if mode is ClockMode.HOST else [""] * len(names)
    )
    clock = shared.clock[rank]
    solution = solve(
        meetings_of(
            crossings.meeting, clock, entered, left, crossings.together, int(shared.clock.max(initial=0)) + 1
        )
    )
    clocks = {
        number: _clock(number, host, solution, which)
        for number, host, which in zip(ranks.tolist(), names, shared.clock.tolist(), strict=True)
    }
    people = _People(ranks, names, shared.clock)
    findings = [_differs(people, difference) for difference in shared.differences]
    findings += [_contradicts(people, contradiction) for contradiction in solution.contradictions]
    return Clocks(clocks, [*findings, *_unbounded(clocks)])


def _clock(rank: int, host: str, solution: Solution, which: int) -> Clock:
    low, high = (
        int(bound[which]) if np.isfinite(bound[which]) else None for bound in (solution.low, solution.high)
    )
    return Clock(
        rank,
        host,
        int(solution.offset[which]),
        float(solution.drift[which] * 1e6),
        low,
        high,
        int(solution.constraints[which]),
        solution.reference_ns,
    )


@dataclass(frozen=True, slots=True)
class _People:
    """What ranks are called in findings."""

    ranks: Int64s
    hosts: Sequence[str]
    clock: Int64s

    def rank(self, number: int) -> str:
        """A rank by its place."""
        host = self.hosts[number]
        return f"rank {self.ranks[number]} (host {host})" if host else f"rank {self.ranks[number]}"

    def owner(self, clock: int) -> str:
        """The first rank that has a clock."""
        return self.rank(int(np.flatnonzero(self.clock == clock)[0]))


def _differs(people: _People, difference: Difference) -> Finding:
    one, other = people.ranks[difference.one], people.ranks[difference.other]
    host = people.hosts[difference.one]
    return Finding(
        Severity.WARNING,
        "host_clocks_differ",
        f"Ranks {one} and {other} both say host {host}, but their clocks differ by at least"
        f" {_milliseconds(difference.early_ns)}: each rank of this host gets a clock of its own",
        example=f"ranks {one} and {other}",
    )


def _contradicts(people: _People, contradiction: Contradiction) -> Finding:
    one, other = people.owner(contradiction.clock), people.owner(contradiction.partner)
    first, last = contradiction.first_ns / 1e9, contradiction.last_ns / 1e9
    return Finding(
        Severity.WARNING,
        "clock_contradiction",
        f"The clocks of {one} and {other} contradict each other by {_milliseconds(contradiction.early_ns)}: no"
        f" steady clock explains what {one} did from {first:.3f} s to {last:.3f} s of the job. This is left out, and"
        " the interval covers both sides. Was the clock set, or is something matched wrongly?",
        contradiction.passages,
        example=f"{one} and {other} at {first:.3f} s",
    )


def _milliseconds(time_ns: int) -> str:
    return f"{time_ns / 1e6:.3f} ms"


def _unbounded(clocks: Mapping[int, Clock]) -> list[Finding]:
    ranks = [rank for rank, clock in clocks.items() if clock.uncertainty_ns is None]
    if not ranks:
        return []
    return [
        Finding(
            Severity.INFO,
            "clock_unbounded",
            f"Nothing ties the clocks of {len(ranks)} ranks to that of rank {min(clocks)} from both sides:"
            " how far they are off is not known",
            len(ranks),
            example="ranks " + ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else ""),
        )
    ]
