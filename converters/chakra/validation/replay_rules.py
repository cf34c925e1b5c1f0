"""The rules that a replay of all ranks finds broken: deadlocks, and orders that depend on durations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN
from tracelink._model.ranges import Numbers
from tracelink._model.text import counted
from tracelink.converters.chakra.replay import (
    INSTANT,
    SLOW,
    Deadlock,
    RankSteps,
    Wait,
    replay_in_order,
    replay_in_time,
)
from tracelink.converters.chakra.schema import NodeType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.rank_communication import collective_label
from tracelink.converters.chakra.validation.rules import Rule, Violation

_MOST_RANKS = 4
"""Of more ranks in a circle, the first ones are described."""


class JobSteps(Struct, frozen=True):
    """The communication of all ranks of a job, their files, and the members of its groups."""

    ranks: Mapping[int, RankSteps]
    paths: Mapping[int, str]
    groups: Mapping[int, Sequence[int]]


def deadlocks(job: JobSteps) -> tuple[list[Violation], bool]:
    """A violation for each circle of ranks, and whether dependencies alone make the ranks deadlock.

    If not, they deadlock only in simulators that run one op of each rank at a time.
    """
    replay = replay_in_order(job.ranks, job.groups)
    if replay.finishes:
        return [], False
    count, ranks = sum(replay.unfinished.values()), Numbers.of(replay.unfinished)
    never = f"{counted(count, 'communication op')} of ranks {ranks} never complete{'s' if count == 1 else ''}"
    found = [
        _violation(job, Rule.DEADLOCK, deadlock.waits[0], f"{_waiting(job, deadlock)}; {never}")
        for deadlock in replay.deadlocks
    ]
    if not found:
        first = min(replay.unfinished)
        found = [Violation(Rule.DEADLOCK, first, None, never, job.paths[first])]
    return found, not replay_in_order(job.ranks, job.groups, one_at_a_time=False).finishes


def races(job: JobSteps) -> list[Violation]:
    """A warning for each pair of ops that a replay in time runs in another order than ids, and then never completes."""
    if all(_is_ordered(steps) for steps in job.ranks.values()):
        return []
    for duration in (INSTANT, SLOW):
        replay = replay_in_time(job.ranks, job.groups, duration)
        found = {pair: ranks for deadlock in replay.deadlocks for pair, ranks in _unordered(deadlock)}
        if found:
            return [_race(job, *pair, ranks) for pair, ranks in sorted(found.items())]
    return []


def _is_ordered(steps: RankSteps) -> bool:
    """True if dependencies order all ops but receives, which run next to other ops: durations change nothing then."""
    if steps.before is None:
        return True
    bounds, before = steps.before.bounds.tolist(), steps.before.ids.tolist()
    others = np.flatnonzero(steps.kind != NodeType.COMM_RECV).tolist()
    for earlier, later in pairwise(others):
        reached = {later}
        for row in range(later, earlier, -1):  # all rows between the two are receives
            if row in reached:
                reached.update(before[bounds[row] : bounds[row + 1]])
        if earlier not in reached:
            return False
    return True


def _unordered(deadlock: Deadlock) -> Iterator[tuple[tuple[int, int, int], str]]:
    """Rank, the op that comes first by ids, and the op that ran in its place; and all ranks of the deadlock."""
    waits = deadlock.waits
    ranks = _ranks(waits)
    if deadlock.disagrees:
        pairs = [(wait.rank, wait.needed, wait.step) for wait in waits]
    else:
        following = [*waits[1:], waits[0]]
        pairs = [(other.rank, wait.needed, other.step) for wait, other in zip(waits, following, strict=True)]
    yield from ((pair, ranks) for pair in pairs if UNKNOWN < pair[1] < pair[2])


def _race(job: JobSteps, rank: int, first: int, second: int, ranks: str) -> Violation:
    text = (
        f"{_label(job, rank, first)} and {_label(job, rank, second)} of rank {rank} are not ordered by dependencies:"
        f" if node {_node(job, rank, second)} runs first, {ranks} deadlock"
    )
    return Violation(Rule.RACE, rank, _node(job, rank, first), text, job.paths[rank])


def _waiting(job: JobSteps, deadlock: Deadlock) -> str:
    waits = deadlock.waits
    ranks = _ranks(waits)
    if deadlock.disagrees:
        parts = [
            f"rank {wait.rank} is in {_label(job, wait.rank, wait.step)}" for wait in waits[:_MOST_RANKS]
        ]
        return f"{ranks} run different collectives at once: {'; '.join(parts)}{_more(waits)}"
    parts = [
        f"rank {wait.rank} is in {_label(job, wait.rank, wait.step)}, which needs node"
        f" {_node(job, following.rank, wait.needed)} of rank {following.rank}"
        for wait, following in zip(waits[:_MOST_RANKS], [*waits[1:], waits[0]], strict=False)
    ]
    return f"{ranks} wait for each other: {'; '.join(parts)}{_more(waits)}"


def _violation(job: JobSteps, rule: Rule, wait: Wait, text: str) -> Violation:
    return Violation(rule, wait.rank, _node(job, wait.rank, wait.step), text, job.paths[wait.rank])


def _node(job: JobSteps, rank: int, step: int) -> int:
    return unsigned(job.ranks[rank].node[step])


def _label(job: JobSteps, rank: int, step: int) -> str:
    """An op by its node and what it does."""
    steps = job.ranks[rank]
    if steps.kind[step] == NodeType.COMM_COLL:
        group = int(steps.group[step])
        where = f" in group {group}" if group else ""
        action = f"{collective_label(int(steps.type[step]), int(steps.size[step]))}{where}"
    else:
        sent = steps.kind[step] == NodeType.COMM_SEND
        action = (
            f"{'sends' if sent else 'receives'} {steps.size[step]:,} bytes with tag {steps.tag[step]}"
            f" {'to' if sent else 'from'} rank {steps.peer[step]}"
        )
    return f"node {_node(job, rank, step)} ({action})"


def _ranks(waits: Sequence[Wait]) -> str:
    ranks = [wait.rank for wait in waits]
    return f"ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 else f"ranks {Numbers.of(ranks)}"


def _more(waits: Sequence[Wait]) -> str:
    more = len(waits) - _MOST_RANKS
    return f"; and {counted(more, 'more rank')}" if more > 0 else ""
