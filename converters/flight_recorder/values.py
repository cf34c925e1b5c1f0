"""The fields of decoded entries as they were decoded, and which of them can be used."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from tracelink.converters.flight_recorder.schema import Layout

TEXT = frozenset({str})
NUMBER = frozenset({int})
ABSENT = frozenset({type(None)})
LARGEST = int(np.iinfo(np.int64).max)

Value = TypeVar("Value", int, str)

GroupName = tuple[str, str]
"""Name and description."""


@dataclass(slots=True)
class Values:
    """One list for each field; None where an entry does not have it."""

    name: list[str]
    created: list[int]
    completed: list[int | None]
    group: list[Any]
    group_id: list[Any]
    collective: list[int | None]
    p2p: list[int | None]
    state: list[str | None]
    record: list[int | None]
    is_message: list[Any]
    started: list[Any]
    retired: list[Any]
    timeout: list[Any]
    input_sizes: list[Any]
    output_sizes: list[Any]
    input_types: list[Any]
    output_types: list[Any]

    @classmethod
    def of(cls, layout: Layout, entries: Sequence[dict[Any, Any]]) -> Values:
        """The fields of all entries at once where all have all."""
        names = _fields_of(layout)
        try:
            columns = list(map(list, zip(*map(itemgetter(*names), entries), strict=True)))
        except KeyError:
            columns = [[entry.get(name) for entry in entries] for name in names]
        return cls(*(columns or ([] for _ in names)))

    def group_names(self) -> list[GroupName]:
        """Name and description of the group of each entry."""
        if set(map(type, self.group)) <= {tuple}:
            return self.group
        return [tuple(group) if type(group) is list else (str(group), "") for group in self.group]

    def unusable(self, layout: Layout) -> dict[int, str]:
        """Rows with a field that cannot be used, and why."""
        wrong: dict[int, str] = {}
        _mistyped(layout.name, self.name, TEXT, wrong)
        _mistyped(layout.created, self.created, NUMBER, wrong, LARGEST // layout.created_unit_ns)
        _mistyped(layout.completed, self.completed, NUMBER | ABSENT, wrong)
        _mistyped(layout.collective_sequence, self.collective, NUMBER | ABSENT, wrong)
        _mistyped(layout.p2p_sequence, self.p2p, NUMBER | ABSENT, wrong)
        _mistyped(layout.state, self.state, TEXT | ABSENT, wrong)
        _mistyped(layout.record, self.record, NUMBER | ABSENT, wrong)
        if layout.group and not _are_group_names(self.group):
            for row, group in enumerate(self.group):
                if not _is_group_name(group):
                    wrong.setdefault(row, f"{layout.group} is not a name and a description")
        if not layout.group:
            _mistyped(layout.group_id, self.group, NUMBER | TEXT, wrong)
        return wrong


def _fields_of(layout: Layout) -> tuple[str, ...]:
    return (
        layout.name,
        layout.created,
        layout.completed,
        layout.group or layout.group_id,
        layout.group_id,
        layout.collective_sequence,
        layout.p2p_sequence,
        layout.state,
        layout.record,
        layout.is_message,
        layout.started,
        layout.retired,
        layout.timeout,
        layout.input_sizes,
        layout.output_sizes,
        layout.input_types,
        layout.output_types,
    )


def _mistyped(
    field: str,
    column: Sequence[Any],
    allowed: Collection[type],
    wrong: dict[int, str],
    largest: int = LARGEST,
) -> None:
    """Notes the rows whose value is of another type, or a number that is negative or too large."""
    types = set(map(type, column))
    if types <= set(allowed) and (int not in types or _in_range(column, largest)):
        return
    for row, value in enumerate(column):
        if type(value) not in allowed:
            wrong.setdefault(row, f"{field} is of type {type(value).__name__}")
        elif type(value) is int and not 0 <= value <= largest:
            wrong.setdefault(row, f"{field} is {value}")


def _in_range(column: Sequence[Any], largest: int) -> bool:
    numbers = [value for value in column if value is not None] if None in column else column
    return bool(min(numbers) >= 0 and max(numbers) <= largest)


def _are_group_names(groups: Sequence[Any]) -> bool:
    """Whether all are tuples of two texts, as pickles have them; the few different ones are looked at."""
    try:
        return set(map(type, groups)) <= {tuple} and all(map(_is_group_name, set(groups)))
    except TypeError:
        return False


def _is_group_name(group: Any) -> bool:
    return (
        (type(group) is tuple or type(group) is list)
        and len(group) == 2
        and type(group[0]) is str
        and type(group[1]) is str
    )
