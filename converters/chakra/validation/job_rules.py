"""Rules of the files of a job together: missing ranks, file names, groups, what ranks communicate, and its replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN
from tracelink._model.selection import Numbers
from tracelink._model.text import counted
from tracelink.converters.chakra.schema import NodeType
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.comparison import (
    MATCHED,
    differing_collectives,
    miscounted_collectives,
    unknown_peers,
    unmatched_messages,
)
from tracelink.converters.chakra.validation.file_rules import Checked
from tracelink.converters.chakra.validation.files import ALL_RANKS, Groups, JobFiles, united_groups
from tracelink.converters.chakra.validation.replay import (
    INSTANT,
    SLOW,
    Deadlock,
    RankSteps,
    Wait,
    replay_in_order,
    replay_in_time,
)
from tracelink.converters.chakra.validation.rules import Broken, CheckedFile, Rule, Violation
from tracelink.converters.chakra.validation.trace import Collectives, collective_label

Ranks = Mapping[int, Checked]

_COLLECTIVES_DIFFER = frozenset({Rule.COLLECTIVE_MISSING, Rule.COLLECTIVE_DIFFERS})
_NOT_REPLAYED = _COLLECTIVES_DIFFER | {
    Rule.CYCLE,
    Rule.SELF_DEPENDENCY,
    Rule.INCOMPLETE_COLLECTIVE,
    Rule.GROUP_NAME,
    Rule.UNKNOWN_GROUP,
    Rule.FOREIGN_GROUP,
    Rule.INCOMPLETE_MESSAGE,
    Rule.FOREIGN_MESSAGE,
    Rule.UNMATCHED_MESSAGE,
    Rule.DUPLICATE_RANK,
}
"""After these, ranks do not complete each other's communication, whatever their order."""
_NO_GROUPS_FILE = "empty"
"""The word in a path by which ASTRA-sim knows that there is no groups file."""


def check_together(job: JobFiles, checked: Sequence[Checked], limit: int | None) -> list[Broken]:
    """The rules that the files of a job break together."""
    groups = job.groups or united_groups([file.groups for file in checked])
    ranks: dict[int, Checked] = {}
    for file in checked:
        ranks.setdefault(file.file.rank, file)
    complete = {rank: file for rank, file in ranks.items() if file.complete}
    largest = max(
        *(file.world_size - 1 for file in checked), *job.ranks_in_folder, *ranks, groups.largest_rank
    )
    violations = [
        *_bad_groups(job, checked, groups),
        *_ignored_groups(job),
        *_file_names(checked, ranks),
        *_not_compared(ranks, complete),
        *_collectives(complete, groups, largest + 1),
        *_messages(complete, largest + 1),
    ]
    if not any(violation.rule in _COLLECTIVES_DIFFER for violation in violations):
        violations += miscounted_collectives(complete, largest + 1)
    lenient = any(file.lenient for file in checked)
    return [
        *_missing_ranks(job, ranks, largest + 1, limit),
        *group_violations(violations, limit, lenient=lenient),
        *_lone_collectives(checked, groups, limit),
        *(_replayed(complete, groups, largest + 1, limit) if _is_replayed(checked, violations) else ()),
    ]


def check_replay(checked: Sequence[Checked], limit: int | None) -> list[Broken]:
    """The rules that the replay of all ranks of a job breaks; empty if they do not communicate the same."""
    ranks = {file.file.rank: file for file in checked}
    groups, world_size = checked[0].groups, max(file.world_size for file in checked)
    violations = [*_collectives(ranks, groups, world_size), *_messages(ranks, world_size)]
    return _replayed(ranks, groups, world_size, limit) if _is_replayed(checked, violations) else []


def group_violations(violations: Iterable[Violation], limit: int | None, *, lenient: bool) -> list[Broken]:
    """Violations by rule and rank, of which the first `limit` of each are listed."""
    by_key: dict[tuple[Rule, int | None], list[Violation]] = {}
    for violation in violations:
        by_key.setdefault((violation.rule, violation.rank), []).append(violation)
    return [
        Broken.of(rule, len(listed), listed, limit, lenient=lenient) for (rule, _), listed in by_key.items()
    ]


def _is_replayed(checked: Sequence[Checked], violations: Sequence[Violation]) -> bool:
    """True unless communication is reported that does not match: a replay would report its consequences."""
    broken = {rule.rule for file in checked for rule in file.broken}
    return not _NOT_REPLAYED & (broken | {violation.rule for violation in violations})


# X1: a file for every rank, with the rank in its name.


def _missing_ranks(job: JobFiles, ranks: Ranks, world_size: int, limit: int | None) -> Iterator[Broken]:
    """Ranks without a file: missing if they were written or if the metadata do not list the written ranks."""
    expected = np.arange(world_size)
    written = np.logical_or.reduce([file.written.mark(expected) for file in ranks.values()])
    absent = ~np.isin(expected, [*ranks, *job.ranks_in_folder])
    lenient = all(file.lenient for file in ranks.values())
    due = written if written.any() else np.ones(world_size, bool)
    for rule, chosen, text in (
        (Rule.MISSING_RANK, due, f"file {job.prefix or 'PREFIX'}.{{}}.et is missing"),
        (Rule.RANK_LEFT_OUT, ~due, "rank {} of the job was not written"),
    ):
        missing = expected[absent & chosen].tolist()
        if missing:
            violations = (Violation(rule, rank, None, text.format(rank)) for rank in missing)
            yield Broken.of(rule, len(missing), violations, limit, lenient=lenient)


