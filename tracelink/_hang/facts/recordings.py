"""Recordings: the dumps of all ranks, read by workers; and replicas that number their own ranks from 0."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._hang.facts.sets import Chosen, Dump, Run, choose_dumps
from tracelink._io.engine import Engine
from tracelink._io.names import host_in_path
from tracelink._io.sources import RECORDER_FORMAT, Discovery
from tracelink._join.reading import (
    Task,
    assigned_ranks,
    attempted,
    declared_rank,
    import_readers,
    nothing_readable,
    tasks_of,
)
from tracelink._match.groups import is_default, names_by_backend, with_suffix
from tracelink._model.columns import UNKNOWN, Int64s, StringTable
from tracelink._model.errors import UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Entry, EntryPayloads, Progress, Recording, Records, Requests
from tracelink._model.text import counted
from tracelink._model.trace import ProcessGroup
from tracelink.plugins import Content

Input = TypeVar("Input")
UNREADABLE = "unreadable"
"""The reason of the finding on a source that cannot be read."""
UNREADABLE_BEFORE = "unreadable_before"
"""The same, if it is of an earlier attempt to run the job."""

BATCH_BYTES = 16 << 20
"""How much one worker reads before it returns: columns of a batch are large enough for their memory to return."""


# Reading dumps.


class Recordings(Struct, frozen=True):
    """The dumps of a job that could be read, and why others could not."""

    by_rank: dict[int, Recording]
    """Sorted by rank."""
    unreadable: dict[int, str]
    """Why the dump of a rank could not be read."""
    findings: Sequence[Finding]
    tasks: Sequence[Task] = ()
    """All sources with a reader, including those that are not dumps."""
    earlier: Mapping[int, Recording] = field(default_factory=dict)
    """Earlier dumps of the same processes, if there are several generations."""


def read_recordings(discovery: Discovery, engine: Engine) -> Recordings:
    """Reads every flight-recorder dump among the sources; a damaged one is skipped and reported."""
    findings = list(discovery.findings)
    all_tasks = tasks_of(discovery, findings, RECORDER_FORMAT)
    tasks = [task for task in all_tasks if task.content is Content.RECORDS]
    results = _read(tasks, engine)
    read = [
        (task, _with_host(result))
        for task, result in zip(tasks, results, strict=True)
        if isinstance(result, Recording)
    ]
    failed = [
        (task, result) for task, result in zip(tasks, results, strict=True) if isinstance(result, Finding)
    ]
    findings += [finding for _, finding in failed]
    if not read:
        raise nothing_readable([finding for finding in findings if finding.severity is Severity.ERROR])
    infos = [
        replace(recording.source, rank=declared_rank(recording.source, task.source, findings))
        for task, recording in read
    ]
    ranks = assigned_ranks(infos, findings)
    chosen = _chosen(
        [(rank, recording) for rank, (_, recording) in zip(ranks, read, strict=True) if rank is not None]
    )
    by_rank = chosen.newest
    unreadable_ranks = {
        task.likely_rank: finding.message
        for task, finding in failed
        if task.likely_rank is not None and not chosen.leaves_out(task.source.path)
    }
    return Recordings(
        {rank: by_rank[rank] for rank in sorted(by_rank)},
        {rank: why for rank, why in sorted(unreadable_ranks.items()) if rank not in by_rank},
        [
            *(
                _without_rank(finding) if chosen.leaves_out(finding.source) else finding
                for finding in findings
            ),
            *chosen.findings,
            *chain.from_iterable(recording.findings for recording in by_rank.values()),
        ],
        all_tasks,
        chosen.earlier,
    )


def sources_of_jobs(discovery: Discovery, jobs: Sequence[Run]) -> tuple[list[Discovery], list[Finding]]:
    """The dumps of each job and the other files that are its own by their names; a finding if there are more."""
    of_dump = {path: number for number, job in enumerate(jobs) for path in job.files}

    def job_of(path: str) -> int | None:
        covering = (number for number, job in enumerate(jobs) if job.covers(path))
        return of_dump[path] if path in of_dump else next(covering, None)

    owners = [job_of(source.path) for source in discovery.sources]
    own = [
        replace(
            discovery,
            sources=[
                source for source, owner in zip(discovery.sources, owners, strict=True) if owner == number
            ],
            findings=[finding for finding in discovery.findings if job_of(finding.source) == number],
        )
        for number in range(len(jobs))
    ]
    general = [finding for finding in discovery.findings if job_of(finding.source) is None]
    if count := owners.count(None):
        message = f"{counted(count, 'file')} not used: their names do not show to which job they belong."
        example = discovery.sources[owners.index(None)].path
        general.append(Finding(Severity.INFO, "job_unknown", message, count, example=example))
    return own, general


def _chosen(dumps: Sequence[Dump]) -> Chosen:
    """One dump for each rank; those of several recorders are chosen separately, then joined."""
    dumps, unused = _of_one_format(dumps)
    parts = split_by_recorder(dumps)
    if len(parts) == 1:
        chosen = choose_dumps(dumps)
        return replace(chosen, findings=[*unused, *chosen.findings])
    of_parts = [choose_dumps(part) for part in parts]
    return Chosen(
        join_recorders([chosen.newest for chosen in of_parts]),
        join_recorders([chosen.earlier for chosen in of_parts]),
        [*unused, recorders_finding(parts), *chain.from_iterable(chosen.findings for chosen in of_parts)],
        list(chain.from_iterable(chosen.other_attempts for chosen in of_parts)),
    )


def _of_one_format(dumps: Sequence[Dump]) -> tuple[list[Dump], list[Finding]]:
    """The dumps of the format of most ranks: recorders of different formats number the same calls differently."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for rank, recording in dumps:
        ranks[recording.source.format].add(rank)
    if len(ranks) < 2:
        return list(dumps), []
    best = max(ranks, key=lambda name: (len(ranks[name]), name == RECORDER_FORMAT, name))
    unused = [recording.source for _, recording in dumps if recording.source.format != best]
    message = (
        f"{counted(len(unused), 'file')} of format {', '.join(sorted({*ranks} - {best}))} not used: {best} files of as "
        f"many ranks record the same calls. To diagnose them, leave out the {best} files."
    )
    findings = [Finding(Severity.INFO, "other_recorder", message, len(unused), example=unused[0].path)]
    return [dump for dump in dumps if dump[1].source.format == best], findings


