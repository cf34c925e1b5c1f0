"""Estimating the clock of each rank from crossings, and reading clocks from a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Struct

from tracelink._io.remote.addresses import is_remote, plain_path, shown
from tracelink._io.sources import LARGEST_RANK
from tracelink._match.observations import (
    ClockObservations,
    Crossed,
    Difference,
    SharedClocks,
    glance_at,
    observe,
    share_clocks,
)
from tracelink._match.solution import Contradiction, Solution, solve
from tracelink._model.clock import Clock, ClockMode, Clocks
from tracelink._model.columns import NO_TIME, Bools, Int32s, Int64s, Table
from tracelink._model.errors import UsageError, did_you_mean
from tracelink._model.findings import Finding, Severity
from tracelink._model.text import subject


class Crossings(Table, frozen=True):
    """One row for each rank's part in a collective or message (a `meeting`), with times on the rank's own clock.

    In a meeting, no rank that `waits` leaves before all ranks that are `awaited` have entered.
    """

    meeting: Int64s
    rank: Int32s
    entered: Int64s
    """A time at or before the entry; or NO_TIME."""
    left: Int64s
    """A time at or after the exit; or NO_TIME."""
    waits: Bools
    awaited: Bools
    together: Bools
    """True if all waiting ranks leave at about the same time, so that their exits compare clocks."""


class RankHosts(Struct, frozen=True):
    """The ranks whose clocks are estimated, in ascending order, and their hosts (empty if unknown)."""

    ranks: Int64s
    names: Sequence[str]
    shared: Sequence[str]
    """The hosts whose ranks may share a clock."""

    @classmethod
    def of(cls, hosts: Mapping[int, str], mode: ClockMode) -> RankHosts:
        """These ranks, with what a mode assumes."""
        ranks = sorted(hosts)
        names = [hosts[rank] for rank in ranks]
        return cls(np.array(ranks, np.int64), names, names if mode is ClockMode.HOST else [""] * len(names))

    def crossed(self, crossings: Crossings) -> Crossed:
        """The crossings of these ranks, as observations."""
        return Crossed(
            crossings.meeting,
            np.searchsorted(self.ranks, crossings.rank),
            np.where(crossings.awaited, crossings.entered, NO_TIME),
            np.where(crossings.waits, crossings.left, NO_TIME),
            crossings.together,
        )

    def uncorrected(self) -> Clocks:
        """Clocks that all are equal."""
        ranks = zip(self.ranks.tolist(), self.names, strict=True)
        return Clocks.of(Clock(rank, host) for rank, host in ranks)


def estimate_clocks(crossings: Crossings, hosts: Mapping[int, str], mode: ClockMode) -> Clocks:
    """The clock of every rank in `hosts` (rank to host name, empty if unknown), and of those in the crossings."""
    found = RankHosts.of(dict.fromkeys(np.unique(crossings.rank).tolist(), "") | dict(hosts), mode)
    if mode is ClockMode.NONE:
        return found.uncorrected()
    crossed = found.crossed(crossings)
    clocks = share_clocks([glance_at(crossed, found.shared)], found.shared)
    part = observe(crossed, clocks)
    return solved_clocks(found, clocks, ClockObservations.of([part], len(part.observations), clocks))


def solved_clocks(hosts: RankHosts, shared: SharedClocks, observations: ClockObservations) -> Clocks:
    """The clocks of ranks from the observations in all meetings."""
    solution = solve(observations)
    clocks = {
        number: _clock(number, host, solution, index)
        for number, host, index in zip(hosts.ranks.tolist(), hosts.names, shared.clock.tolist(), strict=True)
    }
    rank_names = _RankNames(hosts.ranks, hosts.names, shared.clock)
    findings = [_difference_finding(rank_names, difference) for difference in shared.differences]
    findings += [
        _contradiction_finding(rank_names, contradiction) for contradiction in solution.contradictions
    ]
    return Clocks.of(clocks.values(), [*findings, *_unbounded_finding(clocks)])


def _clock(rank: int, host: str, solution: Solution, index: int) -> Clock:
    low, high = (
        int(bound[index]) if np.isfinite(bound[index]) else None for bound in (solution.low, solution.high)
    )
    return Clock(
        rank,
        host,
        int(solution.offset[index]),
        float(solution.drift[index] * 1e6),
        low,
        high,
        int(solution.constraints[index]),
        solution.reference_ns,
    )


class _RankNames(Struct, frozen=True):
    """Names of ranks in findings."""

    ranks: Int64s
    hosts: Sequence[str]
    clock: Int64s

    def rank(self, number: int) -> str:
        """The rank at an index."""
        host = self.hosts[number]
        return f"rank {self.ranks[number]} (host {host})" if host else f"rank {self.ranks[number]}"

    def owner(self, clock: int) -> str:
        """The first rank that has a clock."""
        return self.rank(int(np.flatnonzero(self.clock == clock)[0]))


def _difference_finding(names: _RankNames, difference: Difference) -> Finding:
    first, second = names.ranks[difference.first], names.ranks[difference.second]
    host = names.hosts[difference.first]
    return Finding(
        Severity.WARNING,
        "host_clocks_differ",
        f"Ranks {first} and {second} both report the same host {host}, but their clocks differ by at least"
        f" {_milliseconds(difference.violation_ns)}; each rank of this host is given a clock of its own.",
        example=f"ranks {first} and {second}",
    )


def _contradiction_finding(names: _RankNames, contradiction: Contradiction) -> Finding:
    rank, partner = names.owner(contradiction.clock), names.owner(contradiction.partner)
    from_s, to_s = contradiction.first_ns / 1e9, contradiction.last_ns / 1e9
    return Finding(
        Severity.WARNING,
        "clock_contradiction",
        f"The clocks of {rank} and {partner} contradict each other by {_milliseconds(contradiction.violation_ns)}:"
        f" no steady clock explains the events of {rank} from {from_s:.3f} s to {to_s:.3f} s of the job. These events"
        " are skipped, and the interval of the offset covers both sides. Check whether the clock was set during the"
        " job, or whether files of two jobs are mixed.",
        contradiction.observations,
        example=f"{rank} and {partner} at {from_s:.3f} s",
    )


def _milliseconds(time_ns: int) -> str:
    return f"{time_ns / 1e6:.3f} ms"


def _unbounded_finding(clocks: Mapping[int, Clock]) -> list[Finding]:
    ranks = [rank for rank, clock in clocks.items() if clock.uncertainty_ns is None]
    if not ranks:
        return []
    shown = ", ".join(map(str, ranks[:8]))
    return [
        Finding(
            Severity.INFO,
            "clock_unbounded",
            f"{subject(len(ranks), 'rank', 'have')} a clock offset from rank {min(clocks)} without a bound on one or "
            "both sides: its uncertainty is unknown.",
            len(ranks),
            example=f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}" + (", ..." if len(ranks) > 8 else ""),
        )
    ]


# Clocks from a file.


_Nanoseconds = Annotated[int, msgspec.Meta(ge=-(10**18), le=10**18)]
"""Thirty years: no two clocks differ by more."""
_Time = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_RankNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)]


class _RankInFile(msgspec.Struct):
    rank: _RankNumber
    offset_ns: _Nanoseconds
    host: str = ""
    drift_ppm: Annotated[float, msgspec.Meta(ge=-10_000, le=10_000)] = 0.0
    low_ns: _Time | None = None
    high_ns: _Time | None = None
    constraints: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0


class _ClockFile(msgspec.Struct):
    ranks: list[_RankInFile]
    reference_ns: _Time | None = None


def clock_choice(clock: str | os.PathLike[str] | Clocks) -> ClockMode | Clocks:
    """The clocks that an option names: a mode, a clock file, or clocks that are already estimated."""
    if isinstance(clock, Clocks):
        return clock
    if clock in list(ClockMode):
        return ClockMode(clock)
    return read_clocks(clock)


def read_clocks(path: str | os.PathLike[str]) -> Clocks:
    """Clocks as `tracelink clocks --json` writes them, or a plain object of ranks and offsets in ns."""
    source = shown(os.fspath(path))
    try:
        document = msgspec.json.decode(_bytes_of(os.fspath(path)))
        if isinstance(document, dict) and "ranks" in document:
            return _from_file(msgspec.convert(document, _ClockFile), source)
        offsets = msgspec.convert(document, dict[_RankNumber, _Nanoseconds], strict=False)
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}",
            source=f"the clock file {source}",
            advice=f"{did_you_mean(source, list(ClockMode))} Use none, host, collectives, or a clock file.".strip(),
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"is not a clock file: {error}", source=source, advice=_HOW_TO) from error
    return Clocks.of((Clock(rank, offset_ns=offset) for rank, offset in offsets.items()), mode=source)


def _bytes_of(path: str) -> bytes:
    if not is_remote(path):
        return Path(plain_path(path)).read_bytes()
    from tracelink._io.remote.objects import temporary_copy

    with temporary_copy(path) as copy:
        return copy.read()


_HOW_TO = (
    'Write it with: tracelink clocks --json; or as {"0": 0, "1": -1500}, the offset in ns for each rank.'
)


def _from_file(file: _ClockFile, source: str) -> Clocks:
    clocks: dict[int, Clock] = {}
    for entry in file.ranks:
        if entry.rank in clocks:
            raise UsageError(
                f"has duplicate entries for rank {entry.rank}", source=source, advice="Keep one of them."
            )
        if entry.low_ns is not None and entry.high_ns is not None and entry.low_ns > entry.high_ns:
            raise UsageError(f"has low_ns above high_ns for rank {entry.rank}", source=source, advice=_HOW_TO)
        if entry.drift_ppm and file.reference_ns is None:
            raise UsageError(
                f"has a drift for rank {entry.rank}, but no reference_ns",
                source=source,
                advice="Add reference_ns, the time of the offsets in ns since 1970, or remove the drifts.",
            )
        clocks[entry.rank] = Clock(**msgspec.structs.asdict(entry), reference_ns=file.reference_ns or 0)
    return Clocks.of(clocks.values(), mode=source)
