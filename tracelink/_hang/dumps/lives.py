"""Lives of process groups: a group that is destroyed and made again, under the same name, counts from 1 again.

Input: the records of each rank, with their groups. Output: the same records with a group for each life, the same one on
all ranks, so that equal sequence numbers of different lives are different collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN, starts_of
from tracelink._model.findings import Finding, Severity
from tracelink._model.records import Records
from tracelink._model.text import group_in_words
from tracelink._model.trace import ProcessGroup

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