def _with_host(recording: Recording) -> Recording:
    source = recording.source
    return replace(recording, source=replace(source, host=source.host or host_in_path(source.path)))


def _without_rank(finding: Finding) -> Finding:
    """The finding on a dump of an earlier attempt: if it cannot be read, the rank may still have a newer one."""
    return replace(finding, reason=UNREADABLE_BEFORE) if finding.reason == UNREADABLE else finding


def _read(tasks: Sequence[Task], engine: Engine) -> list[Recording | Finding]:
    batches = batches_of(tasks, lambda task: task.source.bytes, BATCH_BYTES)
    outer, inner = engine.split(len(batches))
    shared = [task.source for task in tasks]
    import_readers(tasks)

    def work(batch: Sequence[Task]) -> list[Recording | Finding]:
        return _in_large_columns([_read_one(task, inner) for task in batch])

    return list(chain.from_iterable(outer.map(work, batches, shared=shared)))


def _in_large_columns(results: Sequence[Recording | Finding]) -> list[Recording | Finding]:
    """The same with entries in columns of all: memory of many small columns does not return to the system."""
    records = Records.concatenate([one.records for one in results if isinstance(one, Recording)])
    placed, end = list(results), 0
    for number, one in enumerate(results):
        if isinstance(one, Recording):
            start, end = end, end + len(one.records)
            placed[number] = replace(one, records=records.take(slice(start, end)))
    return placed


def batches_of(inputs: Sequence[Input], size: Callable[[Input], int], most: int) -> list[list[Input]]:
    """The inputs in batches, each of which ends with the input that makes it as large as `most` bytes."""
    batches: list[list[Input]] = []
    total = most
    for one in inputs:
        if total >= most:
            batches.append([])
            total = 0
        batches[-1].append(one)
        total += size(one)
    return batches


