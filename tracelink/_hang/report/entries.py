"""Entries of all ranks side by side: as rows for programs, and as a document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, defstruct

from tracelink._hang.facts.journal import Journal, choose_first_entries, reread_entries
from tracelink._hang.facts.model import Diagnosis, Problem, RanksOfDumps, Verdict
from tracelink._hang.report.diagnosis import (
    DONE,
    QUEUED,
    RETIRED,
    STARTED,
    STATES,
    TONES,
    stack_of,
    tensors_in_words,
    verdict_of,
)
from tracelink._hang.report.matrix import Matrix, matrix_of
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s
from tracelink._model.fields import Count, Doc, Identifier, RankNumber, Ranks, Row, UnixNanoseconds
from tracelink._model.fields import Shown as ShownAs
from tracelink._model.findings import Finding
from tracelink._model.records import (
    STACK,
    Created,
    Entry,
    Frame,
    Retired,
    SequenceNumber,
    Sizes,
    State,
    line_in_words,
    own_frames,
)
from tracelink._model.results import Result
from tracelink._model.tables import texts_of
from tracelink._model.text import (
    LONGEST_GROUP,
    counted,
    group_cell,
    number,
    operation_in_words,
    ranks_cell,
    shortened,
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


RECORDED_STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
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
        [RECORDED_STATES[state] for state in records.state[entries].tolist()],
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


def show_side_by_side(shown: Shown, diagnosis: Diagnosis) -> Report:
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
    equal = Table(lines_of(cells, fold_columns(cells.columns)), tones=tones)
    yield Table(lines_of(cells, cells.columns), tones=tones, narrow=equal)
    if earlier := shown.matrix.earlier:
        last = f"Last {counted(len(shown.matrix), 'row')}; {counted(earlier, 'earlier entry')}"
        yield Paragraph(f"{last} (--limit 0 shows all).", Tone.ASIDE)
    idle = shown.matrix.ranks[~(shown.matrix.entry != UNKNOWN).any(axis=0)].tolist()
    if idle:
        yield Paragraph(f"No entry in these rows: {ranks_in_heading(idle)}.", Tone.WARNING)
    yield explain_states(cells.columns)


def _absent(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.missing:
        yield Paragraph(f"No dump of {ranks_in_heading(diagnosis.missing)}.", Tone.WARNING)
    for reason in dict.fromkeys(diagnosis.unreadable.values()):
        yield Paragraph(reason, Tone.PROBLEM)


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
        decoded, findings = reread_entries(journal, rows if stacks else choose_first_entries(journal, rows))
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
"""Shown instead of sizes that differ between most ranks."""


# The table: common cells of a row at the left, then a column for each rank.


class Common(NamedTuple):
    """What most ranks of a row have."""

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


def cells_of(shown: Shown) -> Cells:
    """The cells of all ranks, a column for each."""
    stacks: dict[tuple[Frame, ...], int] = {}
    made = [_row(shown, row, stacks) for row in range(len(shown.matrix))]
    columns = [
        Column((rank,), own := tuple(cells[index] for _, cells in made), sum(map(_deviates, own)))
        for index, rank in enumerate(shown.matrix.ranks.tolist())
    ]
    return Cells([common for common, _ in made], columns, list(stacks))


def _deviates(cell: str) -> bool:
    return " " in cell or cell == MISSING


class _Call(NamedTuple):
    """What a rank called."""

    name: str
    tensors: str
    stack: int
    """Its number; 0 if it is not shown."""

    def but(self, common: _Call) -> list[str]:
        """What differs from what most ranks called."""
        named = [self.name] if self.name != common.name else []
        if named or common.tensors not in (UNEVEN, self.tensors):
            named.append(self.tensors or "no tensor")
        return [*named, f"stack {self.stack}"] if self.stack not in (0, common.stack) else named


def _row(shown: Shown, row: int, stacks: dict[tuple[Frame, ...], int]) -> tuple[Common, list[str]]:
    """What most ranks of a row have, and what each rank has instead, with its state."""
    matrix = shown.matrix
    entries, closing = matrix.entry[row].tolist(), matrix.closing[row].tolist()
    calls = {
        column: _call(shown, row, entry, stacks) for column, entry in enumerate(entries) if entry != UNKNOWN
    }
    most = [Counter(values).most_common(1)[0] for values in zip(*calls.values(), strict=True)]
    common = _Call(*(value for value, _ in most))
    if 2 * most[1][1] <= len(calls) > 1:
        common = common._replace(tensors=UNEVEN)
    cells = [
        " ".join([*calls[column].but(common), _state(shown.journal, entries[column], closing[column])])
        if column in calls
        else (LOST if matrix.lost[row, column] else MISSING)
        if member
        else ""
        for column, member in enumerate(matrix.member[row])
    ]
    group, sequence, ends = _where(shown, row)
    called = f"{common.name} {ends}".strip()
    return Common(group, sequence, called, common.tensors, common.stack or None), cells


def _call(shown: Shown, row: int, entry: int, stacks: dict[tuple[Frame, ...], int]) -> _Call:
    journal, message = shown.journal, bool(shown.matrix.message[row])
    decoded, stack = shown.of_request.get(int(journal.records.request[entry])), shown.stack(entry)
    return _Call(
        "message" if message else operation_in_words(journal.operation(entry)).partition(" ")[0],
        tensors_in_words([decoded], message=message) if decoded else "",
        stacks.setdefault(stack, len(stacks) + 1) if stack else 0,
    )


def _where(shown: Shown, row: int) -> tuple[str, int | None, str]:
    """The group, or groups side by side, the number, and the ranks of a message."""
    journal, matrix = shown.journal, shown.matrix
    entries = matrix.entry[row][matrix.entry[row] != UNKNOWN]
    first, *others = np.unique(journal.records.group[entries]).tolist()
    sequence = int(journal.records.sequence[entries[0]])
    group = None if first == UNKNOWN else journal.groups[first]
    if group and others:
        count = f" ({1 + len(others)} groups)"
        return shortened(group.description, LONGEST_GROUP - len(count)) + count, sequence, ""
    ends = [f"{end}" if end >= 0 else LOST for end in (int(matrix.source[row]), int(matrix.target[row]))]
    name = group_cell(group.name, group.description) if group else ""
    return name, sequence if sequence > 0 else None, " -> ".join(ends) if matrix.message[row] else ""


def _state(journal: Journal, entry: int, closing: int) -> str:
    """The state of an entry; of entries that were issued together, that of the entry that closes them."""
    row = entry if closing == UNKNOWN else closing
    state = State(int(journal.records.state[row]))
    if journal.records.retired[row] == 1 and state != State.COMPLETED:
        return RETIRED
    return STATES.get(state.name.lower(), RECORDED)


def tones_of(columns: Sequence[Column]) -> dict[str, Tone]:
    """Of cells that differ from the common ones."""
    different = {cell for column in columns for cell in column.cells if _deviates(cell)}
    return dict.fromkeys(different, Tone.WARNING) | {MISSING: Tone.PROBLEM}


def explain_states(columns: Sequence[Column]) -> Paragraph:
    """A legend of the states in these columns."""
    found = {cell.split()[-1] for column in columns for cell in column.cells if cell}
    words = (f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in found)
    return Paragraph("; ".join(words), Tone.ASIDE)


def fold_columns(single: Sequence[Column]) -> list[Column]:
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


def show_calls_around(diagnosis: Diagnosis, journal: Journal) -> Iterator[Block]:
    """The calls around the worst problem: a column for each rank, or for ranks with equal cells."""
    ranks = _ranks_around(diagnosis.problems, journal)
    every = matrix_of(journal, np.ones(len(journal), np.bool_), np.array(ranks, np.int32), None)
    if not len(every):
        return
    first = max(0, min(_place(diagnosis.problems, journal, every) - BEFORE, len(every) - BEFORE - AFTER))
    matrix = every.part(first, first + BEFORE + AFTER)
    cells = cells_of(Shown.of(journal, matrix))
    columns = fold_columns(cells.columns)
    yield Table(lines_of(cells, columns), tones=tones_of(columns))
    rows = f"rows {first + 1}-{first + len(matrix)} of {number(len(every))}"
    dumps = f"{len(ranks)} of {counted(len(journal.ranks), 'dump')}"
    yield Paragraph(f"In program order: {rows}, of {dumps}.", Tone.ASIDE)
    yield explain_states(columns)


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
