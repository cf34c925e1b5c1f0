"""Entries side by side: rows, cells, columns that fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.cells import cell_len

from tracelink.cli.collectives_page import groups_named
from tracelink.cli.diagnosis_page import LONGEST_NAME, group_cell
from tracelink.cli.terminal import NOTHING
from tracelink.diagnosis.explain import own_frames
from tracelink.diagnosis.journal import Journal, first_of_each_request, reread_entries
from tracelink.diagnosis.matrix import Matrix, agreement_codes, matrix_of
from tracelink.errors import Finding, UsageError, printable
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.records import Entry, Frame, State
from tracelink.ranges import Numbers
from tracelink.text import operation_in_words

# Which entries a user wants to see.


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries a user wants to see."""

    ranks: Numbers | None = None
    groups: Sequence[str] = ()
    stacks: bool = False
    limit: int | None = None
    """At most so many rows, 0 for all; None where the user says nothing."""
    csv: bool = False

    def last(self, default: int | None) -> int | None:
        """How many rows there are to be."""
        return default if self.limit is None else self.limit or None


# What is chosen of the entries of all ranks, and what their dumps tell of them.


@dataclass(frozen=True, slots=True)
class Shown:
    """Entries side by side, with what is told of them."""

    journal: Journal
    matrix: Matrix
    told: Mapping[int, Entry]
    """One entry for each request that is shown; with stacks, all of them. By row of the journal."""
    of_request: Mapping[int, Entry]
    with_stacks: bool
    findings: Sequence[Finding]

    @classmethod
    def of(cls, journal: Journal, wanted: Wanted, last: int | None) -> Shown:
        """The last rows of what is wanted."""
        ranks = (
            journal.ranks
            if wanted.ranks is None
            else journal.ranks[wanted.ranks.mark(journal.ranks.astype(np.int64))]
        )
        if not len(ranks):
            raise UsageError(
                f"--ranks: there is no dump of {wanted.ranks.called('rank') if wanted.ranks else 'any rank'}",
                advice=f"There are dumps of {Numbers.of(journal.ranks.tolist()).called('rank')}.",
            )
        matrix = matrix_of(journal, _of_groups(journal, wanted.groups), ranks, last)
        rows = matrix.entry[matrix.entry != UNKNOWN]
        told, findings = reread_entries(
            journal, rows if wanted.stacks else first_of_each_request(journal, rows)
        )
        requests = {int(journal.records.request[row]): entry for row, entry in told.items()}
        return cls(journal, matrix, told, requests, wanted.stacks, findings)

    def stack(self, row: int) -> tuple[Frame, ...]:
        """The stack of an entry without torch itself, the innermost frame first; empty unless it is asked for."""
        entry = self.told.get(row) if self.with_stacks else None
        return own_frames(entry.frames) if entry else ()

    def entries(self) -> tuple[Int64s, Int64s, Bools]:
        """All entries that are shown: the row of the matrix, that of the journal, whether it only closes others."""
        matrix = self.matrix
        row, column = np.nonzero(matrix.entry != UNKNOWN)
        closing = matrix.closing[row, column]
        last = {int(one): int(at) for one, at in zip(closing, row, strict=True) if one != UNKNOWN}
        rows = np.concatenate([row, np.array(list(last.values()), np.int64)])
        entries = np.concatenate([matrix.entry[row, column], np.array(list(last), np.int64)])
        order = np.lexsort((entries, rows))
        return rows[order], entries[order], (order >= len(row))


def _of_groups(journal: Journal, wanted: Sequence[str]) -> Bools:
    """The entries of any of these groups; of all, where none is named."""
    if not wanted:
        return np.ones(len(journal), np.bool_)
    named = np.zeros(len(journal.groups) + 1, np.bool_)
    for name in wanted:
        named[:-1] |= groups_named(journal.groups, name)
    chosen: Bools = named[journal.records.group]
    return chosen


# Entries in a few letters: what they ask for, and how far they got.


MISSING = "missing"
LOST = "?"

DONE, STARTED, QUEUED, RETIRED, THERE = "done", "started", "queued", "retired", "there"

MEANINGS = {
    QUEUED: "asked for, not started",
    STARTED: "started, not completed",
    DONE: "completed",
    RETIRED: "off the list of work: completed or given up, its backend does not say which",
    THERE: "recorded, without saying how far it got",
    MISSING: "takes part by its group, and has no entry",
    LOST: "may have taken part: its dump no longer tells",
}
"""What stands in a cell."""

UNEVEN = "uneven"
"""Stands for sizes where each rank may have its own."""

