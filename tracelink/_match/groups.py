"""Process groups of the job: which local groups of the ranks are the same, and which group each call is of."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._io.sources import LARGEST_RANK
from tracelink._match.outlines import Outline, References, Roster
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, distinct, ranges
from tracelink._model.findings import Finding, Severity
from tracelink._model.trace import ProcessGroup

POINTER = re.compile(r"-?\d{10,}")
"""The first execution traces name a group by the address of its object: a different one on each rank."""

TRUNCATED = "..."
DEFAULT_NAMES = frozenset({"0", "default_pg"})
DEFAULT_DESCRIPTION = "default_pg"
UNDEFINED = "undefined"


CPU_BACKENDS = frozenset({"gloo", "mpi", "ucc"})


def names_by_backend(recorders: Iterable[Sequence[str]]) -> dict[str, str]:
    """The additions to the names of groups that several backends use, by `backend:name`; one of them keeps the name.

    Each backend counts the collectives of a group on its own, so that equal numbers are different collectives.
    """
    backends: dict[str, set[str]] = defaultdict(set)
    for group in {group for recorder in recorders for group in recorder}:
        backend, _, name = group.partition(":")
        backends[name].add(backend)
    return {
        f"{backend}:{name}": f" ({backend})"
        for name, own in backends.items()
        for backend in sorted(own, key=lambda backend: (backend in CPU_BACKENDS, backend))[1:]
    }


def is_default(name: str, description: str) -> bool:
    """True if a group is that of all ranks."""
    return name in DEFAULT_NAMES or description == DEFAULT_DESCRIPTION


def with_suffix(group: ProcessGroup, suffix: str) -> ProcessGroup:
    """The group with this after its name and its description, so that neither is that of another group."""
    description = f"{group.description}{suffix}" if group.description else ""
    return replace(group, name=f"{group.name}{suffix}", description=description)


class Groups(Struct, frozen=True):
    """The groups of the job."""

    rows: Sequence[ProcessGroup]
    default: int
    """The row of the group of all ranks, or UNKNOWN."""
    findings: Sequence[Finding] = ()

    def size(self, row: int) -> int:
        """The number of members, as far as known."""
        return max(self.rows[row].size, len(self.rows[row].ranks))


class _SameGroup(Struct):
    """Local groups of several ranks that are the same group."""

    by_rank: dict[int, list[_LocalGroup]] = field(default_factory=dict)

    def add(self, group: _LocalGroup) -> None:
        self.by_rank.setdefault(group.rank, []).append(group)

    @property
    def is_default(self) -> bool:
        """True if it is the group of all ranks."""
        return any(group.is_default for group in self.all())

    def all(self) -> Iterable[_LocalGroup]:
        return (group for groups in self.by_rank.values() for group in groups)


def resolve_groups(roster: Roster) -> tuple[Groups, list[Int32s]]:
    """The groups of the job, and for each rank the row of each of its references, or UNKNOWN."""
    ranks = roster.outlines
    references = _references(roster)
    known = _local_groups(ranks, references)
    world = _world_size(ranks, known)
    findings = _contradiction_findings(known)
    findings += _explain_pointers(ranks, known, references)
    _fill_in_members(known, world)
    same = _same_groups(known, world)
    same.sort(key=_sort_key)
    rows = [_group_row(group) for group in same]
    row_of = {(g.rank, g.name): row for row, group in enumerate(same) for g in group.all() if g.name}
    default = next((row for row, group in enumerate(same) if group.is_default), UNKNOWN)
    of_reference, unresolved = _rows_of_references(ranks, references, row_of, rows)
    findings += unresolved + _foreign_findings(ranks, references, of_reference, rows)
    return Groups(rows, default, findings), [of_reference[numbers] for numbers in references.numbers]


def _world_size(ranks: Sequence[Outline], known: _LocalGroups) -> int:
    """The number of ranks of the job, or 0 if no source has it."""
    reported = [rank.world_size for rank in ranks if rank.world_size]
    return max(reported, default=max((group.size for group in known.values() if group.is_default), default=0))


def _explain_pointers(
    ranks: Sequence[Outline], known: dict[tuple[int, str], _LocalGroup], references: _References
) -> list[Finding]:
    """If a rank has one group named by address, it is the only described one, or else that of all ranks."""
    per_rank: dict[int, list[_LocalGroup]] = defaultdict(list)
    for group in known.values():
        per_rank[group.rank].append(group)
    assumed, unknown = 0, 0
    for groups in per_rank.values():
        pointers = [group for group in groups if group.is_pointer]
        others = [group for group in groups if not group.is_pointer]
        if len(pointers) == 1 and len(others) <= 1:
            pointers[0].adopt(others[0] if others else _DEFAULT)
            assumed += 1
        else:
            unknown += len(pointers)
    if not known and references.named.any():
        assumed = len(ranks)
        known.update({(rank.rank, ""): _LocalGroup(rank.rank, "", DEFAULT_DESCRIPTION) for rank in ranks})
    return _explained_findings(assumed, unknown)


def _explained_findings(assumed: int, unknown: int) -> list[Finding]:
    found = []
    if assumed:
        message = f"No source describes the only process group of {assumed} ranks; the group of all ranks is assumed."
        found.append(Finding(Severity.INFO, "group_taken_as_default", message, assumed))
    if unknown:
        message = (
            f"{unknown} process groups are named by addresses, which differ between ranks, and no source "
            "describes them; their collectives are unmatched. Add profiles of the same run, which name the groups."
        )
        found.append(Finding(Severity.WARNING, "group_unknown", message, unknown))
    return found


def _fill_in_members(known: _LocalGroups, world: int) -> None:
    """Adds members, from other ranks, to groups that have none in the sources of their rank."""
    listed: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for group in known.values():
        if group.members:
            listed[group.alias].add(group.members)
    users: dict[str, set[int]] = defaultdict(set)
    memberless = [group for group in known.values() if not group.members]
    for group in memberless:
        fitting = {
            frozenset(members): members
            for members in sorted(listed[group.alias])
            if group.rank in members and group.partial <= set(members)
        }
        if len(fitting) == 1:
            (group.members,), group.listed = fitting.values(), True
        elif world and (group.is_default or group.size == world) and not fitting:
            group.members, group.listed = tuple(range(world)), True
        elif _has_common_name(group):
            users[_shared_name(group)].add(group.rank)
    for group in memberless:
        if not group.members and _has_common_name(group):
            group.members = tuple(sorted(users[_shared_name(group)] | group.partial))


def _has_common_name(group: _LocalGroup) -> bool:
    return group.is_default or not group.is_pointer


def _shared_name(group: _LocalGroup) -> str:
    return DEFAULT_DESCRIPTION if group.is_default else group.alias


def _same_groups(known: _LocalGroups, world: int) -> list[_SameGroup]:
    """Local groups that are the same: of the same members, split by name if a rank has several."""
    distinct_members = {listed: frozenset(listed) for listed in {group.members for group in known.values()}}
    by_members: dict[frozenset[int], list[_LocalGroup]] = defaultdict(list)
    found = []
    for group in known.values():
        if group.members:
            by_members[distinct_members[group.members]].append(group)
        else:
            found.append(_SameGroup({group.rank: [group]}))
    for members, groups in by_members.items():
        of_all_ranks = len(members) == world
        found += _split_by_name(groups, of_all_ranks)
    return found


def _split_by_name(groups: Sequence[_LocalGroup], of_all_ranks: bool) -> list[_SameGroup]:
    """Groups with the same members are one if they have equal names, else descriptions, else positions."""
    names = [DEFAULT_DESCRIPTION if of_all_ranks and group.is_default else group.alias for group in groups]
    per_rank: dict[int, set[str]] = defaultdict(set)
    for group, name in zip(groups, names, strict=True):
        per_rank[group.rank].add(name)
    if all(len(rank_names) == 1 for rank_names in per_rank.values()):
        names = [""] * len(groups)
    ranks_with = Counter(name for rank_names in per_rank.values() for name in rank_names)
    by_name: dict[str, _SameGroup] = {}
    unmatched = []
    for group, name in zip(groups, names, strict=True):
        if ranks_with[name] != 1:
            by_name.setdefault(name, _SameGroup()).add(group)
        else:
            unmatched.append(group)
    choice = _Choice()
    for known in by_name.values():
        choice.append(known)
    for group in unmatched:
        choice.place(group)
    return choice.groups


class _Choice(Struct):
    """Groups that local groups can be the same as; a group has at most one local group of each rank."""

    groups: list[_SameGroup] = field(default_factory=list)
    described: dict[str, list[_SameGroup]] = field(default_factory=dict)
    """The groups with each description."""
    known: set[tuple[int, str]] = field(default_factory=set)
    """Groups, by their address, and descriptions that are in `described`."""
    passed: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)
    """For a rank and a description, or all: the index of the first free group, and of the next one."""

    def append(self, group: _SameGroup) -> None:
        """Adds a group."""
        self.groups.append(group)
        for local in group.all():
            self._describe(group, local)

    def place(self, local: _LocalGroup) -> None:
        """Adds a local group to the only free group with its description, else to the first one."""
        similar = self._free(local.rank, local.description) if local.description else []
        free = similar if len(similar) == 1 else self._free(local.rank, "")
        if not free:
            free = [_SameGroup()]
            self.groups += free
        free[0].add(local)
        self._describe(free[0], local)

    def _free(self, rank: int, description: str) -> list[_SameGroup]:
        """The first two groups with a description, or of all, that have no local group of the rank."""
        groups = self.described.get(description, []) if description else self.groups
        first, second = self.passed.get((rank, description), (0, 1))
        while first < len(groups) and rank in groups[first].by_rank:
            first += 1
        second = max(second, first + 1)
        while second < len(groups) and rank in groups[second].by_rank:
            second += 1
        self.passed[rank, description] = first, second
        return [groups[index] for index in (first, second) if index < len(groups)]

    def _describe(self, group: _SameGroup, local: _LocalGroup) -> None:
        key = (id(group), local.description)
        if local.description and key not in self.known:
            self.known.add(key)
            self.described.setdefault(local.description, []).append(group)


def _sort_key(group: _SameGroup) -> tuple[int, tuple[int, ...], bool, str, int]:
    """The largest first; independent of the order of the ranks."""
    first = min(group.all(), key=lambda local: local.rank)
    members = tuple(sorted(first.members))
    return -len(members), members, not group.is_default, min(local.alias for local in group.all()), first.rank


def _group_row(group: _SameGroup) -> ProcessGroup:
    groups = sorted(group.all(), key=lambda local: local.rank)
    names = Counter(local.alias for local in groups if local.alias) or Counter(
        [DEFAULT_DESCRIPTION * group.is_default]
    )
    name = min(names, key=lambda text: (-names[text], text))
    members = groups[0].members
    size = max(local.size for local in groups)
    return ProcessGroup(
        name,
        next((local.description for local in groups if local.description), ""),
        members,
        len(members) if any(local.listed for local in groups) else max(size, len(members)),
        next((local.backend for local in groups if local.backend), ""),
    )


def _rows_of_references(
    ranks: Sequence[Outline],
    references: _References,
    row_of: Mapping[tuple[int, str], int],
    rows: Sequence[ProcessGroup],
) -> tuple[Int32s, list[Finding]]:
    """The group of each reference; without a name, the only group of the rank that fits."""
    of_rank: dict[int, list[int]] = {}
    result = np.full(len(references.rank_index), UNKNOWN, np.int32)
    unresolved = 0
    for reference, rank_index in enumerate(references.rank_index):
        if not references.named[reference]:
            continue
        rank = ranks[rank_index].rank
        row = row_of.get((rank, references.name[reference]))
        if row is None:
            if rank not in of_rank:
                of_rank[rank] = [row for row, group in enumerate(rows) if rank in group.ranks]
            row = _only_fitting(references, reference, of_rank[rank], rows)
        result[reference] = row
        unresolved += int(references.count[reference]) if result[reference] == UNKNOWN else 0
    return result, _without_group_findings(unresolved)


def _only_fitting(
    references: _References, reference: int, candidates: Sequence[int], rows: Sequence[ProcessGroup]
) -> int:
    """The only group of a rank that fits a reference without a name, or UNKNOWN."""
    members, size = references.members[reference], references.size[reference]
    fitting = [
        row
        for row in candidates
        if (not members or set(members) == set(rows[row].ranks))
        and references.partial[reference] <= set(rows[row].ranks)
        and (not size or size == max(rows[row].size, len(rows[row].ranks)))
    ]
    return fitting[0] if len(fitting) == 1 else UNKNOWN


def _without_group_findings(count: int) -> list[Finding]:
    if not count:
        return []
    message = (
        f"{count} collectives are skipped: they have no process group, and several groups fit. "
        "Add flight-recorder dumps of the same run, which name the groups."
    )
    return [Finding(Severity.WARNING, "collectives_without_group", message, count)]


def _foreign_findings(
    ranks: Sequence[Outline], references: _References, of_reference: Int32s, rows: Sequence[ProcessGroup]
) -> list[Finding]:
    """Ranks that use a group without being a member."""
    found = sorted(
        {
            (ranks[rank_index].rank, row)
            for rank_index, row in zip(references.rank_index, of_reference.tolist(), strict=True)
            if row != UNKNOWN and rows[row].ranks and ranks[rank_index].rank not in rows[row].ranks
        }
    )
    if not found:
        return []
    rank, row = found[0]
    message = (
        f"In {len(found)} cases a rank uses a process group of which it is not a member. "
        "Check the ranks of the files, and that all files are of one job."
    )
    example = f"rank {rank} uses group {rows[row].name} of {list(rows[row].ranks)}"
    return [Finding(Severity.WARNING, "group_without_its_rank", message, len(found), example=example)]


# The groups of each rank, from its own sources and calls.


class _LocalGroup(Struct):
    """One group as the sources and calls of one rank describe it."""

    rank: int
    name: str
    description: str = ""
    members: tuple[int, ...] = ()
    """From the rank's own sources, then from other ranks; empty if unknown."""
    partial: frozenset[int] = frozenset()
    """Members of a truncated list."""
    size: int = 0
    backend: str = ""
    used: bool = False
    described: bool = False
    listed: bool = False
    """True if a source lists all members; else they are those that are known to use it."""
    contradictions: frozenset[tuple[int, ...]] = frozenset()
    """Different member lists in the rank's sources."""
    explained_by: str = ""
    """The name by which a source describes it."""

    @property
    def is_default(self) -> bool:
        """True if it has the name or description of the group of all ranks."""
        return is_default(self.alias, self.description)

    @property
    def is_pointer(self) -> bool:
        """True if its name is an address that no source explains."""
        return not self.described and not self.explained_by and bool(POINTER.fullmatch(self.name))

    @property
    def alias(self) -> str:
        """The name that other ranks may know too."""
        return self.explained_by or self.name

    def adopt(self, other: _LocalGroup) -> None:
        """Takes name, description and members from a group that is the same."""
        self.explained_by, self.description = other.name, other.description
        self.members, self.listed = other.members, other.listed
        self.size = max(self.size, other.size)

    def learn(self, members: tuple[int, ...], size: int) -> None:
        """Adds one more statement of its members and its size."""
        if members and not self.members:
            self.members, self.listed = members, True
        elif members and members != self.members and set(members) != set(self.members):
            self.contradictions |= {members}
        self.size = max(self.size, size)


