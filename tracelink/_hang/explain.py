"""What shows more of verdicts: recorded entries, lines of the program, and compile logs of culprits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.journal import Journal, reread_entries
from tracelink._hang.facts.model import Evidence, Kind, Role
from tracelink._hang.verdicts.base import Verdict
from tracelink._hang.verdicts.deadlocks import Deadlock
from tracelink._hang.verdicts.drafts import Draft
from tracelink._hang.verdicts.mismatches import Skipped
from tracelink._io.engine import Engine
from tracelink._join.reading import Task
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s
from tracelink._model.operations import POINT_TO_POINT, operation_of
from tracelink._model.records import Entry, Frame, compiler_frame, line_in_words, own_frames
from tracelink._model.text import operation_in_words

if TYPE_CHECKING:
    from tracelink._compile.divergences import Logs
    from tracelink._hang.compile_logs import Delay

MOST_PROBLEMS = 5
MOST_CULPRITS = 3
MOST_CALLS = 5
"""Calls shown of a culprit; of a waiting rank only the one in which it waits."""
MOST_ENTRIES = 40
"""Entries shown of a rank: a coalesced call has several."""
NO_ROWS = np.empty(0, np.int64)
MOST_LOGGED = 64
"""Culprits whose compile logs are read."""
MISMATCHES = frozenset({Kind.OPERATION_MISMATCH, Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH})


# Evidence: the last entries of culprits and of one waiting rank, with their stacks.


def add_evidence(draft: Draft, journal: Journal) -> Draft:
    """The draft with the recorded entries that show its worst problems."""
    selections = [_selections(verdict, journal) for verdict in draft.verdicts[:MOST_PROBLEMS]]
    rows = [selection.rows for selection in chain.from_iterable(selections)]
    entries, findings = reread_entries(journal, np.unique(np.concatenate(rows)) if rows else NO_ROWS)
    shown = [
        replace(
            verdict,
            evidence=tuple(filter(None, (_evidence(selection, entries, journal) for selection in selected))),
        )
        for verdict, selected in zip(draft.verdicts, selections, strict=False)
    ]
    return draft.with_verdicts([*shown, *draft.verdicts[len(shown) :]], findings)


def _selections(verdict: Verdict, journal: Journal) -> list[_Selection]:
    """The culprits first."""
    culprits = [rank for rank in verdict.culprits if rank in verdict.rows][:MOST_CULPRITS]
    others = [rank for rank in verdict.rows if rank not in verdict.culprits]
    return [
        *(_selection(journal, rank, verdict.rows[rank], Role.CULPRIT, MOST_CALLS) for rank in culprits),
        *(_selection(journal, rank, verdict.rows[rank], Role.WAITING, 1) for rank in others),
    ]


class _Selection(Struct, frozen=True):
    """The entries of a rank that are evidence."""

    rank: int
    role: Role
    rows: Int64s
    """Rows of the journal."""


def _selection(journal: Journal, rank: int, row: int, role: Role, calls: int) -> _Selection:
    """The call of an entry, and the calls before it."""
    own = journal.entries_of(rank)
    first, last = max(own.start, row - MOST_ENTRIES), min(own.stop, row + MOST_ENTRIES)
    records = journal.records
    changes = np.zeros(last - first, np.int64)
    for column in (records.group, records.sequence, records.point_to_point):
        changes[1:] |= column[first + 1 : last] != column[first : last - 1]
    call = np.cumsum(changes)
    shown = (call <= call[row - first]) & (call > call[row - first] - calls)
    return _Selection(rank, role, first + np.flatnonzero(shown)[-MOST_ENTRIES:])


def _evidence(selection: _Selection, entries: Mapping[int, Entry], journal: Journal) -> Evidence | None:
    """The entries with the sequence numbers of the journal, which also numbers the end of a batch of messages."""
    shown = []
    compiler = None
    for row in selection.rows.tolist():
        if entry := entries.get(row):
            compiler = compiler_frame(entry.frames)
            sequence = int(journal.records.sequence[row])
            shown.append(
                replace(
                    entry,
                    sequence=None if sequence == UNKNOWN else sequence,
                    frames=own_frames(entry.frames),
                )
            )
    return Evidence(selection.rank, selection.role, tuple(shown), compiler) if shown else None


# Mismatches and deadlocks judged by lines of the program.


def judge_by_line(verdict: Verdict) -> Verdict:
    """A mismatch, or a deadlock, is a skipped call if the lines show that the culprit has passed the call."""
    if isinstance(verdict, Deadlock):
        return verdict if verdict.tie or verdict.in_other_order else _judged_deadlock(verdict)
    own, other = verdict.shown(Role.CULPRIT), verdict.shown(Role.WAITING)
    if verdict.kind not in MISMATCHES or verdict.tie or own is None or other is None:
        return verdict
    if operation_of(verdict.operation) in POINT_TO_POINT:
        return verdict
    passed = _requests_differ(own, other) and _is_further_on(own.frames, other.frames)
    return _skipped(verdict, own) if passed else verdict


def _judged_deadlock(deadlock: Deadlock) -> Verdict:
    """A deadlock of collectives is a skipped call if all culprits have passed the one in which others wait."""
    own = [evidence.entries for evidence in deadlock.evidence if evidence.role is Role.CULPRIT]
    awaited = [
        evidence.entries[-1]
        for evidence in deadlock.evidence
        if evidence.role is Role.WAITING
        and (evidence.entries[-1].group, evidence.entries[-1].sequence) == (deadlock.group, deadlock.sequence)
    ]
    if not own or not awaited:
        return deadlock
    passed = {_has_passed(entries, awaited[0].frames) for entries in own}
    if passed == {True}:
        return _skipped(deadlock, own[0][-1])
    return replace(deadlock, in_other_order=passed == {False})


def _skipped(verdict: Verdict, own: Entry) -> Skipped:
    line = line_in_words(own.frames[0] if own.frames else Frame("", "", 0))
    facts = verdict.common_facts() | {"kind": Kind.SKIPPED, "cycle": ()}
    return Skipped(**facts, continued=f"{operation_in_words(own.operation)} at {line}")


def _has_passed(entries: Sequence[Entry], awaited: Sequence[Frame]) -> bool | None:
    """True if a program is past a line in which others wait, by its last two calls; None if lines do not show it.

    Innermost frames come first. The call before shows whether a function went on, or began again in a loop.
    """
    if len(entries) < 2:
        return None
    before, own = (entry.frames[::-1] for entry in entries[-2:])
    depth, line = _first_difference(own, awaited[::-1])
    if line is None or len(before) <= depth or not _same_calls(before, own, depth):
        return None
    first, last, there = before[depth].line, own[depth].line, line
    if first == last:
        deeper, earlier = _first_difference(own, before)
        again = earlier is not None and own[deeper].line < earlier
        inside = earlier is not None and own[deeper].line > earlier
        first += 1 if again else 0
        if not again and not inside:
            return None
    # Forward from the call before to the last one, or round a loop.
    if first <= last:
        return True if first <= there < last else False if last < there else None
    return there >= first or there < last


def _first_difference(own: Sequence[Frame], other: Sequence[Frame]) -> tuple[int, int | None]:
    """The first frame in which two stacks differ, outermost first, and the line of the other one if it is in the
    same function."""
    for depth, (own_frame, other_frame) in enumerate(zip(own, other, strict=False)):
        if own_frame != other_frame:
            same = (own_frame.filename, own_frame.name) == (other_frame.filename, other_frame.name)
            return depth, other_frame.line if same else None
    return min(len(own), len(other)), None


def _same_calls(one: Sequence[Frame], other: Sequence[Frame], depth: int) -> bool:
    """True if two stacks are in the same function at a depth, called from the same lines."""
    same = (one[depth].filename, one[depth].name) == (other[depth].filename, other[depth].name)
    return same and list(one[:depth]) == list(other[:depth])


def _requests_differ(own: Entry, other: Entry) -> bool:
    """True if more than the operation differs: two branches may call different operations on the same tensor."""
    return (own.input_sizes, own.input_types) != (other.input_sizes, other.input_types)


def _is_further_on(own: Sequence[Frame], others: Sequence[Frame]) -> bool:
    """True if the first call in which two stacks differ is later in the same function."""
    for own_frame, other_frame in zip(reversed(own), reversed(others), strict=False):
        if own_frame != other_frame:
            return (own_frame.filename, own_frame.name) == (
                other_frame.filename,
                other_frame.name,
            ) and own_frame.line > other_frame.line
    return False


# Culprits that compile while other ranks wait for them.


def add_compilations(draft: Draft, journal: Journal, tasks: Sequence[Task], engine: Engine) -> Draft:
    """The draft with what the compiler did in the processes of culprits while other ranks waited."""
    from tracelink._hang.compile_logs import logs_of

    culprits = [rank for verdict in draft.verdicts if verdict.not_reached for rank in verdict.culprits]
    logs, findings = logs_of(list(dict.fromkeys(culprits))[:MOST_LOGGED], tasks, engine)
    verdicts = [
        _with_compilations(verdict, journal, logs) if verdict.not_reached else verdict
        for verdict in draft.verdicts
    ]
    return draft.with_verdicts(verdicts, findings)


def _with_compilations(verdict: Verdict, journal: Journal, logs: Logs) -> Verdict:
    from tracelink._hang.compile_logs import compilation_of

    waits = {rank: _wait_for(rank, verdict, journal) for rank in verdict.culprits if rank in logs}
    found = [one for rank, wait in waits.items() if (one := compilation_of(rank, logs[rank], wait))]
    if verdict.kind is Kind.ABSENT:
        found = [one for one in found if one.open]
    # a rank that finished compiling and has not joined may be stuck since then
    busy = tuple(one.rank for one in found if one.open or waits[one.rank].joined)
    return replace(verdict, compiling=tuple(found), busy=busy)


def _wait_for(rank: int, verdict: Verdict, journal: Journal) -> Delay:
    from tracelink._hang.compile_logs import Delay

    records = journal.records
    rows = [row for other, row in verdict.rows.items() if other not in verdict.culprits]
    starts = [time for row in rows if (time := int(records.created[row])) != NO_TIME]
    start = min(starts, default=None)
    latest = int(records.created.max()) if len(journal) else NO_TIME
    own = records.created[journal.rank == rank]
    last = int(own.max()) if len(own) else NO_TIME
    row = verdict.rows.get(rank)
    joined = row is not None and any(
        (records.group[row], records.sequence[row], records.point_to_point[row])
        == (records.group[other], records.sequence[other], records.point_to_point[other])
        for other in rows
    )
    end = int(records.created[row]) if joined else max(latest, (start or 0) + (verdict.waited_ns or 0))
    return Delay(start, end, None if last == NO_TIME else last, joined, rank in journal.recordings)
