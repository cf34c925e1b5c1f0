"""Links, LinkReport; joining events on keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.errors import Finding
from tracelink.model.columns import Int64s
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