_DEFAULT = _LocalGroup(UNKNOWN, DEFAULT_DESCRIPTION, DEFAULT_DESCRIPTION)

_LocalGroups = Mapping[tuple[int, str], _LocalGroup]


class _References(Struct, frozen=True):
    """The distinct ways in which calls refer to groups, one row each."""

    numbers: Sequence[Int64s]
    """For each rank the rows of its references."""
    rank_index: Sequence[int]
    """Index of the rank."""
    name: Sequence[str]
    members: Sequence[tuple[int, ...]]
    """Of complete lists."""
    partial: Sequence[frozenset[int]]
    size: Sequence[int]
    named: Bools
    """True if the calls refer to a group at all: waits do not."""
    count: Int64s
    """The number of collectives; messages are matched without a group too."""


def _references(roster: Roster) -> _References:
    """The distinct combinations of rank, group, members and size."""
    lengths = [len(one.references) for one in roster.outlines]
    table = References.concatenate(
        [one.references.recoded(codes) for one, codes in zip(roster.outlines, roster.codes, strict=True)]
    )
    index = np.repeat(np.arange(len(lengths)), lengths)
    numbers, first = distinct(index, table.group, table.members, table.size, table.named)
    texts = [*roster.strings.texts(), ""]
    codes, listed_code = np.unique(table.members[first], return_inverse=True)
    parsed = [_parsed_members(texts[code]) for code in codes.tolist()]
    partial = [frozenset(members) for members, _ in parsed]
    count = np.zeros(len(first), np.int64)
    np.add.at(count, numbers, table.count)
    return _References(
        np.split(numbers, np.cumsum(lengths[:-1])) if lengths else [],
        index[first].tolist(),
        [texts[code] for code in table.group[first].tolist()],
        [parsed[code][0] if parsed[code][1] else () for code in listed_code.tolist()],
        [partial[code] for code in listed_code.tolist()],
        np.maximum(table.size[first], 0).tolist(),
        table.named[first],
        count,
    )


