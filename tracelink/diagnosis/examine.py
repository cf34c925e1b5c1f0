"""examine(): reads the dumps of a job, diagnoses them, and explains the result. The order of questions is here.

Input: sources, or a journal. Output: a `Diagnosis`, with the journal that it is based on.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.absence import Absence, absent_culprits, absent_members
from tracelink.diagnosis.deviations import Deviations
from tracelink.diagnosis.disagreements import (
    NO_ROOTS,
    Disagreement,
    Roots,
    disagreements_of,
    hangs_with_a_root,
    mismatch_problems,
    root_disagreements,
)
from tracelink.diagnosis.dumps.movement import Earlier, earlier_of
from tracelink.diagnosis.dumps.recordings import (
    UNREADABLE,
    Recordings,
    compile_logs_among,
    in_replicas,
    profiles_among,
    read_recordings,
)
from tracelink.diagnosis.explain import WHERE_DUMPS_ARE, judged_by_line, with_advice, with_evidence
from tracelink.diagnosis.hangs import hangs_of
from tracelink.diagnosis.journal import Journal, journal_of, last_unusable_entries, unusable_findings
from tracelink.diagnosis.lateness import lateness_report, with_late_history
from tracelink.diagnosis.lost_waits import lost_waits
from tracelink.diagnosis.message_problems import diagnose_messages
from tracelink.diagnosis.model import Checked, Diagnosis, Kind, Problem, RanksOfDumps
from tracelink.diagnosis.participation import Parts, parts_of, positions_of
from tracelink.diagnosis.programs import Comparison, Programs, comparisons_of
from tracelink.diagnosis.sizes import exchange_disagreements, with_misfits
from tracelink.diagnosis.stalls import NO_CLUES, Clues, hint_of_file_times
from tracelink.diagnosis.unrecorded import with_unrecorded, with_unseen
from tracelink.diagnosis.verdicts import (
    lawful,
    with_categories,
    with_compilations,
    with_stacks,
)
from tracelink.diagnosis.waits import collective_waits, standings_of
from tracelink.engines.reading import ReadOptions, engine_of, inputs_of
from tracelink.io.engine import Engine
from tracelink.io.remote.addresses import is_remote
from tracelink.io.sources import RECORDER_FORMAT, Discovery, Paths, Source, only_with_prefix
from tracelink.matching.groups import UNDEFINED
from tracelink.model.columns import NO_TIME
from tracelink.model.errors import UnreadableError, UsageError
from tracelink.model.findings import Finding, Severity, Truncated
from tracelink.model.operations import ROOTED, operation_of
from tracelink.model.text import count_of_ranks, lowered, ranks_in_words
from tracelink.pipeline.reading import Recording, Task, nothing_readable, tasks_of, two_jobs_findings
from tracelink.plugins import MetricsReader

if TYPE_CHECKING:
    from tracelink.diagnosis.witnesses.bundle import Bundle
    from tracelink.diagnosis.witnesses.evidence import Shown

FOLDABLE = frozenset(
    {
        *(Kind.NEVER_JOINED, Kind.LAGGING, Kind.SKIPPED, Kind.FAILED, Kind.PEER_MISMATCH),
        *(Kind.OPERATION_MISMATCH, Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH),
    }
)
"""Problems of which several are one if only their groups and their culprits differ."""
LEFT = frozenset({"skipped", "unknown_format", UNREADABLE})
"""Reasons of findings on files that no reader of traces reads."""
PROFILES_INSTEAD = (
    " Profiles show which rank arrived last at which collective: run tracelink collectives on the same paths."
)


class Examined(Struct, frozen=True):
    """A diagnosis and the entries that it is based on."""

    diagnosis: Diagnosis
    journal: Journal

    def __repr__(self) -> str:
        return (
            f"<Examined: {len(self.journal):,} entries in the journal, and a diagnosis\n{self.diagnosis!r}>"
        )


def diagnose(
    paths: Paths = (),
    *,
    before: Paths = (),
    hung: bool = False,
    **reading: Unpack[ReadOptions],
) -> Diagnosis:
    """Finds out why a job hangs, from flight-recorder dumps: which rank, in which collective, and why.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        before: Paths of earlier dumps of the same job: ranks that recorded nothing since then are stuck.
        hung: The job is known to hang: what is in flight is a problem.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        The diagnosis: problems, the worst first, and what each rank was last doing.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
    """
    return examine(paths, before=before, hung=hung, **reading).diagnosis


def examine(
    paths: Paths = (),
    *,
    before: Paths = (),
    prefix: str = "",
    replica_size: int | None = None,
    hung: bool = False,
    **reading: Unpack[ReadOptions],
) -> Examined:
    """Returns the same as `diagnose`, with the entries that the diagnosis is based on.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        before: Paths of earlier dumps of the same job: ranks that recorded nothing since then are stuck.
        prefix: Read only files whose names start with it.
        replica_size: Number of ranks in each replica, if every replica numbers its ranks from 0 (as with torchft).
        hung: The job is known to hang: what is in flight is a problem.
        **reading: What is read, as what, and where the work runs: see `ReadOptions`.

    Returns:
        The diagnosis, and the journal with the entries of all ranks.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read. A file that is damaged or of an unknown format is skipped and reported
            as a finding as long as another one can be read.
    """
    discovery = inputs_of(paths, reading)
    of_both = {name: value for name, value in reading.items() if name in ("rank_of", "max_unpacked")}
    earlier = inputs_of(before, cast(ReadOptions, of_both), all_named=False) if before else None
    if prefix:
        discovery = only_with_prefix(discovery, prefix)
        earlier = only_with_prefix(earlier, prefix) if earlier else None
    if earlier:
        _check_not_the_same(discovery, earlier)
    return examine_sources(discovery, engine_of(reading), replica_size, earlier, Clues(hung=hung))


def _check_not_the_same(discovery: Discovery, earlier: Discovery) -> None:
    """Compared with itself, every job is stuck."""
    now, before = (
        {source.path if is_remote(source.path) else os.path.realpath(source.path) for source in found.sources}
        for found in (discovery, earlier)
    )
    if before and now == before:
        raise UsageError(
            "--before names the same files as PATHS",
            advice="Name dumps that were taken earlier: tracelink diagnose now/ --before earlier/",
        )


def examine_sources(
    discovery: Discovery,
    engine: Engine,
    replica_size: int | None = None,
    before: Discovery | None = None,
    clues: Clues = NO_CLUES,
) -> Examined:
    """Reads the dumps and diagnoses them; `replica_size` is for replicas that number their own ranks from 0."""
    try:
        recordings = _read(discovery, engine)
    except UnreadableError as error:
        return _without_dumps(discovery, engine, clues, error)
    earlier, findings = _earlier(recordings, before, engine)
    recordings = replace(recordings, findings=[*recordings.findings, *findings])
    if replica_size is not None:
        recordings = _in_replicas(recordings, replica_size)
    journal = journal_of(recordings.by_rank)
    diagnosis = _diagnosis(journal, recordings, engine, replace(clues, earlier=earlier))
    diagnosis = with_evidence(diagnosis, journal)
    diagnosis = _with_compilations(judged_by_line(diagnosis), journal, recordings, engine)
    others = _others(diagnosis, recordings, discovery, engine)
    diagnosis = with_stacks(diagnosis, others.stacks.by_rank) if others else diagnosis
    hosts = {rank: recording.source.host for rank, recording in recordings.by_rank.items()}
    diagnosis = with_unseen(diagnosis, journal, replace(clues, earlier=earlier))
    diagnosis = with_unrecorded(with_advice(diagnosis, hosts), journal)
    diagnosis = _with_hint(diagnosis, journal, _file_times(discovery, recordings))
    diagnosis = _with_metrics(diagnosis, recordings, discovery, engine)
    diagnosis = _with_sightings(diagnosis, journal, recordings, engine)
    return Examined(_with_others(diagnosis, recordings, others, clues) if others else diagnosis, journal)


def _file_times(discovery: Discovery, recordings: Recordings) -> dict[int, int]:
    """When the files of ranks were written, in ns since 1970, of dumps that are files of their own."""
    written = {source.path: source.modified_ns for source in discovery.sources if source.is_whole}
    times = {rank: written.get(recording.source.path, 0) for rank, recording in recordings.by_rank.items()}
    return {rank: time for rank, time in times.items() if time}


def _with_hint(diagnosis: Diagnosis, journal: Journal, written: Mapping[int, int]) -> Diagnosis:
    """What file times indicate if nothing decides whether the job hangs."""
    undecided = diagnosis.verdict == "in_flight" or diagnosis.blind_spot
    hint = hint_of_file_times(journal, written) if undecided else ""
    if not hint:
        return diagnosis
    if diagnosis.blind_spot:
        note = f"{diagnosis.blind_spot} {hint}"
        return replace(diagnosis, blind_spot=note, notes=[note, *diagnosis.notes[1:]])
    first, *others = diagnosis.problems
    return replace(diagnosis, problems=[replace(first, advice=f"{first.advice} {hint}"), *others])


# The diagnosis: causes first, then the ranks that wait because of them.


def diagnosis_of(
    journal: Journal,
    unreadable: Mapping[int, str] | None = None,
    findings: Sequence[Finding] = (),
    roots: Roots = NO_ROOTS,
    clues: Clues = NO_CLUES,
) -> Diagnosis:
    """The problems that these recordings show; `roots` are known from profiles, `clues` from elsewhere."""
    truncated = [rank for rank, recording in journal.recordings.items() if recording.broken_off]

    # What did each rank take part in, and how far did it get?
    parts = parts_of(journal)
    positions = positions_of(journal, parts, truncated)

    # In which collectives do ranks request different things?
    comparisons = comparisons_of(journal, parts.compositions)
    disagreements, unread, of_sizes = _disagreements(journal, parts, comparisons, roots)

    # Which ranks wait where, for which ranks?
    disputed = [disagreement.collective for disagreement in disagreements]
    waits = collective_waits(journal, parts, positions, disputed)
    lost = lost_waits(journal, parts, positions)
    incomplete = [*truncated, *last_unusable_entries(journal)]
    messages = diagnose_messages(journal, parts, positions, incomplete, lost.added_to(waits))

    # Which of that are problems: mismatches, hangs, late ranks?
    programs = Programs(journal, parts, comparisons)
    mismatches = mismatch_problems(journal, parts, disagreements, programs, waits)
    mismatches += messages.mismatches
    late = lateness_report(journal, parts)
    clues = replace(clues, late_before={one.culprits: one.waited_ns or 0 for one in late.problems})
    deviations = Deviations(journal, comparisons, incomplete)
    hangs, notes = hangs_of(journal, parts, messages.waits, messages.times, mismatches, clues, deviations)
    absence = Absence(journal, parts, positions, messages.waits, unreadable or {})
    hangs = with_late_history(absent_culprits(absence, hangs), late.problems)
    stalled = any(problem.waiting and problem.kind is not Kind.IN_FLIGHT for problem in [*hangs, *mismatches])
    if stalled:
        late = late.of_stalled_job()
    elif not any(problem.kind is Kind.ABSENT for problem in hangs):
        hangs += absent_members(absence)
    problems = _folded([*hangs, *map(_with_waiting_ranks, mismatches), *late.problems])

    # What was the diagnosis based on?
    dumps = _dumps(journal, truncated, unreadable or {})
    two_jobs = two_jobs_findings(_recordings(journal), "Diagnose each by itself.")
    diagnosis = Diagnosis(
        problems=with_categories(_worst_first(problems), dumps.missing),
        standings=standings_of(journal, parts, positions, [*waits, *lost.waits]),
        lateness=late.lateness,
        ranks=dumps,
        checked=_checked(journal, parts, messages.count),
        notes=[*notes, *of_sizes, *late.notes],
        findings=[*findings, *two_jobs, *journal.findings, *unusable_findings(journal), *unread],
        movement=clues.earlier.movement if clues.earlier else None,
    )
    return lawful(diagnosis)


def _disagreements(
    journal: Journal, parts: Parts, comparisons: Sequence[Comparison], roots: Roots
) -> tuple[list[Disagreement], list[Finding], list[str]]:
    """All disagreements, findings on entries that could not be read again, and notes on sizes."""
    exchanges, unread = exchange_disagreements(journal, parts)
    found, notes = with_misfits(journal, parts, [*disagreements_of(parts, comparisons), *exchanges])
    known = {disagreement.collective for disagreement in found}
    return [*found, *root_disagreements(journal, parts, roots, known)], unread, notes


def _with_waiting_ranks(problem: Problem) -> Problem:
    """Completes the message of a mismatch, because of which ranks may or may not wait."""
    waiting = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    return replace(problem, message=f"{problem.message}{waiting}.")


def _folded(problems: Sequence[Problem]) -> list[Problem]:
    """The problems, where the same one in similar groups, each with its own culprits, is one."""
    similar: dict[tuple[object, ...], list[Problem]] = {}
    for number, problem in enumerate(problems):
        foldable = problem.kind in FOLDABLE and problem.culprits and not problem.tie
        described = problem.description not in ("", UNDEFINED)
        key = (problem.kind, problem.operation, problem.sequence, problem.description, problem.proven)
        similar.setdefault(key if foldable and described else (number,), []).append(problem)
    return [one for alike in similar.values() for one in _as_one(alike)]


def _as_one(problems: Sequence[Problem]) -> Sequence[Problem]:
    """One problem, if groups and culprits differ."""
    first, count = problems[0], len(problems)
    culprits = sorted({rank for problem in problems for rank in problem.culprits})
    groups = {problem.group for problem in problems}
    if (
        count == 1
        or len(culprits) < sum(len(problem.culprits) for problem in problems)
        or len(groups) < count
    ):
        return problems
    waiting = sorted({rank for problem in problems for rank in problem.waiting} - set(culprits))
    where = f"{ranks_in_words(culprits)}, in {count} groups ({first.description})"
    in_all = f" In all, {count_of_ranks(waiting, 'wait')}." if len(waiting) > len(first.waiting) else ""
    return [
        replace(
            first,
            culprits=tuple(culprits),
            waiting=tuple(waiting),
            message=f"{where}: {lowered(first.message)}{in_all}",
            count=sum(problem.count for problem in problems),
            waited_ns=max((problem.waited_ns or 0 for problem in problems), default=0) or None,
            rows={
                rank: row
                for problem in problems
                for rank, row in problem.rows.items()
                if problem is first or rank in culprits
            },
        )
    ]


def _worst_first(problems: Sequence[Problem]) -> list[Problem]:
    """Sorted by the number of waiting ranks, then by the number of collectives that show it."""
    return sorted(
        problems,
        key=lambda problem: (
            problem.kind is Kind.IN_FLIGHT,
            -len(problem.waiting),
            -problem.count,
            problem.group,
            problem.sequence or 0,
            problem.culprits,
        ),
    )


def _dumps(journal: Journal, truncated: Collection[int], unreadable: Mapping[int, str]) -> RanksOfDumps:
    failed = {**unreadable, **{rank: _why_truncated(journal, rank) for rank in truncated}}
    return RanksOfDumps.of(
        [rank for rank in journal.recordings if rank not in truncated],
        [rank for rank in journal.absent if rank not in failed],
        dict(sorted(failed.items())),
    )


def _why_truncated(journal: Journal, rank: int) -> str:
    findings = journal.recordings[rank].findings
    return next((finding.message for finding in findings if finding.reason == Truncated.reason), "")


def _checked(journal: Journal, parts: Parts, messages: int) -> Checked:
    return Checked(
        ranks=len(journal.recordings),
        entries=len(journal),
        groups=len(journal.groups),
        collectives=int(parts.collective[-1]) + 1 if len(parts) else 0,
        messages=messages,
    )


def _recordings(journal: Journal) -> list[Recording]:
    """The first and the last creation time of each rank's entries."""
    created = journal.records.created
    spans = []
    for rank, first, end in zip(
        journal.ranks.tolist(), journal.bounds[:-1].tolist(), journal.bounds[1:].tolist(), strict=True
    ):
        times = created[first:end][created[first:end] != NO_TIME]
        if len(times):
            spans.append((int(times.min()), int(times.max()), rank))
    return spans


