"""The journal: entries of all flight recorders in one table, with one numbering of groups, requests and strings.

Built from the `Recording` of each rank. Sizes and stacks are not in it: `reread_entries` reads them from the dumps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tracelink._hang.facts.members import lives_of, membership_of
from tracelink._match.groups import resolve_groups
from tracelink._match.outlines import outlined, references_of, roster_of
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable, distinct
from tracelink._model.communications import Calls, RankCalls
from tracelink._model.errors import UnreadableError
from tracelink._model.findings import Finding, Severity
from tracelink._model.operations import POINT_TO_POINT, SYNCHRONIZING, Operation, operation_of
from tracelink._model.records import Entry, Recording, Records, Requests, State
from tracelink._model.text import lowered, ranks_in_words
from tracelink._model.trace import ProcessGroup


class Journal(Struct, frozen=True):
    """The entries of all ranks, sorted by rank."""

    recordings: Mapping[int, Recording]
    """By rank, in ascending order."""
    ranks: Int32s
    """The ranks that have a recording."""
    rank: Int32s
    """The rank of each entry."""
    records: Records
    """`group` is a row of `groups` or UNKNOWN, `request` one of `requests`."""
    requests: Requests
    strings: Sequence[str]
    groups: Sequence[ProcessGroup]
    bounds: Int64s
    """The first entry of each rank; one more for the end."""
    group_rows: Mapping[tuple[int, str], int]
    """The row of a group by rank and by the name that this rank uses for it."""
    absent: tuple[int, ...] = ()
    """Ranks of the job, as far as known, that have no recording."""
    later_lives: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """For each life of a group that was made again, except the last one, all later lives."""
    findings: Sequence[Finding] = ()

    def __len__(self) -> int:
        return len(self.records)

    def operation(self, row: int) -> str:
        """The operation of an entry, as recorded."""
        return self.strings[int(self.requests.operation[self.records.request[row]])]

    def entries_of(self, rank: int) -> slice:
        """The entries of a rank; none if it has no recording."""
        index = int(np.searchsorted(self.ranks, rank))
        known = index < len(self.ranks) and self.ranks[index] == rank
        return slice(*self.bounds[index : index + 2].tolist()) if known else slice(0, 0)

    def recorded_operations(self) -> list[str]:
        """The operation of each request, as recorded."""
        return [self.strings[code] for code in self.requests.operation.tolist()]

    def has_left(self, rank: Int32s, group: Int32s) -> Bools:
        """True where the rank has left this life of a group, for a later one: it waits there no more."""
        left = np.zeros(len(group), np.bool_)
        for life, later in self.later_lives.items():
            if len(of_life := np.flatnonzero(group == life)):
                left[of_life] = np.isin(rank[of_life], self.rank[np.isin(self.records.group, later)])
        return left


def journal_of(recordings: Mapping[int, Recording]) -> Journal:
    """Builds one journal from the recordings of all ranks."""
    ordered = _read_alike({rank: recordings[rank] for rank in sorted(recordings)})
    group_codes = [np.setdiff1d(recording.records.group, [UNKNOWN]) for recording in ordered.values()]
    groups, rows, findings = _groups(ordered, group_codes)
    strings = StringTable()
    requests, request_numbers = _merged_requests(list(ordered.values()), strings)
    parts = [
        replace(
            recording.records,
            group=own_rows[recording.records.group],
            request=numbers[recording.records.request],
        )
        for recording, own_rows, numbers in zip(ordered.values(), rows, request_numbers, strict=True)
    ]
    names = strings.texts()
    closing = np.array(
        [operation_of(names[code]) == Operation.COALESCED for code in requests.operation], np.bool_
    )
    parts = [_with_closings(part, closing) for part in parts]
    records = Records.concatenate(parts)
    membership = membership_of(groups, ordered, records, requests, names)
    lives = lives_of(parts, membership.groups, [recording.overwritten > 0 for recording in ordered.values()])
    if lives.later:
        records = replace(records, group=np.concatenate([own.group for own in lives.records]))
    lengths = np.array([len(part) for part in parts], np.int64)
    ranks = np.array(list(ordered), np.int32)
    return Journal(
        {rank: replace(recording, records=Records.of(0)) for rank, recording in ordered.items()},
        ranks,
        np.repeat(ranks, lengths),
        records,
        requests,
        names,
        lives.groups,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        {
            (rank, ordered[rank].strings[code]): int(own_rows[code])
            for rank, own_rows, codes in zip(ordered, rows, group_codes, strict=True)
            for code in codes.tolist()
        },
        membership.absent,
        lives.later,
        [*findings, *lives.findings],
    )


def _read_alike(recordings: Mapping[int, Recording]) -> Mapping[int, Recording]:
    """The recordings, in which all dumps without a finished call contain only active ones if any dump certainly does.

    One job writes all its dumps in the same way; a dump with few entries does not show it by itself.
    """
    if not any(recording.only_active for recording in recordings.values()):
        return recordings
    return {
        rank: recording if _has_finished(recording) else replace(recording, only_active=True, overwritten=0)
        for rank, recording in recordings.items()
    }


def _has_finished(recording: Recording) -> bool:
    records = recording.records
    return bool((records.state == State.COMPLETED).any() or (records.retired == 1).any())


def _groups(
    recordings: Mapping[int, Recording], used: Sequence[Int64s]
) -> tuple[Sequence[ProcessGroup], list[Int32s], list[Finding]]:
    """The groups of the job, and for each rank the group row of each of its string codes."""
    ranks = [
        RankCalls(
            rank,
            recording.strings,
            Calls.of(len(codes), group=codes, operation=np.full(len(codes), _any_operation(recording))),
            recording.groups,
            recording.source.host,
            recording.source.world_size,
        )
        for (rank, recording), codes in zip(recordings.items(), used, strict=True)
    ]
    roster = roster_of([outlined(rank) for rank in ranks])
    resolved, of_references = resolve_groups(roster)
    rows = []
    for rank, codes, of_reference in zip(ranks, used, of_references, strict=True):
        group_of_code = np.full(len(rank.strings) + 1, UNKNOWN, np.int32)
        if len(codes):
            group_of_code[codes] = of_reference[references_of(rank)]
        rows.append(group_of_code)
    return resolved.rows, rows, [*roster.findings, *resolved.findings]


def _any_operation(recording: Recording) -> int:
    """An arbitrary operation: only the groups of these calls matter."""
    return int(recording.requests.operation[0]) if len(recording.requests) else UNKNOWN


def _merged_requests(recordings: Sequence[Recording], texts: StringTable) -> tuple[Requests, list[Int32s]]:
    """Distinct requests of all ranks, and for each rank the new number of each of its requests."""
    tables = [recording.requests.recoded(texts.absorb(recording.strings)) for recording in recordings]
    requests = Requests.concatenate(tables)
    number, first = distinct(*requests.columns().values()) if len(requests) else (requests.source,) * 2
    bounds = np.cumsum([len(table) for table in tables])[:-1]
    return requests.take(first), np.split(number.astype(np.int32), bounds)[: len(tables)]


def _with_closings(records: Records, closing: Bools) -> Records:
    """Numbers the entry that closes a batch of messages like the messages, if its recorder does not do so."""
    closes = closing[records.request[1:]] & ~records.point_to_point[1:] & records.point_to_point[:-1]
    rows = 1 + np.flatnonzero(closes & (records.group[1:] == records.group[:-1]))
    if not len(rows):
        return records
    point_to_point, sequence = records.point_to_point.copy(), records.sequence.copy()
    point_to_point[rows] = True
    sequence[rows] = sequence[rows - 1]
    return replace(records, point_to_point=point_to_point, sequence=sequence)


# Entries that cannot be compared with those of other ranks.


def find_last_unusable(journal: Journal) -> dict[int, int]:
    """For each rank with such entries the index in its dump of the last one.

    Its fields are invalid, its group is unknown, or it is of a collective without a number.
    """
    records = journal.records
    unusable = _unusable(journal)
    last = {
        rank: recording.last_skipped for rank, recording in journal.recordings.items() if recording.skipped
    }
    for rank, index in zip(journal.rank[unusable].tolist(), records.place[unusable].tolist(), strict=True):
        last[rank] = max(index, last.get(rank, UNKNOWN))
    return last


def report_unusable(journal: Journal) -> list[Finding]:
    """A finding on entries that are not compared; those with invalid fields are reported by their reader."""
    unusable = _unusable(journal)
    if not len(unusable):
        return []
    ranks = np.unique(journal.rank[unusable])
    message = (
        f"{len(unusable)} {'entry' if len(unusable) == 1 else 'entries'} of {lowered(ranks_in_words(ranks.tolist()))} "
        "cannot be compared with those of other ranks: the group or the sequence number is unknown."
    )
    example = f"rank {journal.rank[unusable[0]]}: {journal.operation(int(unusable[0]))}"
    return [Finding(Severity.WARNING, "entries_unusable", message, len(unusable), example=example)]


def _unusable(journal: Journal) -> Int64s:
    records = journal.records
    without_number = ~records.point_to_point & (records.sequence < 0)
    return np.flatnonzero((records.group == UNKNOWN) | without_number)


# Requests of entries.


def operation_names(journal: Journal) -> list[str]:
    """The operation of each request, with a name that does not depend on the backend."""
    return [operation_of(name) for name in journal.recorded_operations()]


def mark_requests(journal: Journal, operations: Collection[str]) -> Bools:
    """True where a request is one of these operations."""
    return np.array([name in operations for name in operation_names(journal)], np.bool_)


def mark_messages(journal: Journal) -> Bools:
    """True where a request is one end of a message."""
    return mark_requests(journal, POINT_TO_POINT)


def mark_synchronizing(journal: Journal) -> Bools:
    """True where a request is one that no rank leaves before all ranks have joined."""
    return mark_requests(journal, SYNCHRONIZING)


def request_codes(journal: Journal) -> Int64s:
    """A number for each request, equal for the same operation between the same sender and receiver."""
    names = operation_names(journal)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    operation = np.array([numbers[name] for name in names], np.int64)
    messages = mark_messages(journal)
    source, target = (
        np.where(messages, end, UNKNOWN) for end in (journal.requests.source, journal.requests.target)
    )
    return distinct(operation, source, target)[0]


def counterpart_codes(journal: Journal) -> Int64s:
    """For each end of a message the code of the other end's request; UNKNOWN if no rank requests it."""
    codes, requests, names = request_codes(journal), journal.requests, operation_names(journal)
    keys = list(zip(names, requests.source.tolist(), requests.target.tolist(), strict=True))
    code_of = dict(zip(keys, codes.tolist(), strict=True))
    opposite = {Operation.SEND.value: Operation.RECV.value, Operation.RECV.value: Operation.SEND.value}
    return np.array(
        [code_of.get((opposite.get(name, ""), source, target), UNKNOWN) for name, source, target in keys],
        np.int64,
    )


