"""The columns of entries to records and the requests that they repeat."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN, Communications
from tracelink.events import NO_TIME, Int32s, Int64s
from tracelink.linking.coding import distinct
from tracelink.records import Int8s, Records, Requests, State

WITHIN_TENSOR, AMONG_TENSORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
"""Odd numbers without a pattern: sums of sizes times their powers are equal for equal sizes only."""

STATES = {
    "scheduled": State.SCHEDULED,
    "started": State.STARTED,
    "completed": State.COMPLETED,
}
FLAGS = {True: 1, False: 0}


@dataclass(frozen=True, slots=True)
class Told:
    """What entries say beyond how they communicate, as it was decoded."""

    state: list[str | None]
    retired: list[Any]
    started: list[Any]
    completed: list[Any]
    timeout: list[Any]
    place: list[int]
    created: Int64s


def records_of(
    communications: Communications, told: Told, shapes: tuple[Int64s, Int64s], type_out: Int32s
) -> tuple[Records, Requests]:
    """Records, and the different requests among them."""
    columns = {
        "operation": communications.operation,
        "source": communications.source,
        "target": communications.target,
        "elements_in": communications.elements_in,
        "elements_out": communications.elements_out,
        "shape_in": shapes[0],
        "shape_out": shapes[1],
        "type_in": communications.type,
        "type_out": type_out,
    }
    request, first = distinct(*columns.values())
    records = Records.of(
        len(communications),
        group=communications.group,
        request=request,
        sequence=communications.sequence,
        point_to_point=communications.point_to_point,
        state=_states(told),
        retired=[FLAGS.get(value, UNKNOWN) if type(value) is bool else UNKNOWN for value in told.retired],
        created=told.created,
        started=_times(told.started),
        completed=_times(told.completed),
        timeout_ms=[value if type(value) is int and 0 <= value < 1 << 62 else UNKNOWN for value in told.timeout],
        place=told.place,
    )
    return records, Requests(**columns).take(first)


def _states(told: Told) -> Int8s:
    """As said; a time of completion or of starting says it too."""
    said = np.array([STATES.get(state or "", State.UNKNOWN) for state in told.state], np.int8)
    started = np.where(_times(told.started) != NO_TIME, np.int8(State.STARTED), np.int8(State.UNKNOWN))
    completed = np.where(_times(told.completed) != NO_TIME, np.int8(State.COMPLETED), np.int8(State.UNKNOWN))
    states: Int8s = np.maximum(np.maximum(said, started), completed)
    return states


def _times(values: list[Any]) -> Int64s:
    return np.array(
        [value if type(value) is int and 0 < value < 1 << 62 else NO_TIME for value in values], np.int64
    )


def fingerprints(column: list[Any]) -> Int64s:
    """A number for the sizes of each entry's tensors; the same for whatever are no sizes."""
    whole = _fingerprints(column)
    if whole is not None:
        return whole
    alone = (_fingerprints([sizes]) for sizes in column)
    return np.array([UNKNOWN if one is None else one[0] for one in alone], np.int64)


def _fingerprints(column: list[Any]) -> Int64s | None:
    try:
        counts = np.fromiter(map(len, column), np.int64, len(column))
        tensors = list(chain.from_iterable(column))
        lengths = np.fromiter(map(len, tensors), np.int64, len(tensors))
        sizes = np.fromiter(chain.from_iterable(tensors), np.int64, int(lengths.sum()))
    except (TypeError, ValueError, OverflowError):
        return None
    return _mixed(_mixed(sizes, lengths, WITHIN_TENSOR), counts, AMONG_TENSORS)


def _mixed(values: Int64s, lengths: Int64s, factor: int) -> Int64s:
    """One number for each run of values, by what they are and where they stand."""
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(values)) - np.repeat(starts, lengths)
    powers = np.full(int(lengths.max(initial=0)) + 1, factor, np.uint64)
    weight = np.multiply.accumulate(powers)[place + 1] if len(place) else np.empty(0, np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((values.astype(np.uint64) + np.uint64(1)) * weight)])
    mixed: Int64s = (sums[starts + lengths] - sums[starts] + lengths.astype(np.uint64)).astype(np.int64)
    return mixed