# Reading dumps.


def _read(discovery: Discovery, engine: Engine) -> Recordings:
    try:
        recordings = read_recordings(discovery, engine)
    except UnreadableError as error:
        raise (_no_dumps(discovery) if str(error) == str(nothing_readable(())) else error) from None
    if not recordings.by_rank:
        errors = [finding for finding in recordings.findings if finding.severity is Severity.ERROR]
        raise nothing_readable(errors)
    return replace(recordings, unreadable=_unreadable(recordings, discovery))


def _earlier(
    recordings: Recordings, before: Discovery | None, engine: Engine
) -> tuple[Earlier | None, list[Finding]]:
    """What earlier dumps show: those that the user names, else those in the same folders."""
    if before is None:
        found = earlier_of(recordings.by_rank, recordings.earlier) if recordings.earlier else None
        return (replace(found, chosen=False) if found else None), []
    try:
        read = read_recordings(before, engine)
    except UnreadableError as error:
        raise UnreadableError(
            f"--before: {_no_dumps(before).problem if str(error) == str(nothing_readable(())) else error}".rstrip(
                "."
            ),
            advice="Name the earlier dumps of the same job, or leave out --before.",
        ) from None
    findings = [finding for finding in read.findings if finding.severity is not Severity.INFO]
    earlier = earlier_of(recordings.by_rank, read.by_rank)
    if earlier is None and earlier_of(read.by_rank, recordings.by_rank):
        raise UsageError(
            "the dumps of --before are newer than the others", advice="Give the earlier dumps with --before."
        )
    if earlier is None:
        message = "The dumps of --before are of another job, or of other ranks: no entry is in both. They are not used."
        findings.append(Finding(Severity.WARNING, "before_other_job", message, len(read.by_rank)))
    return earlier, findings


