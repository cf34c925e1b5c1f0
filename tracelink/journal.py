"""The journal: what all recorders hold in one table, with one numbering of groups, requests and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelink.collectives import RankCalls
from tracelink.communications import UNKNOWN, Calls
from tracelink.events import Bools, Int32s, Int64s
from tracelink.findings import Finding
from tracelink.linking.coding import distinct
from tracelink.linking.groups import resolve_groups
from tracelink.linking.stacking import stack
from tracelink.operations import Operation, operation_of
from tracelink.records import REQUEST_TEXTS, Recording, Records, Requests
from tracelink.strings import StringTable
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class Journal:
    """The entries of all ranks, rank by rank in ascending order."""

    recordings: Mapping[int, Recording]
    """By rank, in ascending order."""
    ranks: Int32s
    """The ranks that are there."""
    rank: Int32s
    """Of each entry."""
    records: Records
    """`group` is a row of `groups` or UNKNOWN, `request` one of `requests`."""
    requests: Requests
    texts: Sequence[str]
    groups: Sequence[ProcessGroup]
    bounds: Int64s
    """Where the entries of each rank begin; one more for the end."""
    group_rows: Mapping[tuple[int, str], int]
    """The row of a group by rank and by the name it has there."""
    findings: Sequence[Finding] = ()

    def __len__(self) -> int:
        return len(self.records)

    def operation(self, row: int) -> str:
        """What an entry does, as recorded."""
        return self.texts[int(self.requests.operation[self.records.request[row]])]


def journal_of(recordings: Mapping[int, Recording]) -> Journal:
    """One journal out of all recordings."""
    ordered = {rank: recordings[rank] for rank in sorted(recordings)}
    names = [_group_names(recording) for recording in ordered.values()]
    groups, rows, findings = _groups(ordered, names)
    texts = StringTable()
    requests, number = _requests(list(ordered.values()), texts)
    parts = [
        replace(one.records, group=own[one.records.group], request=numbers[one.records.request])
        for one, own, numbers in zip(ordered.values(), rows, number, strict=True)
    ]
    texts_of_all = texts.texts()
    closing = np.array(
        [operation_of(texts_of_all[code]) == Operation.COALESCED for code in requests.operation], np.bool_
    )
    parts = [_with_closings(part, closing) for part in parts]
    lengths = np.array([len(part) for part in parts], np.int64)
    ranks = np.array(list(ordered), np.int32)
    return Journal(
        {rank: replace(one, records=Records.of(0)) for rank, one in ordered.items()},
        ranks,
        np.repeat(ranks, lengths),
        Records.concatenate(parts),
        requests,
        texts_of_all,
        groups,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        {
            (rank, ordered[rank].strings[code]): int(own[code])
            for rank, own, used in zip(ordered, rows, names, strict=True)
            for code in used.tolist()
        },
        findings,
    )


def _with_closings(records: Records, closing: Bools) -> Records:
    """What closes a batch of messages counts with them, also where its recorder does not say so."""
    closes = closing[records.request[1:]] & ~records.point_to_point[1:] & records.point_to_point[:-1]
    rows = 1 + np.flatnonzero(closes & (records.group[1:] == records.group[:-1]))
    if not len(rows):
        return records
    point_to_point, sequence = records.point_to_point.copy(), records.sequence.copy()
    point_to_point[rows] = True
    sequence[rows] = sequence[rows - 1]
    return replace(records, point_to_point=point_to_point, sequence=sequence)


def _group_names(recording: Recording) -> Int64s:
    """The codes of the groups that entries name."""
    used = np.zeros(len(recording.strings) + 1, np.bool_)
    used[recording.records.group] = True
    return np.flatnonzero(used[:-1])


def _groups(
    recordings: Mapping[int, Recording], names: Sequence[Int64s]
) -> tuple[Sequence[ProcessGroup], list[Int32s], list[Finding]]:
    """The groups of the job; and for each rank the row of each of its texts that names one."""
    ranks = [
        RankCalls(
            rank,
            one.strings,
            Calls.of(len(used), group=used, operation=np.full(len(used), _any_text(one))),
            one.groups,
            one.source.host,
            one.source.world_size,
        )
        for (rank, one), used in zip(recordings.items(), names, strict=True)
    ]
    calls, twice = stack(ranks)
    resolved = resolve_groups(calls)
    rows = []
    for one, used, begin in zip(recordings.values(), names, calls.bounds.tolist(), strict=False):
        own = np.full(len(one.strings) + 1, UNKNOWN, np.int32)
        own[used] = resolved.of_call[begin : begin + len(used)]
        rows.append(own)
    return resolved.rows, rows, [*twice, *resolved.findings]


def _any_text(recording: Recording) -> int:
    """Some operation, for what is asked here is only which groups there are."""
    return int(recording.requests.operation[0]) if len(recording.requests) else UNKNOWN


def _requests(recordings: Sequence[Recording], texts: StringTable) -> tuple[Requests, list[Int32s]]:
    """Each different request once; and for each rank the number of each of its own."""
    tables = [_recoded(one, texts) for one in recordings]
    if not tables:
        return _no_requests(), []
    columns: dict[str, Any] = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    number, first = distinct(*columns.values())
    bounds = np.cumsum([len(one.requests) for one in recordings])[:-1]
    return Requests(*columns.values()).take(first), [
        part.astype(np.int32) for part in np.split(number, bounds)
    ]


def _no_requests() -> Requests:
    empty: Any = np.empty(0, np.int64)
    return Requests(*[empty] * len(Requests.__dataclass_fields__))


def _recoded(recording: Recording, texts: StringTable) -> dict[str, Any]:
    columns: dict[str, Any] = recording.requests.columns()
    used = np.unique(np.concatenate([columns[name] for name in REQUEST_TEXTS]))
    used = used[used != UNKNOWN]
    codes = np.full(len(recording.strings) + 1, UNKNOWN, np.int32)
    codes[used] = texts.encode([recording.strings[code] for code in used.tolist()])
    return columns | {name: codes[columns[name]] for name in REQUEST_TEXTS}
