"""Arrows: each has a number, which the events at both its ends name."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tracelink.converters.perfetto_native.schema import Event
from tracelink.events import Int64s
from tracelink.wire import FIXED64, Bytes, key

LEAVES, ARRIVES = key(Event.FLOW, FIXED64), key(Event.LAST_OF_FLOW, FIXED64)


def arrow_fields(source: Int64s, target: Int64s, place: Int64s, first: int) -> tuple[Int64s, Bytes]:
    """Rows at which arrows begin or end, and the fields of each; `place` says which row the engine meets first."""
    turned = place[source] > place[target]
    begin, end = np.where(turned, target, source), np.where(turned, source, target)
    numbers = first + np.arange(len(begin))
    return np.concatenate([begin, end]), np.concatenate([fields(LEAVES, numbers), fields(ARRIVES, numbers)])


def fields(head: bytes, numbers: Int64s) -> Bytes:
    """The field of each arrow's number."""
    made = np.empty((len(numbers), len(head) + 8), np.uint8)
    made[:, : len(head)] = np.frombuffer(head, np.uint8)
    made[:, len(head) :] = numbers.astype("<i8").view(np.uint8).reshape(len(numbers), 8)
    return made


def joined_by_row(rows: Int64s, made: Bytes) -> dict[int, bytes]:
    """For each of `rows`, its fields one after the other."""
    order = np.argsort(rows, kind="stable")
    text, width = made[order].tobytes(), made.shape[1]
    distinct, first = np.unique(rows[order], return_index=True)
    bounds = pairwise([*(width * first).tolist(), len(text)])
    return {row: text[low:high] for row, (low, high) in zip(distinct.tolist(), bounds, strict=True)}
