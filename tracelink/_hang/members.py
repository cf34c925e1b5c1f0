"""Members of groups that no dump lists, and the ranks of a job that left no dump.

Torch on gloo does not record members: of its groups only the ranks that used them are known. Others follow from the
numbers of ranks and of groups, from the sizes of gathered tensors, and from groups of the same device mesh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.groups import UNDEFINED, is_default
from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.operations import Operation, operation_of
from tracelink._model.records import Recording, Records, Requests, State
from tracelink._model.trace import ProcessGroup

MOST_ABSENT = 1 << 16
"""A larger gap in the ranks is a number that is no rank: no job has as many processes."""
OF_A_MESH = "mesh_"
"""How descriptions of the groups of a device mesh start: groups of one dimension have equal sizes."""
BEYOND = 1 << 62
"""Larger than the number of any group."""

_Members = dict[int, tuple[int, ...]]


class Membership(Struct, frozen=True):
    """The groups with all members that are known, and which ranks must exist but have no dump."""

    groups: Sequence[ProcessGroup]
    """The size of a group is larger than the number of its ranks if members are unknown."""
    absent: tuple[int, ...]


def membership_of(
    groups: Sequence[ProcessGroup],
    recordings: Mapping[int, Recording],
    records: Records,
    requests: Requests,
    strings: Sequence[str],
) -> Membership:
    """The members of all groups; only those that no dump lists get more."""
    listed = {group.name for recording in recordings.values() for group in recording.groups if group.ranks}
    users = {row: group.ranks for row, group in enumerate(groups) if group.name not in listed and group.ranks}
    sizes = _gathered_sizes(groups, records, requests, strings) if users else np.zeros(len(groups), np.int64)
    default = {row for row, group in enumerate(groups) if is_default(group.name, group.description)}
    similar = by_description(groups, users.keys() - default)
    partitions = [rows for rows in similar if _is_partition(rows, users, recordings)]
    of_all = [groups[row].ranks for row in default if groups[row].name in listed]
    least_world = max(
        max(recordings, default=-1) + 1,
        max((int(sizes[row]) for row in users.keys() & default), default=0),
        max((_ranks_of_mesh(groups, rows, users, sizes) for rows in partitions), default=0),
    )
    is_likely = least_world <= len(recordings) + MOST_ABSENT
    everyone = set(chain.from_iterable(of_all) if of_all else range(least_world if is_likely else 0))
    absent = tuple(sorted({*everyone, *(rank for group in groups for rank in group.ranks)} - set(recordings)))
    if not users:
        return Membership(groups, absent)
    members, excluded = _by_numbers(groups, users, recordings)
    if everyone:
        members |= {row: tuple(sorted(everyone)) for row in users.keys() & default}
    least = np.where(sizes > 0, sizes, _sizes_of_unfinished(groups, records))
    for row, ranks in members.items():
        candidates = everyone - {*ranks} - excluded[row]
        # without a list of all ranks, one with a dump is as likely a member as one with a larger number
        if len(ranks) + len(candidates) == least[row] and (of_all or candidates <= {*absent}):
            members[row] = tuple(sorted({*ranks, *candidates}))
    for rows in partitions:
        members |= _completed(rows, users, sizes, absent)
    known = list(groups)
    for row, ranks in members.items():
        known[row] = replace(groups[row], ranks=ranks, size=max(len(ranks), int(least[row])))
    return Membership(known, absent)


def _by_numbers(
    groups: Sequence[ProcessGroup], users: _Members, recordings: Mapping[int, Recording]
) -> tuple[_Members, Mapping[int, set[int]]]:
    """Which ranks are members of groups, and which are not, by the numbers of the groups that each process made.

    All processes count the groups of the job, whose number is the name; each numbers those that it is a member of.
    """
    row_of = {int(groups[row].name): row for row in users if groups[row].name.isdecimal()}
    members, excluded = {row: set(ranks) for row, ranks in users.items()}, defaultdict(set)
    for rank, recording in recordings.items() if row_of else ():
        if not all(name.isdecimal() for name in recording.numbers):
            continue
        known = sorted((number, int(name)) for name, number in recording.numbers.items())
        end = [(recording.made, BEYOND)] if recording.made != UNKNOWN else []
        for (before, first), (after, last) in pairwise([(-1, -1), *known, *end]):
            between = {row for name, row in row_of.items() if first < name < last}
            if after - before == 1:
                for row in between:
                    excluded[row].add(rank)
            elif after - before == last - first:
                for row in between:
                    members[row].add(rank)
    return {row: tuple(sorted(ranks)) for row, ranks in members.items()}, excluded


def _sizes_of_unfinished(groups: Sequence[ProcessGroup], records: Records) -> Int64s:
    """2 for groups of one known rank that has not finished a call there: alone it would not have to wait."""
    unfinished = (records.group != UNKNOWN) & (records.retired == 0) & (records.state != State.COMPLETED)
    waits = np.bincount(records.group[unfinished], minlength=len(groups)) > 0
    alone = np.array([len(group.ranks) == 1 for group in groups], np.bool_)
    sizes: Int64s = np.where(waits & alone, 2, 0)
    return sizes


def _gathered_sizes(
    groups: Sequence[ProcessGroup], records: Records, requests: Requests, strings: Sequence[str]
) -> Int64s:
    """The number of ranks whose tensors the members of each group gathered; 0 if unknown."""
    gathers = np.array(
        [operation_of(strings[code]) == Operation.ALL_GATHER for code in requests.operation.tolist()],
        np.bool_,
    )
    known = gathers & (requests.elements_in > 0) & (requests.elements_out > 0)
    ratio = np.where(known, requests.elements_out // np.maximum(requests.elements_in, 1), 0)
    ratio[known & (ratio * requests.elements_in != requests.elements_out)] = 0
    rows = np.flatnonzero((records.group != UNKNOWN) & known[records.request])
    largest = np.zeros(len(groups), np.int64)
    smallest = np.full(len(groups), np.iinfo(np.int64).max, np.int64)
    np.maximum.at(largest, records.group[rows], ratio[records.request[rows]])
    np.minimum.at(smallest, records.group[rows], ratio[records.request[rows]])
    sizes: Int64s = np.where(largest == smallest, largest, 0)
    return sizes


def by_description(groups: Sequence[ProcessGroup], rows: Iterable[int]) -> Iterable[list[int]]:
    """Groups with the same description, such as those of one dimension of a device mesh."""
    similar: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows):
        if groups[row].description not in ("", UNDEFINED):
            similar[groups[row].description].append(row)
    return similar.values()


def _is_partition(rows: Sequence[int], users: Mapping[int, Sequence[int]], ranks: Collection[int]) -> bool:
    """Whether each rank is in exactly one of these groups, as in a dimension of a device mesh."""
    return sorted(rank for row in rows for rank in users[row]) == sorted(ranks)


def _size(rows: Sequence[int], users: Mapping[int, Sequence[int]], gathered: Int64s) -> int:
    """The size of groups that partition the ranks of a job."""
    return max(max(len(users[row]), int(gathered[row])) for row in rows)


def _ranks_of_mesh(
    groups: Sequence[ProcessGroup], rows: Sequence[int], users: Mapping[int, Sequence[int]], gathered: Int64s
) -> int:
    of_a_mesh = groups[rows[0]].description.startswith(OF_A_MESH)
    return len(rows) * _size(rows, users, gathered) if of_a_mesh else 0


def _completed(
    rows: Sequence[int], users: Mapping[int, tuple[int, ...]], gathered: Int64s, absent: Sequence[int]
) -> _Members:
    """Groups of a partition that lack members, with the absent ranks that fit in."""
    size = _size(rows, users, gathered)
    short = [row for row in rows if len(users[row]) < size]
    if len(short) == 1:
        fitting = absent if len(absent) == size - len(users[short[0]]) else ()
        return {row: tuple(sorted({*users[row], *fitting})) for row in short}
    stride = _stride([users[row] for row in rows if len(users[row]) == size])
    completed = {row: _progressions(users[row], size, stride, absent) for row in short}
    return {row: found[0] for row, found in completed.items() if len(found) == 1}


def _stride(members: Sequence[Sequence[int]]) -> int:
    """The distance between the members of all groups; 0 if it differs."""
    strides = {later - rank for ranks in members for rank, later in pairwise(ranks)}
    return strides.pop() if len(strides) == 1 else 0


def _progressions(
    users: Sequence[int], size: int, stride: int, absent: Sequence[int]
) -> list[tuple[int, ...]]:
    """The groups of this size and stride that consist of these users and of absent ranks."""
    if not stride:
        return []
    last, first = max(users), min(users)
    starts = range(last - (size - 1) * stride, first + 1)
    candidates = [tuple(range(start, start + size * stride, stride)) for start in starts]
    return [
        ranks for ranks in candidates if set(users) <= set(ranks) and set(ranks) - set(users) <= set(absent)
    ]
