"""examine(): reads the dumps of a job, finds verdicts, and completes them with what other files show. The order of
questions is here.

Input: sources, or a journal. Output: a `Diagnosis`, with the journal that it is based on.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack, cast

from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.explain import add_compilations, add_evidence, judge_by_line
from tracelink._hang.facts.deviations import Deviations
from tracelink._hang.facts.disagreements import (
    NO_ROOTS,
    Roots,
    compare_exchanges,
    disagreements_of,
    hangs_with_a_root,
)
from tracelink._hang.facts.journal import Journal, find_last_unusable, journal_of, report_unusable
from tracelink._hang.facts.messages import messages_of
from tracelink._hang.facts.model import Checked, Diagnosis, Kind, RanksOfDumps
from tracelink._hang.facts.participation import Parts, parts_of, positions_of
from tracelink._hang.facts.programs import comparisons_of
from tracelink._hang.facts.recordings import (
    UNREADABLE,
    Recordings,
    find_compile_logs,
    find_profiles,
    read_recordings,
    renumber_replicas,
    sources_of_jobs,
)
from tracelink._hang.facts.sets import Earlier, Run, SeveralJobsError, earlier_of
from tracelink._hang.facts.stalls import NO_CLUES, Clues, hint_of_file_times
from tracelink._hang.facts.waits import find_collective_waits, find_lost_waits, standings_of
from tracelink._hang.verdicts.absence import Absence, find_absent_members, merge_absent_culprits
from tracelink._hang.verdicts.base import WHERE_DUMPS_ARE, Verdict
from tracelink._hang.verdicts.drafts import Draft, apply_law, fold, sort_worst_first
from tracelink._hang.verdicts.hangs import hangs_of
from tracelink._hang.verdicts.lateness import lateness_report
from tracelink._hang.verdicts.messages import find_differing_payloads, find_peers_outside
from tracelink._hang.verdicts.mismatches import mismatches_of
from tracelink._hang.verdicts.unrecorded import add_unrecorded, add_unseen
from tracelink._io.engine import Engine
from tracelink._io.remote.addresses import is_remote
from tracelink._io.sources import RECORDER_FORMAT, Discovery, Paths, Source, only_with_prefix
from tracelink._join.reading import Recording, Task, nothing_readable, tasks_of, two_jobs_findings
from tracelink._model.columns import NO_TIME
from tracelink._model.errors import NoInputError, UnreadableError, UsageError
from tracelink._model.fields import FrozenRanks
from tracelink._model.findings import Finding, Severity, Truncated
from tracelink._model.operations import ROOTED, operation_of
from tracelink._run.reading import ReadOptions, check_whole, engine_of, inputs_of
from tracelink.plugins import Content

if TYPE_CHECKING:
    from tracelink._hang.facts.bundle import Bundle

WORST_FIRST = ("problem", "in_flight", "ok")
LEFT = frozenset({"skipped", "unknown_format", UNREADABLE})
"""Reasons of findings on files that no reader of traces reads."""
PROFILES_INSTEAD = (
    " Profiles show which rank arrived last at which collective: run tracelink collectives on the same paths."
)


class Examined(Struct, frozen=True):
    """A diagnosis and the entries that it is based on."""

    diagnosis: Diagnosis
    journal: Journal
    others: Sequence[Examined] = ()
    """If the dumps are of several jobs, the others: this one is the worst."""

    def __repr__(self) -> str:
        return (
            f"<Examined: {len(self.journal):,} entries in the journal, and a diagnosis\n{self.diagnosis!r}>"
        )


def examine(
    paths: Paths = (),
    *,
    before: Paths = (),
    prefix: str = "",
    replica_size: int | None = None,
    hung: bool = False,
    **options: Unpack[ReadOptions],
) -> Examined:
    """Diagnoses a job, and returns the entries that the diagnosis is based on, too.

    Args:
        paths: Files, directories, globs and archives; `-` is standard input. Formats are found by looking inside.
        before: Paths of earlier dumps of the same job: ranks that recorded nothing since then are stuck.
        prefix: Read only files whose names start with it.
        replica_size: Number of ranks in each replica, if every replica numbers its ranks from 0 (as with torchft).
        hung: The job is known to hang: what is in flight is a problem.
        **options: See `ReadOptions`.

    Returns:
        The diagnosis, and the journal with the entries of all ranks.

    Raises:
        UsageError: A path does not exist, or an argument is invalid.
        UnreadableError: No source can be read.
    """
    check_whole(options, "who waits for whom is seen in the dumps of all ranks")
    discovery = inputs_of(paths, options)
    of_both = {name: value for name, value in options.items() if name in ("rank_of", "max_unpacked")}
    earlier = inputs_of(before, cast(ReadOptions, of_both), all_named=False) if before else None
    if prefix:
        discovery = only_with_prefix(discovery, prefix)
        earlier = only_with_prefix(earlier, prefix) if earlier else None
    if earlier:
        _check_not_the_same(discovery, earlier)
    return examine_sources(discovery, engine_of(options), replica_size, earlier, Clues(hung=hung))


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
    except SeveralJobsError as several:
        if before is not None:
            raise
        return _each_job(several.jobs, discovery, engine, replica_size, clues)
    earlier, findings = _earlier(recordings, before, engine)
    recordings = replace(recordings, findings=[*recordings.findings, *findings])
    if replica_size is not None:
        recordings = _in_replicas(recordings, replica_size)
    journal = journal_of(recordings.by_rank)
    # The journal has all entries: a third of the memory is what the recordings still hold.
    recordings = replace(recordings, by_rank=journal.recordings, earlier={})
    others = _others(recordings, discovery, engine)
    clues = replace(clues, earlier=earlier, failed=others.failed() if others else frozenset())
    clues = replace(clues, written=_file_times(discovery, recordings))
    inputs = _Inputs(journal, recordings, discovery, engine, clues, others)
    draft = _with_roots(draft_of(journal, recordings.unreadable, recordings.findings, clues=clues), inputs)
    for step in STEPS:
        draft = step(draft, inputs)
    return Examined(draft.settled(), journal)


def _each_job(
    jobs: Sequence[Run],
    discovery: Discovery,
    engine: Engine,
    replica_size: int | None,
    clues: Clues,
) -> Examined:
    """The worst job, with the others."""
    own, findings = sources_of_jobs(discovery, jobs)
    examined = []
    for job, sources in zip(jobs, own, strict=True):
        found = examine_sources(sources, engine, replica_size, None, clues)
        examined.append(replace(found, diagnosis=replace(found.diagnosis, job=job.name)))
    worst, *others = sorted(examined, key=lambda one: WORST_FIRST.index(one.diagnosis.verdict))
    diagnosis = replace(
        worst.diagnosis,
        other_jobs=[other.diagnosis for other in others],
        findings=[*findings, *worst.diagnosis.findings],
    )
    return Examined(diagnosis, worst.journal, others)


class _Inputs(Struct, frozen=True):
    """All that is read of a job."""

    journal: Journal
    recordings: Recordings
    discovery: Discovery
    engine: Engine
    clues: Clues
    others: Bundle | None
    """Files that no reader of traces reads; None if there are none."""


# The diagnosis: causes first, then the ranks that wait because of them.


def draft_of(
    journal: Journal,
    unreadable: Mapping[int, str] | None = None,
    findings: Sequence[Finding] = (),
    roots: Roots = NO_ROOTS,
    clues: Clues = NO_CLUES,
) -> Draft:
    """The verdicts on these recordings, with evidence; `roots` are known from profiles, `clues` from elsewhere."""
    truncated = [rank for rank, recording in journal.recordings.items() if recording.broken_off]

    # What did each rank take part in, and how far did it get?
    parts = parts_of(journal)
    positions = positions_of(journal, parts, truncated)

    # In which collectives do ranks request different things?
    comparisons = comparisons_of(journal, parts.compositions)
    exchanges, unread = compare_exchanges(journal, parts)
    disagreements = [*disagreements_of(journal, parts, comparisons, roots), *exchanges]

    # Which ranks wait where, for which ranks?
    disputed = [disagreement.collective for disagreement in disagreements]
    waits = find_collective_waits(journal, parts, positions, disputed)
    lost = find_lost_waits(journal, parts, positions)
    incomplete = [*truncated, *find_last_unusable(journal)]
    messages = messages_of(journal, parts, positions, incomplete)
    all_waits = [*lost.added_to(waits), *messages.waits]

    # Which of that are problems: mismatches, hangs, late ranks?
    deviations = Deviations(journal, comparisons, incomplete)
    requested = mismatches_of(journal, parts, disagreements, comparisons, waits, deviations)
    mismatches: list[Verdict] = [
        *requested,
        *find_differing_payloads(messages),
        *find_peers_outside(messages),
    ]
    late = lateness_report(journal, parts)
    hangs, notes = hangs_of(messages, all_waits, mismatches, clues, deviations)
    absence = Absence(journal, parts, positions, all_waits, unreadable or {}, clues)
    hangs, late_before = (
        merge_absent_culprits(absence, hangs),
        {one.culprits: one.count for one in late.stragglers},
    )
    found = [problem for problem in [*hangs, *mismatches] if problem.kind is not Kind.IN_FLIGHT]
    if stopped := {rank for problem in found for rank in problem.waiting}:
        late = late.of_stalled_job()
    elif not any(problem.kind is Kind.ABSENT for problem in hangs):
        named = {rank for problem in hangs for rank in problem.culprits}
        hangs += find_absent_members(absence, named)
    verdicts = fold([*hangs, *mismatches, *late.stragglers])

    # What was the diagnosis based on?
    dumps = _dumps(journal, truncated, unreadable or {})
    two_jobs = two_jobs_findings(_recordings(journal), "Diagnose each by itself.")
    rest = Diagnosis(
        standings=standings_of(journal, parts, positions, [*waits, *lost.waits], stopped),
        lateness=late.lateness,
        ranks=dumps,
        checked=_checked(journal, parts, messages.matching.messages),
        notes=[*notes, *late.notes],
        findings=[*findings, *two_jobs, *journal.findings, *report_unusable(journal), *unread],
        movement=clues.earlier.movement if clues.earlier else None,
    )
    draft = apply_law(Draft(sort_worst_first(verdicts, rest), rest)).each(
        lambda verdict: _known(verdict, dumps, late_before)
    )

    # Which entries show it, and may calls without a record be the cause?
    draft = add_evidence(draft, journal).each(judge_by_line)
    draft = draft.each(lambda verdict: _unless_outvoted(verdict, journal))
    draft = add_unseen(draft, journal, clues)
    hint = "" if draft.is_decided else hint_of_file_times(journal, clues.written)
    return add_unrecorded(draft, journal, hint)


def _known(verdict: Verdict, dumps: RanksOfDumps, late_before: Mapping[FrozenRanks, int]) -> Verdict:
    """The verdict with what is known of its culprits: whether they have dumps, and were late before."""
    culprits = set(verdict.culprits)
    damaged = culprits.intersection(dumps.unreadable)
    return replace(
        verdict,
        damaged=tuple(sorted(damaged)),
        undumped=tuple(sorted(culprits - damaged - set(dumps.present))),
        late_before=late_before.get(verdict.culprits, 0) if verdict.not_reached else 0,
    )


def _unless_outvoted(verdict: Verdict, journal: Journal) -> Verdict:
    """Not proven if members of its group that left no dump could show that others are to blame.

    Any of them may be a part of a deadlock, and the other way through the program may be theirs, too.
    """
    members = {rank for group in journal.groups if group.name == verdict.group for rank in group.ranks}
    gone = members - journal.recordings.keys()
    agreeing = members - gone - set(verdict.culprits)
    by_majority = verdict.kind is not Kind.DEADLOCK and len(agreeing) > len(gone.union(verdict.culprits))
    if not gone or by_majority or verdict.kind not in (Kind.DEADLOCK, Kind.SKIPPED, Kind.EXTRA_CALL):
        return verdict
    return replace(verdict, proven=False)


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
        raise (_no_dumps(discovery) if isinstance(error, NoInputError) else error) from None
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
            f"--before: {_no_dumps(before).problem if isinstance(error, NoInputError) else error}".rstrip(
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
    by_rank, findings = renumber_replicas(recordings.by_rank, size)
    findings = [*recordings.findings, *findings]
    if profiles := len(find_profiles(recordings.tasks)):
        message = f"{profiles} profiles were not read: it is unknown to which replica their ranks belong."
        findings.append(Finding(Severity.INFO, "profiles_of_replicas", message, profiles))
    return Recordings(by_rank, recordings.unreadable, findings)


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


def _file_times(discovery: Discovery, recordings: Recordings) -> dict[int, int]:
    """When the files of ranks were written, in ns since 1970, of dumps that are files of their own."""
    written = {source.path: source.modified_ns for source in discovery.sources if source.is_whole}
    times = {rank: written.get(recording.source.path, 0) for rank, recording in recordings.by_rank.items()}
    return {rank: time for rank, time in times.items() if time}


# What profiles, metrics, compile logs and times of files show. What reads them is imported only if there are some.


def _with_roots(draft: Draft, inputs: _Inputs) -> Draft:
    """From dumps alone, unless the user names profiles, or ranks hang in an operation with a root."""
    journal, recordings = inputs.journal, inputs.recordings
    profiles = find_profiles(recordings.tasks)
    named = any(task.source.format for task in profiles)
    if not profiles or not (named or _may_disagree_on_roots(draft, journal)):
        return draft
    from tracelink._hang.profiles import roots_of

    roots, findings = roots_of(journal, recordings.tasks, inputs.engine)
    if not roots:
        return draft.with_verdicts(draft.verdicts, findings)
    findings = [*recordings.findings, *findings]
    return draft_of(journal, recordings.unreadable, findings, roots, inputs.clues)


def _may_disagree_on_roots(draft: Draft, journal: Journal) -> bool:
    timed_out = [verdict.operation for verdict in draft.verdicts if verdict.kind is Kind.TIMED_OUT]
    return hangs_with_a_root(journal) or any(operation_of(operation) in ROOTED for operation in timed_out)


def _with_compilations(draft: Draft, inputs: _Inputs) -> Draft:
    if not draft.verdicts or not find_compile_logs(inputs.recordings.tasks):
        return draft
    return add_compilations(draft, inputs.journal, inputs.recordings.tasks, inputs.engine)


def _with_stacks(draft: Draft, inputs: _Inputs) -> Draft:
    others = inputs.others
    return draft.each(lambda verdict: verdict.with_stacks(others.stacks.by_rank)) if others else draft


def _with_hosts(draft: Draft, inputs: _Inputs) -> Draft:
    hosts = {rank: recording.source.host for rank, recording in inputs.recordings.by_rank.items()}
    return draft.each(lambda verdict: verdict.with_hosts(hosts))


def _with_metrics(draft: Draft, inputs: _Inputs) -> Draft:
    """With notes on GPUs that run differently from the others, if metrics are among the inputs."""
    tasks = inputs.recordings.tasks
    if not any(task.content is Content.METRICS for task in tasks):
        return draft
    from tracelink._join.metrics import differing_gpus

    infos = [replace(found.source, rank=rank) for rank, found in inputs.recordings.by_rank.items()]
    notes, findings = differing_gpus(tasks, infos, inputs.discovery.metrics, inputs.engine)
    rest = replace(draft.rest, notes=[*draft.rest.notes, *notes])
    return Draft(draft.verdicts, rest).with_verdicts(draft.verdicts, findings)


def _with_sightings(draft: Draft, inputs: _Inputs) -> Draft:
    tasks = inputs.recordings.tasks
    if not draft.verdicts or not find_profiles(tasks):
        return draft
    from tracelink._hang.profiles import sightings_of

    by_verdict, findings = sightings_of(draft.verdicts, inputs.journal, tasks, inputs.engine)
    verdicts = [
        replace(verdict, sightings=shown) for verdict, shown in zip(draft.verdicts, by_verdict, strict=True)
    ]
    return draft.with_verdicts(verdicts, findings)


def _with_others(draft: Draft, inputs: _Inputs) -> Draft:
    """With what logs, stacks and monitors show, and where they contradict the dumps."""
    if inputs.others is None:
        return draft
    from tracelink._hang.evidence import add_other_files
    from tracelink._hang.facts.bundle import uses_of

    paths = {rank: recording.source.path for rank, recording in inputs.recordings.by_rank.items()}
    uses = uses_of(inputs.recordings.tasks, list(paths.values()))
    return add_other_files(draft, inputs.others, uses, paths, hung=inputs.clues.hung)


STEPS = (
    *(_with_compilations, _with_stacks, _with_hosts),
    *(_with_metrics, _with_sightings, _with_others),
)
"""What other files add to the verdicts, in this order: logs may replace verdicts, so they are the last."""


# Files that are no traces, next to dumps or instead of them: logs, stacks, answers of NCCL's monitor.


def _others(recordings: Recordings, discovery: Discovery, engine: Engine) -> Bundle | None:
    """What the files contain that no reader of traces reads; None if there are none."""
    left = {finding.source for finding in recordings.findings if finding.reason in LEFT}
    sources = [source for source in discovery.sources if source.path in left and not source.format]
    return _bundle_of(sources, recordings.tasks, engine)


def _bundle_of(sources: Sequence[Source], tasks: Sequence[Task], engine: Engine) -> Bundle | None:
    """These files, and texts with numbers at their start, which can be logs."""
    texts = [task.source for task in tasks if task.content is Content.METRICS and not task.source.format]
    if not sources and not texts:
        return None
    from tracelink._hang.facts.bundle import bundle_of

    return bundle_of(sources, engine, texts)


def _without_dumps(discovery: Discovery, engine: Engine, clues: Clues, error: UnreadableError) -> Examined:
    """What logs, NCCL's monitor and stacks show by themselves; raises the error if there are none."""
    findings = list(discovery.findings)
    tasks = tasks_of(discovery, findings, RECORDER_FORMAT)
    read = {task.source.path for task in tasks}
    sources = [source for source in discovery.sources if source.path not in read and not source.format]
    others = _bundle_of(sources, tasks, engine)
    if others is None:
        raise error
    from tracelink._hang.evidence import diagnose_without_dumps
    from tracelink._hang.facts.bundle import uses_of

    rest = Diagnosis(checked=Checked(ranks=len(others.ranks_with_logs)), findings=findings)
    draft = diagnose_without_dumps(Draft((), rest), others, uses_of(tasks, ()), error, hung=clues.hung)
    stacks = others.stacks.by_rank
    return Examined(draft.each(lambda verdict: verdict.with_stacks(stacks)).settled(), journal_of({}))
