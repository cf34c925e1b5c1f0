"""The verdict: the category of each problem; nothing is `ok` while a rank waits or left no dump; who compiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracelink.diagnosis.explain import compiled_in_words, failed_guard_in_words, with_clause
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Category, Diagnosis, Kind, Problem, Stage, Standing
from tracelink.io.engine import Engine
from tracelink.model.columns import NO_TIME
from tracelink.model.records import compiler_frame, line_in_words
from tracelink.model.text import collective_in_words, duration, ranks_in_words
from tracelink.model.trace import ProcessGroup
from tracelink.pipeline.reading import Task

if TYPE_CHECKING:
    from tracelink.compiling.divergences import Logs
    from tracelink.diagnosis.witnesses.model import Delay
    from tracelink.model.witnesses import Compiling, Stack

CATEGORY: Mapping[Kind, Category] = {
    Kind.NEVER_JOINED: Category.NOT_REACHED,
    Kind.LAGGING: Category.NOT_REACHED,
    Kind.SKIPPED: Category.CODE_PATH,
    Kind.OPERATION_MISMATCH: Category.CODE_PATH,
    Kind.DTYPE_MISMATCH: Category.WRONG_ARGUMENTS,
    Kind.SIZE_MISMATCH: Category.WRONG_ARGUMENTS,
    Kind.PEER_MISMATCH: Category.WRONG_ARGUMENTS,
    Kind.DEADLOCK: Category.CODE_PATH,
    Kind.STRAGGLER: Category.NOT_REACHED,
    Kind.TIMED_OUT: Category.DEVICE_OR_NETWORK,
    Kind.FAILED: Category.DEVICE_OR_NETWORK,
    Kind.ABSENT: Category.PROCESS_GONE,
    Kind.NOT_RECORDED: Category.UNKNOWN,
    Kind.IN_FLIGHT: Category.IN_FLIGHT,
}
CATEGORY_IN_WORDS: Mapping[Category, str] = {
    Category.CODE_PATH: "another way through the code",
    Category.NOT_REACHED: "call not reached (stuck or slow on the host)",
    Category.COMPILING: "busy compiling (torch.compile, on the host)",
    Category.PROCESS_GONE: "process gone",
    Category.WRONG_ARGUMENTS: "wrong arguments",
    Category.DEVICE_OR_NETWORK: "device or network stuck",
    Category.IN_FLIGHT: "in flight",
    Category.UNKNOWN: "unknown (the files do not show it)",
}
NOT_REACHED = frozenset({Kind.NEVER_JOINED, Kind.LAGGING, Kind.ABSENT, Kind.IN_FLIGHT})
"""Problems whose culprits may be busy before the call."""
MOST_RANKS = 64
"""Culprits whose compile logs are read."""


def with_categories(problems: Sequence[Problem], missing: Collection[int]) -> list[Problem]:
    """The problems with their categories; `missing` are the ranks without any dump."""
    return [replace(problem, category=_category(problem, set(missing))) for problem in problems]


def _category(problem: Problem, missing: Collection[int]) -> Category:
    if problem.kind is Kind.NEVER_JOINED and problem.tie:
        return Category.UNKNOWN
    if problem.proven or problem.kind in (Kind.ABSENT, Kind.IN_FLIGHT):
        return CATEGORY[problem.kind]
    gone = bool(problem.culprits) and all(rank in missing for rank in problem.culprits)
    return Category.PROCESS_GONE if gone else Category.UNKNOWN


def lawful(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis, which is not `ok` while a rank waits or a member of a group that others used left no dump.

    Standings show this independently of the search for causes, which may overlook one.
    """
    if diagnosis.problems:
        return diagnosis
    missing = set(diagnosis.missing)
    waiting = [standing for standing in diagnosis.standings if standing.stage is Stage.WAITING]
    absent = [
        standing
        for standing in diagnosis.standings
        if standing.sequence is not None and missing & set(standing.ranks)
    ]
    problems = list(map(_in_flight, waiting[:1])) or [_absent(standing, missing) for standing in absent[:1]]
    if missing and not problems:
        problems = [_absent_anywhere(diagnosis.missing)]
    return replace(diagnosis, problems=with_categories(problems, missing))


def _in_flight(standing: Standing) -> Problem:
    return Problem(
        Kind.IN_FLIGHT,
        standing.group,
        standing.description,
        standing.sequence,
        standing.operation,
        (),
        standing.ranks,
        f"Running or hung? {ranks_in_words(standing.ranks)} joined {_call(standing)} and did not finish it. "
        "The dumps do not show whether the job still runs.",
    )


def _absent(standing: Standing, missing: set[int]) -> Problem:
    ranks = tuple(sorted(missing & set(standing.ranks)))
    return Problem(
        Kind.ABSENT,
        standing.group,
        standing.description,
        standing.sequence,
        standing.operation,
        ranks,
        (),
        f"{ranks_in_words(ranks)} left no dump; other ranks finished {_call(standing)} with "
        f"{'it' if len(ranks) == 1 else 'them'}.",
        proven=False,
    )


def _absent_anywhere(ranks: Sequence[int]) -> Problem:
    """Ranks that are members of no known group: there are dumps of larger numbers."""
    them = "it" if len(ranks) == 1 else "them"
    message = (
        f"{ranks_in_words(ranks)} left no dump. The other dumps do not show whether a rank waits for {them}."
    )
    return Problem(Kind.ABSENT, "", "", None, "", tuple(ranks), (), message, proven=False)


