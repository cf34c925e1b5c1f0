"""The rows of all tables, and the database that a path names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Literal

import numpy as np
from msgspec import Struct, to_builtins

from tracelink.diagnosis.database.entries import EntryTables, Numbering, listed, numbering_of, times
from tracelink.diagnosis.database.schema import (
    FINDINGS,
    TABLES,
    VERSION,
    CollectiveRow,
    GroupRow,
    LatenessRow,
    MemberRow,
    MessageRow,
    ProblemRankRow,
    ProblemRow,
    RankRow,
)
from tracelink.diagnosis.examine import Examined
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis, Lateness, Problem, Role
from tracelink.diagnosis.participation import Outcome
from tracelink.io.targets import folder_target, is_folder, names_folder
from tracelink.io.temporary import abandoned_files_removed
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, distinct
from tracelink.model.errors import UsageError, encodable
from tracelink.model.fields import fields_of
from tracelink.model.findings import Finding
from tracelink.model.operations import operation_of
from tracelink.store import duckdb, parquet, sqlite
from tracelink.store.schema import Batch

SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")
DUCKDB_SUFFIX = ".duckdb"
COMPLETE, TRUNCATED, UNREADABLE, MISSING = "complete", "truncated", "unreadable", "missing"


# The database.


class Database(Struct, frozen=True):
    """The location of a database: a file for SQLite or DuckDB, a directory for Parquet files."""

    path: str
    form: Literal["sqlite", "duckdb", "parquet"]

    def write(self, examined: Examined) -> None:
        """Writes everything that was examined; the output appears complete or not at all."""
        batches = tables_of(examined)
        with abandoned_files_removed(self.path):
            if self.form == "parquet":
                parquet.write_folder(TABLES.values(), batches, folder_target(self.path), VERSION)
            elif self.form == "duckdb":
                duckdb.write(TABLES.values(), batches, self.path, len(examined.journal))
            else:
                sqlite.write(TABLES.values(), batches, self.path, VERSION)


def database_at(path: str) -> Database:
    """The database that a path names; raises `UsageError` if it names none, or it cannot be written here."""
    suffix = PurePath(path).suffix
    if suffix in SQLITE_SUFFIXES and not names_folder(path):
        return Database(path, "sqlite")
    if suffix == DUCKDB_SUFFIX and not names_folder(path):
        duckdb.check_installed()
        return Database(path, "duckdb")
    if suffix == parquet.SUFFIX or names_folder(path) or is_folder(path):
        parquet.check_installed()
        return Database(path, "parquet")
    raise UsageError(
        f"{path!r} names neither a database nor a directory",
        advice="Name a file .sqlite or .duckdb, or a directory (flight/ or flight.parquet) for Parquet files.",
    )


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


# Tables.


def ranks_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank that any table names."""
    counts = dict(zip(journal.ranks.tolist(), np.diff(journal.bounds).tolist(), strict=True))

    def row(rank: int) -> RankRow:
        reason, read = diagnosis.unreadable.get(rank), journal.recordings.get(rank)
        return RankRow(
            rank,
            _dump(journal, diagnosis, rank),
            encodable(reason) if reason else None,
            encodable(read.source.path) if read else None,
            encodable(read.source.version) if read else None,
            counts.get(rank, 0),
            read.overwritten if read else None,
        )

    return Batch.of(RankRow, list(map(row, _ranks(journal, diagnosis, numbering))))


def _dump(journal: Journal, diagnosis: Diagnosis, rank: int) -> str:
    if rank in journal.recordings:
        return TRUNCATED if journal.recordings[rank].broken_off else COMPLETE
    return UNREADABLE if rank in diagnosis.unreadable else MISSING


