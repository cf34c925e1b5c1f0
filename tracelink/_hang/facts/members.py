"""Groups of a job: their members, also where dumps do not list them, and the lives of groups that are made again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._match.groups import UNDEFINED, is_default
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s, starts_of
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import Operation, operation_of
from tracelink._model.records import Recording, Records, Requests, State
from tracelink._model.text import group_in_words
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
    similar = group_by_description(groups, users.keys() - default)
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


def group_by_description(groups: Sequence[ProcessGroup], rows: Iterable[int]) -> Iterable[list[int]]:
    """Groups with the same description, such as those of one dimension of a device mesh."""
    similar: dict[str, list[int]] = defaultdict(list)
    for row in sorted(rows):
        if groups[row].description not in ("", UNDEFINED):
            similar[groups[row].description].append(row)
    return similar.values()


def _is_partition(rows: Sequence[int], users: Mapping[int, Sequence[int]], ranks: Collection[int]) -> bool:
    """True if each rank is in exactly one of these groups, as in a dimension of a device mesh."""
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


Span = tuple[int, int]
"""When the first and the last entry of a life were created."""


class Lives(Struct, frozen=True):
    """Records and groups in which each life of a group is a group."""

    records: Sequence[Records]
    groups: Sequence[ProcessGroup]
    later: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """For each life of a group, except the last one, all later lives."""
    findings: Sequence[Finding] = ()


def lives_of(records: Sequence[Records], groups: Sequence[ProcessGroup], wrapped: Sequence[bool]) -> Lives:
    """The records of all ranks, with a group for each life; `wrapped` are ranks that may have lost earlier lives."""
    if not any((own.life > 0).any() for own in records):
        return Lives(records, groups)
    spans = [_spans(own) for own in records]
    count = {group: len(lives) for own in spans for group, lives in own.items() if len(lives) > 1}
    for own in spans:
        count |= {group: max(number, len(own.get(group, ()))) for group, number in count.items()}
    rows, first_row = list(groups), {}
    for group in sorted(count):
        first_row[group] = len(rows)
        rows += [_named(groups[group], number) for number in range(count[group] - 1)]
        rows[group] = _named(groups[group], count[group] - 1)
    life_rows = {group: [*range(row, row + count[group] - 1), group] for group, row in first_row.items()}
    offsets = {group: _offsets([own.get(group, []) for own in spans], wrapped) for group in count}
    return Lives(
        [_with_life_rows(own, rank, life_rows, offsets, len(groups)) for rank, own in enumerate(records)],
        rows,
        {life: lives[number + 1 :] for lives in life_rows.values() for number, life in enumerate(lives[:-1])},
        [_finding(groups[min(count)], len(count))],
    )


def _spans(records: Records) -> dict[int, list[Span]]:
    """The span of each life of each group; (NO_TIME, NO_TIME) if it is unknown."""
    life = np.maximum(records.life, 0)
    rows = np.lexsort((life, records.group))
    rows = rows[records.group[rows] != UNKNOWN]
    if not len(rows):
        return {}
    starts = starts_of(records.group[rows].astype(np.int64) << 8 | life[rows])
    created = records.created[rows]
    begin = np.minimum.reduceat(np.where(created == NO_TIME, np.iinfo(np.int64).max, created), starts)
    end = np.maximum.reduceat(created, starts)
    begin = np.where(end == NO_TIME, NO_TIME, begin)
    spans: dict[int, list[Span]] = {}
    for group, span in zip(
        records.group[rows[starts]].tolist(), zip(begin.tolist(), end.tolist(), strict=True), strict=True
    ):
        spans.setdefault(group, []).append(span)
    return spans


def _offsets(spans: Sequence[Sequence[Span]], wrapped: Sequence[bool]) -> list[int]:
    """For each rank the number of its first life.

    Lives that overlap in time are the same. If none do, those of a rank that kept all entries are the first ones,
    those of another rank the last ones.
    """
    reference = max(range(len(spans)), key=lambda rank: (len(spans[rank]), not wrapped[rank]))
    return [
        max(
            range(len(spans[reference]) - len(own) + 1),
            key=lambda offset, own=own, lost=lost: (  # type: ignore[misc]
                _overlap(own, spans[reference][offset:]),
                offset if lost else -offset,
            ),
        )
        for own, lost in zip(spans, wrapped, strict=True)
    ]


def _overlap(spans: Sequence[Span], others: Sequence[Span]) -> int:
    """For how long both are in the same life, in ns."""
    return sum(
        max(0, min(own[1], other[1]) - max(own[0], other[0]))
        for own, other in zip(spans, others, strict=False)
        if NO_TIME not in (own[1], other[1])
    )


def _with_life_rows(
    records: Records,
    rank: int,
    life_rows: Mapping[int, Sequence[int]],
    offsets: Mapping[int, Sequence[int]],
    count: int,
) -> Records:
    """The records of a rank; earlier lives have consecutive rows, the last one has the row of the group."""
    first, last = np.full(count, UNKNOWN), np.zeros(count, np.int64)
    for group, lives in life_rows.items():
        first[group], last[group] = lives[0] + offsets[group][rank], len(lives) - 1 - offsets[group][rank]
    life = np.maximum(records.life, 0)
    earlier = (records.group != UNKNOWN) & (first[records.group] != UNKNOWN) & (life < last[records.group])
    return replace(
        records, group=np.where(earlier, first[records.group] + life, records.group).astype(np.int32)
    )


def _named(group: ProcessGroup, number: int) -> ProcessGroup:
    """The group of a life, whose description contains its number."""
    of_group = f" of {group.description}" if group.description else ""
    return replace(group, description=f"life {number + 1}{of_group}")


def _finding(group: ProcessGroup, count: int) -> Finding:
    message = (
        f"{count} groups were destroyed and made again under the same name, and count from 1 again: each life is "
        "diagnosed separately."
        if count > 1
        else f"{group_in_words(group.name, group.description)} was destroyed and made again under the same name, and "
        "counts from 1 again: each life is diagnosed separately."
    )
    return Finding(Severity.INFO, "group_made_again", message[:1].upper() + message[1:], count)
