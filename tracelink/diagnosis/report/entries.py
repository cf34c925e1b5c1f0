"""Entries of all ranks side by side: as rows for programs, and as a table with a column for each rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import replace

from tracelink.diagnosis.journal import Journal, first_of_each_request, reread_entries
from tracelink.diagnosis.matrix import Matrix, agreement_codes, matrix_of
from tracelink.diagnosis.model import Diagnosis, Verdict
from tracelink.diagnosis.report.diagnosis import TONES, verdict_of
from tracelink.diagnosis.report.problems import stack_of, tensors_in_words
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int32s, Int64s
from tracelink.model.fields import Count, Doc, Identifier, RankNumber, Ranks, Row, UnixNanoseconds
from tracelink.model.fields import Shown as ShownAs
from tracelink.model.findings import Finding
from tracelink.model.records import (
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
from tracelink.model.results import Result
from tracelink.model.tables import texts_of
from tracelink.model.text import (
    LONGEST_GROUP,
    collective_in_words,
    counted,
    group_cell,
    operation_in_words,
    ranks_cell,
    shortened,
)
from tracelink.model.trace import ProcessGroup
from tracelink.show.document import Block, Heading, Paragraph, Report, Section, Table, Tone

# The result: a row for each entry.


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
    input_sizes: Annotated[
        Sizes | None, Doc("One list for each tensor; null if the dump could not be read again.")
    ]
    output_sizes: Annotated[
        Sizes | None, Doc("One list for each tensor; null if the dump could not be read again.")
    ]
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


class RanksOfEntries(Row, frozen=True):
    """Which ranks there are entries of."""

    shown: Annotated[Ranks, Doc("Ranks whose entries are shown, if they recorded any.")]
    missing: Annotated[Ranks, Doc("Ranks that process groups name and that have no dump.")]
    unreadable: Annotated[
        Ranks, Doc("Ranks whose dumps cannot be read, or not to the end; findings give the reason.")
    ]


class Entries(Result, frozen=True, forbid_unknown_fields=True):
    """Entries of all ranks side by side."""

    verdict: Verdict
    ranks: RanksOfEntries
    rows: Annotated[Count, Doc("Number of rows.")]
    earlier_entries: Annotated[Count, Doc("How many entries --limit left out.")]
    entries: Sequence[EntryOfRow]
    holes: Annotated[Sequence[Hole], Doc("Rows without an entry of every rank that has to take part.")]
    findings: Sequence[Finding]

    drawn_by = "tracelink.diagnosis.report.entries"


STATES = {state.value: None if state is State.UNKNOWN else state.name.lower() for state in State}
FLAGS = {1: True, 0: False}


def entries_of(shown: Shown, diagnosis: Diagnosis) -> Entries:
    """The entries as rows."""
    matrix, columns = shown.matrix, _columns(shown)
    return Entries(
        diagnosis.verdict,
        RanksOfEntries(matrix.ranks.tolist(), diagnosis.missing, list(diagnosis.unreadable)),
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
    def of(cls, journal: Journal, chosen: Bools, ranks: Int32s, last: int | None, *, stacks: bool) -> Shown:
        """The last rows of the chosen entries of these ranks; all rows if `last` is None."""
        matrix = matrix_of(journal, chosen, ranks, last)
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


MISSING = "missing"
LOST = "?"

DONE, STARTED, QUEUED, RETIRED, RECORDED = "done", "started", "queued", "retired", "recorded"

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
    state, retired = int(journal.records.state[row]), int(journal.records.retired[row])
    if state == State.COMPLETED:
        return DONE
    if retired == 1:
        return RETIRED
    return {State.STARTED: STARTED, State.SCHEDULED: QUEUED}.get(State(state), RECORDED)


def operation_of_entry(journal: Journal, row: int) -> str:
    """The operation without its backend and without the ranks of a message."""
    return operation_in_words(journal.operation(row)).partition(" ")[0]


def ordinal(index: int) -> str:
    """`1st` of index 0."""
    number = index + 1
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


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
        operation = "message" if message else operation_of_entry(self._journal, entry)
        tensors = tensors_in_words([decoded], message=message) if decoded else ""
        types = "/".join(dict.fromkeys([*decoded.input_types, *decoded.output_types])) if decoded else ""
        compared = tensors if message else int(self._agreement[request])
        return _Call(operation, tensors, types, number, compared)

    def _common(self, row: int, common_call: _Call) -> Common:
        matrix, records = self._shown.matrix, self._journal.records
        entries = matrix.entry[row][matrix.entry[row] != UNKNOWN]
        groups = np.unique(records.group[entries]).tolist()
        sequence = int(records.sequence[entries[0]])
        name = "" if groups[0] == UNKNOWN else self._groups[groups[0]]
        ends = self._between[row]
        if len(groups) > 1:
            name = _equal_groups(self._journal.groups[groups[0]].description, len(groups))
            ends = self._within_groups(int(entries[0]))
        return Common(
            name,
            sequence if sequence > 0 else None,
            f"{common_call.operation} {ends}" if self._message[row] else common_call.operation,
            common_call.tensors,
            common_call.stack or None,
        )

    def _within_groups(self, entry: int) -> str:
        """`1st -> 2nd`: the indices of the ranks, which are the same in all groups."""
        requests, request = self._journal.requests, int(self._journal.records.request[entry])
        return f"{ordinal(int(requests.source[request]))} -> {ordinal(int(requests.target[request]))}"

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


# The document: a table with a column for each rank, or for ranks with equal cells, and what it does not contain.


SINGLY = 5
"""Ranks without an entry that have a line each."""


def report_of(entries: Entries) -> Report:
    """The document of entries one below the other."""
    headline = f"{counted(len(entries.entries), 'entry')} of {counted(len(entries.ranks.shown), 'rank')}."
    return Report("diagnose --entries", headline, sections=[Section("Entries", [Table(entries.entries)])])


def side_by_side(shown: Shown, diagnosis: Diagnosis) -> Report:
    """The document of the entries of a diagnosis, ranks side by side."""
    cells = _Builder(shown).cells()
    stacks = [
        block
        for index, frames in enumerate(cells.stacks, 1)
        for block in (Heading(f"Stack {index}:"), stack_of(frames, brief=20))
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
    single = cells.columns
    different = {cell for column in single for cell in column.cells if " " in cell}
    tones = dict.fromkeys(different, Tone.WARNING) | {MISSING: Tone.PROBLEM}
    equal = Table(_lines(cells, folded(single)), tones=tones)
    yield Table(_lines(cells, single), tones=tones, narrow=equal)
    if earlier := shown.matrix.earlier:
        last = f"Last {counted(len(shown.matrix), 'row')}; {counted(earlier, 'earlier entry')}"
        yield Paragraph(f"{last} (--limit 0 shows all).", Tone.ASIDE)
    yield from _idle(shown)
    found = {cell.split()[-1] for column in single for cell in column.cells if cell}
    meanings = "; ".join(f"{word}: {meaning}" for word, meaning in MEANINGS.items() if word in found)
    yield Paragraph(meanings, Tone.ASIDE)


def folded(single: Sequence[Column]) -> list[Column]:
    """Ranks with equal cells share a column."""
    by_cells: dict[tuple[str, ...], list[Column]] = defaultdict(list)
    for column in single:
        by_cells[column.cells].append(column)
    return [
        Column(tuple(rank for column in equal for rank in column.ranks), cells, equal[0].deviations)
        for cells, equal in by_cells.items()
    ]


def _lines(cells: Cells, columns: Sequence[Column]) -> list[Any]:
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
            (f"ranks_{index}", Annotated[str, ShownAs(_ranks(column.ranks), drop=drop[index])])
            for index, column in enumerate(columns)
        ),
    ]
    line = defstruct("EntryLine", fields, bases=(Row,), frozen=True, module=__name__)
    values = zip(*(column.cells for column in columns), strict=True)
    return [line(*common, *own) for common, own in zip(cells.common, values, strict=True)]


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2, 4-7`, shortened."""
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_cell(ranks)}"


