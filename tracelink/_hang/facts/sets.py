"""Sets of dumps: which of several dumps of a rank belong together: copies, generations, attempts, or several jobs.

Input: dumps with ranks, some of them of the same rank. Output: the newest dump of each rank, the generation before it,
and findings on all that is not diagnosed. Names of folders and files make sets; entries that two dumps of a rank have
in common show that both are of one process.
"""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cmp_to_key
from itertools import pairwise

import numpy as np
from msgspec import Struct, field

from tracelink._hang.facts.model import Movement
from tracelink._io.sources import archive_of
from tracelink._model.columns import NO_TIME, Bools, Int64s
from tracelink._model.errors import RankConflictError
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Recording
from tracelink._model.text import counted, duration, lowered, ranks_in_words, time_of_day

SHOWN = 4
"""Sets that a message names, as many as fit in a line or two; others are only counted."""

MOST_SETS = 64
"""If names make more sets, they contain something of each file, such as the time at which it was written."""

MOST_COMPARED = 32
"""Ranks of which two sets are compared: one with common entries decides, and few rings wrap completely."""

NUMBERED_ATTEMPT = re.compile(r"(?:attempt|restart|retry)[._-]?\d", re.IGNORECASE)
"""Names of folders of attempts, even if no rank left a dump in two of them."""

NOT_OF_A_JOB = re.compile(r"attempt|restart|retry|old|bak|backup|prev|previous|[\d._:#T-]+", re.IGNORECASE)
"""What the names of two attempts of one job may differ by."""

SEPARATOR = re.compile(r"([:/])")
"""What separates folders in a path; the member of an archive follows a colon."""

Dump = tuple[int, Recording]
"""A rank and its dump."""


class Chosen(Struct, frozen=True):
    """The dumps that are diagnosed, one for each rank, and how the others were understood."""

    newest: Mapping[int, Recording]
    earlier: Mapping[int, Recording] = field(default_factory=dict)
    """The generation before them: dumps of the same processes."""
    findings: Sequence[Finding] = ()
    other_attempts: Sequence[DumpSet] = ()

    def leaves_out(self, path: str) -> bool:
        """True if a file belongs to another attempt by its name."""
        return any(dumps.covers(path) for dumps in self.other_attempts)


def choose_dumps(dumps: Sequence[Dump]) -> Chosen:
    """One dump for each rank.

    Copies count once. Of several generations of dumps of a job, or several attempts to run it, the newest is chosen.
    Raises SeveralJobsError.
    """
    if _are_unique(dumps) and not any(
        NUMBERED_ATTEMPT.search(recording.source.path) for _, recording in dumps
    ):
        return Chosen(dict(dumps))
    kept, copies = _without_copies(dumps)
    if _are_unique(kept):
        sets = _attempt_folders(kept)
        if len(sets) < 2:
            return Chosen(dict(kept), findings=_copy_findings(copies))
    elif (found := _sets(dumps)) and len(found) <= MOST_SETS:
        sets, copies = found, []
    elif found := _by_age(kept) or _sets(kept):
        sets = found
    else:
        raise _conflict(kept)
    runs = _runs(sets)
    if not _are_unique(kept):
        _check_one_job(runs)
    newest, *older = runs
    chosen = _newest_generation(newest)
    findings = [*_copy_findings(copies), *chosen.findings]
    if older:
        findings.append(_attempts_finding(newest, older))
    other_attempts = [dumps for run in older for dumps in run.sets]
    return Chosen(chosen.newest, chosen.earlier, findings, other_attempts)


# Copies.


def _without_copies(dumps: Sequence[Dump]) -> tuple[list[Dump], list[Recording]]:
    """The dumps without those that have the same entries as another one, nearer to the top of the tree."""
    kept: list[Dump] = []
    copies: list[Recording] = []
    of_rank: dict[int, list[Recording]] = defaultdict(list)
    for rank, recording in sorted(dumps, key=lambda dump: (len(_parts(dump)), dump[1].source.path)):
        if any(_is_copy(other, recording) for other in of_rank[rank]):
            copies.append(recording)
            continue
        of_rank[rank].append(recording)
        kept.append((rank, recording))
    return kept, copies


