"""Clock, Clocks, estimate_clocks, the clock file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from tracelink.clock.observations import Difference, meetings_of, share_clocks
from tracelink.clock.solution import Contradiction, Solution, solve
from tracelink.errors import Finding, Severity, UsageError
from tracelink.io.sources import LARGEST_RANK
from tracelink.model.clock import Clock, ClockMode, Clocks
from tracelink.model.columns import NO_TIME, Bools, Columns, Int32s, Int64s

# One clock: where each rank's clock stands, from what matched collectives and messages allow.


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


# Clocks that are given in a file.


_Nanoseconds = Annotated[int, msgspec.Meta(ge=-(10**18), le=10**18)]
"""Thirty years are more than clocks differ."""
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


def read_clocks(path: str | os.PathLike[str]) -> Clocks:
    """Clocks as `tracelink clocks --json` writes them, or a plain object of ranks and offsets in ns."""
    source = os.fspath(path)
    try:
        said = msgspec.json.decode(Path(path).read_bytes())
        if isinstance(said, dict) and "ranks" in said:
            return _stated(msgspec.convert(said, _ClockFile), source)
        offsets = msgspec.convert(said, dict[_RankNumber, _Nanoseconds], strict=False)
    except OSError as error:
        raise UsageError(
            f"cannot be read: {error.strerror}",
            source=source,
            advice="Give none, host, collectives, or a file with clocks.",
        ) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"is no file of clocks: {error}", source=source, advice=_HOW_TO) from error
    return Clocks({rank: Clock(rank, offset_ns=offset) for rank, offset in offsets.items()})


_HOW_TO = (
    'Write it with: tracelink clocks --json; or as {"0": 0, "1": -1500}, the offset in ns for each rank.'
)


def _stated(file: _ClockFile, source: str) -> Clocks:
    clocks: dict[int, Clock] = {}
    for said in file.ranks:
        if said.rank in clocks:
            raise UsageError(f"has rank {said.rank} twice", source=source, advice="Keep one of the two.")
        if said.low_ns is not None and said.high_ns is not None and said.low_ns > said.high_ns:
            raise UsageError(f"has low_ns above high_ns for rank {said.rank}", source=source, advice=_HOW_TO)
        if said.drift_ppm and file.reference_ns is None:
            raise UsageError(
                f"has a drift for rank {said.rank}, but no reference_ns",
                source=source,
                advice="Say at which time (ns since 1970) the offsets hold, or leave the drifts out.",
            )
        clocks[said.rank] = Clock(**msgspec.structs.asdict(said), reference_ns=file.reference_ns or 0)
    return Clocks(clocks)
