"""One table of process groups out of what all ranks say of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.collectives import RankCalls
from tracelink.communications import UNKNOWN
from tracelink.events import Int32s
from tracelink.findings import Finding, Severity
from tracelink.linking.group_sources import (
    DEFAULT_DESCRIPTION,
    LocalGroup,
    Uses,
    contradictions,
    local_groups,
    uses,
)
from tracelink.linking.stacking import Stack
from tracelink.trace import ProcessGroup

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