def _idle(shown: Shown) -> Iterator[Block]:
    """Ranks without an entry in these rows, and their last entries."""
    journal, matrix = shown.journal, shown.matrix
    idle = matrix.ranks[~(matrix.entry != UNKNOWN).any(axis=0)].tolist()
    for rank in idle[:SINGLY]:
        index = journal.ranks.tolist().index(rank)
        row = int(journal.bounds[index + 1]) - 1
        if row < journal.bounds[index]:
            yield Paragraph(f"Rank {rank} recorded no entries.", Tone.WARNING)
            continue
        group = int(journal.records.group[row])
        named = ProcessGroup("?") if group == UNKNOWN else journal.groups[group]
        what = collective_in_words(journal.operation(row), int(journal.records.sequence[row]), named)
        yield Paragraph(f"Rank {rank} has no entry in these rows; its last entry is {what}.", Tone.WARNING)
    if len(idle) > SINGLY:
        yield Paragraph(f"No entry in these rows either: {_ranks(idle[SINGLY:])}.", Tone.WARNING)


def _absent(diagnosis: Diagnosis) -> Iterator[Block]:
    if diagnosis.missing:
        yield Paragraph(f"No dump of {_ranks(diagnosis.missing)}.", Tone.WARNING)
    for reason in dict.fromkeys(diagnosis.unreadable.values()):
        yield Paragraph(reason, Tone.PROBLEM)