def _is_copy(recording: Recording, other: Recording) -> bool:
    """True if both dumps have the same entries, in the same state."""
    return (
        len(recording.records) == len(other.records)
        and recording.broken_off == other.broken_off
        and recording.progress == other.progress
        and (not len(recording.records) or is_continuation(recording, other) is True)
        and progress_since(recording, other) is not True
    )


def _copy_findings(copies: Sequence[Recording]) -> list[Finding]:
    if not copies:
        return []
    path = copies[0].source.path
    message = (
        f"{counted(len(copies), 'dump')} skipped, with the same entries as another dump of the same rank, such as "
        f"{path}. If it was written later, and not copied, name the earlier one with --before."
    )
    return [Finding(Severity.INFO, "copies", message, len(copies), source=path)]


def _are_unique(dumps: Iterable[Dump]) -> bool:
    ranks = [rank for rank, _ in dumps]
    return len(set(ranks)) == len(ranks)


# Sets, by the names of folders and files.


class DumpSet(Struct, frozen=True):
    """Dumps of different ranks that belong together by their names."""

    label: str
    """The part of their paths that distinguishes them from other sets."""
    dumps: Mapping[int, Recording]
    paths: tuple[str, ...]
    """Folders or globs that name them on the command line."""

    @property
    def name(self) -> str:
        """For people."""
        return self.paths[0] if len(self.paths) == 1 else self.label

    @property
    def start_ns(self) -> int:
        """The earliest time in its dumps."""
        starts = [recording.source.start_ns for recording in self.dumps.values()]
        return min((start for start in starts if start is not None), default=0)

    @property
    def end_ns(self) -> int:
        """The latest time in its dumps."""
        ends = [latest_time(recording) for recording in self.dumps.values()]
        return max((end for end in ends if end is not None), default=0)

    def covers(self, path: str) -> bool:
        """True if a file belongs to it by its name."""
        patterns = (own if "*" in own else f"{own}/*" for own in self.paths)
        ends = (pattern.split("*", 1) for pattern in patterns)
        return any(path.startswith(start) and path.endswith(end) for start, end in ends)


def _sets(dumps: Sequence[Dump]) -> list[DumpSet]:
    """The fewest sets without two dumps of a rank: by one level of folders, by file names, or by both."""
    found = [_by_level(dumps, level) for level in _levels(dumps)]
    found += [_grouped(dumps, _stem), _grouped(dumps, lambda dump: _folder(dump) + _stem(dump))]
    return min((sets for sets in found if sets), key=len, default=[])


def _attempt_folders(dumps: Sequence[Dump]) -> list[DumpSet]:
    """The sets of folders such as attempt_0 and attempt_1, if there are several."""
    for level in _levels(dumps):
        names = {_folder_at(dump, level)[0] for dump in dumps}
        if len(names) > 1 and all(map(NUMBERED_ATTEMPT.search, names)):
            return _by_level(dumps, level)
    return []


def _by_level(dumps: Sequence[Dump], level: int) -> list[DumpSet]:
    return _grouped(dumps, lambda dump: _folder_at(dump, level)[0], lambda dump: _folder_at(dump, level)[1])


def _grouped(
    dumps: Sequence[Dump], label: Callable[[Dump], str], path: Callable[[Dump], str] | None = None
) -> list[DumpSet]:
    """Sets of dumps with the same label, each with its path, else that of its name; empty if one has a rank twice."""
    groups: dict[str, list[Dump]] = defaultdict(list)
    for dump in dumps:
        groups[label(dump)].append(dump)
    if not all(map(_are_unique, groups.values())):
        return []
    named = path or (lambda dump: _folder(dump) + _stem(dump).replace("#", "*"))
    return [DumpSet(label, dict(own), tuple(dict.fromkeys(map(named, own)))) for label, own in groups.items()]


