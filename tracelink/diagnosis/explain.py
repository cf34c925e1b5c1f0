"""Explanations of problems: recorded entries as evidence, lines of the program, and advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink.diagnosis.journal import Journal, reread_entries
from tracelink.diagnosis.model import Category, Diagnosis, Evidence, Kind, Problem, Role
from tracelink.model.columns import MILLISECOND, UNKNOWN, Int64s
from tracelink.model.errors import printable
from tracelink.model.operations import POINT_TO_POINT, ROOTED, operation_of
from tracelink.model.records import Entry, Frame, compiler_frame, line_in_words, own_frames
from tracelink.model.text import (
    capitalized,
    collective_in_words,
    count_of_ranks,
    counted,
    duration,
    group_in_words,
    lowered,
    operation_in_words,
    ranks_in_words,
    shortened,
    time_of_day,
)
from tracelink.model.trace import ProcessGroup

MOST_PROBLEMS = 5
MOST_CULPRITS = 3
MOST_CALLS = 5
"""Calls shown of a culprit; of a waiting rank only the one in which it waits."""
MOST_ENTRIES = 40
"""Entries shown of a rank: a coalesced call has several."""
MOST_HOSTS = 4
"""Hosts that advice names."""
NO_HOSTS: Mapping[int, str] = {}
NO_ROWS = np.empty(0, np.int64)
MISMATCHES = frozenset({Kind.OPERATION_MISMATCH, Kind.DTYPE_MISMATCH, Kind.SIZE_MISMATCH})
WHERE_DUMPS_ARE = (
    "A rank writes its dump on its own host: to the path in TORCH_FR_DUMP_TEMP_FILE followed by the rank, "
    "by default ~/.cache/torch/comm_lib_trace_rank_N."
)
NO_STACKS = " These dumps have no stacks; pickled dumps have them unless stack traces were disabled."
WHERE_COMPILE_LOGS_ARE = (
    " Its stack is in torch's compiler: run the job with TORCH_TRACE=DIR in the environment, and give DIR to tracelink "
    "diagnose together with the dumps. Its logs show what is compiled, since when, and whether for the first time."
)
WHERE_ALL_ARE = (
    "Run py-spy dump --pid PID on each rank, and read the ends of the logs: ranks may be in code without "
    "communication, or in calls that are not recorded."
)

if TYPE_CHECKING:
    from tracelink.model.witnesses import Compiling
LONGEST_FUNCTION = 80
LONGEST_GUARD = 120
_MISMATCH = re.compile(r"^tensor '|\\bmismatch\\b")
TYPES = "Usual causes: autocast, a cast, or a checkpoint or default of another dtype."
SIZES = "Usual causes: an uneven last batch (drop_last), uneven shards, or a setting that differs."


# Evidence: the last entries of culprits and of one waiting rank, with their stacks.


def with_evidence(diagnosis: Diagnosis, journal: Journal) -> Diagnosis:
    """The diagnosis with the recorded entries that show its worst problems."""
    selections = [_selections(problem, journal) for problem in diagnosis.problems[:MOST_PROBLEMS]]
    rows = [selection.rows for selection in chain.from_iterable(selections)]
    entries, findings = reread_entries(journal, np.unique(np.concatenate(rows)) if rows else NO_ROWS)
    shown = [
        replace(
            problem,
            evidence=tuple(filter(None, (_evidence(selection, entries, journal) for selection in selected))),
        )
        for problem, selected in zip(diagnosis.problems, selections, strict=False)
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


class _Selection(Struct, frozen=True):
    """The entries of a rank that are evidence."""

    rank: int
    role: Role
    rows: Int64s
    """Rows of the journal."""


def _selection(journal: Journal, rank: int, row: int, role: Role, calls: int) -> _Selection:
    """The call of an entry, and the calls before it."""
    index = int(journal.ranks.searchsorted(rank))
    first_entry, end = journal.bounds[index : index + 2].tolist()
    first, last = max(first_entry, row - MOST_ENTRIES), min(end, row + MOST_ENTRIES)
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


# Mismatches judged by lines of the program.


def judged_by_line(diagnosis: Diagnosis) -> Diagnosis:
    """Turns a mismatch, or a deadlock, into `skipped` if the lines show that the culprit has passed the call."""
    return replace(diagnosis, problems=[_judged(problem) for problem in diagnosis.problems])


def _judged(problem: Problem) -> Problem:
    own = _shown(problem, Role.CULPRIT)
    other = _shown(problem, Role.WAITING)
    if problem.kind is Kind.DEADLOCK and not (problem.tie or problem.in_other_order):
        return _judged_deadlock(problem)
    if problem.kind not in MISMATCHES or problem.tie or own is None or other is None:
        return problem
    if operation_of(problem.operation) in POINT_TO_POINT:
        return problem
    if not _requests_differ(own, other) or not _is_further_on(own.frames, other.frames):
        return problem
    return replace(
        problem, kind=Kind.SKIPPED, category=Category.CODE_PATH, message=_skipped_message(problem, own)
    )


def _judged_deadlock(problem: Problem) -> Problem:
    """A deadlock of collectives is a skipped call if all culprits have passed the one in which others wait."""
    own = [evidence.entries for evidence in problem.evidence if evidence.role is Role.CULPRIT]
    awaited = [
        evidence.entries[-1]
        for evidence in problem.evidence
        if evidence.role is Role.WAITING
        and (evidence.entries[-1].group, evidence.entries[-1].sequence) == (problem.group, problem.sequence)
    ]
    if not own or not awaited:
        return problem
    passed = {_has_passed(entries, awaited[0].frames) for entries in own}
    if passed == {True}:
        return replace(problem, kind=Kind.SKIPPED, cycle=(), message=_skipped_message(problem, own[0][-1]))
    return replace(problem, in_other_order=passed == {False})


def _has_passed(entries: Sequence[Entry], awaited: Sequence[Frame]) -> bool | None:
    """Whether a program is past a line in which others wait, by its last two calls; None if lines do not show it.

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
    """Whether two stacks are in the same function at a depth, called from the same lines."""
    same = (one[depth].filename, one[depth].name) == (other[depth].filename, other[depth].name)
    return same and list(one[:depth]) == list(other[:depth])