def _parsed_members(text: str) -> tuple[tuple[int, ...], bool]:
    """The ranks in a printed list, and whether the list is complete."""
    members = tuple(map(int, re.findall(r"\d{1,18}", text)))
    return (members, TRUNCATED not in text) if max(members, default=0) <= LARGEST_RANK else ((), False)


def _local_groups(ranks: Sequence[Outline], references: _References) -> dict[tuple[int, str], _LocalGroup]:
    """Every group that a rank describes or refers to, by rank and name."""
    known: dict[tuple[int, str], _LocalGroup] = {}
    for rank in ranks:
        for group in rank.groups:
            if group.name or group.ranks:
                _add_description(known, rank.rank, group)
    for rank_index, name, members, partial, size, named in zip(
        references.rank_index,
        references.name,
        references.members,
        references.partial,
        references.size,
        references.named.tolist(),
        strict=True,
    ):
        if named and (name or members):
            rank = ranks[rank_index].rank
            local = _known_group(known, rank, name, members)
            local.used = True
            local.partial = local.partial | partial if local.partial and partial else partial or local.partial
            local.learn(members, size)
    return {key: group for key, group in known.items() if group.name or not _has_named_twin(group, known)}


def _known_group(
    known: dict[tuple[int, str], _LocalGroup], rank: int, name: str, members: Sequence[int]
) -> _LocalGroup:
    """The group of a rank with this name, or with these members; a new one if it is unknown."""
    key = (rank, name or _key_by_members(members))
    if key not in known:
        known[key] = _LocalGroup(rank, name)
    return known[key]


