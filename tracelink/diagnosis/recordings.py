"""Dumps to recordings; replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UnreadableError, UsageError
from tracelink.io.sources import RECORDER_FORMAT, Discovery
from tracelink.linking.groups import DEFAULT_DESCRIPTION, DEFAULT_NAMES
from tracelink.model.records import Recording
from tracelink.model.trace import ProcessGroup
from tracelink.pipeline.reading import (
    Task,
    check_duplicates,
    nothing_readable,
    placed,
    said_rank,
    tasks_of,
    unreadable,
)
from tracelink.plugins import Recorder

# Sources to recordings: every dump read by a worker, each given its rank; a damaged one costs only itself.


BATCH_BYTES = 4 << 20
"""So much is read by one worker before it answers: enough not to wait for it, few enough to hold its answer."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What could be read of all ranks, in the order of ranks, and what could not."""

    recordings: dict[int, Recording]
    unreadable: dict[int, str]
    """Why the dump of a rank is not among them."""
    findings: Sequence[Finding]
    tasks: Sequence[Task] = ()
    """Of all sources that can be read, also of those that are no dumps."""


def read_recordings(discovery: Discovery, engine: Engine) -> Recorded:
    """Every recorder's dump among the sources."""
    findings = list(discovery.findings)
    recognised = tasks_of(discovery, findings, RECORDER_FORMAT)
    tasks = [task for task in recognised if isinstance(task.reader, Recorder)]
    results = _read(tasks, engine)
    read = [
        (task, result) for task, result in zip(tasks, results, strict=True) if isinstance(result, Recording)
    ]
    failed = [
        (task, result) for task, result in zip(tasks, results, strict=True) if isinstance(result, Finding)
    ]
    findings += [finding for _, finding in failed]
    if not read:
        raise nothing_readable([finding for finding in findings if finding.severity is Severity.ERROR])
    infos = [replace(one.source, rank=said_rank(one.source, task.source)) for task, one in read]
    ranks = placed(infos, findings)
    check_duplicates([replace(info, rank=rank) for info, rank in zip(infos, ranks, strict=True)])
    found = {rank: one for rank, (_, one) in zip(ranks, read, strict=True) if rank is not None}
    unreadable_ranks = {
        task.likely_rank: finding.message for task, finding in failed if task.likely_rank is not None
    }
    return Recorded(
        {rank: found[rank] for rank in sorted(found)},
        {rank: why for rank, why in sorted(unreadable_ranks.items()) if rank not in found},
        [*findings, *chain.from_iterable(one.findings for _, one in read)],
        recognised,
    )


def _read(tasks: Sequence[Task], engine: Engine) -> list[Recording | Finding]:
    batches = _batches(tasks)
    outer, inner = engine.split(len(batches))
    shared = [thing for task in tasks for thing in (task.source, task.reader)]

    def work(batch: Sequence[Task]) -> list[Recording | Finding]:
        members = _Members()
        return [members.shared(_read_one(task, inner)) for task in batch]

    return list(chain.from_iterable(outer.map(work, batches, shared=shared)))


def _read_one(task: Task, engine: Engine) -> Recording | Finding:
    assert isinstance(task.reader, Recorder)
    try:
        return task.reader.read_records(task.source, engine)
    except UnreadableError as error:
        error.source = error.source or task.source.path
        return unreadable(task.source.path, str(error))
    except OSError as error:
        return unreadable(task.source.path, f"{task.source.path}: {error.strerror or error}.")


class _Members:
    """Every dump lists the members of its groups; equal lists are kept, and sent between processes, once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def shared(self, read: Recording | Finding) -> Recording | Finding:
        """The same with lists that others have too."""
        if isinstance(read, Finding):
            return read
        groups = [
            replace(group, ranks=self._known.setdefault(group.ranks, group.ranks)) for group in read.groups
        ]
        return replace(read, groups=groups)


def _batches(tasks: Sequence[Task]) -> list[list[Task]]:
    batches: list[list[Task]] = []
    size = BATCH_BYTES
    for task in tasks:
        if size >= BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(task)
        size += task.source.bytes
    return batches


# Replica groups: jobs that each number their own ranks from 0 and train together, as torchft runs them.


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