# Entries read again from their dumps.


def reread_entries(journal: Journal, rows: Int64s) -> tuple[dict[int, Entry], list[Finding]]:
    """Entries by row of the journal, with sizes and stacks, read again from the dumps.

    Each dump is read once. A dump that cannot be read again becomes a finding.
    """
    entries: dict[int, Entry] = {}
    findings = []
    rank_index = np.searchsorted(journal.bounds, rows, side="right") - 1
    for number, (rank, recording) in enumerate(journal.recordings.items()):
        wanted = rows[rank_index == number]
        if not len(wanted):
            continue
        positions = journal.records.place[wanted].tolist()
        try:
            found = recording.payloads.entries(positions)
        except (UnreadableError, OSError) as error:
            message = f"entries of rank {rank} could not be read again for their sizes and stacks: {error}"
            findings.append(
                Finding(Severity.WARNING, "entries_unreadable", message, source=recording.source.path)
            )
            continue
        entries.update(
            (row, found[position])
            for row, position in zip(wanted.tolist(), positions, strict=True)
            if position in found
        )
    return entries, findings


def choose_first_entries(journal: Journal, rows: Int64s) -> Int64s:
    """The first of these entries for each distinct request: their sizes are equal."""
    ordered = np.sort(rows)
    _, first = np.unique(journal.records.request[ordered], return_index=True)
    found: Int64s = ordered[first]
    return found
