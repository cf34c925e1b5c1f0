"""The page, CSV and JSON of `diagnose --entries`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracelink.answers.collectives.listing import plain, times
from tracelink.cli.diagnosis_page import program_frames
from tracelink.cli.entries import (
    BETWEEN,
    MEANINGS,
    MISSING,
    Column,
    Shown,
    Table,
    TableBuilder,
    columns_that_fit,
    widest,
)
from tracelink.cli.terminal import EMPTY, Page, show_findings
from tracelink.diagnosis.model import Diagnosis
from tracelink.model.columns import UNKNOWN
from tracelink.model.records import Frame, State, line_in_words
from tracelink.model.tables import texts_of
from tracelink.model.text import collective_in_words, counted, ranks_cell
from tracelink.model.trace import ProcessGroup

if TYPE_CHECKING:
    from tracelink.cli.documents import diagnosis as diagnosis_documents

Columns = dict[str, list[Any]]

# The page: the table, its legend, and what it does not contain.


HEADER = ("group", "#", "call", "tensors", "stack")
NUMBERS = ("#", "stack")
DISPENSABLE = "tensors"
"""The column that is left out of a narrow terminal."""
SINGLY = 5
"""Ranks without an entry that have a line each."""


def entries_page(shown: Shown, diagnosis: Diagnosis, *, verbose: bool) -> str:
    """The table, and below it what it does not contain."""
    page = Page()
    table = TableBuilder(shown).table()
    if table.common:
        _show_table(page, shown, table)
        _show_earlier(page, shown)
        _show_idle(page, shown)
        _show_meanings(page, table)
        _show_stacks(page, table, verbose=verbose)
    else:
        page.line("No entries: the dumps contain none, or none of the selected ranks and groups.")
    _show_absent(page, diagnosis)
    show_findings(page, shown.findings, verbose=verbose)
    return page.text


def _show_table(page: Page, shown: Shown, table: Table) -> None:
    ranks = shown.matrix.ranks.tolist()
    known = [index for index in range(len(HEADER)) if any(row[index] != EMPTY for row in table.common)]
    fewer = [index for index in known if HEADER[index] != DISPENSABLE]
    for indices in (known, fewer):
        columns, left_out = columns_that_fit(table, ranks, page.width - _room(table, indices))
        if not left_out:
            break
    rows = [at for at in range(len(table.common)) if any(column.cells[at] for column in columns)]
    page.table(
        [*(HEADER[index] for index in indices), *(_ranks(column.ranks) for column in columns)],
        [
            [*(table.common[at][index] for index in indices), *(column.cells[at] for column in columns)]
            for at in rows
        ],
        numbers=NUMBERS,
        styles=_styles(columns),
    )
    if len(indices) < len(known):
        page.line("Sizes and types of tensors are not shown: the terminal is too narrow.", "dim")
    if left_out:
        _show_left_out(page, left_out, len(table.common) - len(rows))


def _show_left_out(page: Page, ranks: Sequence[int], rows: int) -> None:
    only = f", and {counted(rows, 'row')} without entries of other ranks" if rows else ""
    page.line(
        f"Not shown, because the terminal is too narrow: {_ranks(ranks)}{only}. "
        "Use --ranks to select ranks, or --csv or --json for all.",
        "yellow",
    )


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 4-7`, shortened."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_cell(ranks)}"


def _room(table: Table, indices: Sequence[int]) -> int:
    """Characters that the columns at the left take."""
    return sum(widest([HEADER[index], *(row[index] for row in table.common)]) + BETWEEN for index in indices)


def _styles(columns: Sequence[Column]) -> Mapping[str, str]:
    different = {cell for column in columns for cell in column.cells if " " in cell}
    return dict.fromkeys(different, "yellow") | {MISSING: "bold red"}


def _show_earlier(page: Page, shown: Shown) -> None:
    matrix = shown.matrix
    if matrix.earlier:
        earlier = counted(matrix.earlier, "earlier entry")
        page.line(f"Last {counted(len(matrix), 'row')}; {earlier} (--limit 0 shows all).", "dim")


def _show_idle(page: Page, shown: Shown) -> None:
    """Ranks without an entry in these rows, and their last entries."""
    journal, matrix = shown.journal, shown.matrix
    idle = [
        rank
        for rank, there in zip(matrix.ranks.tolist(), (matrix.entry != UNKNOWN).any(axis=0), strict=True)
        if not there
    ]
    for rank in idle[:SINGLY]:
        index = journal.ranks.tolist().index(rank)
        row = int(journal.bounds[index + 1]) - 1
        if row < journal.bounds[index]:
            page.line(f"Rank {rank} recorded no entries.", "yellow")
            continue
        group = int(journal.records.group[row])
        named = ProcessGroup("?") if group == UNKNOWN else journal.groups[group]
        what = collective_in_words(journal.operation(row), int(journal.records.sequence[row]), named)
        page.line(f"Rank {rank} has no entry in these rows; its last entry is {what}.", "yellow")
    if len(idle) > SINGLY:
        page.line(f"No entry in these rows either: {_ranks(idle[SINGLY:])}.", "yellow")


def _show_meanings(page: Page, table: Table) -> None:
    cells = {cell for column in table.columns for cell in column}
    used = [word for word in MEANINGS if any(cell.split()[-1:] == [word] for cell in cells)]
    page.line("; ".join(f"{word}: {MEANINGS[word]}" for word in used), "dim")


def _show_stacks(page: Page, table: Table, *, verbose: bool) -> None:
    for index, frames in enumerate(table.stacks, 1):
        page.line()
        page.line(f"Stack {index}:", "bold")
        shown = frames if verbose else program_frames(frames)
        page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in shown])


def _show_absent(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.missing:
        page.line(f"No dump of {_ranks(diagnosis.missing)}.", "yellow")
    for reason in dict.fromkeys(diagnosis.unreadable.values()):
        page.line(reason, "red")


# JSON and CSV: a row for each entry, with its row of the table.


STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
RETIRED = {1: True, 0: False}


def entries_document(shown: Shown, diagnosis: Diagnosis, *, stacks: bool) -> diagnosis_documents.Entries:
    """What `diagnose --entries --json` prints."""
    from tracelink.cli.documents import diagnosis as diagnosis_documents
    from tracelink.cli.documents import results, witnesses

    matrix = shown.matrix
    return diagnosis_documents.Entries(
        verdict=diagnosis.verdict,
        ranks=diagnosis_documents.RanksOfEntries(
            shown=matrix.ranks.tolist(),
            missing=diagnosis.missing,
            unreadable=list(diagnosis.unreadable),
        ),
        rows=len(matrix),
        earlier_entries=matrix.earlier,
        entries=[
            diagnosis_documents.EntryOfRow(
                **row, frames=witnesses.frames_of(frames) if stacks else msgspec.UNSET
            )
            for row, frames in zip(_rows_of(_columns(shown)), _stacks(shown), strict=True)
        ],
        holes=_holes(shown),
        findings=results.findings_of([*diagnosis.findings, *shown.findings]),
    )


def _rows_of(columns: Columns) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def entries_table(shown: Shown, *, stacks: bool) -> Columns:
    """What `diagnose --entries --csv` prints: sizes as `[[64, 16]]`, stacks innermost frame first."""
    columns = _columns(shown)
    for name in ("input_sizes", "output_sizes"):
        columns[name] = [None if sizes is None else str(sizes) for sizes in columns[name]]
    stack = {"stack": [_stack(frames) for frames in _stacks(shown)]} if stacks else {}
    return {**columns, **stack}


def _columns(shown: Shown) -> Columns:
    journal, records = shown.journal, shown.journal.records
    row, entries, closing = shown.entries()
    request = records.request[entries]
    decoded = [shown.of_request.get(number) for number in request.tolist()]
    source, target = (
        np.where(closing, UNKNOWN, ends[row]) for ends in (shown.matrix.source, shown.matrix.target)
    )
    return {
        "row": row.tolist(),
        "rank": journal.rank[entries].tolist(),
        "group": texts_of([group.name for group in journal.groups], records.group[entries]).tolist(),
        "description": texts_of(
            [group.description for group in journal.groups], records.group[entries]
        ).tolist(),
        "sequence": plain(records.sequence[entries]),
        "operation": texts_of(journal.strings, journal.requests.operation[request]).tolist(),
        "source": plain(source),
        "target": plain(target),
        "input_type": texts_of(journal.strings, journal.requests.type_in[request]).tolist(),
        "output_type": texts_of(journal.strings, journal.requests.type_out[request]).tolist(),
        "input_sizes": [
            None if entry is None else [list(sizes) for sizes in entry.input_sizes] for entry in decoded
        ],
        "output_sizes": [
            None if entry is None else [list(sizes) for sizes in entry.output_sizes] for entry in decoded
        ],
        "state": [STATES[state] for state in records.state[entries].tolist()],
        "retired": [RETIRED.get(flag) for flag in records.retired[entries].tolist()],
        "created_ns": times(records.created[entries]),
        "started_ns": times(records.started[entries]),
        "completed_ns": times(records.completed[entries]),
        "timeout_ms": plain(records.timeout_ms[entries]),
    }


def _stacks(shown: Shown) -> list[tuple[Frame, ...]]:
    return [shown.stack(entry) for entry in shown.entries()[1].tolist()]


def _stack(frames: Sequence[Frame]) -> str:
    return " < ".join(f"{line_in_words(frame)} {frame.name}" for frame in frames)


def _holes(shown: Shown) -> list[diagnosis_documents.Hole]:
    """Rows with members that have no entry, or whose entry was lost."""
    from tracelink.cli.documents.diagnosis import Hole

    matrix = shown.matrix
    absent = matrix.member & (matrix.entry == UNKNOWN)
    return [
        Hole(
            row,
            missing=matrix.ranks[absent[row] & ~matrix.lost[row]].tolist(),
            lost=matrix.ranks[absent[row] & matrix.lost[row]].tolist(),
        )
        for row in np.flatnonzero(absent.any(axis=1)).tolist()
    ]