def _file_names(checked: Sequence[Checked], ranks: Ranks) -> Iterator[Violation]:
    for file in checked:
        path, rank = file.file.path, file.file.rank
        first = ranks[rank]
        if first is not file:
            text = f"{first.file.path} and {path} are both of rank {rank}"
            yield Violation(Rule.DUPLICATE_RANK, rank, None, text, path)
        if file.name_rank is None:
            text = f"{path} has no rank in its name; it is checked as rank {rank}"
            yield Violation(Rule.FILE_NAME, rank, None, text, path)
        elif file.metadata_rank not in (None, file.name_rank):
            text = (
                f"{path} has rank {file.metadata_rank} in its metadata and rank {file.name_rank} in its name"
            )
            yield Violation(Rule.RANK_MISMATCH, rank, None, text, path)


# M12: groups that can be read and that ASTRA-sim loads.


def _bad_groups(job: JobFiles, checked: Sequence[Checked], groups: Groups) -> Iterator[Violation]:
    for text in groups.problems:
        yield Violation(Rule.BAD_GROUPS, None, None, text, groups.source)
    if job.groups is None:
        for file in checked:
            for text in file.groups.problems:
                yield Violation(Rule.BAD_GROUPS, file.file.rank, None, text, file.file.path)


def _ignored_groups(job: JobFiles) -> Iterator[Violation]:
    if job.groups and job.groups.members and _NO_GROUPS_FILE in job.groups.source:
        source = job.groups.source
        text = f"the path {source} contains {_NO_GROUPS_FILE!r}, which means to ASTRA-sim that there are no groups"
        yield Violation(Rule.IGNORED_GROUPS, None, None, text, source)


# X2 and X3: ranks communicate the same.


def _not_compared(ranks: Ranks, complete: Ranks) -> Iterator[Violation]:
    if len(ranks) < 2:
        return
    for rank, file in ranks.items():
        if rank not in complete:
            path = file.file.path
            text = f"{path} is incomplete: its communication was not compared with other ranks"
            yield Violation(Rule.NOT_COMPARED, rank, None, text, path)


def _collectives(complete: Ranks, groups: Groups, world_size: int) -> Iterator[Violation]:
    for group in (ALL_RANKS, *groups.members):
        members = {rank: complete[rank] for rank in groups.of(group, world_size) if rank in complete}
        if len(members) > 1:
            yield from differing_collectives(group, members)


def _messages(complete: Ranks, world_size: int) -> Iterator[Violation]:
    for file in complete.values():
        yield from unknown_peers(file, world_size)
    yield from unmatched_messages(complete)


# What ASTRA-sim loads but cannot finish.


def _lone_collectives(checked: Sequence[Checked], groups: Groups, limit: int | None) -> Iterator[Broken]:
    """Collectives of one rank. A job has one rank only if its metadata say so: other files may not be selected."""
    lone = {number for number, ranks in groups.members.items() if len(ranks) == 1}
    for file in checked:
        numbers = lone | {ALL_RANKS} if file.world_size == 1 else lone
        collectives = file.collectives
        in_groups = np.isin(collectives.group, np.array(sorted(numbers), np.int64))
        alone = collectives.take(in_groups & np.isin(collectives.type, MATCHED))
        if len(alone):
            violations = (_lone_collective(file.file, alone, at) for at in range(len(alone)))
            yield Broken.of(Rule.LONE_COLLECTIVE, len(alone), violations, limit, lenient=file.lenient)


def _lone_collective(file: CheckedFile, collectives: Collectives, index: int) -> Violation:
    node, group = unsigned(collectives.node[index]), collectives.group[index]
    where = f"in group {group}, which has" if group != ALL_RANKS else "in a job of"
    text = f"node {node} is {collectives.label(index)} {where} one rank"
    return Violation(Rule.LONE_COLLECTIVE, file.rank, node, text, file.path)


# Replay: all ranks finish.


def _replayed(complete: Ranks, groups: Groups, world_size: int, limit: int | None) -> list[Broken]:
    job = JobSteps(
        {rank: file.steps for rank, file in complete.items()},
        {rank: file.file.path for rank, file in complete.items()},
        {ALL_RANKS: range(world_size), **groups.members},
    )
    found, for_every_consumer = deadlocks(job)
    if found:
        warns = not for_every_consumer and all(file.lenient for file in complete.values())
        return [Broken(Rule.DEADLOCK, warns, len(found), found[:limit])]
    ordered_by_time = races(job)
    return (
        [Broken.of(Rule.RACE, len(ordered_by_time), ordered_by_time, limit, lenient=False)]
        if ordered_by_time
        else []
    )


# The rules that a replay of all ranks finds broken: deadlocks, and orders that depend on durations.

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
