"""Entries of all ranks side by side: as rows for programs, and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, UnsetType

from tracelink._hang.matrix import Matrix
from tracelink._hang.model import Diagnosis, RanksOfDumps, Verdict
from tracelink._hang.report.calls import stack_of
from tracelink._hang.report.diagnosis import TONES, verdict_of
from tracelink._hang.report.table import (
    Cells,
    Shown,
    cells_of,
    folded,
    lines_of,
    meanings,
    ranks_in_heading,
    tones_of,
)
from tracelink._model.columns import NO_TIME, UNKNOWN, Int64s
from tracelink._model.fields import Count, Doc, Identifier, RankNumber, Ranks, Row, UnixNanoseconds
from tracelink._model.findings import Finding
from tracelink._model.records import (
    STACK,
    Created,
    Frame,
    Retired,
    SequenceNumber,
    Sizes,
    State,
    line_in_words,
)
from tracelink._model.results import Result
from tracelink._model.tables import texts_of
from tracelink._model.text import (
    counted,
)
from tracelink._show.document import Block, Heading, Paragraph, Report, Section, Table, Tone

# The result: a row for each entry.


Reread = Annotated[Sizes | None, Doc("One list for each tensor; null if the dump could not be read again.")]


class EntryOfRow(Row, frozen=True):
    """An entry of the flight recorder, in a row with those that belong to it."""

    row: Annotated[
        Identifier,
        Doc(
            "What belongs together has one number: a collective, or a message; groups side by side share "
            "it. In the order of the program.",
            ge=0,
        ),
    ]
    rank: RankNumber
    group: str | None
    description: str | None
    sequence: SequenceNumber
    operation: Annotated[str, Doc("As recorded: `nccl:all_reduce`, `nccl:send 1->2`, `nccl:coalesced`.")]
    source: Annotated[RankNumber | None, Doc("The rank of the job that sends a message.")]
    target: Annotated[RankNumber | None, Doc("The rank of the job that receives it.")]
    input_type: Annotated[str | None, Doc("Of the first tensor.")]
    output_type: str | None
    input_sizes: Reread
    output_sizes: Reread
    state: Annotated[Literal["scheduled", "started", "completed"] | None, Doc("On gloo always `scheduled`.")]
    retired: Retired
    created_ns: Created
    started_ns: Annotated[UnixNanoseconds | None, Doc("When the watchdog saw it started.")]
    completed_ns: Annotated[UnixNanoseconds | None, Doc("When the watchdog saw it completed.")]
    timeout_ms: Count | None
    called_at: Annotated[str | None, Doc("With --stacks: the innermost line of the stack.")] = None
    frames: Annotated[Sequence[Frame] | UnsetType, Doc(f"With --stacks: {STACK}.")] = UNSET


class Hole(Row, frozen=True):
    """A row in which ranks have no entry although they have to take part."""

    row: Identifier
    missing: Annotated[Ranks, Doc("Ranks without an entry.")]
    lost: Annotated[
        Ranks, Doc("Ranks that may have had one: their buffer wrapped, or their dump is truncated.")
    ]


class Entries(Result, frozen=True, forbid_unknown_fields=True):
    """Entries of all ranks side by side."""

    verdict: Verdict
    ranks: RanksOfDumps
    rows: Annotated[Count, Doc("Number of rows.")]
    earlier_entries: Annotated[Count, Doc("How many entries --limit left out.")]
    entries: Sequence[EntryOfRow]
    holes: Annotated[Sequence[Hole], Doc("Rows without an entry of every rank that has to take part.")]
    findings: Sequence[Finding]

    drawn_by = "tracelink._hang.report.entries"


STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
FLAGS = {1: True, 0: False}


def entries_of(shown: Shown, diagnosis: Diagnosis) -> Entries:
    """The entries as rows."""
    matrix, columns = shown.matrix, _columns(shown)
    return Entries(
        diagnosis.verdict,
        diagnosis.ranks,
        len(matrix),
        matrix.earlier,
        [EntryOfRow(*values) for values in zip(*columns, strict=True)],
        _holes(matrix),
        [*diagnosis.findings, *shown.findings],
    )


def _columns(shown: Shown) -> list[Sequence[Any]]:
    """The values of each field of the rows."""
    journal, records = shown.journal, shown.journal.records
    row, entries, closing = shown.entries()
    request, group = records.request[entries], records.group[entries]
    decoded = [shown.of_request.get(number) for number in request.tolist()]
    stacks = [shown.stack(entry) for entry in entries.tolist()]
    source, target = (
        np.where(closing, UNKNOWN, ends[row]) for ends in (shown.matrix.source, shown.matrix.target)
    )
    return [
        row.tolist(),
        journal.rank[entries].tolist(),
        texts_of([one.name for one in journal.groups], group).tolist(),
        texts_of([one.description for one in journal.groups], group).tolist(),
        _plain(records.sequence[entries]),
        texts_of(journal.strings, journal.requests.operation[request]).tolist(),
        _plain(source),
        _plain(target),
        texts_of(journal.strings, journal.requests.type_in[request]).tolist(),
        texts_of(journal.strings, journal.requests.type_out[request]).tolist(),
        [None if entry is None else [list(sizes) for sizes in entry.input_sizes] for entry in decoded],
        [None if entry is None else [list(sizes) for sizes in entry.output_sizes] for entry in decoded],
        [STATES[state] for state in records.state[entries].tolist()],
        [FLAGS.get(flag) for flag in records.retired[entries].tolist()],
        *(_plain(times[entries], NO_TIME) for times in (records.created, records.started, records.completed)),
        _plain(records.timeout_ms[entries]),
        [line_in_words(frames[0]) if frames else None for frames in stacks],
        stacks if shown.with_stacks else [UNSET] * len(stacks),
    ]


def _plain(column: Int64s, unknown: int = UNKNOWN) -> list[int | None]:
    return [None if value == unknown else value for value in column.tolist()]


def _holes(matrix: Matrix) -> list[Hole]:
    """Rows with members that have no entry, or whose entry was lost."""
    absent = matrix.member & (matrix.entry == UNKNOWN)
    return [
        Hole(
            row,
            missing=matrix.ranks[absent[row] & ~matrix.lost[row]].tolist(),
            lost=matrix.ranks[absent[row] & matrix.lost[row]].tolist(),
        )
        for row in np.flatnonzero(absent.any(axis=1)).tolist()
    ]


# The document: a table with a column for each rank, or for ranks with equal cells, and what it does not contain.


def report_of(entries: Entries) -> Report:
    """The document of entries one below the other."""
    ranks = len({entry.rank for entry in entries.entries})
    headline = f"{counted(len(entries.entries), 'entry')} of {counted(ranks, 'rank')}."
    return Report("diagnose --entries", headline, sections=[Section("Entries", [Table(entries.entries)])])


def side_by_side(shown: Shown, diagnosis: Diagnosis) -> Report:
    """The document of the entries of a diagnosis, ranks side by side."""
    cells = cells_of(shown)
    stacks = [
        block
        for index, frames in enumerate(cells.stacks, 1)
        for block in (Heading(f"Stack {index}:"), stack_of(frames))
    ]
    return Report(
        "diagnose --entries",
        verdict_of(diagnosis)[0],
        TONES[diagnosis.verdict],
        sections=[
            Section("Entries", [*_side_by_side(cells, shown)]),
            Section("Stacks", stacks),
            Section("Dumps", [*_absent(diagnosis)]),
        ],
        findings=shown.findings,
    )


def _side_by_side(cells: Cells, shown: Shown) -> Iterator[Block]:
    if not cells.common:
        yield Paragraph("No entries: the dumps contain none, or none of the selected ranks and groups.")
        return
    tones = tones_of(cells.columns)
    equal = Table(lines_of(cells, folded(cells.columns)), tones=tones)
    yield Table(lines_of(cells, cells.columns), tones=tones, narrow=equal)
    if earlier := shown.matrix.earlier:
        last = f"Last {counted(len(shown.matrix), 'row')}; {counted(earlier, 'earlier entry')}"
        yield Paragraph(f"{last} (--limit 0 shows all).", Tone.ASIDE)
    idle = shown.matrix.ranks[~(shown.matrix.entry != UNKNOWN).any(axis=0)].tolist()
    if idle:
        yield Paragraph(f"No entry in these rows: {ranks_in_heading(idle)}.", Tone.WARNING)
    yield meanings(cells.columns)


def _absent(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.missing:
        yield Paragraph(f"No dump of {ranks_in_heading(diagnosis.missing)}.", Tone.WARNING)
    for reason in dict.fromkeys(diagnosis.unreadable.values()):
        yield Paragraph(reason, Tone.PROBLEM)