def _ranks(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> list[int]:
    named = {
        *journal.recordings,
        *diagnosis.missing,
        *diagnosis.unreadable,
        *chain.from_iterable(numbering.members.values()),
        *chain.from_iterable((*problem.culprits, *problem.waiting) for problem in diagnosis.problems),
        *(problem.rank for problem in diagnosis.lateness),
    }
    return sorted(named)


def groups_table(journal: Journal) -> Batch:
    """Every group."""
    rows = [
        GroupRow(
            row,
            encodable(group.name),
            encodable(group.description),
            group.size or len(group.ranks) or None,
        )
        for row, group in enumerate(journal.groups)
    ]
    return Batch.of(GroupRow, rows)


def members_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank of every group, and how far it got there."""
    standing = {
        (numbering.group_of(item.group, item.description, item.ranks), rank): item
        for item in diagnosis.standings
        for rank in item.ranks
    }
    rows = []
    for row, group in enumerate(journal.groups):
        positions = {rank: position for position, rank in enumerate(group.ranks)}
        for rank in sorted(numbering.members[row]):
            stand = standing.get((row, rank))
            sequence, stage = (stand.sequence, stand.stage.value) if stand else (None, None)
            collective = numbering.collective_of(row, sequence)
            rows.append(MemberRow(row, rank, positions.get(rank), stage, sequence, collective))
    return Batch.of(MemberRow, rows)


def collectives_table(numbering: Numbering) -> Batch:
    """Every collective."""
    journal, parts = numbering.journal, numbering.parts
    count = len(numbering.group)
    sizes = np.array([group.size or len(group.ranks) or UNKNOWN for group in journal.groups], np.int64)
    operations = [encodable(journal.strings[code]) for code in _operations(numbering).tolist()]
    last_completed = np.full(count, NO_TIME, np.int64)
    np.maximum.at(last_completed, parts.collective, journal.records.completed[parts.last])
    return Batch(
        CollectiveRow.table,
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
    """The operation of most ranks in each collective; of equally frequent ones the first."""
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
    """The first and the last rank of each collective and the time between them, as far as times are known."""
    parts, count = numbering.parts, len(numbering.group)
    timed = np.flatnonzero(parts.created != NO_TIME)
    order = timed[np.lexsort((parts.created[timed], parts.collective[timed]))]
    lengths = np.bincount(parts.collective[timed], minlength=count)
    ends = np.cumsum(lengths)
    known, several = lengths > 0, lengths > 1
    created = parts.created[order]

    def at(row: Int64s, where: np.ndarray, column: Int64s | Int32s, missing: int) -> Int64s:
        values = np.full(count, missing, np.int64)
        values[where] = column[row[where]]
        return values

    first, last = at(ends - lengths, known, created, NO_TIME), at(ends - 1, known, created, NO_TIME)
    before = at(ends - 2, several, created, NO_TIME)
    return {
        "first_created_ns": times(first),
        "last_created_ns": times(last),
        "last_rank": listed(at(ends - 1, known, parts.rank[order], UNKNOWN)),
        "skew_ns": listed(np.where(several, last - first, UNKNOWN)),
        "late_ns": listed(np.where(several, last - before, UNKNOWN)),
    }


def messages_table(numbering: Numbering) -> Batch:
    """Every message, including those with only one recorded end."""
    ends = numbering.ends
    count = int(numbering.message.max(initial=-1)) + 1

    def of_message(values: Int64s, chosen: Bools) -> Int64s:
        column = np.full(count, UNKNOWN, np.int64)
        column[numbering.message[chosen]] = values[chosen]
        return column

    every = np.ones(len(ends), np.bool_)
    return Batch(
        MessageRow.table,
        {
            "id": list(range(count)),
            "group_id": of_message(ends.group.astype(np.int64), every).tolist(),
            "source_rank": listed(of_message(np.where(ends.sends, ends.rank, ends.peer), every)),
            "target_rank": listed(of_message(np.where(ends.sends, ends.peer, ends.rank), every)),
            "send_entry_id": listed(of_message(ends.row, ends.sends)),
            "receive_entry_id": listed(of_message(ends.row, ~ends.sends)),
        },
    )


def problems_table(problems: Sequence[Problem], numbering: Numbering) -> Batch:
    """Every problem, the worst first."""

    def row(number: int, problem: Problem) -> ProblemRow:
        group = numbering.group_of(problem.group, problem.description, (*problem.culprits, *problem.waiting))
        return ProblemRow(
            number,
            problem.kind.value,
            group,
            numbering.collective_of(group, problem.sequence, problem.operation),
            problem.sequence,
            encodable(problem.operation),
            encodable(problem.message),
            encodable(problem.advice) or None,
            problem.proven,
            problem.tie,
            problem.count,
            problem.waited_ns,
        )

    return Batch.of(ProblemRow, [row(*numbered) for numbered in enumerate(problems, start=1)])


def problem_ranks_table(problems: Sequence[Problem]) -> Batch:
    """The culprits and the waiting ranks of each problem."""
    rows = [
        ProblemRankRow(number, rank, role.value, problem.rows.get(rank))
        for number, problem in enumerate(problems, start=1)
        for role, ranks in ((Role.CULPRIT, problem.culprits), (Role.WAITING, problem.waiting))
        for rank in ranks
    ]
    return Batch.of(ProblemRankRow, rows)


def lateness_table(lateness: Sequence[Lateness], numbering: Numbering) -> Batch:
    """Ranks that arrived last."""
    rows = [
        LatenessRow(
            late.rank, late.collectives, late.of, late.total_ns, late.worst_ns, _worst(late, numbering)
        )
        for late in lateness
    ]
    return Batch.of(LatenessRow, rows)


def _worst(late: Lateness, numbering: Numbering) -> int | None:
    candidates = chain.from_iterable(
        rows for (name, _), rows in numbering.groups_by_name.items() if name == late.group
    )
    fitting = (row for row in candidates if late.rank in numbering.members[row])
    return numbering.collective_of(next(fitting, None), late.sequence)


def findings_table(findings: Sequence[Finding]) -> Batch:
    """Findings of reading and diagnosing."""
    rows = encodable([to_builtins(finding) for finding in findings])
    return Batch(FINDINGS.name, {name: [row[name] or None for row in rows] for name in fields_of(Finding)})
