"""Calls and flight-recorder entries that have the same number in the same group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN, Communications
from tracelink.events import Int64s
from tracelink.linking.joins import NONE, lookup, values_at


def numbers_of(group: Any, point_to_point: Any, sequence: Any) -> Int64s:
    """One value for each number of each group, of collectives and of messages; UNKNOWN where any is not known."""
    known = (group != UNKNOWN) & (sequence != UNKNOWN)
    number = (sequence.astype(np.int64) << 24 | group.astype(np.int64)) << 1 | point_to_point
    return np.where(known, number, UNKNOWN)


def by_number(table: Communications, records: Int64s, told: Mapping[str, Any], open_calls: Int64s) -> Int64s:
    """For each of `open_calls` the record of the same number, or NONE.

    Where several have one number they were issued as one, and are the same in order if they are as many.
    """
    said = lookup(table.row, records)
    columns = [values_at(column, said) for column in (table.group, table.sequence)]
    wanted = numbers_of(columns[0], values_at(table.point_to_point, said, False), columns[1])
    numbers = numbers_of(told["group"], told["point_to_point"], told["sequence"])[open_calls]
    known = np.flatnonzero(wanted != UNKNOWN)
    values, place = np.unique(np.concatenate([numbers, wanted[known]]), return_inverse=True)
    ours, theirs = place[: len(numbers)], place[len(numbers) :]
    many = len(values)
    as_many = np.bincount(ours, minlength=many) == np.bincount(theirs, minlength=many)
    turn_ours, turn_theirs = _turns(ours), _turns(theirs)
    most = int(max(turn_ours.max(initial=0), turn_theirs.max(initial=0))) + 1
    found = lookup(theirs * most + turn_theirs, ours * most + turn_ours)
    usable = (found != NONE) & (numbers != UNKNOWN) & as_many[ours]
    return np.where(usable, values_at(records[known], found), NONE)


def _turns(values: Int64s) -> Int64s:
    """How many of the same value stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered)
    turns = np.empty(len(values), np.int64)
    turns[order] = np.arange(len(values)) - first
    return turns
