"""The verdict: the category of each problem, and the law that nothing is `ok` while a rank waits or left no dump."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tracelink.diagnosis.model import Category, Diagnosis, Kind, Problem, Stage, Standing
from tracelink.model.text import collective_in_words, ranks_in_words
from tracelink.model.trace import ProcessGroup

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
    Category.PROCESS_GONE: "process gone",
    Category.WRONG_ARGUMENTS: "wrong arguments",
    Category.DEVICE_OR_NETWORK: "device or network stuck",
    Category.IN_FLIGHT: "in flight",
    Category.UNKNOWN: "unknown (the dumps do not show it)",
}


def with_categories(problems: Sequence[Problem], missing: Collection[int]) -> list[Problem]:
    """The problems with their categories; `missing` are the ranks without any dump."""
    return [replace(problem, category=_category(problem, set(missing))) for problem in problems]


def _category(problem: Problem, missing: Collection[int]) -> Category:
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


def _call(standing: Standing) -> str:
    group = ProcessGroup(standing.group, standing.description)
    return collective_in_words(standing.operation, standing.sequence or 0, group)
