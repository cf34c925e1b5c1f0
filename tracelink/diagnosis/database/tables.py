"""The rows of every other table; which database a path means."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tracelink.diagnosis.database import schema
from tracelink.diagnosis.database.entries import EntryTables, Numbering, numbering_of
from tracelink.diagnosis.database.storage import (
    SUFFIX,
    Batch,
    check_arrow,
    clean,
    listed,
    times,
    write_parquet,
    write_sqlite,
)
from tracelink.diagnosis.examine import Examined
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis, Lateness, Problem, Role
from tracelink.diagnosis.participation import Outcome
from tracelink.errors import Finding, UsageError
from tracelink.io.targets import DirectoryTarget
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, distinct
from tracelink.model.operations import operation_of

# The table of collectives, out of every rank's part in them.


def collectives_table(numbering: Numbering) -> Batch:
    """Every collective."""
    journal, parts = numbering.journal, numbering.parts
    count = len(numbering.group)
    sizes = np.array([group.size or len(group.ranks) or UNKNOWN for group in journal.groups], np.int64)
    operations = [clean(journal.strings[code]) for code in _operations(numbering).tolist()]
    last_completed = np.full(count, NO_TIME, np.int64)
    np.maximum.at(last_completed, parts.collective, journal.records.completed[parts.last])
    return Batch(
        schema.COLLECTIVES.name,
        {
            "id": list(range(count)),
            "group_id": numbering.group.tolist(),
            "sequence": numbering.sequence.tolist(),
            "operation": operations,
            "operation_kind": [operation_of(operation) for operation in operations],
            "expected_ranks": listed(sizes[numbering.group] if count else sizes[:0]),
            "joined_ranks": np.bincount(parts.collective, minlength=count).tolist(),
            "open_ranks": np.bincount(
                parts.collective[parts.outcome == Outcome.OPEN], minlength=count
            ).tolist(),
            **_arrivals(numbering),
            "last_completed_ns": times(last_completed),
        },
    )


def _operations(numbering: Numbering) -> Int32s:
    """What most ranks do in each collective; of several that are as many that which comes first."""
    journal, parts = numbering.journal, numbering.parts
    operation = journal.requests.operation[journal.records.request[parts.row]]
    if not len(operation):
        return operation
    choice, first = distinct(parts.collective, operation)
    votes = np.bincount(choice)
    order = np.lexsort((votes, parts.collective[first]))
    last_of_round = np.append(np.diff(parts.collective[first][order]) != 0, [True])
    chosen: Int32s = operation[first][order][last_of_round]
    return chosen


def _arrivals(numbering: Numbering) -> dict[str, list[int | None]]:
    """Who asked for each collective first and last, and how far apart, of those whose times are known."""
    parts, count = numbering.parts, len(numbering.group)
    timed = np.flatnonzero(parts.created != NO_TIME)
    order = timed[np.lexsort((parts.created[timed], parts.collective[timed]))]
    lengths = np.bincount(parts.collective[timed], minlength=count)
    ends = np.cumsum(lengths)
    some, several = lengths > 0, lengths > 1
    created = parts.created[order]

    def at(place: Int64s, where: np.ndarray, column: Int64s | Int32s, missing: int) -> Int64s:
        values = np.full(count, missing, np.int64)
        values[where] = column[place[where]]
        return values

    first, last = at(ends - lengths, some, created, NO_TIME), at(ends - 1, some, created, NO_TIME)
    before = at(ends - 2, several, created, NO_TIME)
    return {
        "first_created_ns": times(first),
        "last_created_ns": times(last),
        "last_rank": listed(at(ends - 1, some, parts.rank[order], UNKNOWN)),
        "skew_ns": listed(np.where(several, last - first, UNKNOWN)),
        "late_ns": listed(np.where(several, last - before, UNKNOWN)),
    }


# The tables of ranks, groups and members.


WHOLE, BROKEN_OFF, UNREADABLE, MISSING = "whole", "broken_off", "unreadable", "missing"


def ranks_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank that any table names."""
    ranks = _ranks(journal, diagnosis, numbering)
    read = [journal.recordings.get(rank) for rank in ranks]
    counts = dict(zip(journal.ranks.tolist(), np.diff(journal.bounds).tolist(), strict=True))
    reasons = [diagnosis.unreadable.get(rank) for rank in ranks]
    return Batch(
        schema.RANKS.name,
        {
            "rank": ranks,
            "dump": [_dump(journal, diagnosis, rank) for rank in ranks],
            "reason": [clean(reason) if reason else None for reason in reasons],
            "path": [clean(one.source.path) if one else None for one in read],
            "version": [clean(one.source.version) if one else None for one in read],
            "entries": [counts.get(rank, 0) for rank in ranks],
            "overwritten": [one.overwritten if one else None for one in read],
        },
    )


