"""What a diagnosis rests on: the last entries of those to blame and of one who waits, with their stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Diagnosis, Entry, Evidence, Frame, Problem, Role
from tracelink.errors import UnreadableError
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity
from tracelink.journal import Journal
from tracelink.plugins import Retelling

MOST_PROBLEMS = 5
MOST_CULPRITS = 3
MOST_CALLS = 5
"""Of a culprit; who waits is shown where it waits."""
MOST_ENTRIES = 40
"""A call that was issued together with others has an entry for each of them."""

OF_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch/|typing_extensions\.py)|/torch/(?:distributed|_\w+)/|^(?:\?\?)?$"
    r"|\.(?:c|cc|cpp|cu|h|hpp)$"
)
"""Files of torch itself, and of what is compiled."""

Told = Mapping[int, Mapping[int, Entry]]
"""Entries by rank and by their place in the dump."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which entries of a rank are evidence."""

    rank: int
    role: Role
    rows: Int64s
    """Of the journal."""


def with_evidence(diagnosis: Diagnosis, journal: Journal) -> Diagnosis:
    """The same, with what the dumps say where its worst problems show."""
    asked = [_asked(problem, journal) for problem in diagnosis.problems[:MOST_PROBLEMS]]
    told, findings = _told(asked, journal)
    shown = [
        replace(problem, evidence=tuple(filter(None, (_evidence(one, told, journal) for one in each))))
        for problem, each in zip(diagnosis.problems, asked, strict=False)
    ]
    return replace(
        diagnosis,
        problems=[*shown, *diagnosis.problems[len(shown) :]],
        findings=[*diagnosis.findings, *findings],
    )


def _asked(problem: Problem, journal: Journal) -> list[_Asked]:
    """The culprits first."""
    culprits = [rank for rank in problem.culprits if rank in problem.rows][:MOST_CULPRITS]
    others = [rank for rank in problem.rows if rank not in problem.culprits]
    return [
        *(_asked_of(journal, rank, problem.rows[rank], Role.CULPRIT, MOST_CALLS) for rank in culprits),
        *(_asked_of(journal, rank, problem.rows[rank], Role.WAITING, 1) for rank in others),
    ]


def _asked_of(journal: Journal, rank: int, row: int, role: Role, calls: int) -> _Asked:
    """The call that an entry belongs to, and the calls before it."""
    place = int(journal.ranks.searchsorted(rank))
    begin, end = journal.bounds[place : place + 2].tolist()
    first, last = max(begin, row - MOST_ENTRIES), min(end, row + MOST_ENTRIES)
    records = journal.records
    changes = np.zeros(last - first, np.int64)
    for column in (records.group, records.sequence, records.point_to_point):
        changes[1:] |= column[first + 1 : last] != column[first : last - 1]
    call = np.cumsum(changes)
    shown = (call <= call[row - first]) & (call > call[row - first] - calls)
    return _Asked(rank, role, first + np.flatnonzero(shown)[-MOST_ENTRIES:])


def _told(asked: Sequence[Sequence[_Asked]], journal: Journal) -> tuple[Told, list[Finding]]:
    """Each dump is read again once, whatever is asked of it."""
    places: dict[int, set[int]] = {}
    for each in asked:
        for one in each:
            places.setdefault(one.rank, set()).update(journal.records.place[one.rows].tolist())
    told: dict[int, Mapping[int, Entry]] = {}
    findings = []
    for rank, wanted in places.items():
        recording = journal.recordings[rank]
        if not isinstance(recording.payloads, Retelling):
            continue
        try:
            told[rank] = recording.payloads.entries(sorted(wanted))
        except (UnreadableError, OSError) as error:
            message = f"what rank {rank} recorded could not be read again to be shown: {error}"
            findings.append(
                Finding(Severity.WARNING, "evidence_unreadable", message, source=recording.source.path)
            )
    return told, findings


def _evidence(asked: _Asked, told: Told, journal: Journal) -> Evidence | None:
    """The entries as told; numbered as the journal does, which knows what closes a batch of messages."""
    records, known = journal.records, told.get(asked.rank, {})
    entries = tuple(
        replace(
            known[place],
            sequence=None if sequence == UNKNOWN else sequence,
            frames=own_frames(known[place].frames),
        )
        for place, sequence in zip(
            records.place[asked.rows].tolist(), records.sequence[asked.rows].tolist(), strict=True
        )
        if place in known
    )
    return Evidence(asked.rank, asked.role, entries) if entries else None


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without torch itself, unless nothing else is left."""
    own = tuple(frame for frame in frames if not OF_TORCH.search(frame.filename))
    return own or tuple(frames)
