"""The result of one linker, and ids that are only unique within their source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.errors import Finding
from tracelink.model.columns import Int64s
from tracelink.model.events import Edges, KeyColumn
from tracelink.model.graph import LinkReport
from tracelink.model.trace import RankTrace


@dataclass(frozen=True, slots=True)
class Links:
    """The edges of one relation on one rank, with the report on them."""

    edges: Edges
    report: LinkReport
    findings: tuple[Finding, ...] = ()


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    """The reasons or notes that occur."""
    return {reason: count for reason, count in counts.items() if count}


def scoped(trace: RankTrace, column: KeyColumn) -> Int64s:
    """The column's values, made different for each source: several sources may use the same ids."""
    source = trace.events.source[column.rows]
    if len(trace.sources) < 2 or not len(source) or source.min() == source.max():
        return column.values
    distinct, code = np.unique(column.values, return_inverse=True)
    return source.astype(np.int64) * len(distinct) + code


def scoped_pair(trace: RankTrace, first: KeyColumn, second: KeyColumn) -> tuple[Int64s, Int64s]:
    """`scoped` for two columns of the same ids, whose results can be compared."""
    both = KeyColumn(np.concatenate([first.rows, second.rows]), np.concatenate([first.values, second.values]))
    values = scoped(trace, both)
    return values[: len(first)], values[len(first) :]