def _requests_differ(own: Entry, other: Entry) -> bool:
    """Whether more than the operation differs: two branches may call different operations on the same tensor."""
    return (own.input_sizes, own.input_types) != (other.input_sizes, other.input_types)


def _is_further_on(own: Sequence[Frame], others: Sequence[Frame]) -> bool:
    """Whether the first call in which two stacks differ is later in the same function."""
    for own_frame, other_frame in zip(reversed(own), reversed(others), strict=False):
        if own_frame != other_frame:
            return (own_frame.filename, own_frame.name) == (
                other_frame.filename,
                other_frame.name,
            ) and own_frame.line > other_frame.line
    return False


def _skipped_message(problem: Problem, own: Entry) -> str:
    group = ProcessGroup(problem.group, problem.description)
    what = collective_in_words(problem.operation, problem.sequence or 0, group)
    line = line_in_words(own.frames[0] if own.frames else Frame("", "", 0))
    waiting = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    return (
        f"{ranks_in_words(problem.culprits)} skipped {what} and continued with "
        f"{operation_in_words(own.operation)} at {line}{waiting}."
    )


# Advice: what to look at next, for each kind of problem.


def with_advice(diagnosis: Diagnosis, hosts: Mapping[int, str] = NO_HOSTS) -> Diagnosis:
    """The diagnosis with advice on each problem; `hosts` are those of ranks."""
    problems = [
        problem
        if problem.advice
        else replace(
            problem,
            advice=advice_for(problem, diagnosis.present, diagnosis.unreadable)
            + _hosts_in_words(problem.culprits or problem.waiting, hosts),
        )
        for problem in diagnosis.problems
    ]
    return replace(diagnosis, problems=problems)


