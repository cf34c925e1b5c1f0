"""Entries as columns of what they say: one row for each that can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.converters.flight_recorder.repeats import Entries
from tracelink.converters.flight_recorder.requests import Asked, asked_by
from tracelink.converters.flight_recorder.schema import Dump, Layout
from tracelink.converters.flight_recorder.values import LARGEST, GroupName, Values
from tracelink.events import Bools, Int32s, Int64s
from tracelink.records import Int8s
from tracelink.strings import StringTable

FLAGS = {True: 1, False: 0}


@dataclass(frozen=True, slots=True)
class Fields:
    """UNKNOWN stands for what is None, and for what is no whole number."""

    place: Int64s
    """In the dump."""
    group: Int64s
    """Row of the groups."""
    group_id: Int64s
    collective: Int64s
    p2p: Int64s
    created: Int64s
    started: Int64s
    completed: Int64s
    timeout: Int64s
    state: Int32s
    """Code of a text."""
    retired: Int8s
    is_message: Bools
    asked: Asked
    groups: list[GroupName]
    first_record: int
    skipped: int = 0
    """How many entries cannot be used."""
    example: str = ""
    """What is wrong with the first of them."""

    def __len__(self) -> int:
        return len(self.place)


def fields_of(dump: Dump, entries: Entries, strings: StringTable) -> Fields | None:
    """The usable entries; None if some repeat others in a way that this cannot tell."""
    layout = dump.layout
    usable, place, example = _distinct_dicts(entries.decoded)
    values = Values.of(layout, usable)
    wrong = values.unusable(layout)
    if entries.repeats and (wrong or example or entries.numbered(*_words(layout))):
        return None
    if wrong:
        example = example or wrong[min(wrong)]
        kept = [row for row in range(len(usable)) if row not in wrong]
        usable, place = [usable[row] for row in kept], place[kept]
        values = Values.of(layout, usable)
    if not entries.repeats:
        entries = Entries.all_decoded(usable)
    fields = _told(dump, entries, values, strings)
    if (fields.created < 0).any():
        return None
    skipped = len(dump.entries) - len(usable)
    return fields if entries.repeats else replace(fields, place=place, skipped=skipped, example=example)


def _told(dump: Dump, entries: Entries, values: Values, strings: StringTable) -> Fields:
    layout = dump.layout
    names = values.group_names()
    groups = {group: code for code, group in enumerate(dict.fromkeys(names))}
    states = np.array([UNKNOWN if state is None else strings[state] for state in values.state], np.int32)
    retired = [FLAGS[value] if type(value) is bool else UNKNOWN for value in values.retired]

    def numbers(field: str, column: Sequence[Any]) -> Int64s:
        return entries.numbers(field, _whole(column))

    return Fields(
        place=np.arange(entries.count),
        group=entries.told(layout.group, np.array(list(map(groups.__getitem__, names)), np.int64)),
        group_id=numbers(layout.group_id, values.group_id),
        collective=numbers(layout.collective_sequence, values.collective),
        p2p=numbers(layout.p2p_sequence, values.p2p),
        created=numbers(layout.created, values.created) * layout.created_unit_ns,
        started=numbers(layout.started, values.started),
        completed=numbers(layout.completed, values.completed),
        timeout=numbers(layout.timeout, values.timeout),
        state=entries.told(layout.state, states),
        retired=entries.told(layout.retired, np.array(retired, np.int8)),
        is_message=entries.told(
            layout.is_message, np.array([told is True for told in values.is_message], np.bool_)
        ),
        asked=asked_by(entries, values, layout, strings),
        groups=list(groups),
        first_record=(values.record[0] or 0) if values.record else 0,
    )


def _distinct_dicts(entries: Sequence[Any]) -> tuple[list[dict[Any, Any]], Int64s, str]:
    """An entry that is no dict, or is one that was there before, is no entry; both are rare."""
    identities = np.fromiter(map(id, entries), np.int64, len(entries))
    unique, first = np.unique(identities, return_index=True)
    if len(unique) == len(entries) and set(map(type, entries)) <= {dict}:
        return list(entries), np.arange(len(entries)), ""
    place = [int(row) for row in np.sort(first) if type(entries[row]) is dict]
    return (
        [entries[row] for row in place],
        np.array(place, np.int64),
        "an entry that is not a dict of its own",
    )


def _whole(column: Sequence[Any]) -> Int64s:
    """Whole numbers; UNKNOWN for all else."""
    if set(map(type, column)) == {int} and min(column) >= 0 and max(column) <= LARGEST:
        return np.array(column, np.int64)
    return np.array(
        [one if type(one) is int and 0 <= one <= LARGEST else UNKNOWN for one in column], np.int64
    )


def _words(layout: Layout) -> tuple[str, ...]:
    """Fields that hold no numbers, or whose numbers are names."""
    return (
        layout.name,
        layout.group or layout.group_id,
        layout.state,
        layout.is_message,
        layout.retired,
        layout.input_sizes,
        layout.output_sizes,
        layout.input_types,
        layout.output_types,
    )
