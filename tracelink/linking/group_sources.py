"""What each rank's sources and calls say of its process groups, before ranks are compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.collectives import RankCalls
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.findings import Finding, Severity
from tracelink.linking.coding import distinct
from tracelink.linking.sizes import is_one_of
from tracelink.linking.stacking import Stack
from tracelink.operations import POINT_TO_POINT, Operation
from tracelink.ranks import LARGEST_RANK
from tracelink.trace import ProcessGroup

POINTER = re.compile(r"-?\d{10,}")
"""The first execution traces name a group by the address of its object: a different one on each rank."""

CUT = "..."
DEFAULT_NAMES = frozenset({"0", "default_pg"})
DEFAULT_DESCRIPTION = "default_pg"
UNDEFINED = "undefined"


@dataclass(slots=True)
class LocalGroup:
    """One group as one rank knows it."""

    rank: int
    name: str
    description: str = ""
    members: tuple[int, ...] = ()
    """As listed by the rank's own sources, then by what other ranks know; empty where nobody lists them."""
    some: frozenset[int] = frozenset()
    """Members of a list that was cut."""
    size: int = 0
    backend: str = ""
    used: bool = False
    described: bool = False
    listed: bool = False
    """Whether all members are listed somewhere, and not only those that are known to use it."""
    contradictions: set[tuple[int, ...]] = field(default_factory=set)
    """Other members that the rank's sources give it."""
    explained_by: str = ""
    """The name by which a source describes it."""

    @property
    def default(self) -> bool:
        """Whether its name says that it is the group of all ranks."""
        return self.alias in DEFAULT_NAMES or self.description == DEFAULT_DESCRIPTION

    @property
    def pointer(self) -> bool:
        """Whether its name is an address that no source explains."""
        return not self.described and not self.explained_by and bool(POINTER.fullmatch(self.name))

    @property
    def alias(self) -> str:
        """The name that other ranks may know too."""
        return self.explained_by or self.name

    def same_as(self, other: LocalGroup) -> None:
        """Takes over what is known of a group that is the same."""
        self.explained_by, self.description = other.name, other.description
        self.members, self.listed = other.members, other.listed
        self.size = max(self.size, other.size)

    def learn(self, members: tuple[int, ...], size: int) -> None:
        """Takes in one more statement of its members and its size."""
        if members and not self.members:
            self.members, self.listed = members, True
        elif members and set(members) != set(self.members):
            self.contradictions.add(members)
        self.size = max(self.size, size)


@dataclass(frozen=True, slots=True)
class Uses:
    """The different ways in which calls name their groups: one row for each, and the row of each call."""

    of_call: Int64s
    place: Sequence[int]
    """Which of the ranks."""
    name: Sequence[str]
    members: Sequence[tuple[int, ...]]
    """Of lists that were not cut."""
    some: Sequence[frozenset[int]]
    size: Sequence[int]
    named: Bools
    """Whether it is a use at all: waits are none."""
    count: Int64s
    """How many collectives are named so; messages find each other without a group too."""


def uses(stack: Stack) -> Uses:
    """The different combinations of rank, group, members and size."""
    calls = stack.calls
    named = calls.operation != stack.strings.find(Operation.WAIT)
    columns = [np.where(named, column, UNKNOWN) for column in (calls.group, calls.members, calls.size)]
    numbers, first = distinct(stack.rank, *columns, named)
    texts = [*stack.strings.texts(), ""]
    listed = [members_of(texts[code]) for code in columns[1][first].tolist()]
    place = np.searchsorted(stack.bounds, first, side="right") - 1
    return Uses(
        numbers,
        place.tolist(),
        [texts[code] for code in columns[0][first].tolist()],
        [members if complete else () for members, complete in listed],
        [frozenset(members) for members, _ in listed],
        np.maximum(columns[2][first], 0).tolist(),
        named[first],
        np.bincount(
            numbers[~is_one_of(calls.operation, stack.strings, tuple(POINT_TO_POINT))], minlength=len(first)
        ),
    )


def members_of(text: str) -> tuple[tuple[int, ...], bool]:
    """The ranks in a list as text, and whether it was not cut."""
    members = tuple(map(int, re.findall(r"\d{1,18}", text)))
    return (members, CUT not in text) if max(members, default=0) <= LARGEST_RANK else ((), False)


def local_groups(ranks: Sequence[RankCalls], used: Uses) -> dict[tuple[int, str], LocalGroup]:
    """Every named group that each rank knows, by rank and name."""
    known: dict[tuple[int, str], LocalGroup] = {}
    for rank in ranks:
        for group in rank.groups:
            if group.name or group.ranks:
                _describe(known, rank.rank, group)
    for place, name, members, some, size, named in zip(
        used.place, used.name, used.members, used.some, used.size, used.named.tolist(), strict=True
    ):
        if named and (name or members):
            rank = ranks[place].rank
            mine = known.setdefault((rank, name or _only_by(members)), LocalGroup(rank, name))
            mine.used = True
            mine.some |= some
            mine.learn(members, size)
    return {key: group for key, group in known.items() if group.name or not _named_too(group, known)}


def _only_by(members: tuple[int, ...]) -> str:
    """A key for a group that has no name."""
    return f"of {members}"


def _named_too(group: LocalGroup, known: Mapping[tuple[int, str], LocalGroup]) -> bool:
    """Whether a group without a name is one that its rank knows by a name."""
    return any(
        other.name and other.rank == group.rank and set(other.members) == set(group.members)
        for other in known.values()
    )


def _describe(known: dict[tuple[int, str], LocalGroup], rank: int, group: ProcessGroup) -> None:
    key = (rank, group.name or _only_by(group.ranks))
    mine = known.setdefault(key, LocalGroup(rank, group.name))
    mine.described = True
    mine.learn(tuple(group.ranks), group.size)
    if group.description != UNDEFINED:
        mine.description = mine.description or group.description
    mine.backend = mine.backend or group.backend


def contradictions(known: Mapping[tuple[int, str], LocalGroup]) -> list[Finding]:
    """Where a rank's own sources say different things of one group."""
    found = []
    differ = [group for group in known.values() if group.contradictions]
    if differ:
        one = differ[0]
        other = min(one.contradictions)
        found.append(
            Finding(
                Severity.WARNING,
                "group_members_differ",
                f"{len(differ)} process groups are described with different ranks by sources of one rank; "
                "the first description is used. Are files of two jobs mixed?",
                len(differ),
                example=f"rank {one.rank}, group {one.name}: {list(one.members)} and {list(other)}",
            )
        )
    sized = [group for group in known.values() if group.members and 0 < group.size != len(group.members)]
    if sized:
        one = sized[0]
        found.append(
            Finding(
                Severity.WARNING,
                "group_size_differs",
                f"{len(sized)} process groups have another size than ranks; the ranks are used.",
                len(sized),
                example=f"rank {one.rank}, group {one.name}: size {one.size}, ranks {list(one.members)}",
            )
        )
    return found
