"""Links, LinkReport; joining events on keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tracelink.errors import Finding
from tracelink.model.columns import UNKNOWN, Int64s
from tracelink.model.events import Edges, KeyColumn
from tracelink.model.graph import LinkReport
from tracelink.model.trace import RankTrace

# What a linker found: edges, and how many of those it could have found.


@dataclass(frozen=True, slots=True)
class Links:
    """The edges of one relation on one rank, with the report on them."""

    edges: Edges
    report: LinkReport
    findings: tuple[Finding, ...] = ()


# Joining events on equal values, for whole columns at once.


Value = TypeVar("Value", bound=np.generic)


def lookup(values: Int64s, wanted: Int64s) -> Int64s:
    """For each wanted value its place in `values`, the last one where it stands there several times, or -1."""
    if not len(values) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, np.int64)
    low, high = int(values.min()), int(values.max())
    inside = (wanted >= low) & (wanted <= high)
    if high - low <= 8 * (len(values) + len(wanted)) + (1 << 16):
        table = np.full(high - low + 1, UNKNOWN, np.int64)
        table[values - low] = np.arange(len(values))
        return np.where(inside, table[np.where(inside, wanted - low, 0)], UNKNOWN)
    order = np.argsort(values, kind="stable")
    place = np.searchsorted(values[order], wanted, side="right") - 1
    found = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (values[found] == wanted), found, UNKNOWN)


def values_at(column: npt.NDArray[Value], rows: Int64s, otherwise: int = UNKNOWN) -> npt.NDArray[Value]:
    """The column's value at each row; `otherwise` where the row is UNKNOWN."""
    if not len(column):
        return np.full(len(rows), otherwise, column.dtype)
    values = column[rows]
    missing = rows == UNKNOWN
    if missing.any():
        values[missing] = otherwise
    return values


def repeated(values: Int64s) -> int:
    """How many values stand there a second time."""
    if not len(values):
        return 0
    low, high = int(values.min()), int(values.max())
    if high - low > 8 * len(values) + (1 << 16):
        return len(values) - len(np.unique(values))
    seen = np.zeros(high - low + 1, np.bool_)
    seen[values - low] = True
    return len(values) - int(np.count_nonzero(seen))


def scoped(trace: RankTrace, column: KeyColumn) -> Int64s:
    """The column's values, told apart by source where several sources use the same ids."""
    source = trace.events.source[column.rows]
    if len(trace.sources) < 2 or not len(source) or source.min() == source.max():
        return column.values
    distinct, place = np.unique(column.values, return_inverse=True)
    return source.astype(np.int64) * len(distinct) + place


def scoped_pair(trace: RankTrace, one: KeyColumn, other: KeyColumn) -> tuple[Int64s, Int64s]:
    """Two columns of the same ids, told apart by source alike."""
    both = KeyColumn(np.concatenate([one.rows, other.rows]), np.concatenate([one.values, other.values]))
    values = scoped(trace, both)
    return values[: len(one)], values[len(one) :]