def _key_by_members(members: Sequence[int]) -> str:
    """The key of a group without a name."""
    return f"of {tuple(members)}"


def _has_named_twin(group: _LocalGroup, known: Mapping[tuple[int, str], _LocalGroup]) -> bool:
    """True if the rank has a named group with the same members."""
    return any(
        other.name and other.rank == group.rank and set(other.members) == set(group.members)
        for other in known.values()
    )


def _add_description(known: dict[tuple[int, str], _LocalGroup], rank: int, group: ProcessGroup) -> None:
    local = _known_group(known, rank, group.name, group.ranks)
    local.described = True
    local.learn(tuple(group.ranks), group.size)
    if group.description != UNDEFINED:
        local.description = local.description or group.description
    local.backend = local.backend or group.backend


def _contradiction_findings(known: Mapping[tuple[int, str], _LocalGroup]) -> list[Finding]:
    """Groups that the sources of one rank describe differently."""
    found = []
    differ = [group for group in known.values() if group.contradictions]
    if differ:
        first = differ[0]
        contradiction = min(first.contradictions)
        found.append(
            Finding(
                Severity.WARNING,
                "group_members_differ",
                f"{len(differ)} process groups have different ranks in different sources of one rank; "
                "the first list is used. Check that all files are of one job.",
                len(differ),
                example=f"rank {first.rank}, group {first.name}: {list(first.members)} and {list(contradiction)}",
            )
        )
    sized = [group for group in known.values() if group.members and 0 < group.size != len(group.members)]
    if sized:
        first = sized[0]
        found.append(
            Finding(
                Severity.WARNING,
                "group_size_differs",
                f"{len(sized)} process groups have a size that differs from their list of ranks; the list is used.",
                len(sized),
                example=f"rank {first.rank}, group {first.name}: size {first.size}, ranks {list(first.members)}",
            )
        )
    return found


# Ranks within a group, and ranks of the job.


class Members(Struct, frozen=True):
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
        """All members of each of these groups: the index in `group`, and the rank."""
        length = self.length[group]
        return np.repeat(np.arange(len(group)), length), self.rank[ranges(self.begin[group], length)]

    def rank_of(self, group: Int32s, within: Int32s, of_job: Bools) -> Int64s:
        """The rank of the job for each rank within its group (`of_job`: it is one already), or UNKNOWN."""
        if not len(self.rank):
            return np.where(of_job, within, UNKNOWN).astype(np.int64)
        named = np.maximum(group, 0)
        known = (within >= 0) & (group != UNKNOWN) & (within < self.length[named])
        rank = self.rank[np.where(known, self.begin[named] + within, 0)]
        return np.where(of_job, within, np.where(known, rank, UNKNOWN)).astype(np.int64)
