"""Calls around a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tracelink.diagnosis.html.markup import Child, Markup, element, table
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.matrix import Matrix, matrix_of
from tracelink.diagnosis.model import Diagnosis, Problem
from tracelink.diagnosis.participation import Outcome, outcomes
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int8s
from tracelink.model.ranges import Numbers
from tracelink.text import counted, duration, group_name, moment, name_in_words, numbered, shortened

# The collectives and messages around a problem: which of some ranks are in which, and when they came to it.


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


# The collectives around a problem as a table of ranks and collectives, in the order of the program.


HUES = 8
"""Colours of groups; more groups share them."""

LONGEST_GROUP = 14
LONGEST_OPERATION = 20
MOST_GROUPS = 8
FEW = 8
"""Culprits that are named where they are not shown."""


def recent_section(recent: Recent, present: int, culprits: Iterable[int]) -> Child:
    """The table, its legend and what it leaves out."""
    if not recent.columns:
        return element("p", "No rank of which there is a dump has an entry.")
    names = list(dict.fromkeys(_kinds(column) for column in recent.columns))
    hues = {name: place % HUES for place, name in enumerate(names)}
    header: list[Child] = ["rank", *(_heading(column, hues[_kinds(column)]) for column in recent.columns)]
    rows: list[list[Child]] = [
        [f"{rank}", *(_cell(column, rank, hues[_kinds(column)]) for column in recent.columns)]
        for rank in recent.ranks
    ]
    caption = "In the order of the program, left to right; hold the pointer over a cell for times"
    whole = element("div", table(caption, header, rows), class_="recent")
    return [_legend(recent), whole, element("p", _left_out(recent, present, culprits), class_="aside")]


def _legend(recent: Recent) -> Markup:
    used = {cell.part for column in recent.columns for cell in column.cells.values()}
    shown = [
        element(
            "li", element("span", part.sign, class_=f"cell {part.style}", aria_hidden="true"), " ", part.words
        )
        for part in Part
        if part in used
    ]
    shown.append(element("li", "empty: has no part in it"))
    return element("ul", shown, class_="legend", aria_label="Signs")


def _left_out(recent: Recent, present: int, culprits: Iterable[int]) -> str:
    absent = sorted(set(culprits) - set(recent.ranks))
    said = [f"{len(recent.ranks)} of {counted(present, 'dump')}"]
    said += [f"not among them: {Numbers.of(absent).called('rank')}"] if 0 < len(absent) <= FEW else []
    said += [f"{counted(recent.earlier, 'earlier column')} not shown"] if recent.earlier else []
    said += [f"{counted(recent.later, 'later column')} not shown"] if recent.later else []
    return "; ".join(said) + "."


def _kinds(column: Column) -> str:
    """What its groups are for."""
    name, description = column.groups[0] if column.groups else ("", "")
    return description or name


def _heading(column: Column, hue: int) -> Markup:
    group = element("span", shortened(_kinds(column), LONGEST_GROUP), class_=f"hue hue{hue}")
    if column.ends:
        what = "message " + " to ".join("?" if end == UNKNOWN else f"{end}" for end in column.ends)
    else:
        what = shortened(numbered(column.operation, None), LONGEST_OPERATION)
        what += "" if column.sequence is None else f" #{column.sequence}"
    return element("span", group, " ", what, class_="upright", title=_told(column))


def _told(column: Column) -> str:
    began = "" if column.began == NO_TIME else f", began {moment(column.began)}"
    return f"{numbered(column.operation, column.sequence)} of {_groups(column)}{began}"


def _groups(column: Column) -> str:
    if len(column.groups) == 1:
        return group_name(*column.groups[0])
    names = ", ".join(name_in_words(name) for name, _ in column.groups[:MOST_GROUPS])
    more = ", …" if len(column.groups) > MOST_GROUPS else ""
    return f"groups {names}{more}" if names else "an unknown group"


def _cell(column: Column, rank: int, hue: int) -> Child:
    cell = column.cells.get(rank)
    if cell is None:
        return None
    style = f"cell {cell.part.style} hue{hue}"
    return element("span", cell.part.sign, class_=style, title=f"rank {rank}: {_when(column, cell)}")


def _when(column: Column, cell: Cell) -> str:
    told = f"{cell.part.words}{f', {numbered(cell.operation, None)}' if cell.operation else ''}"
    if NO_TIME in (cell.created, column.began):
        return told
    return f"{told}, {duration(cell.created - column.began)} after the first"
