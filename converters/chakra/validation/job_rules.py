"""Rules of the files of a job together: missing ranks, file names, groups, and what ranks communicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.check import Checked
from tracelink.converters.chakra.validation.comparison import (
    MATCHED,
    differing_collectives,
    miscounted_collectives,
    unknown_peers,
    unmatched_messages,
)
from tracelink.converters.chakra.validation.files import ALL_RANKS, Groups, JobFiles, united_groups
from tracelink.converters.chakra.validation.rank_communication import Collectives
from tracelink.converters.chakra.validation.replay_rules import JobSteps, deadlocks, races
from tracelink.converters.chakra.validation.rules import Broken, CheckedFile, Rule, Violation

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


def broken_together(job: JobFiles, checked: Sequence[Checked], limit: int | None) -> list[Broken]:
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
        *_file_names(checked, ranks),
        *_not_compared(ranks, complete),
        *_collectives(complete, groups, largest + 1),
        *_messages(complete, largest + 1),
    ]
    same_collectives = not any(violation.rule in _COLLECTIVES_DIFFER for violation in violations)
    return [
        *_missing_ranks(job, ranks, largest + 1, limit),
        *_by_rule_and_rank(violations, limit),
        *(_miscounted(complete, largest + 1) if same_collectives else ()),
        *_lone_collectives(checked, groups, limit),
        *_ignored_groups(job, checked),
        *(_replayed(complete, groups, largest + 1, limit) if _is_replayed(checked, violations) else ()),
    ]


def broken_replay(checked: Sequence[Checked], limit: int | None) -> list[Broken]:
    """The rules that the replay of all ranks of a job breaks; empty if they do not communicate the same."""
    ranks = {file.file.rank: file for file in checked}
    groups, world_size = checked[0].groups, max(file.world_size for file in checked)
    violations = [*_collectives(ranks, groups, world_size), *_messages(ranks, world_size)]
    return _replayed(ranks, groups, world_size, limit) if _is_replayed(checked, violations) else []


def _is_replayed(checked: Sequence[Checked], violations: Sequence[Violation]) -> bool:
    """True unless communication is reported that does not match: a replay would report its consequences."""
    broken = {rule.rule for file in checked for rule in file.broken}
    return not _NOT_REPLAYED & (broken | {violation.rule for violation in violations})


# X1: a file for every rank, with the rank in its name.


def _missing_ranks(job: JobFiles, ranks: Ranks, world_size: int, limit: int | None) -> list[Broken]:
    """Ranks without a file: missing if they were written or if the metadata do not list the written ranks."""
    expected = np.arange(world_size)
    written = np.logical_or.reduce([file.written.mark(expected) for file in ranks.values()])
    is_listed = bool(written.any())
    present = np.isin(expected, [*ranks, *job.ranks_in_folder])
    prefix = job.prefix or "PREFIX"
    missing = expected[written & ~present] if is_listed else expected[~present]
    left_out = expected[~written & ~present] if is_listed else expected[:0]
    lenient = all(file.lenient for file in ranks.values())

    def file_is_missing(rank: int) -> str:
        return f"file {prefix}.{rank}.et is missing"

    def was_not_written(rank: int) -> str:
        return f"rank {rank} of the job was not written"

    return [
        *_of_ranks(Rule.MISSING_RANK, missing, file_is_missing, limit, warns=False),
        *_of_ranks(Rule.RANK_LEFT_OUT, left_out, was_not_written, limit, warns=lenient),
    ]


def _of_ranks(
    rule: Rule, ranks: Int64s, message: Callable[[int], str], limit: int | None, *, warns: bool
) -> list[Broken]:
    listed = [Violation(rule, rank, None, message(rank)) for rank in ranks[:limit].tolist()]
    return [Broken(rule, warns, len(ranks), listed)] if listed else []


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


def _ignored_groups(job: JobFiles, checked: Sequence[Checked]) -> list[Broken]:
    if not job.groups or not job.groups.members or _NO_GROUPS_FILE not in job.groups.source:
        return []
    source = job.groups.source
    text = (
        f"the path {source} contains {_NO_GROUPS_FILE!r}, which means to ASTRA-sim that there are no groups"
    )
    warns = all(file.lenient for file in checked)
    violation = Violation(Rule.IGNORED_GROUPS, None, None, text, source)
    return [Broken(Rule.IGNORED_GROUPS, warns, 1, [violation])]


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
    ungrouped = {
        rank: file.collectives.take(file.collectives.group == UNKNOWN) for rank, file in complete.items()
    }
    for group in (ALL_RANKS, *groups.members):
        members = {
            rank: (complete[rank].file.path, complete[rank].collectives)
            for rank in groups.of(group, world_size)
            if rank in complete
        }
        if len(members) > 1:
            yield from differing_collectives(group, members, ungrouped)


def _messages(complete: Ranks, world_size: int) -> Iterator[Violation]:
    for rank, file in complete.items():
        yield from unknown_peers(rank, file.file.path, file.messages, world_size)
    messages = {rank: file.messages for rank, file in complete.items()}
    yield from unmatched_messages(messages, {rank: file.file.path for rank, file in complete.items()})


def _by_rule_and_rank(violations: Iterable[Violation], limit: int | None) -> list[Broken]:
    by_key: dict[tuple[Rule, int | None], list[Violation]] = {}
    for violation in violations:
        by_key.setdefault((violation.rule, violation.rank), []).append(violation)
    return [broken for listed in by_key.values() for broken in Broken.of(listed, limit)]


# What ASTRA-sim loads but cannot finish.


def _miscounted(complete: Ranks, world_size: int) -> Iterator[Broken]:
    warns = all(file.lenient for file in complete.values())
    collectives = {rank: (file.file.path, file.collectives) for rank, file in complete.items()}
    for violation in miscounted_collectives(collectives, world_size):
        yield Broken(Rule.MISCOUNTED, warns, 1, [violation])


def _lone_collectives(checked: Sequence[Checked], groups: Groups, limit: int | None) -> Iterator[Broken]:
    """Collectives of one rank. A job has one rank only if its metadata say so: other files may not be selected."""
    lone = {number for number, ranks in groups.members.items() if len(ranks) == 1}
    for file in checked:
        numbers = lone | {ALL_RANKS} if file.world_size == 1 else lone
        collectives = file.collectives
        in_groups = np.isin(collectives.group, np.array(sorted(numbers), np.int64))
        alone = collectives.take(in_groups & np.isin(collectives.type, MATCHED))
        if len(alone):
            listed = [_lone_collective(file.file, alone, at) for at in range(len(alone))[:limit]]
            yield Broken(Rule.LONE_COLLECTIVE, file.lenient, len(alone), listed)


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
    return Broken.of(races(job), limit)