def _read_one(task: Task, engine: Engine) -> Recording | Finding:
    return attempted(task, lambda: task.reader.read_records(task.source, engine))


def find_profiles(tasks: Sequence[Task]) -> list[Task]:
    """The sources that are neither dumps, nor compile logs, nor metrics, nor timelines of several ranks."""
    others = (Content.RECORDS, Content.COMPILATIONS, Content.METRICS)
    return [task for task in tasks if task.content not in others and not task.spec.unpacks]


def find_compile_logs(tasks: Sequence[Task]) -> list[Task]:
    """The compile logs."""
    return [task for task in tasks if task.content is Content.COMPILATIONS]


# Replicas that number their own ranks from 0 and train together, as torchft runs them.


def renumber_replicas(
    recordings: Mapping[int, Recording], size: int
) -> tuple[dict[int, Recording], list[Finding]]:
    """The recordings of a job whose replicas have `size` ranks each, with groups that list ranks of the whole job."""
    if size < 1:
        raise UsageError(
            f"--replica-size {size} is not positive", advice="Give the number of ranks of one replica."
        )
    users: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank in sorted(recordings):
        for group in recordings[rank].groups:
            users[rank // size, group.name].append(rank)

    def in_whole_job(rank: int, group: ProcessGroup) -> ProcessGroup:
        first, members = rank - rank % size, group.ranks
        if not members and is_default(group.name, group.description):
            members = tuple(range(first, first + size))
        elif not members and group.name:  # a group without a name may span replicas
            members = tuple(users[rank // size, group.name])
        elif rank not in members and rank - first in members and max(members) < size:
            members = tuple(first + member for member in members)
        return group if members == group.ranks else replace(group, ranks=members, size=len(members))

    renumbered = {
        rank: replace(recording, groups=[in_whole_job(rank, group) for group in recording.groups])
        for rank, recording in recordings.items()
    }
    return renumbered, _other_sizes(recordings, size)


def _other_sizes(recordings: Mapping[int, Recording], size: int) -> list[Finding]:
    """A finding if the group of all ranks of a replica has another size."""
    sizes = {
        rank: len(group.ranks)
        for rank, recording in sorted(recordings.items())
        for group in recording.groups
        if is_default(group.name, group.description) and group.ranks and len(group.ranks) != size
    }
    if not sizes:
        return []
    rank, members = next(iter(sizes.items()))
    message = (
        f"--replica-size is {size}, but the group of all ranks of a replica has {members} ranks in "
        f"{len(sizes)} dumps. Give the number of ranks of one replica."
    )
    example = f"rank {rank}: {members} ranks"
    return [Finding(Severity.WARNING, "replica_size_differs", message, len(sizes), example=example)]


PLACES = 1 << 40
"""Indexes of entries of each recorder in a joined recording: no dump has as many."""


def split_by_recorder(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """The dumps of each recorder; all of them together unless a rank has dumps without a common group and backend."""
    if len({rank for rank, _ in dumps}) == len(dumps):
        return [list(dumps)]
    import networkx  # takes longer to import than many jobs to diagnose

    graph: networkx.Graph[int | str] = networkx.Graph()
    graph.add_nodes_from(range(len(dumps)))
    groups = [recording.source.recorder for _, recording in dumps]
    known = next((number for number, own in enumerate(groups) if own), 0)
    graph.add_edges_from((number, group) for number, own in enumerate(groups) for group in own or [known])
    numbers = (
        [node for node in part if isinstance(node, int)] for part in networkx.connected_components(graph)
    )
    parts = [[dumps[number] for number in sorted(part)] for part in numbers]
    ranks = Counter(rank for part in parts for rank in {rank for rank, _ in part})
    return parts if max(ranks.values(), default=0) > 1 else [list(dumps)]


# One recording of a rank from several.


class _JoinedPayloads(Struct, EntryPayloads, frozen=True):
    """The entries of several dumps; those of each have places and names of groups of their own."""

    parts: Sequence[tuple[EntryPayloads, int, Mapping[str, str]]]
    """Payloads, by how much their places are shifted, and what follows the names of groups."""

    def entries(self, places: Collection[int]) -> Mapping[int, Entry]:
        """The entries at these places."""
        found: dict[int, Entry] = {}
        for part, shift, suffixes in self.parts:
            own = [place - shift for place in places if (place - shift) // PLACES == 0 <= place - shift]
            if own:
                entries = part.entries(own).items()
                found |= {place + shift: _renamed(entry, suffixes) for place, entry in entries}
        return found


def _renamed(entry: Entry, suffixes: Mapping[str, str]) -> Entry:
    suffix = suffixes.get(entry.group, "")
    description = f"{entry.description}{suffix}" if entry.description else ""
    return replace(entry, group=f"{entry.group}{suffix}", description=description)


def join_recorders(parts: Sequence[Mapping[int, Recording]]) -> dict[int, Recording]:
    """One recording for each rank; a group that several backends use is a group for each backend."""
    suffixes = names_by_backend(recording.source.recorder for part in parts for recording in part.values())
    of_rank: dict[int, list[Recording]] = defaultdict(list)
    for part in parts:
        for rank, recording in part.items():
            of_rank[rank].append(recording)
    return {rank: _joined(recordings, suffixes) for rank, recordings in of_rank.items()}


def recorders_finding(parts: Sequence[Sequence[Dump]]) -> Finding:
    """What was joined."""
    shown = " and ".join(sorted({_backends(part) for part in parts}))
    message = (
        f"Ranks have dumps of {counted(len(parts), 'recorder')}: {shown}. Those of a rank are read as one."
    )
    return Finding(Severity.INFO, "recorders", message, len(parts), example=parts[-1][0][1].source.path)


def _backends(dumps: Sequence[Dump]) -> str:
    groups = {group for _, recording in dumps for group in recording.source.recorder}
    return ", ".join(sorted({group.partition(":")[0] for group in groups})) or "without groups"


def _joined(recordings: Sequence[Recording], suffixes: Mapping[str, str]) -> Recording:
    first, strings, count = recordings[0], StringTable(), 0
    records: list[Records] = []
    requests: list[Requests] = []
    groups: list[ProcessGroup] = []
    progress: dict[str, Progress] = {}
    payloads: list[tuple[EntryPayloads, int, Mapping[str, str]]] = []
    for number, recording in enumerate(recordings):
        added = {group.partition(":")[2]: suffixes.get(group, "") for group in recording.source.recorder}
        names = [f"{text}{added.get(text, '')}" for text in recording.strings]
        own, shift = recording.records.recoded(strings.encode(names)), number * PLACES
        shift += recording.overwritten - first.overwritten
        request = (own.request + count).astype(np.int32)
        records.append(replace(own, request=request, place=own.place + shift))
        requests.append(recording.requests.recoded(strings.absorb(recording.strings)))
        groups += [with_suffix(group, added.get(group.name, "")) for group in recording.groups]
        progress |= {f"{name}{added.get(name, '')}": own for name, own in recording.progress.items()}
        count += len(recording.requests)
        payloads.append((recording.payloads, shift, added))
    order = np.argsort(_times_in_order(records), kind="stable")
    return replace(
        first,
        source=replace(
            first.source,
            events=sum(recording.source.events for recording in recordings),
            bytes=sum(recording.source.bytes for recording in recordings),
            recorder=tuple(sorted({*chain.from_iterable(own.source.recorder for own in recordings)})),
        ),
        strings=strings.texts(),
        records=Records.concatenate(records).take(order),
        requests=Requests.concatenate(requests),
        groups=groups,
        progress=progress,
        numbers={},
        made=UNKNOWN,
        skipped=sum(recording.skipped for recording in recordings),
        broken_off=any(recording.broken_off for recording in recordings),
        retires_early=any(recording.retires_early for recording in recordings),
        payloads=_JoinedPayloads(payloads),
        findings=[finding for recording in recordings for finding in recording.findings],
    )


def _times_in_order(parts: Sequence[Records]) -> Int64s:
    """When each entry was created, at least as late as the one before it: entries of a recorder stay in order."""
    return np.concatenate([np.maximum.accumulate(part.created) for part in parts])
