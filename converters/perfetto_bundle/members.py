"""Which files stand in a bundle, how they are called there, and by how much their times are shifted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracelink.clock import Clock
from tracelink.converters.perfetto_bundle.schema import file_entry, manifest, shifted
from tracelink.graph import Rank
from tracelink.trace import SourceInfo

FIRST = "earliest_"
"""What the name of the earliest file begins with where it would not come first: Perfetto reads files in the order of
their names, takes the clock of the first as everybody's, and drops what happened before that clock's 0."""


@dataclass(frozen=True, slots=True)
class Member:
    """A file of the bundle."""

    info: SourceInfo
    rank: Rank
    name: str = ""
    zero_ns: int = 0
    """When its time 0 is, on the reference clock."""
    drift_ns: int = 0
    """How far that is wrong at the file's ends, since its clock goes faster or slower than the reference clock."""


def members_of(infos: Iterable[SourceInfo], ranks: Sequence[Rank]) -> list[Member]:
    """The files in the order of ranks, named, and placed on the reference clock."""
    by_rank = {rank.rank: rank for rank in ranks}
    owned = [(info, by_rank[info.rank]) for info in infos if info.rank is not None and info.rank in by_rank]
    placed = [_placed(info, rank) for info, rank in sorted(owned, key=lambda pair: pair[1].rank)]
    return _with_the_earliest_first(list(_named(placed)))


def manifest_of(members: Sequence[Member]) -> dict[str, Any]:
    """What Perfetto has to know: whose each file is, and what its times are on the timeline of the earliest."""
    first = min(members, key=lambda member: member.name)
    entries = []
    for member in members:
        host = f" · {member.rank.host}" if member.rank.host else ""
        entry = file_entry(member.name, f"rank {member.rank.rank}{host}")
        entries.append(
            entry if member is first else shifted(entry, first.name, member.zero_ns - first.zero_ns)
        )
    return manifest(entries)


def _placed(info: SourceInfo, rank: Rank) -> Member:
    """A clock that drifts is taken as it stands in the middle of the file, where the error at both ends is equal."""
    clock = Clock(
        rank.rank,
        offset_ns=rank.clock_offset_ns,
        drift_ppm=rank.clock_drift_ppm,
        reference_ns=rank.clock_reference_ns,
    )
    start = rank.clock_reference_ns if info.start_ns is None else info.start_ns
    end = start if info.end_ns is None else info.end_ns
    middle = start + (end - start) // 2
    ahead = middle - clock.corrected_time(middle)
    drift = abs(start - clock.corrected_time(start) - ahead)
    return Member(info, rank, zero_ns=info.zero_ns - ahead, drift_ns=drift)


def _named(members: Iterable[Member]) -> Iterable[Member]:
    counts: Counter[int] = Counter()
    for member in members:
        number = member.rank.rank
        counts[number] += 1
        more = f"_{counts[number]}" if counts[number] > 1 else ""
        yield replace(member, name=f"rank_{number}{more}.json")


def _with_the_earliest_first(members: Sequence[Member]) -> list[Member]:
    if not members:
        return []
    earliest = min(member.zero_ns for member in members)
    first = min(members, key=lambda member: member.name)
    if first.zero_ns == earliest:
        return list(members)
    chosen = next(member for member in members if member.zero_ns == earliest)
    return [replace(member, name=FIRST + member.name) if member is chosen else member for member in members]
