"""The collectives and messages around a problem: which of some ranks are in which, and when they came to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tracelink.analysis.matrix import Matrix, matrix_of
from tracelink.analysis.parts import Outcome, outcomes
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Diagnosis, Problem
from tracelink.events import NO_TIME, Bools
from tracelink.journal import Journal
from tracelink.records import Int8s

MOST_RANKS = 24
BEFORE = 20
AFTER = 9
"""Columns around the problem."""


class Part(Enum):
    """What a rank does in a collective: the class of the style sheet, the sign and the words."""

    JOINED = "joined", "✓", "joined, and finished as far as its dump tells"
    WAITING = "waiting", "…", "joined and has not finished"
    DROPPED = "dropped", "!", "joined and gave up"
    DIFFERS = "differs", "≠", "does something else than most"
    ABSENT = "absent", "\N{MULTIPLICATION SIGN}", "has no such entry"
    LOST = "unknown", "?", "its dump does not reach there"

    def __init__(self, style: str, sign: str, words: str) -> None:
        self.style = style
        self.sign = sign
        self.words = words


@dataclass(frozen=True, slots=True)
class Cell:
    """The part of one rank."""

    part: Part
    operation: str
    """What it does, or nothing."""
    created: int
    """Or NO_TIME."""


@dataclass(frozen=True, slots=True)
class Column:
    """One collective, of one group or of several side by side; or one message."""

    groups: Sequence[tuple[str, str]]
    """Names and descriptions."""
    sequence: int | None
    operation: str
    """What most ranks do there."""
    ends: tuple[int, int] | None
    """From which rank to which, if it is a message; UNKNOWN where that is not known."""
    began: int
    """When the first of the ranks that are shown came to it, or NO_TIME."""
    cells: dict[int, Cell]
    """By rank; without those who have no part in it."""


@dataclass(frozen=True, slots=True)
class Recent:
    """Some ranks and some columns, in the order that each rank's program keeps."""

    ranks: Sequence[int]
    columns: Sequence[Column]
    earlier: int
    later: int
    """How many columns there are before and behind."""


def recent_of(diagnosis: Diagnosis, journal: Journal) -> Recent:
    """What happened around the worst problem."""
    ranks = _shown(diagnosis.problems, journal)
    matrix = matrix_of(journal, np.ones(len(journal), np.bool_), np.array(ranks, np.int32), None)
    calls = np.flatnonzero(_begins_call(matrix))
    here = int(np.searchsorted(calls, _anchor(diagnosis.problems, journal, matrix)))
    begin = max(0, min(here - BEFORE, len(calls) - BEFORE - AFTER))
    shown = calls[begin : begin + BEFORE + AFTER].tolist()
    outcome = outcomes(journal)
    columns = [_column(journal, matrix, row, outcome) for row in shown]
    return Recent(ranks, columns, begin, len(calls) - begin - len(shown))


def _shown(problems: Sequence[Problem], journal: Journal) -> list[int]:
    """Culprits first, then who shows a problem best, then their neighbours, who mostly share groups with them."""
    culprits = [rank for one in problems for rank in one.culprits]
    best = [rank for one in problems for rank in one.rows]
    middle = [*culprits, *best, 0][0]
    near = sorted(journal.ranks.tolist(), key=lambda rank: (abs(rank - middle), rank))
    wanted = dict.fromkeys([*culprits[: MOST_RANKS // 2], *best, *near])
    return sorted([rank for rank in wanted if rank in journal.recordings][:MOST_RANKS])


def _anchor(problems: Sequence[Problem], journal: Journal, matrix: Matrix) -> int:
    """The column in which the worst problem shows, or the last."""
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
    """Rows that are a message, or the first of the collectives that some rank issued as one."""
    begins = matrix.message.copy()
    for place in range(len(matrix.ranks)):
        closing = matrix.closing[:, place]
        there = np.flatnonzero(matrix.entry[:, place] != UNKNOWN)
        _, first = np.unique(closing[there], return_index=True)
        begins[there[first]] = True
        begins[there[closing[there] == UNKNOWN]] = True
    return begins


def _column(journal: Journal, matrix: Matrix, row: int, outcome: Int8s) -> Column:
    there = matrix.entry[row] != UNKNOWN
    entries = matrix.entry[row][there]
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
    for place, rank in enumerate(matrix.ranks.tolist()):
        entry, closing = int(matrix.entry[row, place]), int(matrix.closing[row, place])
        if entry != UNKNOWN:
            operation = journal.operation(entry)
            ended = outcome[entry if closing == UNKNOWN else closing]
            part = Part.DIFFERS if most not in ("", operation) else _part(int(ended))
            cells[rank] = Cell(part, operation, int(journal.records.created[entry]))
        elif matrix.member[row, place]:
            part = Part.LOST if matrix.lost[row, place] else Part.ABSENT
            cells[rank] = Cell(part, "", NO_TIME)
    return cells


def _part(outcome: int) -> Part:
    return {Outcome.OPEN: Part.WAITING, Outcome.DROPPED: Part.DROPPED}.get(Outcome(outcome), Part.JOINED)