def _unreadable(recordings: Recordings, discovery: Discovery) -> dict[int, str]:
    """Why the dump of a rank was not read, including files that are known to be dumps by their name only."""
    why = {finding.source: finding.message for finding in recordings.findings if finding.reason == UNREADABLE}
    by_name = {
        source.rank_hint.rank: why[source.path]
        for source in discovery.sources
        if source.path in why and source.rank_hint
    }
    unreadable = {**by_name, **recordings.unreadable}
    return {rank: unreadable[rank] for rank in sorted(unreadable) if rank not in recordings.by_rank}


def _in_replicas(recordings: Recordings, size: int) -> Recordings:
    """Profiles are left out: they do not show their replica."""
    replicas = in_replicas(recordings.by_rank, size)
    findings = [*recordings.findings, *replicas.findings]
    if profiles := len(profiles_among(recordings.tasks)):
        message = f"{profiles} profiles were not read: it is unknown to which replica their ranks belong."
        findings.append(Finding(Severity.INFO, "profiles_of_replicas", message, profiles))
    return Recordings(replicas.recordings, recordings.unreadable, findings)


def _no_dumps(discovery: Discovery) -> UnreadableError:
    count = len(discovery.sources)
    if not count:
        found = "there are no files"
    else:
        found = f"none of the {count} files is a dump" if count > 1 else "this file is something else"
    return UnreadableError(
        f"no flight-recorder dump found: {found}",
        advice=WHERE_DUMPS_ARE + (PROFILES_INSTEAD if tasks_of(discovery, []) else ""),
    )


