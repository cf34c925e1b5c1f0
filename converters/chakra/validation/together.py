"""What no file shows by itself: ranks that are missing, and ranks that do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tracelink.converters.chakra.validation.checking import Checked
from tracelink.converters.chakra.validation.collective_rules import disagreements
from tracelink.converters.chakra.validation.files import JobFiles
from tracelink.converters.chakra.validation.groups import EVERYBODY, Groups, united
from tracelink.converters.chakra.validation.message_rules import unknown_peers, unmatched
from tracelink.converters.chakra.validation.parts import in_no_group
from tracelink.converters.chakra.validation.rules import RULES, Rule
from tracelink.converters.chakra.validation.verdict import Found, Violation
from tracelink.events import Int64s

Ranks = Mapping[int, Checked]


def found_together(job: JobFiles, checked: Sequence[Checked], limit: int | None) -> list[Found]:
    """Everything that is wrong with the files of a job taken together."""
    groups = job.groups or united([one.groups for one in checked])
    ranks: dict[int, Checked] = {}
    for one in checked:
        ranks.setdefault(one.file.rank, one)
    known = {rank: one for rank, one in ranks.items() if one.complete}
    world = max(*(one.world - 1 for one in checked), *job.beside, *ranks, groups.largest) + 1
    alone = [
        *_group_problems(job, checked, groups),
        *_names(job, checked, ranks),
        *_not_compared(ranks, known),
        *_collectives(known, groups, world),
        *_messages(known, world),
    ]
    return [*_missing_ranks(job, ranks, world, limit), *_by_rule_and_rank(alone, limit)]


def _missing_ranks(job: JobFiles, ranks: Ranks, world: int, limit: int | None) -> list[Found]:
    """X1: there is a file for every rank that was written, and every rank was."""
    expected = np.arange(world)
    written = np.logical_or.reduce([one.written.mark(expected) for one in ranks.values()])
    told = bool(written.any())
    present = np.isin(expected, [*ranks, *job.beside])
    prefix = job.prefix or "PREFIX"
    missing = expected[written & ~present] if told else expected[~present]
    left_out = expected[~written & ~present] if told else expected[:0]
    return [
        *_of_ranks(Rule.MISSING_RANK, missing, lambda rank: f"there is no file {prefix}.{rank}.et", limit),
        *_of_ranks(
            Rule.RANK_LEFT_OUT,
            left_out,
            lambda rank: f"rank {rank} is of the job, and was not among those that were written",
            limit,
        ),
    ]


def _of_ranks(rule: Rule, ranks: Int64s, says: Callable[[int], str], limit: int | None) -> list[Found]:
    listed = [Violation(rule, rank, None, says(rank)) for rank in ranks[:limit].tolist()]
    return [Found(rule, RULES[rule].warns, len(ranks), listed)] if listed else []


def _names(job: JobFiles, checked: Sequence[Checked], ranks: Ranks) -> Iterator[Violation]:
    """X1: each rank has one file, whose name says whose it is."""
    for one in checked:
        file = one.file
        first = ranks[file.rank]
        if first is not one:
            text = f"{first.file.path} and {file.path} are both of rank {file.rank}"
            yield Violation(Rule.DUPLICATE_RANK, file.rank, None, text, file.path)
        if one.named_rank is None:
            text = f"{file.path} is taken for rank {file.rank}, and its name does not say so"
            yield Violation(Rule.FILE_NAME, file.rank, None, text, file.path)
        elif one.told_rank not in (None, one.named_rank):
            text = f"{file.path} says that it is of rank {one.told_rank}, and its name says {one.named_rank}"
            yield Violation(Rule.RANK_MISMATCH, file.rank, None, text, file.path)


def _group_problems(job: JobFiles, checked: Sequence[Checked], groups: Groups) -> Iterator[Violation]:
    """M12: groups can be read, and are the same on all ranks."""
    for text in groups.problems:
        yield Violation(Rule.BAD_GROUPS, None, None, text, groups.source)
    if job.groups is None:
        for one in checked:
            for text in one.groups.problems:
                yield Violation(Rule.BAD_GROUPS, one.file.rank, None, text, one.file.path)


def _not_compared(ranks: Ranks, known: Ranks) -> Iterator[Violation]:
    if len(ranks) < 2:
        return
    for rank, one in ranks.items():
        if rank not in known:
            text = (
                f"{one.file.path} is incomplete: its collectives and messages were not compared with others'"
            )
            yield Violation(Rule.NOT_COMPARED, rank, None, text, one.file.path)


def _collectives(known: Ranks, groups: Groups, world: int) -> Iterator[Violation]:
    astray = {rank: in_no_group(one.collectives) for rank, one in known.items()}
    for group in (EVERYBODY, *groups.members):
        members = {
            rank: (known[rank].file.path, known[rank].collectives)
            for rank in groups.of(group, world)
            if rank in known
        }
        if len(members) > 1:
            yield from disagreements(group, members, astray)


def _messages(known: Ranks, world: int) -> Iterator[Violation]:
    for rank, one in known.items():
        yield from unknown_peers(rank, one.file.path, one.messages, world)
    messages = {rank: one.messages for rank, one in known.items()}
    yield from unmatched(messages, {rank: one.file.path for rank, one in known.items()})


def _by_rule_and_rank(violations: Iterable[Violation], limit: int | None) -> list[Found]:
    alike: dict[tuple[Rule, int | None], list[Violation]] = {}
    for one in violations:
        alike.setdefault((one.rule, one.rank), []).append(one)
    return [found for one in alike.values() for found in Found.of(one, limit)]
