"""Process groups out of what all ranks say."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.errors import Finding, Severity
from tracelink.io.sources import LARGEST_RANK
from tracelink.linking.stack import Stack, is_one_of
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, distinct, ranges
from tracelink.model.operations import POINT_TO_POINT, Operation
from tracelink.model.trace import ProcessGroup

# What each rank's sources and calls say of its process groups, before ranks are compared.


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


# One table of process groups out of what all ranks say of them.


DEFAULT = LocalGroup(UNKNOWN, DEFAULT_DESCRIPTION, DEFAULT_DESCRIPTION)

Locals = Mapping[tuple[int, str], LocalGroup]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of the job, and the row of the group of each call or UNKNOWN."""

    rows: Sequence[ProcessGroup]
    of_call: Int32s
    default: int
    """The row of the group of all ranks, or UNKNOWN."""
    findings: Sequence[Finding] = ()

    def size(self, row: int) -> int:
        """How many members it has, as far as known."""
        return max(self.rows[row].size, len(self.rows[row].ranks))


@dataclass(slots=True)
class _Class:
    """Local groups that are one and the same."""

    locals: dict[int, list[LocalGroup]] = field(default_factory=dict)

    def add(self, group: LocalGroup) -> None:
        self.locals.setdefault(group.rank, []).append(group)

    @property
    def default(self) -> bool:
        """Whether it is the group of all ranks."""
        return any(group.default for group in self.all())

    def all(self) -> Iterable[LocalGroup]:
        return (group for groups in self.locals.values() for group in groups)


def resolve_groups(stack: Stack) -> Groups:
    """Which groups there are, and which of them each call is of."""
    used = uses(stack)
    known = local_groups(stack.ranks, used)
    world = _world_size(stack.ranks, known)
    findings = contradictions(known)
    findings += _explain(stack.ranks, known, used)
    _complete_members(known, world)
    classes = _classes(known, world)
    classes.sort(key=_sort_key)
    rows = [_row(group) for group in classes]
    row_of = {(g.rank, g.name): row for row, found in enumerate(classes) for g in found.all() if g.name}
    default = next((row for row, group in enumerate(classes) if group.default), UNKNOWN)
    of_use, unplaced = _rows_of_uses(stack.ranks, used, row_of, rows)
    findings += unplaced + _foreign(stack.ranks, used, of_use, rows)
    of_call = of_use[used.of_call] if len(of_use) else np.empty(0, np.int32)
    return Groups(rows, of_call, default, findings)


def _world_size(ranks: Sequence[RankCalls], known: Locals) -> int:
    """How many ranks the job has; 0 where no source tells."""
    said = [rank.world_size for rank in ranks if rank.world_size]
    return max(said, default=max((group.size for group in known.values() if group.default), default=0))


def _explain(
    ranks: Sequence[RankCalls], known: dict[tuple[int, str], LocalGroup], used: Uses
) -> list[Finding]:
    """A rank's only group that no source describes is the only one described, or else that of all ranks."""
    per_rank: dict[int, list[LocalGroup]] = defaultdict(list)
    for group in known.values():
        per_rank[group.rank].append(group)
    taken, lost = 0, 0
    for groups in per_rank.values():
        pointers = [group for group in groups if group.pointer]
        others = [group for group in groups if not group.pointer]
        if len(pointers) == 1 and len(others) <= 1:
            pointers[0].same_as(others[0] if others else DEFAULT)
            taken += 1
        else:
            lost += len(pointers)
    if not known and used.named.any():
        taken = len(ranks)
        known.update({(one.rank, ""): LocalGroup(one.rank, "", DEFAULT_DESCRIPTION) for one in ranks})
    return _explained(taken, lost)


def _explained(taken: int, lost: int) -> list[Finding]:
    found = []
    if taken:
        message = (
            f"No source describes the only process group of {taken} ranks: it is taken as that of all ranks."
        )
        found.append(Finding(Severity.INFO, "group_taken_as_default", message, taken))
    if lost:
        message = (
            f"{lost} process groups are named by addresses, which differ from rank to rank, and no source "
            "describes them: their collectives are matched with none. Profiles of the same run would name them."
        )
        found.append(Finding(Severity.WARNING, "group_unknown", message, lost))
    return found