def _dump(journal: Journal, diagnosis: Diagnosis, rank: int) -> str:
    if rank in journal.recordings:
        return BROKEN_OFF if journal.recordings[rank].broken_off else WHOLE
    return UNREADABLE if rank in diagnosis.unreadable else MISSING


def _ranks(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> list[int]:
    named = {
        *journal.recordings,
        *diagnosis.missing,
        *diagnosis.unreadable,
        *chain.from_iterable(numbering.members.values()),
        *chain.from_iterable((*one.culprits, *one.waiting) for one in diagnosis.problems),
        *(one.rank for one in diagnosis.lateness),
    }
    return sorted(named)


def groups_table(journal: Journal) -> Batch:
    """Every group."""
    return Batch(
        schema.GROUPS.name,
        {
            "id": list(range(len(journal.groups))),
            "name": [clean(group.name) for group in journal.groups],
            "description": [clean(group.description) for group in journal.groups],
            "size": [group.size or len(group.ranks) or None for group in journal.groups],
        },
    )


def members_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank of every group, and how far it is there."""
    standing = {
        (numbering.group_of(one.group, one.description, one.ranks), rank): one
        for one in diagnosis.standings
        for rank in one.ranks
    }
    columns: dict[str, list[Any]] = {column.name: [] for column in schema.MEMBERS.columns}
    for row, group in enumerate(journal.groups):
        positions = {rank: position for position, rank in enumerate(group.ranks)}
        for rank in sorted(numbering.members[row]):
            stands = standing.get((row, rank))
            sequence = stands.sequence if stands else None
            values = {
                "group_id": row,
                "rank": rank,
                "position": positions.get(rank),
                "stage": stands.stage.value if stands else None,
                "sequence": sequence,
                "collective_id": numbering.collective_of(row, sequence),
            }
            for name, value in values.items():
                columns[name].append(value)
    return Batch(schema.MEMBERS.name, columns)


# The table of messages, out of the ends that ranks recorded of them.


def messages_table(numbering: Numbering) -> Batch:
    """Every message, also those of which only one end was recorded."""
    ends = numbering.ends
    count = int(numbering.message.max(initial=-1)) + 1

    def of_message(values: Int64s, told_by: Bools) -> Int64s:
        column = np.full(count, UNKNOWN, np.int64)
        column[numbering.message[told_by]] = values[told_by]
        return column

    every = np.ones(len(ends), np.bool_)
    return Batch(
        schema.MESSAGES.name,
        {
            "id": list(range(count)),
            "group_id": of_message(ends.group.astype(np.int64), every).tolist(),
            "source_rank": listed(of_message(np.where(ends.sends, ends.rank, ends.peer), every)),
            "target_rank": listed(of_message(np.where(ends.sends, ends.peer, ends.rank), every)),
            "send_entry_id": listed(of_message(ends.row, ends.sends)),
            "receive_entry_id": listed(of_message(ends.row, ~ends.sends)),
        },
    )


# The tables of problems, of who causes them and who waits, of who came late, and of what did not fit.


def problems_table(problems: Sequence[Problem], numbering: Numbering) -> Batch:
    """Every problem, the worst first."""
    groups = [
        numbering.group_of(one.group, one.description, (*one.culprits, *one.waiting)) for one in problems
    ]
    return Batch(
        schema.PROBLEMS.name,
        {
            "id": list(range(1, len(problems) + 1)),
            "kind": [one.kind.value for one in problems],
            "group_id": groups,
            "collective_id": [
                numbering.collective_of(group, one.sequence, one.operation)
                for group, one in zip(groups, problems, strict=True)
            ],
            "sequence": [one.sequence for one in problems],
            "operation": [clean(one.operation) for one in problems],
            "message": [clean(one.message) for one in problems],
            "advice": [clean(one.advice) or None for one in problems],
            "proven": [one.proven for one in problems],
            "tie": [one.tie for one in problems],
            "collectives": [one.count for one in problems],
            "waited_ns": [one.waited_ns for one in problems],
        },
    )


def problem_ranks_table(problems: Sequence[Problem]) -> Batch:
    """Who causes each problem, and who waits."""
    rows = [
        (number, rank, role.value, one.rows.get(rank))
        for number, one in enumerate(problems, start=1)
        for role, ranks in ((Role.CULPRIT, one.culprits), (Role.WAITING, one.waiting))
        for rank in ranks
    ]
    return Batch(schema.PROBLEM_RANKS.name, _columns(schema.PROBLEM_RANKS, rows))


def lateness_table(lateness: Sequence[Lateness], numbering: Numbering) -> Batch:
    """Who came last."""
    rows = [
        (one.rank, one.collectives, one.of, one.total_ns, one.worst_ns, _worst(one, numbering))
        for one in lateness
    ]
    return Batch(schema.LATENESS.name, _columns(schema.LATENESS, rows))


def _worst(one: Lateness, numbering: Numbering) -> int | None:
    candidates = chain.from_iterable(rows for (name, _), rows in numbering.named.items() if name == one.group)
    fitting = (row for row in candidates if one.rank in numbering.members[row])
    return numbering.collective_of(next(fitting, None), one.sequence)


def findings_table(findings: Sequence[Finding]) -> Batch:
    """What did not fit."""
    rows = [
        (
            one.severity.value,
            one.reason,
            clean(one.message),
            one.count,
            clean(one.source) or None,
            clean(one.example) or None,
        )
        for one in findings
    ]
    return Batch(schema.FINDINGS.name, _columns(schema.FINDINGS, rows))


def _columns(table: schema.Table, rows: Sequence[Sequence[object]]) -> dict[str, list[object]]:
    names = [column.name for column in table.columns]
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


# Everything that was examined, as rows of the tables of the database.


def tables_of(examined: Examined) -> Iterator[Batch]:
    """All rows of all tables, with few entries in memory at a time."""
    journal, diagnosis = examined.journal, examined.diagnosis
    numbering = numbering_of(examined)
    entries = EntryTables(numbering)
    yield ranks_table(journal, diagnosis, numbering)
    yield groups_table(journal)
    yield members_table(journal, diagnosis, numbering)
    yield collectives_table(numbering)
    yield messages_table(numbering)
    yield from entries.batches()
    yield problems_table(diagnosis.problems, numbering)
    yield problem_ranks_table(diagnosis.problems)
    yield lateness_table(diagnosis.lateness, numbering)
    yield findings_table([*diagnosis.findings, *entries.findings])


# Which database a path means, and writing it.


SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")


@dataclass(frozen=True, slots=True)
class Database:
    """A place for a database: a file for SQLite, a directory for Parquet files."""

    path: str
    directory: bool

    def write(self, examined: Examined) -> None:
        """Writes everything that was examined; the output appears whole or not at all."""
        batches = tables_of(examined)
        if self.directory:
            write_parquet(batches, DirectoryTarget(Path(self.path)))
        else:
            write_sqlite(batches, Path(self.path))


def database_at(path: str) -> Database:
    """What a path means by its name; raises `UsageError` where that is nothing, or cannot be written here."""
    place = Path(path)
    if place.suffix in SQLITE_SUFFIXES and not path.endswith(os.sep):
        return Database(path, directory=False)
    if place.suffix == SUFFIX or path.endswith(os.sep) or place.is_dir():
        check_arrow()
        return Database(path, directory=True)
    raise UsageError(
        f"{path!r} does not say what to write",
        advice="Name a file .sqlite for SQLite, or a directory (flight/ or flight.parquet) for Parquet files.",
    )
