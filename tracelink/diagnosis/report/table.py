"""The table of entries: a row for each call, a column for each rank, or for ranks with equal cells."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Struct, defstruct
from msgspec.structs import replace

from tracelink.diagnosis.journal import Journal, first_of_each_request, reread_entries
from tracelink.diagnosis.matrix import Matrix, agreement_codes, matrix_of
from tracelink.diagnosis.model import Diagnosis, Problem
from tracelink.diagnosis.report.calls import DONE, QUEUED, RETIRED, STARTED, STATES, tensors_in_words
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.fields import Identifier, Row
from tracelink.model.fields import Shown as ShownAs
from tracelink.model.findings import Finding
from tracelink.model.records import Entry, Frame, State, own_frames
from tracelink.model.text import (
    LONGEST_GROUP,
    counted,
    group_cell,
    number,
    operation_in_words,
    ranks_cell,
    shortened,
)
from tracelink.show.document import Block, Paragraph, Table, Tone

# Which entries are shown.


class Shown(Struct, frozen=True):
    """The selected entries side by side, with what their dumps record about them."""

    journal: Journal
    matrix: Matrix
    decoded: Mapping[int, Entry]
    """One entry for each request; with stacks, all entries. By row of the journal."""
    of_request: Mapping[int, Entry]
    with_stacks: bool
    findings: Sequence[Finding]

    @classmethod
    def of(cls, journal: Journal, matrix: Matrix, *, stacks: bool = False) -> Shown:
        """The entries of a matrix, with what their dumps record about them."""
        rows = matrix.entry[matrix.entry != UNKNOWN]
        decoded, findings = reread_entries(journal, rows if stacks else first_of_each_request(journal, rows))
        requests = {int(journal.records.request[row]): entry for row, entry in decoded.items()}
        return cls(journal, matrix, decoded, requests, stacks, findings)

    def stack(self, row: int) -> tuple[Frame, ...]:
        """The stack of an entry without frames of torch, innermost first; empty without --stacks."""
        entry = self.decoded.get(row) if self.with_stacks else None
        return own_frames(entry.frames) if entry else ()

    def entries(self) -> tuple[Int64s, Int64s, Bools]:
        """All entries: the row of the matrix, the row of the journal, and whether it only closes other entries."""
        matrix = self.matrix
        row, column = np.nonzero(matrix.entry != UNKNOWN)
        closing = matrix.closing[row, column]
        last = {int(closer): int(at) for closer, at in zip(closing, row, strict=True) if closer != UNKNOWN}
        rows = np.concatenate([row, np.array(list(last.values()), np.int64)])
        entries = np.concatenate([matrix.entry[row, column], np.array(list(last), np.int64)])
        order = np.lexsort((entries, rows))
        return rows[order], entries[order], (order >= len(row))


# Cells: the request of an entry, and its state.


RECORDED, MISSING, LOST = "recorded", "missing", "?"

MEANINGS = {
    QUEUED: "called, not started",
    STARTED: "started, not completed",
    DONE: "completed",
    RETIRED: "completed or aborted (the backend does not record which)",
    RECORDED: "state unknown",
    MISSING: "member of the group without an entry",
    LOST: "unknown, because its dump does not contain these entries",
}
"""The states of cells, in the order of the legend."""

UNEVEN = "uneven"
"""Shown instead of sizes that differ between ranks."""


def state_in_words(journal: Journal, entry: int, closing: int) -> str:
    """The state of an entry; of entries that were issued together, that of the entry that closes them."""
    row = entry if closing == UNKNOWN else closing
    state = State(int(journal.records.state[row]))
    if journal.records.retired[row] == 1 and state != State.COMPLETED:
        return RETIRED
    return STATES.get(state.name.lower(), RECORDED)


# The table: common cells of a row at the left, then a column for each rank.


class Common(NamedTuple):
    """What is equal in a row."""

    group: str
    sequence: int | None
    call: str
    tensors: str
    stack: int | None


class Column(Struct, frozen=True):
    """A column of one rank, or of several whose cells are equal."""

    ranks: tuple[int, ...]
    cells: tuple[str, ...]
    deviations: int
    """The number of cells that differ from the common ones, or are missing."""


class Cells(Struct, frozen=True):
    """Cells as text."""

    common: Sequence[Common]
    """Of each row."""
    columns: Sequence[Column]
    """Of each rank."""
    stacks: Sequence[tuple[Frame, ...]]
    """By number, from 1."""


class _Call(Struct, frozen=True):
    """The request of one rank."""

    operation: str
    tensors: str
    types: str
    stack: int
    agreement: object
    """Equal if ranks agree, even if their sizes may differ."""

    def agrees(self, other: _Call) -> bool:
        """True if the requests of two ranks are compatible."""
        return self.agreement == other.agreement or (
            (self.operation, self.tensors) == (other.operation, other.tensors)
        )


def cells_of(shown: Shown) -> Cells:
    """The cells of all ranks, a column for each."""
    return _Builder(shown).cells()


class _Builder:
    """Makes the cells of the entries that are shown."""

    def __init__(self, shown: Shown) -> None:
        self._shown = shown
        self._journal = shown.journal
        self._groups = [group_cell(group.name, group.description) for group in self._journal.groups]
        self._agreement = agreement_codes(self._journal)
        self._stacks: dict[tuple[Frame, ...], int] = {}
        matrix = shown.matrix
        self._message = matrix.message.tolist()
        self._between = [
            " -> ".join(LOST if end < 0 else str(end) for end in ends)
            for ends in zip(matrix.source.tolist(), matrix.target.tolist(), strict=True)
        ]

    def cells(self) -> Cells:
        """The cells."""
        matrix = self._shown.matrix
        common: list[Common] = []
        cells: list[list[str]] = []
        deviations = np.zeros(len(matrix.ranks), np.int64)
        for row in range(len(matrix)):
            calls = [
                None if entry == UNKNOWN else self._call(row, entry) for entry in matrix.entry[row].tolist()
            ]
            common_call = _common_call([call for call in calls if call])
            common.append(self._common(row, common_call))
            cells.append([self._cell(row, column, call, common_call) for column, call in enumerate(calls)])
            deviations += [call is not None and not call.agrees(common_call) for call in calls]
            deviations += [cell == MISSING for cell in cells[-1]]
        texts = zip(*cells, strict=True) if cells else [()] * len(matrix.ranks)
        each = zip(matrix.ranks.tolist(), texts, deviations.tolist(), strict=True)
        columns = [Column((rank,), own, count) for rank, own, count in each]
        return Cells(common, columns, list(self._stacks))

    def _call(self, row: int, entry: int) -> _Call:
        message = self._message[row]
        request = int(self._journal.records.request[entry])
        decoded = self._shown.of_request.get(request)
        stack = self._shown.stack(entry)
        number = self._stacks.setdefault(stack, len(self._stacks) + 1) if stack else 0
        name = operation_in_words(self._journal.operation(entry)).partition(" ")[0]
        tensors = tensors_in_words([decoded], message=message) if decoded else ""
        types = "/".join(dict.fromkeys([*decoded.input_types, *decoded.output_types])) if decoded else ""
        compared = tensors if message else int(self._agreement[request])
        return _Call("message" if message else name, tensors, types, number, compared)

    def _common(self, row: int, common_call: _Call) -> Common:
        matrix, records = self._shown.matrix, self._journal.records
        entries = matrix.entry[row][matrix.entry[row] != UNKNOWN]
        groups = np.unique(records.group[entries]).tolist()
        sequence = int(records.sequence[entries[0]])
        name = "" if groups[0] == UNKNOWN else self._groups[groups[0]]
        ends = self._between[row]
        if len(groups) > 1:
            name = _equal_groups(self._journal.groups[groups[0]].description, len(groups))
            ends = ""
        return Common(
            name,
            sequence if sequence > 0 else None,
            f"{common_call.operation} {ends}".strip() if self._message[row] else common_call.operation,
            common_call.tensors,
            common_call.stack or None,
        )

    def _cell(self, row: int, column: int, call: _Call | None, common_call: _Call) -> str:
        matrix = self._shown.matrix
        if call is None:
            lost = matrix.lost[row, column]
            return (LOST if lost else MISSING) if matrix.member[row, column] else ""
        parts = []
        if not call.agrees(common_call):
            parts += [call.operation] if call.operation != common_call.operation else []
            parts += [call.tensors or "no tensor"] if call.tensors != common_call.tensors else []
        parts += [f"stack {call.stack}"] if call.stack not in (0, common_call.stack) else []
        state = state_in_words(
            self._journal, int(matrix.entry[row, column]), int(matrix.closing[row, column])
        )
        return " ".join([*parts, state])


def _equal_groups(description: str, count: int) -> str:
    """`tp (4 groups)`: the groups whose entries share a row."""
    groups = f" ({count} groups)"
    return shortened(description, LONGEST_GROUP - len(groups)) + groups


def _common_call(calls: Sequence[_Call]) -> _Call:
    """The request of most ranks, and the stack that most of them have."""
    counts = Counter(call.agreement for call in calls)
    largest = max(counts.values())
    agreement = next(call.agreement for call in calls if counts[call.agreement] == largest)
    agreeing = [call for call in calls if call.agreement == agreement]
    stacks = Counter(call.stack for call in agreeing)
    stack = max(stacks, key=lambda number: (stacks[number], -number))
    if len({call.tensors for call in agreeing}) == 1:
        return replace(agreeing[0], stack=stack)
    return replace(agreeing[0], tensors=f"{agreeing[0].types} {UNEVEN}".strip(), stack=stack)


def tones_of(columns: Sequence[Column]) -> dict[str, Tone]:
    """Of cells that differ from the common ones."""
    different = {cell for column in columns for cell in column.cells if " " in cell}
    return dict.fromkeys(different, Tone.WARNING) | {MISSING: Tone.PROBLEM}


def meanings(columns: Sequence[Column]) -> Paragraph:
    """A legend of the states in these columns."""
    found = {cell.split()[-1] for column in columns for cell in column.cells if cell}
    words = (f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in found)
    return Paragraph("; ".join(words), Tone.ASIDE)


def folded(single: Sequence[Column]) -> list[Column]:
    """Ranks with equal cells share a column."""
    by_cells: dict[tuple[str, ...], list[Column]] = defaultdict(list)
    for column in single:
        by_cells[column.cells].append(column)
    return [
        Column(tuple(rank for column in equal for rank in column.ranks), cells, equal[0].deviations)
        for cells, equal in by_cells.items()
    ]


def lines_of(cells: Cells, columns: Sequence[Column]) -> list[Any]:
    """The rows of the table; in a narrow terminal tensors are left out first, then columns with few deviations."""
    order = sorted(
        range(len(columns)),
        key=lambda index: (-columns[index].deviations, -len(columns[index].ranks), index),
    )
    drop = {index: len(order) - place + 1 if place else 0 for place, index in enumerate(order)}
    fields: list[tuple[str, Any]] = [
        ("group", str),
        ("sequence", Annotated[Identifier | None, ShownAs("#")]),
        ("call", Annotated[str, ShownAs(longest=120)]),
        ("tensors", Annotated[str, ShownAs(drop=1)]),
        ("stack", int | None),
        *(
            (f"ranks_{index}", Annotated[str, ShownAs(ranks_in_heading(column.ranks), drop=drop[index])])
            for index, column in enumerate(columns)
        ),
    ]
    line = defstruct("EntryLine", fields, bases=(Row,), frozen=True, module=__name__)
    values = zip(*(column.cells for column in columns), strict=True)
    return [line(*common, *own) for common, own in zip(cells.common, values, strict=True)]


def ranks_in_heading(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 4-7`, shortened."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_cell(ranks)}"


# The calls around the worst problem, for a page.


MOST_RANKS = 24
BEFORE, AFTER = 20, 9
"""Rows before the problem, and after it."""


def around(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    """The calls around the worst problem: a column for each rank, or for ranks with equal cells."""
    ranks = _ranks_around(diagnosis.problems, journal)
    every = matrix_of(journal, np.ones(len(journal), np.bool_), np.array(ranks, np.int32), None)
    if not len(every):
        return
    first = max(0, min(_place(diagnosis.problems, journal, every) - BEFORE, len(every) - BEFORE - AFTER))
    matrix = every.part(first, first + BEFORE + AFTER)
    cells = cells_of(Shown.of(journal, matrix))
    columns = folded(cells.columns)
    yield Table(lines_of(cells, columns), tones=tones_of(columns))
    rows = f"rows {first + 1}-{first + len(matrix)} of {number(len(every))}"
    dumps = f"{len(ranks)} of {counted(len(journal.ranks), 'dump')}"
    yield Paragraph(f"In program order: {rows}, of {dumps}.", Tone.ASIDE)
    yield meanings(columns)


def _ranks_around(problems: Sequence[Problem], journal: Journal) -> list[int]:
    """Culprits, then the ranks that show problems best, then their neighbours: these mostly share groups with them."""
    culprits = [rank for problem in problems for rank in problem.culprits]
    best = [rank for problem in problems for rank in problem.rows]
    middle = [*culprits, *best, 0][0]
    by_distance = sorted(journal.ranks.tolist(), key=lambda rank: (abs(rank - middle), rank))
    wanted = dict.fromkeys([*culprits[: MOST_RANKS // 2], *best, *by_distance])
    return sorted([rank for rank in wanted if rank in journal.recordings][:MOST_RANKS])


def _place(problems: Sequence[Problem], journal: Journal, matrix: Matrix) -> int:
    """The row that shows the worst problem, or the last one."""
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