def _complete_members(known: Locals, world: int) -> None:
    """Gives members to groups whose own rank lists none, from what others know."""
    listed: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for group in known.values():
        if group.members:
            listed[group.alias].add(group.members)
    users: dict[str, set[int]] = defaultdict(set)
    lacking = [group for group in known.values() if not group.members]
    for group in lacking:
        fitting = {
            frozenset(members): members
            for members in sorted(listed[group.alias])
            if group.rank in members and group.some <= set(members)
        }
        if len(fitting) == 1:
            (group.members,), group.listed = fitting.values(), True
        elif world and (group.default or group.size == world) and not fitting:
            group.members, group.listed = tuple(range(world)), True
        elif _names_the_same_everywhere(group):
            users[_shared_name(group)].add(group.rank)
    for group in lacking:
        if not group.members and _names_the_same_everywhere(group):
            group.members = tuple(sorted(users[_shared_name(group)] | group.some))


def _names_the_same_everywhere(group: LocalGroup) -> bool:
    return group.default or not group.pointer


def _shared_name(group: LocalGroup) -> str:
    return DEFAULT_DESCRIPTION if group.default else group.alias


def _classes(known: Locals, world: int) -> list[_Class]:
    """Local groups that are the same: of the same members, and told apart by name where a rank has several."""
    by_members: dict[frozenset[int], list[LocalGroup]] = defaultdict(list)
    classes = []
    for group in known.values():
        if group.members:
            by_members[frozenset(group.members)].append(group)
        else:
            classes.append(_Class({group.rank: [group]}))
    for members, groups in by_members.items():
        whole = len(members) == world
        classes += _told_apart(groups, whole)
    return classes


def _told_apart(groups: Sequence[LocalGroup], whole: bool) -> list[_Class]:
    """Groups of the same members: equal names, else equal descriptions, else equal places are one."""
    names = [DEFAULT_DESCRIPTION if whole and group.default else group.alias for group in groups]
    per_rank: dict[int, set[str]] = defaultdict(set)
    for group, name in zip(groups, names, strict=True):
        per_rank[group.rank].add(name)
    if all(len(mine) == 1 for mine in per_rank.values()):
        names = [""] * len(groups)
    ranks_with = Counter(name for mine in per_rank.values() for name in mine)
    by_name: dict[str, _Class] = {}
    rest = []
    for group, name in zip(groups, names, strict=True):
        if ranks_with[name] != 1:
            by_name.setdefault(name, _Class()).add(group)
        else:
            rest.append(group)
    classes = list(by_name.values())
    for group in rest:
        free = [found for found in classes if group.rank not in found.locals]
        alike = [found for found in free if _described_alike(found, group)]
        if not free:
            free = [_Class()]
            classes += free
        (alike if len(alike) == 1 else free)[0].add(group)
    return classes


def _described_alike(found: _Class, group: LocalGroup) -> bool:
    return bool(group.description) and any(other.description == group.description for other in found.all())


def _sort_key(found: _Class) -> tuple[int, tuple[int, ...], bool, str, int]:
    """The largest first; nothing in it depends on the order of the ranks."""
    first = min(found.all(), key=lambda group: group.rank)
    members = tuple(sorted(first.members))
    return -len(members), members, not found.default, min(group.alias for group in found.all()), first.rank


def _row(found: _Class) -> ProcessGroup:
    groups = sorted(found.all(), key=lambda group: group.rank)
    names = Counter(group.alias for group in groups if group.alias) or Counter(
        [DEFAULT_DESCRIPTION * found.default]
    )
    name = min(names, key=lambda text: (-names[text], text))
    members = groups[0].members
    size = max(group.size for group in groups)
    return ProcessGroup(
        name,
        next((group.description for group in groups if group.description), ""),
        members,
        len(members) if any(group.listed for group in groups) else max(size, len(members)),
        next((group.backend for group in groups if group.backend), ""),
    )


