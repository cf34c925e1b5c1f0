"""Process groups by number: simulators know groups by whole numbers, and 0 is all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from tracelink.communications import UNKNOWN
from tracelink.job import Job

EVERYBODY = 0
LARGEST = 2000


@dataclass(frozen=True, slots=True)
class GroupNumbers:
    """The number of each group of a job, by its row, and who its members are."""

    numbers: Sequence[int]
    names: Sequence[str]
    descriptions: Sequence[str]
    members: Sequence[tuple[int, ...]]

    def number(self, row: int) -> int:
        """The number of a group; what is in no known group is among all."""
        return EVERYBODY if row == UNKNOWN else self.numbers[row]

    def among(self, rows: Iterable[int]) -> GroupNumbers:
        """The same for simulations in which the groups at `rows` communicate: 0 only where there is no other.

        ASTRA-sim counts the collectives of all ranks on with those of groups, so where ranks are in different
        groups it takes different collectives of all ranks for one. Under a number of its own a group is counted alone.
        """
        several = {row for row in rows if len(self.members[row]) > 1}
        if not any(self.numbers[row] != EVERYBODY for row in several):
            return self
        free = next(number for number in count(1) if number not in self.numbers)
        return replace(self, numbers=[number or free for number in self.numbers])

    @property
    def members_by_number(self) -> dict[int, tuple[int, ...]]:
        """Everything but the group of all ranks, as ASTRA-sim reads it."""
        found = {
            number: members
            for number, members in zip(self.numbers, self.members, strict=True)
            if number != EVERYBODY
        }
        return dict(sorted(found.items()))

    @property
    def described(self) -> dict[int, Mapping[str, object]]:
        """Every group with its name."""
        rows = zip(self.numbers, self.names, self.descriptions, self.members, strict=True)
        return {
            number: {"name": name, "description": description, "ranks": list(members)}
            for number, name, description, members in sorted(rows)
        }


def group_numbers(job: Job, participants: Mapping[int, tuple[int, ...]]) -> GroupNumbers:
    """Groups keep names that are numbers; others get the first that is free.

    `participants` are the ranks seen in each group, for groups whose members no source lists.
    """
    members = [tuple(group.ranks) or participants.get(row, ()) for row, group in enumerate(job.groups)]
    all_ranks = everybody(job)
    numbers: dict[int, int] = {}
    for row, group in enumerate(job.groups):
        if members[row] == all_ranks and (not group.name.isdecimal() or int(group.name) == EVERYBODY):
            numbers[row] = EVERYBODY
        elif _fits(group.name) and int(group.name) not in numbers.values():
            numbers[row] = int(group.name)
    taken = set(numbers.values())
    free = (number for number in count(1) if number not in taken)
    for row in range(len(job.groups)):
        if row not in numbers:
            numbers[row] = next(free)
    return GroupNumbers(
        [numbers[row] for row in range(len(job.groups))],
        [group.name for group in job.groups],
        [group.description for group in job.groups],
        members,
    )


def everybody(job: Job) -> tuple[int, ...]:
    """All ranks of the job, by what its sources say of the world, else by who is there."""
    told = [rank.world_size for rank in job.ranks if rank.world_size]
    largest = max(
        [*told, *(group.size for group in job.groups), *(len(group.ranks) for group in job.groups), 0]
    )
    seen = max((rank.rank for rank in job.ranks), default=-1) + 1
    return tuple(range(max(largest, seen)))


def _fits(name: str) -> bool:
    """Whether the name is a number that a simulator can keep: ASTRA-sim counts a million on from each."""
    return name.isascii() and name.isdecimal() and 0 < int(name[:9]) <= LARGEST and str(int(name[:9])) == name
