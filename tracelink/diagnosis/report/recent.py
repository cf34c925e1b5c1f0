"""The calls around the worst problem as a picture: a column for each collective and message, a row for each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.matrix import Matrix, matrix_of
from tracelink.diagnosis.model import Diagnosis, Problem
from tracelink.diagnosis.participation import Outcome, outcomes
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int8s
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, duration, group_name, moment, name_in_words, numbered, shortened
from tracelink.show.diagrams import Heading, Look, Tile, grid
from tracelink.show.document import Block, Chart, Paragraph

MOST_RANKS = 24
BEFORE = 20
"""Columns before the problem."""
AFTER = 9
"""Columns after the problem."""
LONGEST_GROUP = 14
LONGEST_OPERATION = 20
MOST_GROUPS = 8
FEW = 8
"""Culprits that are listed if they are not shown."""


# Ranks and calls around the worst problem.


class Recent(Struct, frozen=True):
    """Ranks and columns, in program order."""

    ranks: Sequence[int]
    columns: Sequence[Column]
    earlier: int
    later: int
    """How many columns come before and after."""


class Column(Struct, frozen=True):
    """One collective, of one group or of several groups side by side; or one message."""

    groups: Sequence[tuple[str, str]]
    """Names and descriptions."""
    sequence: int | None
    operation: str
    """The operation of most ranks."""
    ends: tuple[int, int] | None
    """The sending and the receiving rank of a message; UNKNOWN for an unknown rank."""
    started: int
    """When the first of the shown ranks joined it, or NO_TIME."""
    cells: dict[int, Cell]
    """By rank; without ranks that have no part in it."""

    @property
    def kind(self) -> str:
        """The description of its groups."""
        name, description = self.groups[0] if self.groups else ("", "")
        return description or name


class Cell(Struct, frozen=True):
    """What one rank does."""

    mark: Mark
    operation: str
    """Its operation; empty if it has no entry."""
    created: int
    """Creation time, or NO_TIME."""


class Mark(Enum):
    """The look, the sign and the words for what a rank does in a collective."""

    JOINED = Look.DONE, "✓", "joined, and finished as far as its dump shows"
    WAITING = Look.WAITING, "…", "joined and has not finished"
    DROPPED = Look.LATE, "!", "joined and gave up"
    DIFFERS = Look.BAD, "≠", "differs from most ranks"
    ABSENT = Look.WORST, "\N{MULTIPLICATION SIGN}", "missing: has no entry"
    LOST = Look.UNKNOWN, "?", "unknown: not covered by its dump"

    def __init__(self, look: Look, sign: str, words: str) -> None:
        self.look = look
        self.sign = sign
        self.words = words


def recent_of(diagnosis: Diagnosis, journal: Journal) -> Recent:
    """The calls around the worst problem."""
    ranks = _shown_ranks(diagnosis.problems, journal)
    matrix = matrix_of(journal, np.ones(len(journal), np.bool_), np.array(ranks, np.int32), None)
    calls = np.flatnonzero(_begins_call(matrix))
    anchor = int(np.searchsorted(calls, _anchor(diagnosis.problems, journal, matrix)))
    first = max(0, min(anchor - BEFORE, len(calls) - BEFORE - AFTER))
    shown = calls[first : first + BEFORE + AFTER].tolist()
    outcome = outcomes(journal)
    columns = [_column(journal, matrix, row, outcome) for row in shown]
    return Recent(ranks, columns, first, len(calls) - first - len(shown))


def _shown_ranks(problems: Sequence[Problem], journal: Journal) -> list[int]:
    """Culprits, then the ranks that show problems best, then their neighbours: these mostly share groups with them."""
    culprits = [rank for problem in problems for rank in problem.culprits]
    best = [rank for problem in problems for rank in problem.rows]
    middle = [*culprits, *best, 0][0]
    by_distance = sorted(journal.ranks.tolist(), key=lambda rank: (abs(rank - middle), rank))
    wanted = dict.fromkeys([*culprits[: MOST_RANKS // 2], *best, *by_distance])
    return sorted([rank for rank in wanted if rank in journal.recordings][:MOST_RANKS])


def _anchor(problems: Sequence[Problem], journal: Journal, matrix: Matrix) -> int:
    """The column that shows the worst problem, or the last one."""
    records = journal.records
    for problem in problems[:1]:
        named = [row for row, group in enumerate(journal.groups) if group.name == problem.group]
        sequence = UNKNOWN if problem.sequence is None else problem.sequence
        same = np.isin(records.group, named) & (records.sequence == sequence)
        best = same & np.isin(np.arange(len(journal)), list(problem.rows.values()))
        for entries in (best, same):
            shown = np.append(entries, False)[matrix.entry].any(axis=1)
            if shown.any():
                return int(np.flatnonzero(shown)[0])
    return len(matrix)


def _begins_call(matrix: Matrix) -> Bools:
    """Rows of messages, and the first of the collectives that a rank issued as one call."""
    begins = matrix.message.copy()
    for index in range(len(matrix.ranks)):
        closing = matrix.closing[:, index]
        own = np.flatnonzero(matrix.entry[:, index] != UNKNOWN)
        _, first = np.unique(closing[own], return_index=True)
        begins[own[first]] = True
        begins[own[closing[own] == UNKNOWN]] = True
    return begins


def _column(journal: Journal, matrix: Matrix, row: int, outcome: Int8s) -> Column:
    present = matrix.entry[row] != UNKNOWN
    entries = matrix.entry[row][present]
    records = journal.records
    operations = Counter(journal.operation(entry) for entry in entries.tolist())
    most = operations.most_common(1)[0][0]
    created = records.created[entries]
    created = created[created != NO_TIME]
    groups = [journal.groups[group] for group in np.unique(records.group[entries]).tolist() if group >= 0]
    sequence = int(records.sequence[entries[0]])
    message = bool(matrix.message[row])
    return Column(
        [(group.name, group.description) for group in groups],
        sequence if sequence >= 0 else None,
        most,
        (int(matrix.source[row]), int(matrix.target[row])) if message else None,
        int(created.min()) if len(created) else NO_TIME,
        _cells(journal, matrix, row, "" if message else most, outcome),
    )


def _cells(journal: Journal, matrix: Matrix, row: int, most: str, outcome: Int8s) -> dict[int, Cell]:
    cells = {}
    for index, rank in enumerate(matrix.ranks.tolist()):
        entry, closing = int(matrix.entry[row, index]), int(matrix.closing[row, index])
        if entry != UNKNOWN:
            operation = journal.operation(entry)
            ended = outcome[entry if closing == UNKNOWN else closing]
            mark = Mark.DIFFERS if most not in ("", operation) else _mark(int(ended))
            cells[rank] = Cell(mark, operation, int(journal.records.created[entry]))
        elif matrix.member[row, index]:
            mark = Mark.LOST if matrix.lost[row, index] else Mark.ABSENT
            cells[rank] = Cell(mark, "", NO_TIME)
    return cells


def _mark(outcome: int) -> Mark:
    return {Outcome.OPEN: Mark.WAITING, Outcome.DROPPED: Mark.DROPPED}.get(Outcome(outcome), Mark.JOINED)


# The picture.


def recent_chart(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    """The picture, and what it does not show."""
    recent = recent_of(diagnosis, journal)
    if not recent.columns:
        yield Paragraph("The dumps have no entries.")
        return
    title = "In program order from left to right; empty cells: not a member"
    kinds = list(dict.fromkeys(column.kind for column in recent.columns))
    columns = [_heading(column, kinds.index(column.kind)) for column in recent.columns]
    rows = [(f"rank {rank}", [_cell(column, rank) for column in recent.columns]) for rank in recent.ranks]
    used = {cell.mark for column in recent.columns for cell in column.cells.values()}
    legend = [(Tile(mark.sign, mark.look), mark.words) for mark in Mark if mark in used]
    culprits = {rank for problem in diagnosis.problems for rank in problem.culprits}
    note = _not_shown(recent, len(journal.ranks), sorted(culprits - set(recent.ranks)))
    yield Chart(grid(title, rows, columns, legend).svg, "Calls around the problem", note)


def _not_shown(recent: Recent, present: int, absent: Sequence[int]) -> str:
    parts = [f"{len(recent.ranks)} of {counted(present, 'dump')}"]
    parts += [f"not among them: {Numbers.of(absent).called('rank')}"] if 0 < len(absent) <= FEW else []
    parts += [f"{counted(recent.earlier, 'earlier column')} not shown"] if recent.earlier else []
    parts += [f"{counted(recent.later, 'later column')} not shown"] if recent.later else []
    return "; ".join(parts) + "."


def _heading(column: Column, color: int) -> Heading:
    group = shortened(column.kind, LONGEST_GROUP)
    if column.ends:
        what = "message " + " to ".join("?" if end == UNKNOWN else f"{end}" for end in column.ends)
    else:
        what = shortened(numbered(column.operation, None), LONGEST_OPERATION)
        what += "" if column.sequence is None else f" #{column.sequence}"
    started = "" if column.started == NO_TIME else f", began {moment(column.started)}"
    words = f"{numbered(column.operation, column.sequence)} of {_groups(column)}{started}"
    return Heading(f"{group} {what}", words, color)


def _groups(column: Column) -> str:
    if len(column.groups) == 1:
        return group_name(*column.groups[0])
    names = ", ".join(name_in_words(name) for name, _ in column.groups[:MOST_GROUPS])
    more = ", …" if len(column.groups) > MOST_GROUPS else ""
    return f"groups {names}{more}" if names else "an unknown group"


def _cell(column: Column, rank: int) -> Tile | None:
    cell = column.cells.get(rank)
    if cell is None:
        return None
    words = f"rank {rank}: {cell.mark.words}{f', {numbered(cell.operation, None)}' if cell.operation else ''}"
    if NO_TIME not in (cell.created, column.started):
        words += f", {duration(cell.created - column.started)} after the first"
    return Tile(cell.mark.sign, cell.mark.look, words)
