"""Collectives in which ranks do not do the same, and who is alone with what it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.comparing import Aspect, Comparison
from tracelink.analysis.parts import Parts
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.linking.coding import distinct, starts_of


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One collective in which ranks differ."""

    group: int
    sequence: int
    round: int
    aspect: Aspect
    culprits: tuple[int, ...]
    """Those who are not of the majority; all of them where there is none."""
    tie: bool
    typical: int
    """A part of one who does what most do."""
    odd: int
    """A part of one who does not."""
    detail: str = ""
    """What more there is to say, in words."""


def disagreements_of(parts: Parts, comparisons: Sequence[Comparison]) -> list[Disagreement]:
    """All collectives whose parts differ in anything that is compared."""
    if not len(parts):
        return []
    starts = starts_of(parts.round)
    lengths = np.diff(np.append(starts, len(parts)))
    differing = [_differing(one.value[parts.request], starts, lengths) for one in comparisons]
    found = np.flatnonzero(np.logical_or.reduce(differing))
    result = []
    for number in found.tolist():
        aspect = min(one.aspect for one, wrong in zip(comparisons, differing, strict=True) if wrong[number])
        rows = np.arange(starts[number], starts[number] + lengths[number])
        columns = [one.value[parts.request[rows]] for one in comparisons]
        result.append(_disagreement(parts, rows, aspect, columns))
    return result


def _differing(column: Int64s, starts: Int64s, lengths: Int64s) -> Bools:
    """For each run of rows whether two of them are known to differ."""
    known = column != UNKNOWN
    highest = np.maximum.reduceat(np.where(known, column, np.iinfo(np.int64).min), starts)
    lowest = np.minimum.reduceat(np.where(known, column, np.iinfo(np.int64).max), starts)
    differing: Bools = (highest != lowest) & (np.add.reduceat(known, starts) > 1) & (lengths > 1)
    return differing


def _disagreement(parts: Parts, rows: Int64s, aspect: Aspect, columns: Sequence[Int64s]) -> Disagreement:
    label, first = distinct(*(_completed(column) for column in columns))
    count = np.bincount(label)
    most = int(count.argmax())
    tie = bool(np.count_nonzero(count == count[most]) > 1)
    odd = rows if tie else rows[label != most]
    return Disagreement(
        int(parts.group[rows[0]]),
        int(parts.sequence[rows[0]]),
        int(parts.round[rows[0]]),
        aspect,
        tuple(parts.rank[odd].tolist()),
        tie,
        int(rows[first[most]]),
        int(rows[label != most][0]),
    )


def _completed(column: Int64s) -> Int64s:
    """What a rank does not say counts as what most say."""
    known = column[column != UNKNOWN]
    if not len(known) or len(known) == len(column):
        return column
    values, count = np.unique(known, return_counts=True)
    return np.where(column == UNKNOWN, values[count.argmax()], column)