# Profiles and compile logs next to the dumps. What reads them is imported only if there is something to read.


def _diagnosis(journal: Journal, recordings: Recordings, engine: Engine, clues: Clues) -> Diagnosis:
    """From dumps alone, unless the user names profiles, or ranks hang in an operation with a root."""
    diagnosis = diagnosis_of(journal, recordings.unreadable, recordings.findings, clues=clues)
    profiles = profiles_among(recordings.tasks)
    named = any(task.source.format for task in profiles)
    if not profiles or not (named or _may_disagree_on_roots(diagnosis, journal)):
        return diagnosis
    from tracelink.diagnosis.profiles import roots_of

    roots, findings = roots_of(journal, recordings.tasks, engine)
    if not roots:
        return replace(diagnosis, findings=[*diagnosis.findings, *findings])
    return diagnosis_of(journal, recordings.unreadable, [*recordings.findings, *findings], roots, clues)


def _may_disagree_on_roots(diagnosis: Diagnosis, journal: Journal) -> bool:
    timed_out = [problem.operation for problem in diagnosis.problems if problem.kind is Kind.TIMED_OUT]
    return hangs_with_a_root(journal) or any(operation_of(operation) in ROOTED for operation in timed_out)


def _with_sightings(
    diagnosis: Diagnosis, journal: Journal, recordings: Recordings, engine: Engine
) -> Diagnosis:
    if not diagnosis.problems or not profiles_among(recordings.tasks):
        return diagnosis
    from tracelink.diagnosis.profiles import with_sightings

    return with_sightings(diagnosis, journal, recordings.tasks, engine)


