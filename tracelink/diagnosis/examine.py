"""Examine(): read, diagnose, explain, in this order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tracelink.diagnosis.disagreements import (
    NO_ROOTS,
    Roots,
    disagreements_of,
    exchange_disagreements,
    hangs_with_a_root,
    mismatch_problems,
    root_disagreements,
)
from tracelink.diagnosis.explain import WHERE_DUMPS_ARE, judged_by_line, with_advice, with_evidence
from tracelink.diagnosis.hangs import hangs_of
from tracelink.diagnosis.journal import Journal, journal_of
from tracelink.diagnosis.lateness import latecomers_of, with_habits
from tracelink.diagnosis.message_problems import messages_of
from tracelink.diagnosis.model import Checked, Diagnosis, Kind, Problem
from tracelink.diagnosis.participation import Parts, parts_of, whereabouts_of
from tracelink.diagnosis.profiles import profiles_among
from tracelink.diagnosis.programs import Programs, comparisons_of
from tracelink.diagnosis.recordings import Recorded, in_replicas, read_recordings
from tracelink.diagnosis.waits import collective_waits, standings_of
from tracelink.engine import Engine
from tracelink.errors import Finding, Severity, UnreadableError
from tracelink.io.sources import Discovery, Paths, Watch, discover_inputs, engine_for, only_with_prefix
from tracelink.model.columns import NO_TIME
from tracelink.model.operations import ROOTED, operation_of
from tracelink.pipeline.gathering import Span, recorded_apart
from tracelink.pipeline.reading import nothing_readable, tasks_of
from tracelink.text import count_of_ranks

# The diagnosis of a job out of what its recorders hold: causes first, consequences under them.


def diagnosis_of(
    journal: Journal,
    unreadable: Mapping[int, str] | None = None,
    findings: Sequence[Finding] = (),
    roots: Roots = NO_ROOTS,
) -> Diagnosis:
    """What went wrong, as far as these recordings tell, and what profiles tell of roots."""
    broken_off = [rank for rank, one in journal.recordings.items() if one.broken_off]
    parts = parts_of(journal)
    where = whereabouts_of(journal, parts, broken_off)
    comparisons = comparisons_of(journal, parts.wholes)
    exchanges, unread = exchange_disagreements(journal, parts)
    disagreements = [*disagreements_of(parts, comparisons), *exchanges]
    disagreements += root_disagreements(journal, parts, roots, {one.round for one in disagreements})
    waits = collective_waits(journal, parts, where, [one.round for one in disagreements])
    messages = messages_of(journal, parts, where, broken_off, waits)
    programs = Programs(journal, parts, comparisons)
    mismatches = mismatch_problems(journal, parts, disagreements, programs, waits)
    mismatches += messages.mismatches
    hangs, notes = hangs_of(journal, parts, messages.waits, mismatches)
    late = latecomers_of(journal, parts, stalled=any(one.waiting for one in [*hangs, *mismatches]))
    apart = recorded_apart(_spans(journal), "Diagnose each by itself.")
    attendance = _attendance(journal, broken_off, unreadable or {})
    return Diagnosis(
        problems=_worst_first(
            [
                *with_habits(hangs, late.lateness),
                *map(_with_those_who_wait, mismatches),
                *late.problems,
            ]
        ),
        standings=standings_of(journal, parts, where, waits),
        lateness=late.lateness,
        present=attendance.present,
        missing=attendance.missing,
        unreadable=attendance.unreadable,
        checked=_checked(journal, parts, messages.count),
        notes=[*notes, *late.notes],
        findings=[*findings, *apart, *journal.findings, *unread],
    )


@dataclass(frozen=True, slots=True)
class _Attendance:
    """Which ranks can be heard, and which cannot."""

    present: list[int]
    missing: list[int]
    unreadable: dict[int, str]


def _attendance(journal: Journal, broken_off: Collection[int], unreadable: Mapping[int, str]) -> _Attendance:
    failed = {**unreadable, **{rank: _why_cut(journal, rank) for rank in broken_off}}
    members = {rank for group in journal.groups for rank in group.ranks}
    return _Attendance(
        [rank for rank in journal.recordings if rank not in broken_off],
        sorted(members - set(journal.recordings) - set(failed)),
        dict(sorted(failed.items())),
    )


def _checked(journal: Journal, parts: Parts, messages: int) -> Checked:
    return Checked(
        ranks=len(journal.recordings),
        entries=len(journal),
        groups=len(journal.groups),
        collectives=int(parts.round[-1]) + 1 if len(parts) else 0,
        messages=messages,
    )


def _spans(journal: Journal) -> list[Span]:
    """From the first to the last time that each rank made an entry."""
    created = journal.records.created
    spans = []
    for rank, begin, end in zip(
        journal.ranks.tolist(), journal.bounds[:-1].tolist(), journal.bounds[1:].tolist(), strict=True
    ):
        timed = created[begin:end][created[begin:end] != NO_TIME]
        if len(timed):
            spans.append((int(timed.min()), int(timed.max()), rank))
    return spans


def _why_cut(journal: Journal, rank: int) -> str:
    return next((one.message for one in journal.recordings[rank].findings if one.reason == "truncated"), "")


def _with_those_who_wait(problem: Problem) -> Problem:
    """A mismatch need not make anybody wait; where it does, the message says so."""
    waiting = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    return replace(problem, message=f"{problem.message}{waiting}.")


def _worst_first(problems: Sequence[Problem]) -> list[Problem]:
    """Those who keep most others waiting first, then those that show most often."""
    return sorted(
        problems, key=lambda one: (-len(one.waiting), -one.count, one.group, one.sequence or 0, one.culprits)
    )


# Sources to a diagnosis: dumps read, put into one journal, and judged.


UNREADABLE = "unreadable"
"""The reason of the finding that nothing can be read of a source."""

WHAT_PROFILES_TELL = (
    " Profiles tell who came last to which collective: see tracelink collectives on the same paths."
)


@dataclass(frozen=True, slots=True)
class Examined:
    """A diagnosis, and the entries that it rests on."""

    diagnosis: Diagnosis
    journal: Journal


def diagnose(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Diagnosis:
    """Says what is wrong with a job, from what flight recorders hold: who, in which collective, and why."""
    return examine(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of, jobs=jobs, watch=watch).diagnosis


def examine(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    rank_of: Mapping[str, int] | None = None,
    prefix: str = "",
    replica_size: int | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Examined:
    """The same as `diagnose`, with the entries that the diagnosis rests on.

    Only files are read whose names begin with `prefix`. `replica_size` is the number of ranks of each replica
    of a job whose replicas number their own ranks from 0.
    """
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, rank_of=rank_of)
    if prefix:
        discovery = only_with_prefix(discovery, prefix)
    return examine_sources(discovery, engine_for(jobs, watch), replica_size)


def examine_sources(discovery: Discovery, engine: Engine, replica_size: int | None = None) -> Examined:
    """Reads what recorders left behind and says what went wrong; replicas of a job may have numbers of their own."""
    recorded = _recorded(discovery, engine)
    if replica_size is not None:
        recorded = _of_replicas(recorded, replica_size)
    journal = journal_of(recorded.recordings)
    diagnosis = _diagnosed(journal, recorded, engine)
    judged = with_advice(judged_by_line(with_evidence(diagnosis, journal)))
    return Examined(_with_sightings(judged, journal, recorded, engine), journal)


def _diagnosed(journal: Journal, recorded: Recorded, engine: Engine) -> Diagnosis:
    """From dumps alone, unless the user names profiles, or something that has a root hangs for no other reason."""
    diagnosis = diagnosis_of(journal, recorded.unreadable, recorded.findings)
    profiles = profiles_among(recorded.tasks)
    named = any(task.source.format for task in profiles)
    if not profiles or not (named or _may_be_of_roots(diagnosis, journal)):
        return diagnosis
    from tracelink.diagnosis.profiles import roots_of

    roots, findings = roots_of(journal, recorded.tasks, engine)
    if not roots:
        return replace(diagnosis, findings=[*diagnosis.findings, *findings])
    return diagnosis_of(journal, recorded.unreadable, [*recorded.findings, *findings], roots)


def _may_be_of_roots(diagnosis: Diagnosis, journal: Journal) -> bool:
    stuck = [one.operation for one in diagnosis.problems if one.kind is Kind.TIMED_OUT]
    return hangs_with_a_root(journal) or any(operation_of(operation) in ROOTED for operation in stuck)


def _with_sightings(diagnosis: Diagnosis, journal: Journal, recorded: Recorded, engine: Engine) -> Diagnosis:
    """The same with what profiles show; what reads these is not even imported where there is nothing to show."""
    if not diagnosis.problems or not profiles_among(recorded.tasks):
        return diagnosis
    from tracelink.diagnosis.profiles import with_sightings

    return with_sightings(diagnosis, journal, recorded.tasks, engine)


def _recorded(discovery: Discovery, engine: Engine) -> Recorded:
    try:
        recorded = read_recordings(discovery, engine)
    except UnreadableError as error:
        raise (_no_dumps(discovery) if str(error) == str(nothing_readable(())) else error) from None
    if not recorded.recordings:
        raise nothing_readable([one for one in recorded.findings if one.severity is Severity.ERROR])
    return replace(recorded, unreadable=_unreadable(recorded, discovery))


def _unreadable(recorded: Recorded, discovery: Discovery) -> dict[int, str]:
    """Why the dump of a rank is not among those read, also where nothing in it says what it is."""
    why = {one.source: one.message for one in recorded.findings if one.reason == UNREADABLE}
    ranks = {
        source.rank_hint.rank: why[source.path]
        for source in discovery.sources
        if source.path in why and source.rank_hint
    }
    unread = {**ranks, **recorded.unreadable}
    return {rank: unread[rank] for rank in sorted(unread) if rank not in recorded.recordings}


def _of_replicas(recorded: Recorded, size: int) -> Recorded:
    """Profiles are left out: they do not say of which replica they are."""
    whole = in_replicas(recorded.recordings, size)
    findings = [*recorded.findings, *whole.findings]
    if profiles := len(profiles_among(recorded.tasks)):
        message = f"{profiles} profiles were not read: they do not say to which replica their ranks belong."
        findings.append(Finding(Severity.INFO, "profiles_of_replicas", message, profiles))
    return Recorded(whole.recordings, recorded.unreadable, findings)


def _no_dumps(discovery: Discovery) -> UnreadableError:
    count = len(discovery.sources)
    looked = f"the {count} files here are something else" if count > 1 else "what is here is something else"
    return UnreadableError(
        f"there is no flight-recorder dump; {looked if count else 'there is no file at all'}",
        advice=WHERE_DUMPS_ARE + (WHAT_PROFILES_TELL if tasks_of(discovery, []) else ""),
    )
