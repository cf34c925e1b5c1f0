"""The entries as page and document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tracelink.cli.collectives_page import Table as TableOfEntriesDocument
from tracelink.cli.collectives_page import plain, rows_of, times
from tracelink.cli.diagnosis_page import OF_PYTHON, ranks_cell
from tracelink.cli.entries import (
    BETWEEN,
    MEANINGS,
    MISSING,
    Column,
    Shown,
    Table,
    TableOf,
    columns_that_fit,
    widest,
)
from tracelink.cli.terminal import NOTHING, Page, show_findings
from tracelink.diagnosis.explain import line_in_words
from tracelink.diagnosis.model import Diagnosis
from tracelink.model.columns import UNKNOWN
from tracelink.model.graph import texts_of
from tracelink.model.records import Frame, State
from tracelink.model.trace import ProcessGroup
from tracelink.text import collective_in_words, counted, number

if TYPE_CHECKING:
    from tracelink.cli import diagnosis_documents

# What `diagnose --entries` shows: the entries of all ranks side by side, and what is not among them.


HEADER = ("group", "#", "call", "tensors", "stack")
NUMBERS = ("#", "stack")
DISPENSABLE = "tensors"
"""The column that goes where there is no room."""
SINGLY = 5
"""Ranks without an entry that are told one by one."""


def entries_page(shown: Shown, diagnosis: Diagnosis, *, verbose: bool) -> str:
    """The table, and under it what it does not show."""
    page = Page()
    table = TableOf(shown).table()
    if table.common:
        _show_table(page, shown, table)
        _show_earlier(page, shown)
        _show_idle(page, shown)
        _show_meanings(page, table)
        _show_stacks(page, table, verbose=verbose)
    else:
        page.line("no entries: the dumps hold none, or none of what was asked for")
    _show_absent(page, diagnosis)
    show_findings(page, shown.findings, verbose=verbose)
    return page.text


def _show_table(page: Page, shown: Shown, table: Table) -> None:
    ranks = shown.matrix.ranks.tolist()
    known = [place for place in range(len(HEADER)) if any(row[place] != NOTHING for row in table.common)]
    fewer = [place for place in known if HEADER[place] != DISPENSABLE]
    for places in (known, fewer):
        columns, left_out = columns_that_fit(table, ranks, page.width - _room(table, places))
        if not left_out:
            break
    rows = [at for at in range(len(table.common)) if any(column.cells[at] for column in columns)]
    page.table(
        [*(HEADER[place] for place in places), *(_name(column) for column in columns)],
        [
            [*(table.common[at][place] for place in places), *(column.cells[at] for column in columns)]
            for at in rows
        ],
        numbers=NUMBERS,
        styles=_styles(columns),
    )
    if len(places) < len(known):
        page.line("sizes and types of tensors are left out, they do not fit", "dim")
    if left_out:
        _show_left_out(page, left_out, len(table.common) - len(rows))


def _show_left_out(page: Page, ranks: Sequence[int], rows: int) -> None:
    listed = f"rank{'s' if len(ranks) > 1 else ''} {ranks_cell(ranks)}"
    theirs = f", and {counted(rows, 'row')} of only them" if rows else ""
    page.line(
        f"left out, they do not fit: {listed}{theirs}; --ranks chooses, --csv and --json hold all", "yellow"
    )


def _name(column: Column) -> str:
    """`rank 3`, `ranks 0-2, 4-7`; cut where it is long."""
    return f"rank{'s' if len(column.ranks) > 1 else ''} {ranks_cell(column.ranks)}"


def _room(table: Table, places: Sequence[int]) -> int:
    """Letters that the columns at the left take."""
    return sum(widest([HEADER[place], *(row[place] for row in table.common)]) + BETWEEN for place in places)


def _styles(columns: Sequence[Column]) -> Mapping[str, str]:
    different = {cell for column in columns for cell in column.cells if " " in cell}
    return dict.fromkeys(different, "yellow") | {MISSING: "bold red"}


def _show_earlier(page: Page, shown: Shown) -> None:
    matrix = shown.matrix
    if matrix.earlier:
        before = f"{number(matrix.earlier)} entries are before them, --limit 0 shows all"
        page.line(f"the last {counted(len(matrix), 'row')}; {before}", "dim")


def _show_idle(page: Page, shown: Shown) -> None:
    """Ranks that have no entry in these rows, and what they did last."""
    journal, matrix = shown.journal, shown.matrix
    idle = [
        rank
        for rank, there in zip(matrix.ranks.tolist(), (matrix.entry != UNKNOWN).any(axis=0), strict=True)
        if not there
    ]
    for rank in idle[:SINGLY]:
        place = journal.ranks.tolist().index(rank)
        row = int(journal.bounds[place + 1]) - 1
        if row < journal.bounds[place]:
            page.line(f"rank {rank} recorded nothing", "yellow")
            continue
        group = int(journal.records.group[row])
        named = ProcessGroup("?") if group == UNKNOWN else journal.groups[group]
        what = collective_in_words(journal.operation(row), int(journal.records.sequence[row]), named)
        page.line(f"rank {rank} has no entry in these rows; its last is {what}", "yellow")
    if len(idle) > SINGLY:
        page.line(f"ranks {ranks_cell(idle[SINGLY:])} have no entry in these rows either", "yellow")


def _show_meanings(page: Page, table: Table) -> None:
    cells = {cell for column in table.columns for cell in column}
    used = [word for word in MEANINGS if any(cell.split()[-1:] == [word] for cell in cells)]
    page.line("; ".join(f"{word}: {MEANINGS[word]}" for word in used), "dim")


def _show_stacks(page: Page, table: Table, *, verbose: bool) -> None:
    for place, frames in enumerate(table.stacks, 1):
        page.line()
        page.line(f"stack {place}:", "bold")
        own = [frame for frame in frames if verbose or not OF_PYTHON.search(frame.filename)]
        page.beneath([(f"{frame.filename}:{frame.line}", frame.name) for frame in own or frames])


def _show_absent(page: Page, diagnosis: Diagnosis) -> None:
    if diagnosis.missing:
        many = len(diagnosis.missing) > 1
        page.line(f"no dump of rank{'s' if many else ''} {ranks_cell(diagnosis.missing)}", "yellow")
    for why in dict.fromkeys(diagnosis.unreadable.values()):
        page.line(why, "red")


# Entries for a program: a row for each, with the row of the table that it stands in.


STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
RETIRED = {1: True, 0: False}


def entries_document(shown: Shown, diagnosis: Diagnosis, *, stacks: bool) -> diagnosis_documents.Entries:
    """What `diagnose --entries --json` prints."""
    from tracelink.cli import diagnosis_documents, documents

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
                **row, frames=diagnosis_documents.frames_of(frames) if stacks else msgspec.UNSET
            )
            for row, frames in zip(rows_of(_columns(shown)), _stacks(shown), strict=True)
        ],
        holes=_holes(shown),
        findings=documents.findings_of([*diagnosis.findings, *shown.findings]),
    )


def entries_table(shown: Shown, *, stacks: bool) -> TableOfEntriesDocument:
    """What `diagnose --entries --csv` prints: sizes as `[[64, 16]]`, stacks from the innermost frame outwards."""
    columns = _columns(shown)
    for name in ("input_sizes", "output_sizes"):
        columns[name] = [None if sizes is None else str(sizes) for sizes in columns[name]]
    called = {"stack": [_called(frames) for frames in _stacks(shown)]} if stacks else {}
    return {**columns, **called}


def _columns(shown: Shown) -> TableOfEntriesDocument:
    journal, records = shown.journal, shown.journal.records
    row, entries, closing = shown.entries()
    request = records.request[entries]
    told = [shown.of_request.get(number) for number in request.tolist()]
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
        "input_sizes": [None if one is None else [list(sizes) for sizes in one.input_sizes] for one in told],
        "output_sizes": [
            None if one is None else [list(sizes) for sizes in one.output_sizes] for one in told
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


def _called(frames: Sequence[Frame]) -> str:
    return " < ".join(f"{line_in_words(frame)} {frame.name}" for frame in frames)


def _holes(shown: Shown) -> list[diagnosis_documents.Hole]:
    """Rows in which ranks have no entry that have to take part, or may have."""
    from tracelink.cli.diagnosis_documents import Hole

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
