"""Sources to recordings: every dump read by a worker, each given its rank; a damaged one costs only itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from tracelink.assignment import check_duplicates, placed, said_rank
from tracelink.engine import Engine
from tracelink.errors import UnreadableError
from tracelink.findings import Finding, Severity
from tracelink.inputs import RECORDER_FORMAT
from tracelink.plugins import Recorder
from tracelink.reading import Task, nothing_readable, tasks_of, unreadable
from tracelink.records import Recording
from tracelink.sources import Discovery

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
