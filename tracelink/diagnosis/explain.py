"""Evidence, lines of the program, advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePath

import numpy as np

from tracelink.diagnosis.journal import Journal, reread_entries
from tracelink.diagnosis.model import Diagnosis, Evidence, Kind, Problem, Role
from tracelink.model.columns import MILLISECOND, UNKNOWN, Int64s
from tracelink.model.operations import POINT_TO_POINT, ROOTED, operation_of
from tracelink.model.records import Entry, Frame
from tracelink.model.trace import ProcessGroup
from tracelink.text import (
    collective_in_words,
    count_of_ranks,
    duration,
    group_in_words,
    lowered,
    operation_in_words,
    ranks_in_words,
)

# What a diagnosis rests on: the last entries of those to blame and of one who waits, with their stacks.


MOST_PROBLEMS = 5
MOST_CULPRITS = 3
MOST_CALLS = 5
"""Of a culprit; who waits is shown where it waits."""
NO_ROWS = np.empty(0, np.int64)
MOST_ENTRIES = 40
"""A call that was issued together with others has an entry for each of them."""

OF_TORCH = re.compile(
    r"(?:site|dist)-packages/(?:torch/|typing_extensions\.py)|/torch/(?:distributed|_\w+)/|^(?:\?\?)?$"
    r"|\.(?:c|cc|cpp|cu|h|hpp)$"
)
"""Files of torch itself, and of what is compiled."""


@dataclass(frozen=True, slots=True)
class _Selection:
    """Which entries of a rank are evidence."""

    rank: int
    role: Role
    rows: Int64s
    """Of the journal."""


def with_evidence(diagnosis: Diagnosis, journal: Journal) -> Diagnosis:
    """The diagnosis with the recorded entries that show its worst problems."""
    selections = [_selections(problem, journal) for problem in diagnosis.problems[:MOST_PROBLEMS]]
    rows = [selection.rows for selection in chain.from_iterable(selections)]
    entries, findings = reread_entries(journal, np.unique(np.concatenate(rows)) if rows else NO_ROWS)
    shown = [
        replace(problem, evidence=tuple(filter(None, (_evidence(one, entries, journal) for one in each))))
        for problem, each in zip(diagnosis.problems, selections, strict=False)
    ]
    return replace(
        diagnosis,
        problems=[*shown, *diagnosis.problems[len(shown) :]],
        findings=[*diagnosis.findings, *findings],
    )


def _selections(problem: Problem, journal: Journal) -> list[_Selection]:
    """The culprits first."""
    culprits = [rank for rank in problem.culprits if rank in problem.rows][:MOST_CULPRITS]
    others = [rank for rank in problem.rows if rank not in problem.culprits]
    return [
        *(_selection(journal, rank, problem.rows[rank], Role.CULPRIT, MOST_CALLS) for rank in culprits),
        *(_selection(journal, rank, problem.rows[rank], Role.WAITING, 1) for rank in others),
    ]


def _selection(journal: Journal, rank: int, row: int, role: Role, calls: int) -> _Selection:
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
    return _Selection(rank, role, first + np.flatnonzero(shown)[-MOST_ENTRIES:])


def _evidence(selection: _Selection, entries: Mapping[int, Entry], journal: Journal) -> Evidence | None:
    """The entries with the sequence numbers of the journal, which also numbers the end of a batch of messages."""
    shown = []
    for row in selection.rows.tolist():
        if entry := entries.get(row):
            sequence = int(journal.records.sequence[row])
            shown.append(
                replace(
                    entry,
                    sequence=None if sequence == UNKNOWN else sequence,
                    frames=own_frames(entry.frames),
                )
            )
    return Evidence(selection.rank, selection.role, tuple(shown)) if shown else None


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """The stack without torch itself, unless nothing else is left."""
    own = tuple(frame for frame in frames if not OF_TORCH.search(frame.filename))
    return own or tuple(frames)


# Mismatches judged by the lines of the program: who is further on than the others has left something out.


MISMATCHES = frozenset({Kind.OPERATION_MISMATCH, Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH})


def judged_by_line(diagnosis: Diagnosis) -> Diagnosis:
    """The same, where mismatches whose lines show that a collective was left out say so."""
    return replace(diagnosis, problems=[_judged(problem) for problem in diagnosis.problems])


def _judged(problem: Problem) -> Problem:
    own = next((one.entries[-1] for one in problem.evidence if one.role is Role.CULPRIT), None)
    other = next((one.entries[-1] for one in problem.evidence if one.role is Role.WAITING), None)
    if problem.kind not in MISMATCHES or problem.tie or own is None or other is None:
        return problem
    if operation_of(problem.operation) in POINT_TO_POINT:
        return problem
    if not _asks_for_else(own, other) or not _is_further_on(own.frames, other.frames):
        return problem
    return replace(problem, kind=Kind.SKIPPED, message=_message(problem, own))


def _asks_for_else(own: Entry, other: Entry) -> bool:
    """Whether more than the operation differs: two branches may well do different things with the same tensor."""
    return (own.input_sizes, own.input_types) != (other.input_sizes, other.input_types)


def _is_further_on(own: Sequence[Frame], other: Sequence[Frame]) -> bool:
    """Whether the first call in which two stacks differ stands later in the same function."""
    for mine, theirs in zip(reversed(own), reversed(other), strict=False):
        if mine != theirs:
            return (mine.filename, mine.name) == (theirs.filename, theirs.name) and mine.line > theirs.line
    return False


def _message(problem: Problem, own: Entry) -> str:
    group = ProcessGroup(problem.group, problem.description)
    what = collective_in_words(problem.operation, problem.sequence or 0, group)
    line = own.frames[0] if own.frames else Frame("", "", 0)
    waiting = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    return (
        f"{ranks_in_words(problem.culprits)} skipped {what}, and went on with "
        f"{operation_in_words(own.operation)} at {PurePath(line.filename).name}:{line.line}{waiting}."
    )


# What to look at next, for each kind of problem.


WHERE_DUMPS_ARE = (
    "A rank writes its dump on its own host: to the path in TORCH_FR_DUMP_TEMP_FILE followed by the rank, "
    "by default ~/.cache/torch/comm_lib_trace_rank_N."
)

NO_STACKS = " These dumps hold no stacks; pickled ones do, unless they were taken without."


@dataclass(frozen=True, slots=True)
class _Case:
    """A problem, the last entry of one who is to blame, and the entry of one of the others."""

    problem: Problem
    own: Entry | None
    other: Entry | None
    absent: tuple[int, ...]
    """Culprits of which there is no whole dump."""

    @property
    def who(self) -> str:
        """Who is to blame, or one of those who are."""
        culprits = self.problem.culprits
        if not culprits:
            return "these ranks"
        return f"rank {culprits[0]}" if len(culprits) == 1 else f"rank {culprits[0]}, for one,"

    @property
    def here(self) -> str:
        """Where the one to blame made its last call."""
        return _called_at(self.own)

    @property
    def there(self) -> str:
        """Where the others are."""
        return _called_at(self.other)


def with_advice(diagnosis: Diagnosis) -> Diagnosis:
    """The same, in which each problem says what to look at next."""
    problems = [
        problem if problem.advice else replace(problem, advice=advice_for(problem, diagnosis.present))
        for problem in diagnosis.problems
    ]
    return replace(diagnosis, problems=problems)


def advice_for(problem: Problem, present: Collection[int]) -> str:
    """What to look at next; rests on the evidence, where there is some."""
    absent = tuple(rank for rank in problem.culprits if rank not in present)
    case = _Case(problem, _shown(problem, Role.CULPRIT), _shown(problem, Role.WAITING), absent)
    stacks = any(entry.frames for one in problem.evidence for entry in one.entries)
    return ADVICE[problem.kind](case) + (NO_STACKS if problem.evidence and not stacks else "")


def place_of(frame: Frame) -> str:
    """`train.py:65`."""
    return f"{PurePath(frame.filename).name or '?'}:{frame.line}"


def _called_at(entry: Entry | None) -> str:
    """`train.py:65 (step)`, or nothing where no stack was recorded."""
    return f"{place_of(entry.frames[0])} ({entry.frames[0].name})" if entry and entry.frames else ""


def _last_entries(problem: Problem) -> list[Entry]:
    return [one.entries[-1] for one in problem.evidence]


def _shown(problem: Problem, role: Role) -> Entry | None:
    return next((one.entries[-1] for one in problem.evidence if one.role is role), None)


def _absence(case: _Case) -> str:
    if case.absent:
        return _no_dump(case)
    if _queued(case):
        return (
            f"{_capital(case.who)} queued it, but its device has not got so far: look at what that device runs, "
            "and for its errors (nvidia-smi, Xid in dmesg)."
        )
    return f"See what {case.who} does now: py-spy dump --pid PID on its host, and the end of its log.{_way(case)}"


def _queued(case: _Case) -> bool:
    own, problem = case.own, case.problem
    same = own is not None and own.group == problem.group
    return bool(same and own and (own.sequence or 0) >= (problem.sequence or 0) > 0)


def _way(case: _Case) -> str:
    """From where the one to blame was last to where the others are."""
    if case.here and case.here == case.there:
        return f" It did not come back to {case.here}, where the others wait."
    if case.here and case.there:
        return (
            f" Between {case.here}, its last call, and {case.there}, where the others wait, look for a branch, "
            "a loop or an exception that only it takes."
        )
    if case.there:
        return f" The others wait at {case.there}."
    return ""


def _no_dump(case: _Case) -> str:
    who = lowered(ranks_in_words(case.absent))
    several = len(case.absent) > 1
    return (
        f"There is no whole dump of {who}: look whether {'their processes' if several else 'its process'} still "
        f"run{'' if several else 's'}, and at the end of {'their logs' if several else 'its log'}. {WHERE_DUMPS_ARE}"
    )


def _skipped(case: _Case) -> str:
    if case.here and case.there and case.here != case.there:
        return (
            f"The others called it at {case.there}, where {case.who} went on to {case.here}: look for the branch "
            "that led past it."
        )
    where = f" at {case.there}" if case.there else ""
    return f"Look for the branch or the loop that led {case.who} past the call{where}."


def _operation(case: _Case) -> str:
    if case.here and case.there and case.here != case.there:
        return (
            f"{_capital(case.who)} called from {case.here}, others from {case.there}: look for the condition that "
            "sends them different ways."
        )
    return f"Look for the condition that sends {case.who} another way than the others."


def _tensor(where_it_comes_from: str) -> Callable[[_Case], str]:
    def advice(case: _Case) -> str:
        at = f" at {case.here}" if case.here else ""
        if case.problem.tie:
            return (
                f"Nothing tells who is wrong: compare the tensors{at} on all of them. {where_it_comes_from}"
            )
        return f"Look at the tensor that {case.who} gives{at}. {where_it_comes_from}"

    return advice


def _peers(case: _Case) -> str:
    places = " and ".join(dict.fromkeys(filter(None, (case.here, case.there))))
    at = f" at {places}" if places else ""
    if operation_of(case.problem.operation) in ROOTED:
        return (
            f"Compare the root (src, dst) of the calls{at}: all ranks have to name the same one, by its number in "
            "the job and not in the group."
        )
    return (
        f"Compare source, destination and order of the calls{at}: each send needs a receive between the same two "
        "ranks, in the same order."
    )


def _deadlock(case: _Case) -> str:
    problem = case.problem
    if all(operation_of(link.operation) in POINT_TO_POINT for link in problem.cycle):
        places = " and ".join(dict.fromkeys(filter(None, map(_called_at, _last_entries(problem)))))
        return (
            f"Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv"
            f"{f': look at {places}' if places else ''}."
        )
    groups = list(dict.fromkeys(link.group for link in problem.cycle))
    where = [
        f"rank {one.rank} is in {group_in_words(entry.group, entry.description)} first"
        + (f", at {_called_at(entry)}" if entry.frames else "")
        for one in problem.evidence
        for entry in one.entries[-1:]
    ]
    told = f": {'; '.join(where)}" if where else ""
    together = f"groups {' and '.join(groups)}" if len(groups) > 1 else "these ranks"
    return f"Call the collectives of {together} in the same order on all ranks{told}."


def _straggler(case: _Case) -> str:
    return (
        f"Profile {case.who}: data loading, checkpoints, garbage collection, or a slow host or GPU; "
        "tracelink collectives on its profiles shows where the time goes."
    )


def _timed_out(case: _Case) -> str:
    entry = case.other or case.own
    limit = entry.timeout_ms if entry else None
    longer = f", or the work took longer than its timeout of {duration(limit * MILLISECOND)}" if limit else ""
    return (
        "Nobody was missing, so look below the program: errors of network and devices in the logs of these ranks "
        f"(NCCL_DEBUG=INFO, Xid in dmesg){longer}."
    )


def _failed(case: _Case) -> str:
    return (
        f"Look at what the device of {case.who} does, and for its errors (nvidia-smi, Xid in dmesg); then for the "
        "first error in the log: later ones are mostly consequences."
    )


TYPES = "Another type comes from autocast, a cast, or a checkpoint or default of another type."
SIZES = "Another size comes from an uneven last batch (drop_last), uneven shards, or a setting that differs."

ADVICE: Mapping[Kind, Callable[[_Case], str]] = {
    Kind.NEVER_JOINED: _absence,
    Kind.LAGGING: _absence,
    Kind.SKIPPED: _skipped,
    Kind.OPERATION_MISMATCH: _operation,
    Kind.DTYPE_MISMATCH: _tensor(TYPES),
    Kind.SIZE_MISMATCH: _tensor(SIZES),
    Kind.PEER_MISMATCH: _peers,
    Kind.DEADLOCK: _deadlock,
    Kind.STRAGGLER: _straggler,
    Kind.TIMED_OUT: _timed_out,
    Kind.FAILED: _failed,
}


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