def _levels(dumps: Sequence[Dump]) -> range:
    return range(max(len(_parts(dump)) for dump in dumps) // 2)


def _parts(dump: Dump) -> list[str]:
    """The parts of its path, with a separator between each two."""
    return SEPARATOR.split(dump[1].source.path)


def _folder_at(dump: Dump, level: int) -> tuple[str, str]:
    """The name of the folder at this level, and its path; of a file above it no name, and all of its folder."""
    parts = _parts(dump)
    if 2 * level < len(parts) - 1:
        return parts[2 * level], "".join(parts[: 2 * level + 1])
    return "", f"{_folder(dump)}*"


def _folder(dump: Dump) -> str:
    """Its folder, with the separator at the end."""
    return "".join(_parts(dump)[:-1])


def _stem(dump: Dump) -> str:
    """The name of a file with # in place of its rank."""
    rank, name = dump[0], _parts(dump)[-1]
    after_word = re.compile(rf"(rank[\[\]=._-]*)0*{rank}(?!\d)", re.IGNORECASE)
    stem, replaced = after_word.subn(r"\1#", name, count=1)
    if replaced:
        return stem
    numbers = [match for match in re.finditer(r"\d+", name) if int(match[0]) == rank]
    return f"{name[: numbers[-1].start()]}#{name[numbers[-1].end() :]}" if numbers else name


def _by_age(dumps: Sequence[Dump]) -> list[DumpSet] | None:
    """If names make no sets: the newest dump of each rank, the ones before, and so on; None if of other processes."""
    of_rank: dict[int, list[Recording]] = defaultdict(list)
    for rank, recording in dumps:
        of_rank[rank].append(recording)
    sets: dict[int, dict[int, Recording]] = defaultdict(dict)
    for rank, recordings in of_rank.items():
        recordings.sort(key=lambda recording: latest_time(recording) or 0, reverse=True)
        if any(is_continuation(older, newer) is not True for newer, older in pairwise(recordings)):
            return None
        for age, recording in enumerate(recordings):
            sets[age][rank] = recording
    return [
        DumpSet(
            f"{'the newest' if not age else f'number {age + 1} from the end'} of each rank",
            members,
            tuple(recording.source.path for recording in members.values()),
        )
        for age, members in sorted(sets.items())
    ]


# Runs: the sets of the same processes. Several runs are attempts of one job, or jobs.


class Run(Struct):
    """Sets of the same processes, the newest first; of one of several jobs those of all attempts."""

    sets: list[DumpSet]

    @property
    def name(self) -> str:
        """For people."""
        return os.path.basename(self.sets[0].name)

    @property
    def files(self) -> set[str]:
        """The paths of its dumps."""
        return {recording.source.path for dumps in self.sets for recording in dumps.dumps.values()}

    def covers(self, path: str) -> bool:
        """True if a file, such as a log, belongs to it by its name."""
        return any(dumps.covers(path) for dumps in self.sets)

    @property
    def start_ns(self) -> int:
        """The earliest time in its dumps."""
        return min(dumps.start_ns for dumps in self.sets)

    @property
    def end_ns(self) -> int:
        """The latest time in its dumps."""
        return max(dumps.end_ns for dumps in self.sets)

    def contains(self, dumps: DumpSet) -> bool:
        """True if a set is of the same processes: by common entries, or as other ranks at the same time."""
        relations = [_are_of_same_processes(dumps, own) for own in self.sets]
        overlaps = dumps.start_ns <= self.end_ns and self.start_ns <= dumps.end_ns
        has_common_ranks = any(dumps.dumps.keys() & own.dumps.keys() for own in self.sets)
        return True in relations or (False not in relations and (overlaps or has_common_ranks))


def _runs(sets: Sequence[DumpSet]) -> list[Run]:
    """The sets of each run, the newest run first."""
    runs: list[Run] = []
    for dumps in sorted(sets, key=lambda dumps: (-len(dumps.dumps), dumps.label)):
        for run in runs:
            if run.contains(dumps):
                run.sets.append(dumps)
                break
        else:
            runs.append(Run([dumps]))
    for run in runs:
        run.sets.sort(key=cmp_to_key(_age_difference))
    return sorted(runs, key=lambda run: run.end_ns, reverse=True)


def _are_of_same_processes(dumps: DumpSet, other: DumpSet) -> bool | None:
    """None if no rank shows it."""
    relations = set()
    for rank in sorted(dumps.dumps.keys() & other.dumps.keys())[:MOST_COMPARED]:
        one, two = dumps.dumps[rank], other.dumps[rank]
        forward, back = is_continuation(one, two), is_continuation(two, one)
        relations.add(True if forward or back else None if None in (forward, back) else False)
    return True if True in relations else False if False in relations else None


def _age_difference(dumps: DumpSet, other: DumpSet) -> int:
    """Negative if the first set is newer than the other."""
    common = dumps.dumps.keys() & other.dumps.keys()
    later = sum(is_newer(dumps.dumps[rank], other.dumps[rank]) for rank in common)
    earlier = sum(is_newer(other.dumps[rank], dumps.dumps[rank]) for rank in common)
    return (earlier - later) or (other.end_ns - dumps.end_ns)


def _newest_generation(run: Run) -> Chosen:
    """The newest dumps of a run, with sets of other ranks, and the generation before them.

    If only few ranks have written the newest set, older dumps of the other ranks are taken as well.
    """
    ranks = {rank for dumps in run.sets for rank in dumps.dumps}
    newest = dict(run.sets[0].dumps)
    are_few = 2 * len(newest) < len(ranks)
    older = []
    for dumps in run.sets[1:]:
        if not newest.keys() & dumps.dumps.keys():
            newest |= dumps.dumps
            continue
        older.append(dumps)
        if are_few:
            newest = {**dumps.dumps, **newest}
    earlier = {
        rank: recording
        for dumps in reversed(older)
        for rank, recording in dumps.dumps.items()
        if newest.get(rank) is not recording
    }
    findings = [_generations_finding(run.sets[0], older, sorted(ranks - newest.keys()))] if older else []
    return Chosen(dict(sorted(newest.items())), dict(sorted(earlier.items())), findings)


class SeveralJobsError(RankConflictError):
    """The dumps are of several jobs."""

    def __init__(self, jobs: Sequence[Run]) -> None:
        super().__init__(
            f"these are dumps of {len(jobs)} jobs: {_names([job.sets[0] for job in jobs])}",
            advice="Name the files of one job. If they are one job, set the rank of each file with --rank FILE=N.",
        )
        self.jobs = jobs


def _check_one_job(runs: Sequence[Run]) -> None:
    """Raises SeveralJobsError unless runs follow each other, and have names as attempts of one job have."""
    by_name: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_name[NOT_OF_A_JOB.sub("", run.sets[0].label)].append(run)
    jobs = []
    for own in by_name.values():
        overlap = any(older.end_ns >= newer.start_ns for newer, older in pairwise(own))
        jobs += [[run] for run in own] if overlap else [own]
    if len(jobs) > 1:
        raise SeveralJobsError([Run([dumps for run in own for dumps in run.sets]) for own in jobs])


# Findings and errors.


def _attempts_finding(newest: Run, older: Sequence[Run]) -> Finding:
    others = [dumps for run in older for dumps in run.sets]
    later = duration(newest.start_ns - older[0].end_ns)
    message = (
        f"The dumps are of {len(older) + 1} attempts to run the job, one after the other. The newest is diagnosed: "
        f"{newest.sets[0].name}, which started {later} after the last entry of the one before. Not diagnosed: "
        f"{_names(others)}. To diagnose an earlier attempt, {_how_to_choose(others)}."
    )
    return Finding(Severity.WARNING, "attempts", message, len(others), example=others[0].name)


def _generations_finding(newest: DumpSet, older: Sequence[DumpSet], missing: Sequence[int]) -> Finding:
    message = (
        f"The same processes wrote dumps {len(older) + 1} times. The newest are diagnosed: {newest.name}. They are "
        f"compared with the earlier ones: {_names(older)}."
    )
    if missing:
        message += f" {ranks_in_words(missing)} left no dump the last time."
    return Finding(Severity.INFO, "generations", message, len(older), example=older[0].name)


def _conflict(dumps: Sequence[Dump]) -> RankConflictError:
    paths: dict[int, list[str]] = defaultdict(list)
    for rank, recording in dumps:
        paths[rank].append(recording.source.path)
    rank, (first, second, *_) = next((rank, found) for rank, found in sorted(paths.items()) if len(found) > 1)
    return RankConflictError(
        f"rank {rank} has two dumps that are not of one process: {first} and {second}",
        advice="Use one job at a time: leave one file out, or set the rank of each with --rank FILE=N.",
    )


def _names(sets: Sequence[DumpSet]) -> str:
    shown = [f"{dumps.name} ({counted(len(dumps.dumps), 'dump')})" for dumps in sets[:SHOWN]]
    if more := len(sets) - len(shown):
        shown.append(f"{more} more")
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _how_to_choose(sets: Sequence[DumpSet]) -> str:
    """How to name one of these sets on the command line."""
    if any("*" in path or archive_of(path) or os.path.isfile(path) for dumps in sets for path in dumps.paths):
        return "move its files to a folder of their own"
    return "name its folder: " + " or ".join(" ".join(dumps.paths) for dumps in sets[:SHOWN])


# Two dumps of one rank.


def is_continuation(earlier: Recording, later: Recording) -> bool | None:
    """True if the later dump is a later one of the same process: entries with the same record id are the same entries.

    None if no entry is in both and nothing contradicts it: a ring buffer has wrapped completely, or a dump is empty.
    """
    before, now = earlier.records, later.records
    if _last_id(later) < _last_id(earlier) and not (later.broken_off or later.only_active):
        return False
    if not len(before) or not len(now):
        return None
    old, new = _common_entries(earlier, later)
    if not len(old) and later.only_active:
        return None
    if not len(old):
        return (
            None if later.overwritten > _last_id(earlier) and now.created[0] >= before.created[-1] else False
        )
    created = before.created[old]
    if (created == NO_TIME).all():
        return None
    same = (created == now.created[new]) & (before.sequence[old] == now.sequence[new])
    newer = (before.state[old] <= now.state[new]) & (before.retired[old] <= now.retired[new])
    return bool((same & newer).all())


def is_newer(recording: Recording, other: Recording) -> bool:
    """True if a dump can be a later one of the same process, and not the other way round."""
    return is_continuation(other, recording) is not False and is_continuation(recording, other) is False


def progress_since(earlier: Recording, later: Recording) -> bool | None:
    """True if the later dump of the same process has new entries, or entries in a new state; None if unknown."""
    if _last_id(later) > _last_id(earlier) and not earlier.broken_off:
        return True
    if earlier.broken_off or later.broken_off:
        return None
    if later.only_active and len(_common_entries(earlier, later)[0]) < len(earlier.records):
        return True  # a call that is left out now is completed
    return not _unchanged(earlier, later).all()


def latest_time(recording: Recording) -> int | None:
    """The latest time that a dump contains: it was written then or later."""
    records = recording.records
    columns = (records.created, records.started, records.completed)
    latest = max(int(column.max(initial=NO_TIME)) for column in columns)
    return None if latest == NO_TIME else latest


def _unchanged(earlier: Recording, later: Recording) -> Bools:
    """True where the earlier one contains it in the same state."""
    found = np.zeros(len(later.records), np.bool_)
    old, new = _common_entries(earlier, later)
    same_state = earlier.records.state[old] == later.records.state[new]
    found[new] = same_state & (earlier.records.retired[old] == later.records.retired[new])
    return found


def _common_entries(earlier: Recording, later: Recording) -> tuple[Int64s, Int64s]:
    """The rows of entries with the same record id in both dumps; of a damaged dump with repeated ids the first ones."""
    ids = earlier.records.record, later.records.record
    _, in_old, in_new = np.intersect1d(*ids, return_indices=True)
    return in_old, in_new


def _last_id(recording: Recording) -> int:
    return int(recording.records.record.max(initial=-1))


class Earlier(Struct, frozen=True):
    """What earlier dumps show of the entries of a journal."""

    movement: Movement
    unchanged: Bools
    """True where the earlier dump of its rank contains it in the same state."""
    known: Bools
    """True where there is an earlier dump of its rank."""
    chosen: bool = True
    """True if the user chose them to see which ranks move; else they may be so old that movement shows nothing."""

    def decides(self, waiting: Collection[int], awaited: Collection[int]) -> bool | None:
        """True if ranks are stuck: their entries `waiting` are the same in both dumps, and no rank in `awaited` moved.

        False if one of them began to wait since dumps that the user chose; None if earlier dumps do not decide.
        """
        rows = np.fromiter(waiting, np.int64, len(waiting))
        rows = rows[self.known[rows]]
        if not len(rows):
            return None
        if not self.unchanged[rows].all():
            return False if self.chosen else None
        return None if set(awaited) & set(self.movement.moved) else True


def earlier_of(recordings: Mapping[int, Recording], before: Mapping[int, Recording]) -> Earlier | None:
    """What earlier dumps show of these recordings, sorted by rank; None if they are of another job."""
    ranks = sorted(recordings)
    of_this_job = {
        rank: before[rank]
        for rank in ranks
        if rank in before and is_continuation(before[rank], recordings[rank]) is not False
    }
    if not of_this_job:
        return None
    unchanged, known = [np.empty(0, np.bool_)], [np.empty(0, np.bool_)]
    moved: list[int] = []
    unmoved: list[int] = []
    for rank in ranks:
        now, earlier = recordings[rank], of_this_job.get(rank)
        known.append(np.full(len(now.records), earlier is not None))
        if earlier is None:
            unchanged.append(np.zeros(len(now.records), np.bool_))
            continue
        unchanged.append(_unchanged(earlier, now))
        if (progressed := progress_since(earlier, now)) is not None:
            (moved if progressed else unmoved).append(rank)
    times = [latest_time(recording) for recording in of_this_job.values()]
    return Earlier(
        Movement(
            tuple(moved),
            tuple(unmoved),
            tuple(sorted({*ranks} - {*moved} - {*unmoved})),
            max((time for time in times if time is not None), default=None),
        ),
        np.concatenate(unchanged),
        np.concatenate(known),
    )


def movement_in_words(movement: Movement) -> str:
    """`Since the earlier dumps (04:41:26.883 UTC or later): ranks 1-7 recorded nothing new; rank 0 moved on.`"""
    written = (
        f" ({time_of_day(movement.before_ns, 3)} UTC or later)" if movement.before_ns is not None else ""
    )
    parts = [
        f"{lowered(ranks_in_words(ranks))} {verb}"
        for ranks, verb in (
            (movement.unmoved, "recorded nothing new"),
            (movement.moved, "moved on"),
            (movement.unknown, "cannot be compared"),
        )
        if ranks
    ]
    return f"Since the earlier dumps{written}: {'; '.join(parts)}."
