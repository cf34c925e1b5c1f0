"""What no file shows by itself: ranks that are missing, and ranks that do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tracelink.converters.chakra.schema import SIMULATED, CollectiveType, Profile
from tracelink.converters.chakra.table import unsigned
from tracelink.converters.chakra.validation.checking import Checked
from tracelink.converters.chakra.validation.collective_rules import disagreements
from tracelink.converters.chakra.validation.files import JobFiles
from tracelink.converters.chakra.validation.groups import EVERYBODY, Groups, united
from tracelink.converters.chakra.validation.message_rules import unknown_peers, unmatched
from tracelink.converters.chakra.validation.numbering_rules import miscounted
from tracelink.converters.chakra.validation.parts import in_no_group
from tracelink.converters.chakra.validation.rules import RULES, Rule
from tracelink.converters.chakra.validation.verdict import Found, Violation
from tracelink.events import Int64s

Ranks = Mapping[int, Checked]

UNLIKE = frozenset({Rule.COLLECTIVE_MISSING, Rule.COLLECTIVE_DIFFERS})
NO_FILE = "empty"
"""In a path, by which ASTRA-sim is told that there are no groups."""


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
    alike = not any(one.rule in UNLIKE for one in alone)
    return [
        *_missing_ranks(job, ranks, world, limit),
        *_by_rule_and_rank(alone, limit),
        *(_miscounted(known, world) if alike else ()),
        *_lone(checked, groups, limit),
        *_ignored_groups(job, checked),
    ]


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


def _ignored_groups(job: JobFiles, checked: Sequence[Checked]) -> list[Found]:
    """M12: ASTRA-sim takes some names for the word that stands for no file."""
    if not job.groups or not job.groups.members or NO_FILE not in job.groups.source:
        return []
    source = job.groups.source
    text = f"the path {source} has the word {NO_FILE!r}, by which ASTRA-sim knows that there are no groups"
    warns = all(one.file.profile is Profile.FULL for one in checked)
    return [Found(Rule.IGNORED_GROUPS, warns, 1, [Violation(Rule.IGNORED_GROUPS, None, None, text, source)])]


def _miscounted(known: Ranks, world: int) -> Iterator[Found]:
    """X2, as ASTRA-sim counts."""
    warns = all(one.file.profile is Profile.FULL for one in known.values())
    runs = {rank: (one.file.path, one.collectives) for rank, one in known.items()}
    for one in miscounted(runs, world):
        yield Found(Rule.MISCOUNTED, warns, 1, [one])


def _lone(checked: Sequence[Checked], groups: Groups, limit: int | None) -> Iterator[Found]:
    """What a rank runs by itself. That there is no other must be said: it may only not have been named."""
    lone = {number for number, ranks in groups.members.items() if len(ranks) == 1}
    for one in checked:
        numbers = lone | {EVERYBODY} if one.world == 1 else lone
        if found := _run_alone(one, numbers, limit):
            yield Found(Rule.LONE_COLLECTIVE, one.file.profile is Profile.FULL, *found)


def _run_alone(one: Checked, groups: set[int], limit: int | None) -> tuple[int, list[Violation]] | None:
    """How many collectives these groups run, and which; a broadcast is replayed and ends by itself."""
    runs = one.collectives
    inside = np.isin(runs.group, np.array(sorted(groups), np.int64))
    alone = runs.where(inside & np.isin(runs.type, sorted(SIMULATED - {CollectiveType.BROADCAST})))
    listed = [
        Violation(
            Rule.LONE_COLLECTIVE,
            one.file.rank,
            unsigned(alone.node[place]),
            f"node {unsigned(alone.node[place])} is {alone.called(place)} of one rank"
            f" {f'in group {alone.group[place]}' if alone.group[place] != EVERYBODY else 'in a job of one rank'}",
            one.file.path,
        )
        for place in range(len(alone))[:limit]
    ]
    return (len(alone), listed) if listed else None


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
