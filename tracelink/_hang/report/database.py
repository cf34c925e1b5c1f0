"""The rows of all tables, and the database that a path names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Literal

import numpy as np
from msgspec import Struct

from tracelink._hang.examine import Examined
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Diagnosis, Lateness, Problem, Role
from tracelink._hang.facts.participation import Outcome
from tracelink._hang.report.rows import EntryTables, Numbering, numbering_of
from tracelink._hang.report.schema import (
    TABLES,
    VERSION,
    CollectiveRow,
    FindingRow,
    GroupRow,
    LatenessRow,
    MemberRow,
    MessageRow,
    ProblemRankRow,
    ProblemRow,
    RankRow,
)
from tracelink._io.targets import folder_target, is_folder, names_folder
from tracelink._io.temporary import abandoned_files_removed
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s, distinct
from tracelink._model.errors import UsageError
from tracelink._model.operations import operation_of
from tracelink._store import duckdb, parquet, sqlite
from tracelink._store.schema import Batch

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
    members = chain.from_iterable(numbering.members.values())
    yield Batch.of(RankRow, rank_rows(journal, diagnosis, members))
    yield groups_table(journal)
    yield members_table(journal, diagnosis, numbering)
    yield collectives_table(numbering)
    yield messages_table(numbering)
    yield from entries.batches()
    yield problems_table(diagnosis.problems, numbering)
    yield problem_ranks_table(diagnosis.problems)
    yield lateness_table(diagnosis.lateness, numbering)
    yield Batch.of(FindingRow, [*diagnosis.findings, *entries.findings])


# Tables.


def rank_rows(journal: Journal, diagnosis: Diagnosis, others: Iterable[int] = ()) -> list[RankRow]:
    """Every rank that the diagnosis names, and others."""
    counts = dict(zip(journal.ranks.tolist(), np.diff(journal.bounds).tolist(), strict=True))
    problems = ((*problem.culprits, *problem.waiting) for problem in diagnosis.problems)
    late = (one.rank for one in diagnosis.lateness)
    named = {
        *counts,
        *diagnosis.missing,
        *diagnosis.unreadable,
        *chain.from_iterable(problems),
        *late,
        *others,
    }
    rows = []
    for rank in sorted(named):
        reason, read = diagnosis.unreadable.get(rank), journal.recordings.get(rank)
        if read is None:
            rows.append(RankRow(rank, MISSING if reason is None else UNREADABLE, reason, None, None, 0, None))
            continue
        dump, source = TRUNCATED if read.broken_off else COMPLETE, read.source
        rows.append(RankRow(rank, dump, reason, source.path, source.version, counts[rank], read.overwritten))
    return rows


def groups_table(journal: Journal) -> Batch:
    """Every group."""
    sizes = [group.size or len(group.ranks) or None for group in journal.groups]
    return Batch.of(GroupRow, journal.groups, id=range(len(sizes)), size=sizes)


def members_table(journal: Journal, diagnosis: Diagnosis, numbering: Numbering) -> Batch:
    """Every rank of every group, and how far it got there."""
    standing = {
        (numbering.group_of(one.group, one.description, one.ranks), rank): (one.stage, one.sequence)
        for one in diagnosis.standings
        for rank in one.ranks
    }
    rows = []
    for row, group in enumerate(journal.groups):
        positions = {rank: position for position, rank in enumerate(group.ranks)}
        for rank in sorted(numbering.members[row]):
            stage, last = standing.get((row, rank), (None, None))
            rows.append(MemberRow(row, rank, positions.get(rank), stage, last))
    return Batch.of(MemberRow, rows)


def collectives_table(numbering: Numbering) -> Batch:
    """Every collective."""
    journal, parts = numbering.journal, numbering.parts
    _, first = np.unique(parts.collective, return_index=True)
    group, count = parts.group[first], len(first)
    sizes = np.array([*(group.size or len(group.ranks) or UNKNOWN for group in journal.groups), UNKNOWN])
    operations = [journal.strings[code] for code in _operations(numbering).tolist()]
    last_completed = np.full(count, NO_TIME, np.int64)
    np.maximum.at(last_completed, parts.collective, journal.records.completed[parts.last])
    return Batch.of(
        CollectiveRow,
        id=range(count),
        group_id=group,
        sequence=parts.sequence[first],
        operation=operations,
        operation_kind=[operation_of(operation) for operation in operations],
        expected_ranks=sizes[group],
        joined_ranks=np.bincount(parts.collective, minlength=count),
        open_ranks=np.bincount(parts.collective[parts.outcome == Outcome.OPEN], minlength=count),
        **_arrivals(numbering),
        last_completed_ns=last_completed,
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


def _arrivals(numbering: Numbering) -> dict[str, Int64s]:
    """The first and the last rank of each collective and the time between them, as far as times are known."""
    parts = numbering.parts
    count = int(parts.collective.max(initial=-1)) + 1
    timed = np.flatnonzero(parts.created != NO_TIME)
    order = timed[np.lexsort((parts.created[timed], parts.collective[timed]))]
    lengths = np.bincount(parts.collective[timed], minlength=count)
    ends = np.cumsum(lengths)
    created, rank = np.append(parts.created[order], NO_TIME), np.append(parts.rank[order], UNKNOWN)
    first, last, before = (
        np.where(lengths >= least, ends - back, len(order)) for least, back in ((1, lengths), (1, 1), (2, 2))
    )
    several = lengths > 1
    return {
        "first_created_ns": created[first],
        "last_created_ns": created[last],
        "last_rank": rank[last],
        "skew_ns": np.where(several, created[last] - created[first], UNKNOWN),
        "late_ns": np.where(several, created[last] - created[before], UNKNOWN),
    }


def messages_table(numbering: Numbering) -> Batch:
    """Every message, including those with only one recorded end."""
    ends = numbering.ends
    count = int(numbering.message.max(initial=-1)) + 1

    def of_message(values: Int64s, chosen: Bools | slice = slice(None)) -> Int64s:
        column = np.full(count, UNKNOWN, np.int64)
        column[numbering.message[chosen]] = values[chosen]
        return column

    source, target = ends.ranks
    return Batch.of(
        MessageRow,
        id=range(count),
        group_id=of_message(ends.group.astype(np.int64)),
        source_rank=of_message(source),
        target_rank=of_message(target),
        send_entry_id=of_message(ends.row, ends.sends),
        receive_entry_id=of_message(ends.row, ~ends.sends),
    )


def problems_table(problems: Sequence[Problem], numbering: Numbering) -> Batch:
    """Every problem, the worst first."""
    groups = [
        numbering.group_of(one.group, one.description, (*one.culprits, *one.waiting)) for one in problems
    ]
    return Batch.of(ProblemRow, problems, id=range(1, len(problems) + 1), group_id=groups)


def problem_ranks_table(problems: Sequence[Problem]) -> Batch:
    """The culprits and the waiting ranks of each problem."""
    rows = [
        ProblemRankRow(number, rank, role, problem.rows.get(rank))
        for number, problem in enumerate(problems, start=1)
        for role, ranks in ((Role.CULPRIT, problem.culprits), (Role.WAITING, problem.waiting))
        for rank in ranks
    ]
    return Batch.of(ProblemRankRow, rows)


def lateness_table(lateness: Sequence[Lateness], numbering: Numbering) -> Batch:
    """Ranks that arrived last."""
    names = [group.name for group in numbering.journal.groups]
    groups = [
        next(
            (
                row
                for row, ranks in numbering.members.items()
                if names[row] == one.group and one.rank in ranks
            ),
            None,
        )
        for one in lateness
    ]
    return Batch.of(LatenessRow, lateness, group_id=groups)