MOST_TENSORS = 2
LONGEST = 40
"""Letters of what is asked for."""


def state_in_words(journal: Journal, entry: int, closing: int) -> str:
    """How far an entry got; where it was issued with others, what closes them says it."""
    row = entry if closing == UNKNOWN else closing
    state, retired = int(journal.records.state[row]), int(journal.records.retired[row])
    if state == State.COMPLETED:
        return DONE
    if retired == 1:
        return RETIRED
    return {State.STARTED: STARTED, State.SCHEDULED: QUEUED}.get(State(state), THERE)


def operation_of_entry(journal: Journal, row: int) -> str:
    """The operation without its backend and without the ranks of a message."""
    return operation_in_words(journal.operation(row)).partition(" ")[0]


def tensors_in_words(entry: Entry | None, *, message: bool) -> str:
    """`Float 64x16`, `Float 64x16 -> 128x16`; of a message only what is sent, the same on both sides."""
    if entry is None:
        return ""
    given, got = (_sizes(sizes) for sizes in (entry.input_sizes, entry.output_sizes))
    sizes = f"{given} -> {got}" if given and got and got != given and not message else given or got
    words = f"{types_in_words(entry)} {sizes}".strip()
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def types_in_words(entry: Entry | None) -> str:
    """`Float`, `BFloat16/Float`."""
    return "/".join(dict.fromkeys([*entry.input_types, *entry.output_types])) if entry else ""


def _sizes(tensors: Sequence[Sequence[int]]) -> str:
    shown = ", ".join("x".join(map(str, sizes)) or "scalar" for sizes in tensors[:MOST_TENSORS])
    rest = len(tensors) - MOST_TENSORS
    return f"{shown} + {rest} more" if rest > 0 else shown


def ordinal(place: int) -> str:
    """`1st` of place 0."""
    number = place + 1
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# The table of entries: what a row has in common at its left, and for each rank how far it got and what differs.


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text."""

    common: Sequence[tuple[str, ...]]
    """Group, number, what is done, with what tensors, and the number of the stack, for each row."""
    columns: Sequence[tuple[str, ...]]
    """The cells of each rank."""
    odd: Sequence[int]
    """For each rank, how many of its cells stand out."""
    stacks: Sequence[tuple[Frame, ...]]
    """By number, from 1."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What one rank asks for."""

    operation: str
    tensors: str
    types: str
    stack: int
    agreement: object
    """Equal where ranks agree, whatever sizes each of them may have."""

    def agrees(self, other: _Call) -> bool:
        """Whether ranks may ask for both together."""
        return self.agreement == other.agreement or self.said() == other.said()

    def said(self) -> tuple[str, str]:
        """Operation and tensors."""
        return self.operation, self.tensors


class TableOf:
    """Puts a table together, row by row."""

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
        """All of it."""
        matrix = self._shown.matrix
        common: list[tuple[str, ...]] = []
        cells: list[list[str]] = []
        odd = np.zeros(len(matrix.ranks), np.int64)
        for row in range(len(matrix)):
            calls = [None if one == UNKNOWN else self._call(row, one) for one in matrix.entry[row].tolist()]
            usual = _usual([call for call in calls if call])
            common.append(self._common(row, usual))
            cells.append([self._cell(row, place, call, usual) for place, call in enumerate(calls)])
            odd += [call is not None and not call.agrees(usual) for call in calls]
            odd += [cell == MISSING for cell in cells[-1]]
        columns = list(zip(*cells, strict=True)) if cells else [()] * len(matrix.ranks)
        return Table(common, columns, odd.tolist(), list(self._stacks))

    def _call(self, row: int, entry: int) -> _Call:
        message = self._message[row]
        request = int(self._journal.records.request[entry])
        told = self._shown.of_request.get(request)
        stack = self._shown.stack(entry)
        number = self._stacks.setdefault(stack, len(self._stacks) + 1) if stack else 0
        operation = "message" if message else operation_of_entry(self._journal, entry)
        tensors = tensors_in_words(told, message=message)
        alike = tensors if message else int(self._agreement[request])
        return _Call(operation, tensors, types_in_words(told), number, alike)

    def _common(self, row: int, usual: _Call) -> tuple[str, ...]:
        matrix, records = self._shown.matrix, self._journal.records
        entries = matrix.entry[row][matrix.entry[row] != UNKNOWN]
        groups = np.unique(records.group[entries]).tolist()
        sequence = int(records.sequence[entries[0]])
        name = NOTHING if groups[0] == UNKNOWN else self._groups[groups[0]]
        ends = self._between[row]
        if len(groups) > 1:
            name = _side_by_side(self._journal.groups[groups[0]].description, len(groups))
            ends = self._within_groups(int(entries[0]))
        return (
            name,
            str(sequence) if sequence > 0 else NOTHING,
            f"{usual.operation} {ends}" if self._message[row] else usual.operation,
            usual.tensors or NOTHING,
            str(usual.stack) if usual.stack else NOTHING,
        )

    def _within_groups(self, entry: int) -> str:
        """`1st -> 2nd`: what is the same in all groups are the places of the ranks."""
        requests, request = self._journal.requests, int(self._journal.records.request[entry])
        return f"{ordinal(int(requests.source[request]))} -> {ordinal(int(requests.target[request]))}"

    def _cell(self, row: int, place: int, call: _Call | None, usual: _Call) -> str:
        matrix = self._shown.matrix
        if call is None:
            lost = matrix.lost[row, place]
            return (LOST if lost else MISSING) if matrix.member[row, place] else ""
        words = []
        if not call.agrees(usual):
            words += [call.operation] if call.operation != usual.operation else []
            words += [call.tensors or "no tensor"] if call.tensors != usual.tensors else []
        words += [f"stack {call.stack}"] if call.stack not in (0, usual.stack) else []
        state = state_in_words(self._journal, int(matrix.entry[row, place]), int(matrix.closing[row, place]))
        return " ".join([*words, state])