def _call(standing: Standing) -> str:
    group = ProcessGroup(standing.group, standing.description)
    return collective_in_words(standing.operation, standing.sequence or 0, group)


# Culprits that compile while other ranks wait for them.


def with_compilations(
    diagnosis: Diagnosis, journal: Journal, tasks: Sequence[Task], engine: Engine
) -> Diagnosis:
    """The diagnosis with what the compiler did in the processes of culprits while other ranks waited."""
    from tracelink.diagnosis.witnesses.compile_logs import logs_of  # most users have no compile logs

    culprits = [
        rank for problem in diagnosis.problems if problem.kind in NOT_REACHED for rank in problem.culprits
    ]
    logs, findings = logs_of(list(dict.fromkeys(culprits))[:MOST_RANKS], tasks, engine)
    problems = [
        _with_compiling(problem, journal, logs) if problem.kind in NOT_REACHED else problem
        for problem in diagnosis.problems
    ]
    return replace(diagnosis, problems=problems, findings=[*diagnosis.findings, *findings])


def _with_compiling(problem: Problem, journal: Journal, logs: Logs) -> Problem:
    from tracelink.diagnosis.witnesses.compile_logs import compilation_of

    waits = {rank: _wait_for(rank, problem, journal) for rank in problem.culprits if rank in logs}
    found = [one for rank, wait in waits.items() if (one := compilation_of(rank, logs[rank], wait))]
    if problem.kind is Kind.ABSENT:
        found = [one for one in found if one.open]
    if not found:
        return problem
    # a rank that finished compiling and has not joined may be stuck since then
    late_by_it = [one for one in found if one.open or waits[one.rank].joined]
    most = 2 * len(late_by_it) >= len(problem.culprits)
    return replace(
        problem,
        compiling=tuple(found),
        category=Category.COMPILING if most else problem.category,
        message=_message(problem, found),
    )


def with_stacks(diagnosis: Diagnosis, stacks: Mapping[int, Stack]) -> Diagnosis:
    """The diagnosis with the stacks of culprits."""
    return replace(diagnosis, problems=[_with_stacks(problem, stacks) for problem in diagnosis.problems])


def _with_stacks(problem: Problem, stacks: Mapping[int, Stack]) -> Problem:
    found = [stacks[rank] for rank in problem.culprits if rank in stacks]
    problem = replace(problem, stacks=tuple(found))
    frames = {stack.rank: frame for stack in found if (frame := compiler_frame(stack.frames))}
    if not frames or problem.compiling or problem.kind not in NOT_REACHED:
        return problem
    several = len(frames) > 1
    where = (
        f"{'are' if several else 'is'} in torch's compiler ({line_in_words(next(iter(frames.values())))}), "
        f"as {'their stacks show' if several else 'its stack shows'}"
    )
    sentence = f"{ranks_in_words(list(frames))} {where}."
    alone = len(problem.culprits) == 1
    return replace(
        problem,
        category=Category.COMPILING if 2 * len(frames) >= len(problem.culprits) else problem.category,
        message=with_clause(problem, f"it {where}", sentence) if alone else f"{problem.message} {sentence}",
    )


def _wait_for(rank: int, problem: Problem, journal: Journal) -> Delay:
    from tracelink.diagnosis.witnesses.model import Delay

    records = journal.records
    rows = [row for other, row in problem.rows.items() if other not in problem.culprits]
    starts = [time for row in rows if (time := int(records.created[row])) != NO_TIME]
    start = min(starts, default=None)
    latest = int(records.created.max()) if len(journal) else NO_TIME
    own = records.created[journal.rank == rank]
    last = int(own.max()) if len(own) else NO_TIME
    row = problem.rows.get(rank)
    joined = row is not None and any(
        (records.group[row], records.sequence[row], records.point_to_point[row])
        == (records.group[other], records.sequence[other], records.point_to_point[other])
        for other in rows
    )
    end = int(records.created[row]) if joined else max(latest, (start or 0) + (problem.waited_ns or 0))
    return Delay(start, end, None if last == NO_TIME else last, joined, rank in journal.recordings)


def _message(problem: Problem, found: Sequence[Compiling]) -> str:
    if len(problem.culprits) == 1:
        return with_clause(problem, f"it {_in_words(found)}", f"Rank {found[0].rank} {_in_words(found)}.")
    alike: dict[tuple[str, str, str, bool], list[Compiling]] = {}
    for one in found:
        alike.setdefault((one.function, one.id, one.phases[-1], one.open), []).append(one)
    sentences = [
        f"{ranks_in_words([one.rank for one in same])} {_in_words(same)}."
        for same in sorted(alike.values(), key=len, reverse=True)[:2]
    ]
    return " ".join([problem.message, *sentences])


def _in_words(alike: Sequence[Compiling]) -> str:
    """`has been compiling train_step [3/2] (async_compile.wait) for at least 6 min 34 s`."""
    longest = max(alike, key=lambda one: one.duration_ns)
    several = len(alike) > 1
    what = compiled_in_words(longest)
    guards = {failed_guard_in_words(one) for one in alike if one.cold is False}
    again = f" (again, because {guard})" if len(guards) == 1 and (guard := guards.pop()) else ""
    if longest.open:
        verb = "have" if several else "has"
        return f"{verb} been compiling {what} for at least {duration(longest.duration_ns)}{again}"
    return f"{'were' if several else 'was'} compiling {what} for {duration(longest.duration_ns)} meanwhile{again}"
