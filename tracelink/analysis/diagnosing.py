"""The diagnosis of a job out of what its recorders hold: causes first, consequences under them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tracelink.analysis.comparing import comparisons_of
from tracelink.analysis.desync import hangs_of
from tracelink.analysis.disagreements import disagreements_of
from tracelink.analysis.exchanges import exchange_disagreements
from tracelink.analysis.latecomers import latecomers_of, with_habits
from tracelink.analysis.messages import messages_of
from tracelink.analysis.mismatch import mismatch_problems
from tracelink.analysis.parts import Parts, parts_of
from tracelink.analysis.programs import Programs
from tracelink.analysis.roots import NO_ROOTS, Roots, root_disagreements
from tracelink.analysis.standings import standings_of
from tracelink.analysis.waits import collective_waits
from tracelink.analysis.whereabouts import whereabouts_of
from tracelink.analysis.wording import count_of_ranks
from tracelink.apart import Span, recorded_apart
from tracelink.diagnosis import Checked, Diagnosis, Problem
from tracelink.events import NO_TIME
from tracelink.findings import Finding
from tracelink.journal import Journal


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
