"""The table of entries: what a row has in common at its left, and for each rank how far it got and what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.analysis.belonging import agreement
from tracelink.cli.diagnosis_standings import LONGEST_NAME, group_cell
from tracelink.cli.entries_rows import Shown
from tracelink.cli.entries_words import (
    LOST,
    MISSING,
    UNEVEN,
    operation_of_entry,
    ordinal,
    state_in_words,
    tensors_in_words,
    types_in_words,
)
from tracelink.cli.page import NOTHING
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Frame


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
        self._agreement = agreement(self._journal)
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
