"""The calls around the worst problem as a picture: a column for each collective and message, a row for each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.matrix import Matrix, matrix_of
from tracelink.diagnosis.model import Diagnosis, Problem
from tracelink.diagnosis.participation import Outcome, outcomes
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int8s
from tracelink.model.ranges import Numbers
from tracelink.model.text import counted, duration, group_name, moment, name_in_words, numbered, shortened
from tracelink.model.trace import ProcessGroup
from tracelink.show.diagrams import Heading, Look, Mark, Tile, grid
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


class Sign(Mark):
    """What a rank does in a collective."""

    JOINED = Look.DONE, "✓", "joined, and finished as far as its dump shows"
    WAITING = Look.WAITING, "…", "joined and has not finished"
    DROPPED = Look.LATE, "!", "joined and gave up"
    DIFFERS = Look.BAD, "≠", "differs from most ranks"
    ABSENT = Look.WORST, "\N{MULTIPLICATION SIGN}", "missing: has no entry"
    LOST = Look.UNKNOWN, "?", "unknown: not covered by its dump"


SIGNS = {Outcome.OPEN: Sign.WAITING, Outcome.DROPPED: Sign.DROPPED}


class Call(Struct, frozen=True):
    """A collective, of one group or of several groups side by side; or a message."""

    kind: str
    """The description of its groups: calls of one kind have one color."""
    text: str
    """Of the heading of its column."""
    words: str
    cells: Mapping[int, tuple[Sign, str]]
    """By rank, with what it says; without ranks that have no part in it."""


class Recent(Struct, frozen=True):
    """Ranks and calls, in program order."""

    ranks: Sequence[int]
    calls: Sequence[Call]
    earlier: int
    later: int
    """How many calls come before and after."""


def recent_of(diagnosis: Diagnosis, journal: Journal) -> Recent:
    """The calls around the worst problem."""
    ranks = _shown_ranks(diagnosis.problems, journal)
    matrix = matrix_of(journal, np.ones(len(journal), np.bool_), np.array(ranks, np.int32), None)
    calls = np.flatnonzero(_begins_call(matrix))
    anchor = int(np.searchsorted(calls, _anchor(diagnosis.problems, journal, matrix)))
    first = max(0, min(anchor - BEFORE, len(calls) - BEFORE - AFTER))
    shown = calls[first : first + BEFORE + AFTER].tolist()
    outcome = outcomes(journal)
    columns = [_call(journal, matrix, row, outcome) for row in shown]
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


def _call(journal: Journal, matrix: Matrix, row: int, outcome: Int8s) -> Call:
    records, entries = journal.records, matrix.entry[row][matrix.entry[row] != UNKNOWN]
    groups = [journal.groups[group] for group in np.unique(records.group[entries]).tolist() if group >= 0]
    most = Counter(journal.operation(entry) for entry in entries.tolist()).most_common(1)[0][0]
    began = min((time for time in records.created[entries].tolist() if time != NO_TIME), default=NO_TIME)
    number = int(records.sequence[entries[0]])
    sequence = number if number >= 0 else None
    kind = groups[0].description or groups[0].name if groups else ""
    if matrix.message[row]:
        ends = (int(end[row]) for end in (matrix.source, matrix.target))
        what, most_of_all = "message " + " to ".join("?" if end == UNKNOWN else f"{end}" for end in ends), ""
    else:
        what, most_of_all = shortened(numbered(most, None), LONGEST_OPERATION), most
        what += "" if sequence is None else f" #{sequence}"
    since = "" if began == NO_TIME else f", began {moment(began)}"
    return Call(
        kind,
        f"{shortened(kind, LONGEST_GROUP)} {what}",
        f"{numbered(most, sequence)} of {_groups_in_words(groups)}{since}",
        _cells(journal, matrix, row, most_of_all, outcome, began),
    )


def _cells(
    journal: Journal, matrix: Matrix, row: int, most: str, outcome: Int8s, began: int
) -> dict[int, tuple[Sign, str]]:
    cells = {}
    for index, rank in enumerate(matrix.ranks.tolist()):
        entry, closing = int(matrix.entry[row, index]), int(matrix.closing[row, index])
        if entry != UNKNOWN:
            operation, created = journal.operation(entry), int(journal.records.created[entry])
            ended = SIGNS.get(Outcome(int(outcome[entry if closing == UNKNOWN else closing])), Sign.JOINED)
            sign = Sign.DIFFERS if most not in ("", operation) else ended
            late = "" if NO_TIME in (created, began) else f", {duration(created - began)} after the first"
            cells[rank] = sign, f", {numbered(operation, None)}{late}"
        elif matrix.member[row, index]:
            cells[rank] = Sign.LOST if matrix.lost[row, index] else Sign.ABSENT, ""
    return cells


def _groups_in_words(groups: Sequence[ProcessGroup]) -> str:
    if len(groups) == 1:
        return group_name(groups[0].name, groups[0].description)
    names = ", ".join(name_in_words(group.name) for group in groups[:MOST_GROUPS])
    return f"groups {names}{', …' if len(groups) > MOST_GROUPS else ''}" if names else "an unknown group"


# The picture.


def recent_chart(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    """The picture, and what it does not show."""
    recent = recent_of(diagnosis, journal)
    if not recent.calls:
        yield Paragraph("The dumps have no entries.")
        return
    title = "In program order from left to right; empty cells: not a member"
    kinds = list(dict.fromkeys(call.kind for call in recent.calls))
    columns = [Heading(call.text, call.words, kinds.index(call.kind)) for call in recent.calls]
    rows = [(f"rank {rank}", [_tile(call, rank) for call in recent.calls]) for rank in recent.ranks]
    used = Sign.legend({sign for call in recent.calls for sign, _ in call.cells.values()})
    culprits = {rank for problem in diagnosis.problems for rank in problem.culprits}
    note = _not_shown(recent, len(journal.ranks), sorted(culprits - set(recent.ranks)))
    yield Chart(grid(title, rows, columns, used).svg, "Calls around the problem", note)


def _tile(call: Call, rank: int) -> Tile | None:
    sign, words = call.cells.get(rank, (None, ""))
    return sign and sign.tile(f"rank {rank}: {sign.words}{words}")


def _not_shown(recent: Recent, present: int, absent: Sequence[int]) -> str:
    parts = [f"{len(recent.ranks)} of {counted(present, 'dump')}"]
    parts += [f"not among them: {Numbers.of(absent).called('rank')}"] if 0 < len(absent) <= FEW else []
    parts += [f"{counted(recent.earlier, 'earlier column')} not shown"] if recent.earlier else []
    parts += [f"{counted(recent.later, 'later column')} not shown"] if recent.later else []
    return "; ".join(parts) + "."