def _hosts_in_words(ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    """` Rank 3 is on node0.`, if a host is known."""
    of_host: dict[str, list[int]] = {}
    for rank in ranks:
        if host := hosts.get(rank):
            of_host.setdefault(host, []).append(rank)
    shown = [
        f"{lowered(ranks_in_words(own))} {'is' if len(own) == 1 else 'are'} on {printable(host)}"
        for host, own in list(of_host.items())[:MOST_HOSTS]
    ]
    if (rest := len(of_host) - len(shown)) > 0:
        shown.append(f"others are on {counted(rest, 'more host')}")
    return f" {capitalized(', '.join(shown))}." if shown else ""


def advice_for(problem: Problem, present: Collection[int], damaged: Collection[int] = ()) -> str:
    """What to look at next, based on the evidence if there is any; `damaged` are ranks with unusable dumps."""
    absent = tuple(rank for rank in problem.culprits if rank not in present)
    case = _Case(problem, _shown(problem, Role.CULPRIT), _shown(problem, Role.WAITING), absent, damaged)
    stacks = any(entry.frames for evidence in problem.evidence for entry in evidence.entries)
    advice = ADVICE[problem.kind](case)
    if problem.compiling and problem.category is not Category.COMPILING:
        advice = f"{_compiled(problem.compiling[0])} {advice}"
    elif problem.compiling:
        undecided = absent or problem.kind is Kind.IN_FLIGHT
        advice = f"{_busy_compiling(problem.compiling)}{f' {advice}' if undecided else ''}"
    elif in_compiler(problem):
        advice += WHERE_COMPILE_LOGS_ARE
    return advice + (NO_STACKS if problem.evidence and not stacks else "")


class _Case(Struct, frozen=True):
    """A problem, the last entry of a culprit, and the entry of another rank."""

    problem: Problem
    own: Entry | None
    other: Entry | None
    absent: tuple[int, ...]
    """Culprits without a complete dump."""
    damaged: Collection[int] = ()
    """Ranks whose dumps are truncated or cannot be read."""

    @property
    def culprit(self) -> str:
        """The culprit, or one of several."""
        culprits = self.problem.culprits
        if not culprits:
            return "these ranks"
        return f"rank {culprits[0]}" if len(culprits) == 1 else f"rank {culprits[0]} (for example)"

    @property
    def own_line(self) -> str:
        """Where the culprit made its last call."""
        return _called_at(self.own)

    @property
    def other_line(self) -> str:
        """Where the other ranks are."""
        return _called_at(self.other)


def _shown(problem: Problem, role: Role) -> Entry | None:
    entries = (evidence.entries[-1] for evidence in problem.evidence if evidence.role is role)
    return next(entries, None)


def _last_entries(problem: Problem) -> list[Entry]:
    return [evidence.entries[-1] for evidence in problem.evidence]


def _called_at(entry: Entry | None) -> str:
    """`train.py:65 (step)`; empty without a stack."""
    return f"{line_in_words(entry.frames[0])} ({entry.frames[0].name})" if entry and entry.frames else ""


def _absence(case: _Case) -> str:
    if case.absent:
        return _no_dump(case)
    if _joined_late(case):
        return _late(case)
    if case.problem.tie:
        return _one_call_too_many(case)
    return (
        f"Check what {case.culprit} is doing now: run py-spy dump --pid PID on its host, and read the end of its "
        f"log.{_way(case)}"
    )


def _one_call_too_many(case: _Case) -> str:
    """A call that few ranks made: the line of it, and how to find out where the others are."""
    problem = case.problem
    last = {evidence.rank: evidence.entries[-1] for evidence in problem.evidence if evidence.entries}
    own = [
        rank
        for rank, entry in last.items()
        if (entry.group, entry.sequence) == (problem.group, problem.sequence)
    ]
    others = [rank for rank in last if rank not in own]
    line = _called_at(last[own[0]]) if own else ""
    at = f" at {line}" if line else ""
    which = f"rank {others[0]}" if others else "one of the others"
    return (
        f"Look for a condition that lets only some ranks make the call{at}. If all ranks have to make it, check what "
        f"{which} is doing now: run py-spy dump --pid PID on its host."
    )


def in_compiler(problem: Problem) -> bool:
    """Whether a stack of a culprit is in torch's compiler."""
    of_entries = (shown.compiler for shown in problem.evidence if shown.role is Role.CULPRIT)
    return any(stack.in_compiler for stack in problem.stacks) or any(of_entries)


def _busy_compiling(compiling: Sequence[Compiling]) -> str:
    """How to get rid of the wait: another timeout or a warm cache the first time, fewer compilations after that."""
    one = compiling[0]
    rank, what = f"rank {one.rank}", shortened(one.function, LONGEST_FUNCTION) or "this function"
    ended = " If the compilation does not end, run py-spy dump --pid PID on its host." if one.open else ""
    if one.cold is False:
        why = failed_guard_in_words(one)
        return (
            f"{capitalized(rank)} had compiled {what} before (warm): "
            f"{f'{why}. Mark' if why else 'mark'} sizes that change as dynamic (torch._dynamo.mark_dynamic), and keep "
            f"other values that guards check constant. tracelink compile {one.sources[0]} shows every guard that "
            f"failed.{ended}"
        )
    first = f"compiles {what} for the first time (cold)" if one.cold else "is in the compiler"
    return (
        f"{capitalized(rank)} {first}: use a longer timeout for the first steps, compile before the first collective, "
        "or start with warm caches (FX graph cache in TORCHINDUCTOR_CACHE_DIR, on storage that outlives the job). "
        f"tracelink compile {one.sources[0]} shows what it compiled.{ended}"
    )


def _compiled(one: Compiling) -> str:
    """What follows from a compilation that ended, if the rank has not joined."""
    if one.open:
        return f"Rank {one.rank} is compiling; other culprits are not."
    return (
        f"Rank {one.rank} finished compiling at {time_of_day(one.since_ns + one.duration_ns, digits=3)} UTC: "
        "if the dumps were written later, it is stuck after that."
    )


def compiled_in_words(compiling: Compiling) -> str:
    """`train_step [3/2] (async_compile.wait)`."""
    function = shortened(compiling.function, LONGEST_FUNCTION)
    named = [function, f"[{compiling.id}]" if compiling.id else "", f"({compiling.phases[-1]})"]
    return " ".join(filter(None, named))


def how_long(compiling: Compiling) -> str:
    """`for at least 6 min 34 s: the log ends within it`."""
    length = duration(compiling.duration_ns)
    return f"for at least {length}: the log ends within it" if compiling.open else f"for {length}"


def which_time(compiling: Compiling) -> str:
    """Whether the function was compiled before, and why again; empty if unknown."""
    words = {True: "first time (cold)", False: "second time or later (warm)", None: ""}[compiling.cold]
    why = failed_guard_in_words(compiling)
    return f"{words}, because {why}" if words and why else words


def failed_guard_in_words(compiling: Compiling) -> str:
    """`s.i == 0 failed at train.py:31`; empty if unknown."""
    if not compiling.guard:
        return ""
    guard = shortened(compiling.guard, LONGEST_GUARD)
    failed = "" if _MISMATCH.search(compiling.guard) else " failed"
    return f"{guard}{failed}{f' at {line_in_words(compiling.guard_frame)}' if compiling.guard_frame else ''}"


def with_clause(problem: Problem, clause: str, sentence: str) -> str:
    """The message with a cause before the ranks that wait, else with a sentence at its end."""
    waits = f"; {count_of_ranks(problem.waiting, 'wait')}" if problem.waiting else ""
    before, found, after = problem.message.partition(waits) if waits else ("", "", "")
    if not found or ";" in before or problem.kind not in (Kind.NEVER_JOINED, Kind.LAGGING):
        return f"{problem.message} {sentence}"
    return f"{before}: {clause}{waits}{after}"


def _joined_late(case: _Case) -> bool:
    own, problem = case.own, case.problem
    if own is None or operation_of(problem.operation) in POINT_TO_POINT:
        return False
    return (own.group, own.sequence) == (problem.group, problem.sequence) and own.description in (
        "",
        problem.description,
    )


def _late(case: _Case) -> str:
    """It joined after the others had given up: its host was late, and is no longer stuck."""
    before = [
        entry
        for evidence in case.problem.evidence[:1]
        if evidence.role is Role.CULPRIT
        for entry in evidence.entries
        if (entry.group, entry.sequence) != (case.problem.group, case.problem.sequence)
    ]
    previous = _called_at(before[-1]) if before else ""
    at = f" at {case.own_line}" if case.own_line else ""
    since = f" between {previous} and this call{at}" if previous else f" before this call{at}"
    return (
        f"Find out in the log of {case.culprit} what it did{since}: usual causes are start-up, loading of data, a "
        "checkpoint or compilation. If it happens again, run py-spy dump --pid PID on its host while the others wait. "
        "If it has to take that long, use a longer timeout."
    )


def _way(case: _Case) -> str:
    """From the last line of the culprit to the line of the other ranks."""
    own, other = case.own_line, case.other_line
    if own and own == other:
        return f" It did not return to {own}, where the others wait."
    if own and other:
        return (
            f" Its last call was at {own}, the others wait at {other}: between these lines look for a branch, a loop "
            "or an exception that only it takes."
        )
    if other:
        return f" The others wait at {other}."
    return ""


def _no_dump(case: _Case) -> str:
    """The process may be gone, its dump may be damaged, or a copy may be incomplete."""
    damaged = tuple(rank for rank in case.absent if rank in case.damaged)
    subject = tuple(rank for rank in case.absent or case.problem.culprits if rank not in damaged) or damaged
    several, missing = len(subject) > 1, subject != damaged
    ranks, their = lowered(ranks_in_words(subject)), "their" if several else "its"
    look = (
        f"an exception, an out-of-memory kill (dmesg), SIGKILL or an exit of {ranks}, in {their} log"
        f"{'s' if several else ''} and in that of the scheduler"
    )
    if not missing:
        files, they = ("dumps", "they are") if several else ("dump", "it is")
        return (
            f"Copy the {files} of {ranks} again. If {they} damaged on the host as well, {their} "
            f"process{'es' if several else ''} may have ended while writing: look for {look}."
        )
    alive = "processes are" if several else "process is"
    add = f"If {their} {alive} alive, add {their} dump{'s' if several else ''}."
    return f"Look first for {look}. {add} {WHERE_DUMPS_ARE}"


def _skipped(case: _Case) -> str:
    own, other = case.own_line, case.other_line
    if own and other and own != other:
        return (
            f"The others called it at {other}, and {case.culprit} continued at {own}: look for the branch that "
            "skipped the call."
        )
    where = f" at {other}" if other else ""
    return f"Look for the branch or the loop in which {case.culprit} skipped the call{where}."


def _operation(case: _Case) -> str:
    own, other = case.own_line, case.other_line
    if own and other and own != other:
        return (
            f"{capitalized(case.culprit)} called from {own}, the others from {other}: look for the condition that "
            "takes them to different lines."
        )
    return f"Look for the condition that takes {case.culprit} to another call than the others."


def _tensor(usual_cause: str) -> Callable[[_Case], str]:
    def advice(case: _Case) -> str:
        at = f" at {case.own_line}" if case.own_line else ""
        if case.problem.tie:
            return f"It is unknown which rank is wrong: compare the tensors{at} on all of them. {usual_cause}"
        return f"Check the tensor that {case.culprit} passes{at}. {usual_cause}"

    return advice


def _peers(case: _Case) -> str:
    lines = " and ".join(dict.fromkeys(filter(None, (case.own_line, case.other_line))))
    at = f" at {lines}" if lines else ""
    if operation_of(case.problem.operation) in ROOTED:
        return (
            f"Compare the root (src, dst) of the calls{at}: all ranks must name the same one, by its rank in the job "
            "and not in the group."
        )
    return (
        f"Compare source, destination and order of the calls{at}: each send needs a receive between the same two "
        "ranks, in the same order."
    )


def _deadlock(case: _Case) -> str:
    problem = case.problem
    if all(operation_of(link.operation) in POINT_TO_POINT for link in problem.cycle):
        lines = " and ".join(dict.fromkeys(filter(None, map(_called_at, _last_entries(problem)))))
        return (
            "Let one side send while the other receives, in the same order, or issue both with batch_isend_irecv"
            f"{f': see {lines}' if lines else ''}."
        )
    groups = list(dict.fromkeys(link.group for link in problem.cycle))
    first_calls = [
        f"rank {evidence.rank} is in {group_in_words(entry.group, entry.description)} first"
        + (f", at {_called_at(entry)}" if entry.frames else "")
        for evidence in problem.evidence
        for entry in evidence.entries[-1:]
    ]
    shown = f": {'; '.join(first_calls)}" if first_calls else ""
    between = f"groups {' and '.join(groups)}" if len(groups) > 1 else "these ranks"
    same_order = f"all the collectives of {between} in the same order on all ranks{shown}."
    if problem.in_other_order or problem.tie:
        return f"C{same_order}"
    what = collective_in_words(
        problem.operation, problem.sequence or 0, ProcessGroup(problem.group, problem.description)
    )
    return (
        f"{capitalized(case.culprit)} has skipped its part in {what}, or would call it later than the others: look for "
        f"the branch that skips it, else c{same_order}"
    )


def _straggler(case: _Case) -> str:
    return (
        f"Profile {case.culprit}: look for data loading, checkpoints, garbage collection, or a slow host or GPU; "
        "tracelink collectives shows from profiles where the time goes."
    )


def _timed_out(case: _Case) -> str:
    entry = case.other or case.own
    limit = entry.timeout_ms if entry else None
    slow = f", or the work took longer than its timeout of {duration(limit * MILLISECOND)}" if limit else ""
    return (
        "No rank was missing: look for errors of the network and the devices in the logs of these ranks "
        f"(NCCL_DEBUG=INFO, Xid in dmesg){slow}."
    )


def _failed(case: _Case) -> str:
    return (
        f"Check what the device of {case.culprit} is running, and its errors (nvidia-smi, Xid in dmesg); then look "
        "for the first error in the log: later ones are mostly consequences."
    )


def _in_flight(case: _Case) -> str:
    hangs = (
        f"If it hangs, {case.culprit} is the first to look at"
        if case.problem.culprits
        else "If it hangs, look for errors of the network and the devices (NCCL_DEBUG=INFO, Xid in dmesg)"
    )
    return (
        "Take dumps again after some seconds and compare: tracelink diagnose NEW --before OLD. "
        f"If you know that the job hangs, add --hung. {hangs}."
    )


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
    Kind.ABSENT: _no_dump,
    Kind.NOT_RECORDED: lambda _: WHERE_ALL_ARE,
    Kind.IN_FLIGHT: _in_flight,
}