def _rows_of_uses(
    ranks: Sequence[RankCalls],
    used: Uses,
    row_of: Mapping[tuple[int, str], int],
    rows: Sequence[ProcessGroup],
) -> tuple[Int32s, list[Finding]]:
    """The group of each use; where it has no name, the only one of the rank that fits."""
    mine: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(rows):
        for rank in group.ranks:
            mine[rank].append(row)
    result = np.full(len(used.place), UNKNOWN, np.int32)
    without = 0
    for use, place in enumerate(used.place):
        if not used.named[use]:
            continue
        rank = ranks[place].rank
        named = row_of.get((rank, used.name[use]))
        result[use] = _fitting(used, use, mine[rank], rows) if named is None else named
        without += int(used.count[use]) if result[use] == UNKNOWN else 0
    return result, _without_group(without)


def _fitting(used: Uses, use: int, mine: Sequence[int], rows: Sequence[ProcessGroup]) -> int:
    """The only group of a rank that a use without a name can be of, or UNKNOWN."""
    members, size = used.members[use], used.size[use]
    fitting = [
        row
        for row in mine
        if (not members or set(members) == set(rows[row].ranks))
        and used.some[use] <= set(rows[row].ranks)
        and (not size or size == max(rows[row].size, len(rows[row].ranks)))
    ]
    return fitting[0] if len(fitting) == 1 else UNKNOWN


def _without_group(count: int) -> list[Finding]:
    if not count:
        return []
    message = (
        f"{count} collectives name no process group and could be of several: they are left out. "
        "Add flight-recorder dumps of the same run, which name the groups."
    )
    return [Finding(Severity.WARNING, "collectives_without_group", message, count)]


def _foreign(
    ranks: Sequence[RankCalls], used: Uses, of_use: Int32s, rows: Sequence[ProcessGroup]
) -> list[Finding]:
    """Ranks that use a group which does not contain them."""
    found = sorted(
        {
            (ranks[place].rank, row)
            for place, row in zip(used.place, of_use.tolist(), strict=True)
            if row != UNKNOWN and rows[row].ranks and ranks[place].rank not in rows[row].ranks
        }
    )
    if not found:
        return []
    rank, row = found[0]
    message = (
        f"{len(found)} times a rank uses a process group that does not contain it. "
        "Is the rank of a file wrong, or are files of two jobs mixed?"
    )
    example = f"rank {rank} uses group {rows[row].name} of {list(rows[row].ranks)}"
    return [Finding(Severity.WARNING, "group_without_its_rank", message, len(found), example=example)]


# Ranks within a group and ranks of the job.


@dataclass(frozen=True, slots=True)
class Members:
    """The members of all groups, one group after the other."""

    begin: Int64s
    length: Int64s
    rank: Int64s

    @classmethod
    def of(cls, groups: Groups) -> Members:
        """The members of all rows of the groups."""
        length = np.array([len(row.ranks) for row in groups.rows], np.int64)
        ranks = np.array([rank for row in groups.rows for rank in row.ranks], np.int64)
        return cls(np.cumsum(length) - length, length, ranks)

    def all(self, group: Int32s) -> tuple[Int64s, Int64s]:
        """Every member of each of these groups: which of them, and the rank."""
        length = self.length[group]
        return np.repeat(np.arange(len(group)), length), self.rank[ranges(self.begin[group], length)]

    def rank_of(self, group: Int32s, within: Int32s, of_job: Bools) -> Int64s:
        """The rank of the job for ranks within groups, where they are not of the job already; or UNKNOWN."""
        if not len(self.rank):
            return np.where(of_job, within, UNKNOWN).astype(np.int64)
        named = np.maximum(group, 0)
        known = (within >= 0) & (group != UNKNOWN) & (within < self.length[named])
        rank = self.rank[np.where(known, self.begin[named] + within, 0)]
        return np.where(of_job, within, np.where(known, rank, UNKNOWN)).astype(np.int64)
