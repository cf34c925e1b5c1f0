"""Entries of all recorders in one table; entries read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelink.errors import Finding, Severity, UnreadableError
from tracelink.linking.groups import resolve_groups
from tracelink.linking.stack import stack
from tracelink.model.collectives import RankCalls
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, distinct
from tracelink.model.communications import Calls
from tracelink.model.operations import POINT_TO_POINT, Operation, operation_of
from tracelink.model.records import REQUEST_TEXTS, Entry, Recording, Records, Requests
from tracelink.model.trace import ProcessGroup
from tracelink.plugins import Retelling

# The journal: what all recorders hold in one table, with one numbering of groups, requests and texts.


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


# Entries as their dumps tell them, with sizes and stacks: read again for those that are asked for.


def retold(journal: Journal, rows: Int64s) -> tuple[dict[int, Entry], list[Finding]]:
    """What these entries of the journal say; each dump is read once, and one that cannot be is a finding."""
    told: dict[int, Entry] = {}
    findings = []
    of_rank = np.searchsorted(journal.bounds, rows, side="right") - 1
    for number, recording in enumerate(journal.recordings.values()):
        wanted = rows[of_rank == number]
        if not len(wanted) or not isinstance(recording.payloads, Retelling):
            continue
        places = journal.records.place[wanted].tolist()
        try:
            found = recording.payloads.entries(places)
        except (UnreadableError, OSError) as error:
            message = f"its entries could not be read again for their sizes and stacks: {error}"
            findings.append(Finding(Severity.WARNING, "not_retold", message, source=recording.source.path))
            continue
        told.update(
            (row, found[place]) for row, place in zip(wanted.tolist(), places, strict=True) if place in found
        )
    return told, findings


def one_for_each_request(journal: Journal, rows: Int64s) -> Int64s:
    """The first of those of these entries that ask for the same: they have the same sizes."""
    ordered = np.sort(rows)
    _, first = np.unique(journal.records.request[ordered], return_index=True)
    found: Int64s = ordered[first]
    return found


# What requests ask for: the operation and, of messages, the ranks within the group.


def ask_for_messages(journal: Journal) -> Bools:
    """Which requests are for one end of a message."""
    return np.array([name in POINT_TO_POINT for name in _names(journal)], np.bool_)


def codes_of_requests(journal: Journal) -> Int64s:
    """For each request a number, equal where the operation is, and where the same ranks send and receive."""
    names = _names(journal)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    operation = np.array([numbers[name] for name in names], np.int64)
    messages = ask_for_messages(journal)
    source, target = (
        np.where(messages, end, UNKNOWN) for end in (journal.requests.source, journal.requests.target)
    )
    return distinct(operation, source, target)[0]


def answers_of_requests(journal: Journal) -> Int64s:
    """For each request for an end of a message the code of what asks for the other end; UNKNOWN where nothing does."""
    codes, requests, names = codes_of_requests(journal), journal.requests, _names(journal)
    keys = list(zip(names, requests.source.tolist(), requests.target.tolist(), strict=True))
    known = dict(zip(keys, codes.tolist(), strict=True))
    other = {Operation.SEND.value: Operation.RECV.value, Operation.RECV.value: Operation.SEND.value}
    return np.array(
        [known.get((other.get(name, ""), source, target), UNKNOWN) for name, source, target in keys], np.int64
    )


def _names(journal: Journal) -> list[str]:
    return [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]


# Groups that do the same, each for itself: the tensor-parallel ones, for example.


def like_groups(groups: Sequence[ProcessGroup], row: int) -> list[int]:
    """The group itself and those of the same description and size."""
    own = groups[row]
    return [
        number
        for number, other in enumerate(groups)
        if number == row or (other.description == own.description and len(other.ranks) == len(own.ranks))
    ]
