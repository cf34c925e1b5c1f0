"""Calls without a record: the job hangs, or does not move, and all recorded calls are finished."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracelink._hang.facts.journal import Journal, reread_entries
from tracelink._hang.facts.model import Category, Kind
from tracelink._hang.facts.sets import Earlier
from tracelink._hang.facts.stalls import Clues
from tracelink._hang.verdicts.base import UnrecordedCalls, Verdict
from tracelink._model.columns import UNKNOWN, Bools
from tracelink._model.findings import Finding
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.records import line_in_words, own_frames
from tracelink._model.text import collective_in_words, counted, lowered, ranks_in_words

if TYPE_CHECKING:
    from tracelink._hang.verdicts.drafts import Draft

WHERE_ALL_ARE = (
    "Run py-spy dump --pid PID on each rank, and read the ends of the logs: ranks may be in code without "
    "communication, or in calls that are not recorded."
)


class NotRecorded(Verdict, frozen=True, kw_only=True):
    """The job is known to hang, and all recorded calls are finished."""

    kind: Kind = Kind.NOT_RECORDED
    last_calls: str

    usual = Category.UNKNOWN

    def claim(self) -> str:
        """The last calls."""
        return f"The job hangs after its last recorded calls: {self.last_calls}"

    def next_step(self) -> str:
        """All ranks."""
        return WHERE_ALL_ARE


class NotMoved(NotRecorded, frozen=True, kw_only=True):
    """No rank recorded a call since earlier dumps, and none is in flight."""

    kind: Kind = Kind.IN_FLIGHT

    usual = Category.IN_FLIGHT
    certain = True

    def claim(self) -> str:
        """The last calls, as a question."""
        return (
            "Running or hung? No rank recorded a call since the earlier dumps, and none is in flight. The last calls: "
            f"{self.last_calls}"
        )


class NothingRecorded(NotMoved, frozen=True, kw_only=True):
    """No dump has an entry."""

    last_calls: str = ""

    def claim(self) -> str:
        """No entry, as a question."""
        return "No dump has an entry. The dumps do not show whether the job runs or hangs"

    def next_step(self) -> str:
        """The recorder, and then all ranks."""
        return (
            "Check that the recorder is on (TORCH_FR_BUFFER_SIZE is not 0). If it is, no rank has called a collective: "
            "look at what the processes do (py-spy dump --pid PID)."
        )


BACKEND = "gloo"
"""The backend of torch whose recorder leaves out calls."""
MESSAGES = "messages (send, recv)"
OTHER_CALLS = "monitored_barrier and new_group"
MOST_CALLS = 3
"""Different last calls that a note names."""
EXPLAINED = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.IN_FLIGHT})
"""Problems that a call without a record may explain."""


def add_unseen(draft: Draft, journal: Journal, clues: Clues) -> Draft:
    """The draft with a verdict if the job is known to hang, or no rank moved, and no recorded call shows why."""
    usable = np.flatnonzero(journal.records.group != UNKNOWN)
    if draft.verdicts or not len(usable) or not (clues.hung or _is_unmoved(clues.earlier)):
        return draft
    row = int(usable[-1])
    calls, findings = _last_calls(journal)
    verdict = (NotRecorded if clues.hung else NotMoved).of_call(
        journal.groups[int(journal.records.group[row])],
        int(journal.records.sequence[row]),
        journal.operation(row),
        proven=False,
        last_calls=calls,
    )
    return draft.with_verdicts([verdict], findings)


def _is_unmoved(earlier: Earlier | None) -> bool:
    """True if no rank recorded anything since dumps that the user chose."""
    if earlier is None or not earlier.chosen:
        return False
    return not (earlier.movement.moved or earlier.movement.unknown)


def add_unrecorded(draft: Draft, journal: Journal, hint: str = "") -> Draft:
    """The draft with a blind spot, or facts of its first verdict, if calls without a record may be the cause.

    `hint` is what else indicates whether the job hangs.
    """
    if draft.verdicts:
        first, *others = draft.verdicts
        first = replace(first, unrecorded=_unrecorded(first, journal), file_times=hint)
        return draft.with_verdicts([first, *others])
    if not _of_backend(journal).any():
        return draft
    note, findings = _blind_spot(journal, hint)
    rest = replace(draft.rest, blind_spot=note, notes=[note, *draft.rest.notes])
    return replace(draft, rest=rest).with_verdicts((), findings)


def count_unrecorded(journal: Journal) -> Counter[int]:
    """By rank how many operations of the backend it called before its last collectives that are not recorded.

    Calls before the first entry of a ring buffer that has lost some are unknown, and not counted.
    """
    records = journal.records
    countable = (records.group != UNKNOWN) & (records.sequence >= 0) & (records.number >= 0)
    rows = np.flatnonzero(countable & ~records.point_to_point & _of_backend(journal))
    ahead = records.number[rows] - records.sequence[rows]
    key = journal.rank[rows].astype(np.int64) * (len(journal.groups) + 1) + records.group[rows]
    _, first = np.unique(key, return_index=True)
    _, from_the_end = np.unique(key[::-1], return_index=True)
    found: Counter[int] = Counter()
    for begin, last in zip(first.tolist(), (len(rows) - 1 - from_the_end).tolist(), strict=True):
        rank = int(journal.rank[rows[last]])
        lost = int(ahead[begin]) if journal.recordings[rank].overwritten else 0
        found[rank] += max(int(ahead[last]) - lost, 0)
    return +found


def _of_backend(journal: Journal) -> Bools:
    """The entries of the backend."""
    own = [name.startswith(f"{BACKEND}:") for name in journal.recorded_operations()]
    found: Bools = np.array([*own, False], np.bool_)[journal.records.request]
    return found


def _not_recorded(journal: Journal) -> str:
    own = [name for name in journal.recorded_operations() if name.startswith(f"{BACKEND}:")]
    messages = any(operation_of(name) in POINT_TO_POINT for name in own)
    return OTHER_CALLS if messages else f"{MESSAGES}, {OTHER_CALLS}"


# No problem: where all ranks are.


def _blind_spot(journal: Journal, hint: str) -> tuple[str, list[Finding]]:
    """Where ranks may wait although nothing shows it, and findings on dumps that could not be read again."""
    calls, findings = _last_calls(journal)
    shown = [
        f"op_id counts {counted(count, 'such operation')} of rank {rank} so far."
        for rank, count in count_unrecorded(journal).most_common(1)
    ]
    note = (
        f"If this job hangs, it does so after its last recorded calls: {calls}. {BACKEND} does not record "
        f"{_not_recorded(journal)}, in which ranks may wait unseen: run py-spy dump --pid PID on each rank."
    )
    return " ".join(filter(None, [note, *shown, hint])), findings


def _last_calls(journal: Journal) -> tuple[str, list[Finding]]:
    """`all_reduce #3 of group 0 (default_pg) at train.py:65 on all ranks`."""
    last = journal.bounds[1:][np.diff(journal.bounds) > 0] - 1
    rows_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    records = journal.records
    for row in last.tolist():
        call = records.group[row], records.sequence[row], records.point_to_point[row]
        rows_of[tuple(map(int, call))].append(row)
    common = sorted(rows_of.values(), key=len, reverse=True)
    entries, findings = reread_entries(journal, np.array(sorted(rows[0] for rows in common[:MOST_CALLS])))
    parts = []
    for rows in common[:MOST_CALLS]:
        entry = entries.get(rows[0])
        frames = own_frames(entry.frames) if entry else ()
        at = f" at {line_in_words(frames[0])}" if frames else ""
        ranks = (
            "all ranks" if len(rows) == len(last) else lowered(ranks_in_words(journal.rank[rows].tolist()))
        )
        parts.append(f"{_call(journal, rows[0])}{at} on {ranks}")
    rest = len(common) - len(parts)
    return "; ".join([*parts, f"and {counted(rest, 'more call')}"] if rest > 0 else parts), findings


def _call(journal: Journal, row: int) -> str:
    group = int(journal.records.group[row])
    if group == UNKNOWN:
        return operation_of(journal.operation(row))
    return collective_in_words(
        journal.operation(row), int(journal.records.sequence[row]), journal.groups[group]
    )


# A problem: whether its culprits may wait in a call without a record.


def _unrecorded(verdict: Verdict, journal: Journal) -> UnrecordedCalls | None:
    """Calls in which culprits may wait; None if they called none, or waiting there explains nothing."""
    if not _of_backend(journal).any():
        return None
    if isinstance(verdict, NotRecorded):
        return UnrecordedCalls(BACKEND, _not_recorded(journal))
    culprits = tuple(rank for rank in verdict.culprits if rank in journal.recordings)
    if verdict.kind not in EXPLAINED or not culprits or operation_of(verdict.operation) in POINT_TO_POINT:
        return None
    counts = count_unrecorded(journal)
    rank = max(culprits, key=lambda rank: counts[rank])
    if not counts[rank]:
        return None
    return UnrecordedCalls(BACKEND, _not_recorded(journal), culprits, counts[rank], rank)
