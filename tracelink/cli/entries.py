"""The table of `diagnose --entries`: entries of all ranks side by side, as cells, in the columns that fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from tracelink.answers.collectives.listing import groups_named
from tracelink.cli.terminal import EMPTY
from tracelink.diagnosis.journal import Journal, first_of_each_request, reread_entries
from tracelink.diagnosis.matrix import Matrix, agreement_codes, matrix_of
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.errors import UsageError, printable
from tracelink.model.findings import Finding
from tracelink.model.ranges import Numbers
from tracelink.model.records import Entry, Frame, State, own_frames
from tracelink.model.text import LONGEST_GROUP, group_cell, operation_in_words, shortened

# Which entries are shown.


class EntrySelection(Struct, frozen=True):
    """The entries that the options select."""

    ranks: Numbers | None = None
    groups: Sequence[str] = ()
    stacks: bool = False
    limit: int | None = None
    """At most so many rows, 0 for all; None without --limit."""
    csv: bool = False

    def last(self, default: int | None) -> int | None:
        """The number of rows to show; None for all."""
        return default if self.limit is None else self.limit or None


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
    def of(cls, journal: Journal, selection: EntrySelection, last: int | None) -> Shown:
        """The last rows of the selected entries."""
        ranks = (
            journal.ranks
            if selection.ranks is None
            else journal.ranks[selection.ranks.mark(journal.ranks.astype(np.int64))]
        )
        if not len(ranks):
            raise UsageError(
                f"--ranks: no dump of {selection.ranks.called('rank') if selection.ranks else 'any rank'}",
                advice=f"Dumps were read of {Numbers.of(journal.ranks.tolist()).called('rank')}.",
            )
        matrix = matrix_of(journal, _of_groups(journal, selection.groups), ranks, last)
        rows = matrix.entry[matrix.entry != UNKNOWN]
        decoded, findings = reread_entries(
            journal, rows if selection.stacks else first_of_each_request(journal, rows)
        )
        requests = {int(journal.records.request[row]): entry for row, entry in decoded.items()}
        return cls(journal, matrix, decoded, requests, selection.stacks, findings)

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


def _of_groups(journal: Journal, names: Sequence[str]) -> Bools:
    """The entries of any of these groups; of all groups if none is given."""
    if not names:
        return np.ones(len(journal), np.bool_)
    named = np.zeros(len(journal.groups) + 1, np.bool_)
    for name in names:
        named[:-1] |= groups_named(journal.groups, name)
    entries: Bools = named[journal.records.group]
    return entries


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

MOST_TENSORS = 2
LONGEST = 40
"""Characters of the tensors of a request."""


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


def tensors_in_words(entry: Entry | None, *, message: bool) -> str:
    """`Float 64x16`, `Float 64x16 -> 128x16`; of a message only what is sent, which is equal on both sides."""
    if entry is None:
        return ""
    given, got = (_sizes(sizes) for sizes in (entry.input_sizes, entry.output_sizes))
    sizes = f"{given} -> {got}" if given and got and got != given and not message else given or got
    return shortened(f"{types_in_words(entry)} {sizes}".strip(), LONGEST)


def types_in_words(entry: Entry | None) -> str:
    """`Float`, `BFloat16/Float`."""
    return "/".join(dict.fromkeys([*entry.input_types, *entry.output_types])) if entry else ""


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    shown = ", ".join("x".join(map(str, sizes)) or "scalar" for sizes in tensors[:MOST_TENSORS])
    rest = len(tensors) - MOST_TENSORS
    return f"{shown} + {rest} more" if rest > 0 else shown


def ordinal(index: int) -> str:
    """`1st` of index 0."""
    number = index + 1
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# The table: common cells of a row at the left, then a column for each rank.


class Table(Struct, frozen=True):
    """Cells as text."""

    common: Sequence[tuple[str, ...]]
    """For each row: group, sequence number, call, tensors, and number of the stack."""
    columns: Sequence[tuple[str, ...]]
    """The cells of each rank."""
    deviations: Sequence[int]
    """For each rank, the number of cells that differ from the common ones, or are missing."""
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


class TableBuilder:
    """Builds the table of the entries that are shown."""

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

    def table(self) -> Table:
        """The table."""
        matrix = self._shown.matrix
        common: list[tuple[str, ...]] = []
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
        columns = list(zip(*cells, strict=True)) if cells else [()] * len(matrix.ranks)
        return Table(common, columns, deviations.tolist(), list(self._stacks))

    def _call(self, row: int, entry: int) -> _Call:
        message = self._message[row]
        request = int(self._journal.records.request[entry])
        decoded = self._shown.of_request.get(request)
        stack = self._shown.stack(entry)
        number = self._stacks.setdefault(stack, len(self._stacks) + 1) if stack else 0
        operation = "message" if message else operation_of_entry(self._journal, entry)
        tensors = tensors_in_words(decoded, message=message)
        compared = tensors if message else int(self._agreement[request])
        return _Call(operation, tensors, types_in_words(decoded), number, compared)

    def _common(self, row: int, common_call: _Call) -> tuple[str, ...]:
        matrix, records = self._shown.matrix, self._journal.records
        entries = matrix.entry[row][matrix.entry[row] != UNKNOWN]
        groups = np.unique(records.group[entries]).tolist()
        sequence = int(records.sequence[entries[0]])
        name = EMPTY if groups[0] == UNKNOWN else self._groups[groups[0]]
        ends = self._between[row]
        if len(groups) > 1:
            name = _equal_groups(self._journal.groups[groups[0]].description, len(groups))
            ends = self._within_groups(int(entries[0]))
        return (
            name,
            str(sequence) if sequence > 0 else EMPTY,
            f"{common_call.operation} {ends}" if self._message[row] else common_call.operation,
            common_call.tensors or EMPTY,
            str(common_call.stack) if common_call.stack else EMPTY,
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


# The columns that fit: one for each rank, else one for equal ranks, else those with deviations.


BETWEEN = 2
"""Blanks between two columns."""


class Column(Struct, frozen=True):
    """A column of one rank, or of several whose cells are equal."""

    ranks: tuple[int, ...]
    cells: tuple[str, ...]
    deviations: int
    """The number of cells that differ from the common ones, or are missing."""

    @property
    def name(self) -> str:
        """`rank 3`, `ranks 0-2, 4-7`."""
        return Numbers.of(self.ranks).called("rank")

    @property
    def width(self) -> int:
        """Characters that the column needs, with its name wrapped between words."""
        return widest([*self.name.split(), *self.cells])


def widest(texts: Sequence[str]) -> int:
    """The width of the longest text."""
    return max((cell_len(printable(text)) for text in texts), default=0)


def columns_that_fit(table: Table, ranks: Sequence[int], room: int) -> tuple[list[Column], list[int]]:
    """The columns that fit into `room` characters, and the ranks that do not."""
    single = [
        Column((rank,), cells, deviations)
        for rank, cells, deviations in zip(ranks, table.columns, table.deviations, strict=True)
    ]
    for columns in (single, folded(single)):
        if _room(columns) <= room:
            return columns, []
    return _most_deviating(columns, room)


def folded(single: Sequence[Column]) -> list[Column]:
    """Ranks with equal cells share a column."""
    by_cells: dict[tuple[str, ...], list[Column]] = defaultdict(list)
    for column in single:
        by_cells[column.cells].append(column)
    return [
        Column(tuple(rank for column in equal for rank in column.ranks), cells, equal[0].deviations)
        for cells, equal in by_cells.items()
    ]


def _most_deviating(columns: Sequence[Column], room: int) -> tuple[list[Column], list[int]]:
    """The columns with most deviations, then with most ranks, as long as they fit; at least one."""
    order = sorted(
        range(len(columns)),
        key=lambda index: (-columns[index].deviations, -len(columns[index].ranks), index),
    )
    kept: set[int] = set()
    for index in order:
        wider = [columns[other] for other in (*kept, index)]
        if not kept or _room(wider) <= room:
            kept.add(index)
    left_out = [rank for index, column in enumerate(columns) if index not in kept for rank in column.ranks]
    return [columns[index] for index in sorted(kept)], sorted(left_out)


def _room(columns: Sequence[Column]) -> int:
    return sum(column.width + BETWEEN for column in columns) - BETWEEN
