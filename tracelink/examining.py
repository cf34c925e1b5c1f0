"""Sources to a diagnosis: dumps read, put into one journal, and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tracelink.analysis.advice import WHERE_DUMPS_ARE, with_advice
from tracelink.analysis.call_sites import judged_by_line
from tracelink.analysis.diagnosing import diagnosis_of
from tracelink.analysis.evidence import with_evidence
from tracelink.analysis.roots import hangs_with_a_root
from tracelink.beside import profiles_among
from tracelink.diagnosis import Diagnosis, Kind
from tracelink.engine import Engine
from tracelink.errors import UnreadableError
from tracelink.findings import Finding, Severity
from tracelink.inputs import Paths, Watch, discover_inputs, engine_for
from tracelink.journal import Journal, journal_of
from tracelink.operations import ROOTED, operation_of
from tracelink.prefixes import only_with_prefix
from tracelink.reading import nothing_readable, tasks_of
from tracelink.recordings import Recorded, read_recordings
from tracelink.replicas import in_replicas
from tracelink.sources import Discovery

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
    ranks: Mapping[str, int] | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Diagnosis:
    """Says what is wrong with a job, from what flight recorders hold: who, in which collective, and why."""
    return examine(paths, et=et, kineto=kineto, fr=fr, ranks=ranks, jobs=jobs, watch=watch).diagnosis


def examine(
    paths: Paths = (),
    *,
    et: Paths = (),
    kineto: Paths = (),
    fr: Paths = (),
    ranks: Mapping[str, int] | None = None,
    prefix: str = "",
    replica_size: int | None = None,
    jobs: int | None = None,
    watch: Watch | None = None,
) -> Examined:
    """The same as `diagnose`, with the entries that the diagnosis rests on.

    Only files are read whose names begin with `prefix`. `replica_size` is the number of ranks of each replica
    of a job whose replicas number their own ranks from 0.
    """
    discovery = discover_inputs(paths, et=et, kineto=kineto, fr=fr, ranks=ranks)
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
    from tracelink.rooting import roots_of

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
    from tracelink.sighting import with_sightings

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