def _with_metrics(
    diagnosis: Diagnosis, recordings: Recordings, discovery: Discovery, engine: Engine
) -> Diagnosis:
    """With notes on GPUs that run differently from the others, if metrics are among the inputs."""
    if not any(isinstance(task.reader, MetricsReader) for task in recordings.tasks):
        return diagnosis
    from tracelink.pipeline.metrics import differing_gpus

    infos = [replace(found.source, rank=rank) for rank, found in recordings.by_rank.items()]
    notes, findings = differing_gpus(recordings.tasks, infos, discovery.metrics, engine)
    return replace(diagnosis, notes=[*diagnosis.notes, *notes], findings=[*diagnosis.findings, *findings])


def _with_compilations(
    diagnosis: Diagnosis, journal: Journal, recordings: Recordings, engine: Engine
) -> Diagnosis:
    if not diagnosis.problems or not compile_logs_among(recordings.tasks):
        return diagnosis
    return with_compilations(diagnosis, journal, recordings.tasks, engine)


# Files that are no traces, next to dumps or instead of them: logs, stacks, answers of NCCL's monitor.


def _others(
    diagnosis: Diagnosis, recordings: Recordings, discovery: Discovery, engine: Engine
) -> Bundle | None:
    """What the files contain that no reader of traces reads; None if there are none."""
    left = {finding.source for finding in diagnosis.findings if finding.reason in LEFT}
    sources = [source for source in discovery.sources if source.path in left and not source.format]
    texts = _read_as_metrics(recordings.tasks)
    if not sources and not texts:
        return None
    from tracelink.diagnosis.witnesses.bundle import bundle_of

    return bundle_of(sources, engine, texts)


