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
    """For each of `open_calls` the record of the same number, or NONE."""
    numbers = numbers_of(told["group"], told["point_to_point"], told["sequence"])[open_calls]
    return values_at(records, paired(numbers, numbers_said(table, records)))


def numbers_said(table: Communications, rows: Int64s) -> Int64s:
    """The numbers that events give themselves."""
    said = lookup(table.row, rows)
    group, sequence = values_at(table.group, said), values_at(table.sequence, said)
    return numbers_of(group, values_at(table.point_to_point, said, False), sequence)


def paired(ours: Int64s, theirs: Int64s) -> Int64s:
    """For each of our numbers its place among theirs, or NONE.

    Where several have one number they were issued as one, and are the same in order if they are as many.
    """
    values, place = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    mine, other = place[: len(ours)], place[len(ours) :]
    as_many = np.bincount(mine, minlength=len(values)) == np.bincount(other, minlength=len(values))
    turn, other_turn = _turns(mine), _turns(other)
    most = int(max(turn.max(initial=0), other_turn.max(initial=0))) + 1
    found = lookup(other * most + other_turn, mine * most + turn)
    return np.where((ours != UNKNOWN) & as_many[mine], found, NONE)


def _turns(values: Int64s) -> Int64s:
    """How many of the same value stand before each."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    turns = np.empty(len(values), np.int64)
    turns[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return turns
