"""Replica groups: jobs that each number their own ranks from 0 and train together, as torchft runs them.

A dump is of a rank of the whole, `replica * size + rank within the replica`, while its groups may list the ranks
within the replica. Groups that span replicas list ranks of the whole already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tracelink.errors import UsageError
from tracelink.findings import Finding, Severity
from tracelink.linking.group_sources import DEFAULT_DESCRIPTION, DEFAULT_NAMES
from tracelink.records import Recording
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class Replicas:
    """Recordings whose groups list ranks of the whole, and what did not fit."""

    recordings: dict[int, Recording]
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class _Replica:
    """The ranks that one job counts from 0."""

    first: int
    size: int
    users: Mapping[str, Sequence[int]]
    """Those who know a group, by its name."""

    def of_whole(self, rank: int, group: ProcessGroup) -> ProcessGroup:
        """The group that one of its ranks describes, by ranks of the whole."""
        if not group.ranks:
            return _with_ranks(group, self._who_uses(group))
        within = max(group.ranks) < self.size and rank - self.first in group.ranks
        if rank in group.ranks or not within:
            return group
        return _with_ranks(group, [self.first + one for one in group.ranks])

    def _who_uses(self, group: ProcessGroup) -> Sequence[int]:
        """The members of a group that nobody lists; one without a name may span replicas."""
        if _is_default(group):
            return range(self.first, self.first + self.size)
        return self.users[group.name] if group.name else ()


def in_replicas(recordings: Mapping[int, Recording], size: int) -> Replicas:
    """The same recordings, where each `size` ranks are a job of their own."""
    if size < 1:
        raise UsageError(f"--replica-size {size}", advice="Give the number of ranks of one replica.")
    users: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank in sorted(recordings):
        for group in recordings[rank].groups:
            users[rank // size][group.name].append(rank)
    replicas = {number: _Replica(number * size, size, known) for number, known in users.items()}
    found = {
        rank: replace(one, groups=[replicas[rank // size].of_whole(rank, group) for group in one.groups])
        for rank, one in recordings.items()
    }
    return Replicas(found, _other_sizes(recordings, size))


def _is_default(group: ProcessGroup) -> bool:
    return group.name in DEFAULT_NAMES or group.description == DEFAULT_DESCRIPTION


def _with_ranks(group: ProcessGroup, ranks: Sequence[int]) -> ProcessGroup:
    return replace(group, ranks=tuple(ranks), size=len(ranks))


def _other_sizes(recordings: Mapping[int, Recording], size: int) -> list[Finding]:
    """Ranks whose group of all ranks has another size than was said."""
    sizes = {
        rank: len(group.ranks)
        for rank, one in sorted(recordings.items())
        for group in one.groups
        if _is_default(group) and group.ranks and len(group.ranks) != size
    }
    if not sizes:
        return []
    rank, found = next(iter(sizes.items()))
    message = (
        f"--replica-size says {size}, but the group of all ranks of a replica has {found} ranks in "
        f"{len(sizes)} dumps. Give the number of ranks of one replica."
    )
    example = f"rank {rank}: {found} ranks"
    return [Finding(Severity.WARNING, "replica_size_differs", message, len(sizes), example=example)]