def _read_as_metrics(tasks: Sequence[Task]) -> list[Source]:
    """Texts with numbers at their start, which can be logs."""
    return [
        task.source for task in tasks if isinstance(task.reader, MetricsReader) and not task.source.format
    ]


def _with_others(diagnosis: Diagnosis, recordings: Recordings, others: Bundle, clues: Clues) -> Diagnosis:
    """The diagnosis with what these files show, and where they contradict the dumps."""
    from tracelink.diagnosis.witnesses.evidence import next_to_dumps

    paths = {rank: recording.source.path for rank, recording in recordings.by_rank.items()}
    shown = next_to_dumps(others, diagnosis, paths, hung=clues.hung)
    return _with_shown(diagnosis, others, shown, recordings.tasks, list(paths.values()))


def _with_shown(
    diagnosis: Diagnosis, others: Bundle, shown: Shown, tasks: Sequence[Task], dumps: Sequence[str]
) -> Diagnosis:
    from tracelink.diagnosis.witnesses.bundle import uses_of, with_folded_skips
    from tracelink.diagnosis.witnesses.evidence import with_others

    kept = [finding for finding in diagnosis.findings if finding.source not in others.recognised]
    used = [*uses_of(tasks, dumps), *shown.witnesses.used]
    shown = replace(
        shown,
        problems=with_categories(shown.problems, ()),
        witnesses=replace(shown.witnesses, used=used),
    )
    return with_others(replace(diagnosis, findings=with_folded_skips(kept)), shown)


def _without_dumps(discovery: Discovery, engine: Engine, clues: Clues, error: UnreadableError) -> Examined:
    """What logs, NCCL's monitor and stacks show by themselves; raises the error if there are none."""
    findings = list(discovery.findings)
    tasks = tasks_of(discovery, findings, RECORDER_FORMAT)
    read = {task.source.path for task in tasks}
    sources = [source for source in discovery.sources if source.path not in read and not source.format]
    texts = _read_as_metrics(tasks)
    if not sources and not texts:
        raise error
    from tracelink.diagnosis.witnesses.bundle import bundle_of
    from tracelink.diagnosis.witnesses.evidence import recordings_of, without_dumps

    others = bundle_of(sources, engine, texts)
    shown = without_dumps(others, error, hung=clues.hung)
    journal = journal_of(recordings_of(others.reports))
    records = journal.records
    collectives = set(zip(records.group.tolist(), records.sequence.tolist(), strict=True))
    checked = Checked(len(journal.recordings), len(journal), len(journal.groups), len(collectives))
    diagnosis = _with_shown(Diagnosis(checked=checked, findings=findings), others, shown, tasks, ())
    return Examined(with_stacks(diagnosis, others.stacks.by_rank), journal)