def _side_by_side(description: str, count: int) -> str:
    """`tp (4 groups)`."""
    groups = f" ({count} groups)"
    room = LONGEST_NAME - len(groups)
    return (description if len(description) <= room else f"{description[: room - 1]}…") + groups


def _usual(calls: Sequence[_Call]) -> _Call:
    """What most ranks ask for, and the stack that most of them have."""
    counts = Counter(call.agreement for call in calls)
    alike = [call for call in calls if counts[call.agreement] == max(counts.values())]
    alike = [call for call in alike if call.agreement == alike[0].agreement]
    stacks = Counter(call.stack for call in alike)
    stack = max(stacks, key=lambda one: (stacks[one], -one))
    if len({call.tensors for call in alike}) == 1:
        return replace(alike[0], stack=stack)
    return replace(alike[0], tensors=f"{alike[0].types} {UNEVEN}".strip(), stack=stack)


# Which columns of ranks fit a page: one for each rank, else equal ones as one, else those that stand out.


BETWEEN = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one rank, or of several whose cells are equal."""

    ranks: tuple[int, ...]
    cells: tuple[str, ...]
    odd: int
    """How many of the cells stand out."""

    @property
    def name(self) -> str:
        """`rank 3`, `ranks 0-2, 4-7`."""
        return Numbers.of(self.ranks).called("rank")

    @property
    def width(self) -> int:
        """Letters that it needs, if its name is wrapped between words."""
        return widest([*self.name.split(), *self.cells])


def widest(texts: Sequence[str]) -> int:
    """The letters of the longest."""
    return max((cell_len(printable(text)) for text in texts), default=0)


def columns_that_fit(table: Table, ranks: Sequence[int], room: int) -> tuple[list[Column], list[int]]:
    """The columns to show where there is room for so many letters, and the ranks that are left out."""
    single = [
        Column((rank,), cells, odd) for rank, cells, odd in zip(ranks, table.columns, table.odd, strict=True)
    ]
    for columns in (single, folded(single)):
        if _room(columns) <= room:
            return columns, []
    return _most_telling(columns, room)


def folded(single: Sequence[Column]) -> list[Column]:
    """Ranks with equal cells share a column."""
    alike: dict[tuple[str, ...], list[Column]] = defaultdict(list)
    for column in single:
        alike[column.cells].append(column)
    return [
        Column(tuple(rank for one in equal for rank in one.ranks), cells, equal[0].odd)
        for cells, equal in alike.items()
    ]


def _most_telling(columns: Sequence[Column], room: int) -> tuple[list[Column], list[int]]:
    """What stands out, then what stands for most ranks, as long as there is room; at least one column."""
    order = sorted(
        range(len(columns)), key=lambda place: (-columns[place].odd, -len(columns[place].ranks), place)
    )
    kept: set[int] = set()
    for place in order:
        wider = [columns[one] for one in (*kept, place)]
        if not kept or _room(wider) <= room:
            kept.add(place)
    left_out = [rank for place, one in enumerate(columns) if place not in kept for rank in one.ranks]
    return [columns[place] for place in sorted(kept)], sorted(left_out)


def _room(columns: Sequence[Column]) -> int:
    return sum(column.width + BETWEEN for column in columns) - BETWEEN
