"""Rounds: collectives in which all wait for all, and of which it is known when each rank asked for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.events import NO_TIME, Bools, Columns, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import starts_of
from tracelink.operations import SYNCHRONIZING, operation_of


@dataclass(frozen=True, slots=True)
class Rounds(Columns):
    """One row for each round in which all ranks of the group that have a dump take part."""

    begin: Int64s
    """Its first part; the others follow."""
    size: Int64s
    last: Int64s
    """The part that was created last."""
    came: Int64s
    """When that was."""
    late: Int64s
    """How long after the last but one."""

    def __len__(self) -> int:
        return len(self.begin)

    def of_parts(self) -> Int64s:
        """For all parts of all rounds, in order, the row of their round."""
        return np.repeat(np.arange(len(self)), self.size)

    def parts(self) -> Int64s:
        """All parts of all rounds, in order."""
        before = np.cumsum(self.size) - self.size
        rows: Int64s = np.arange(int(self.size.sum())) + np.repeat(self.begin - before, self.size)
        return rows


def rounds_of(journal: Journal, parts: Parts, created: Int64s) -> Rounds:
    """All rounds of two ranks and more; `created` is when each part was, by one clock."""
    begin = starts_of(parts.round)
    size = np.diff(np.append(begin, len(parts)))
    kept = (size > 1) & (size == _present(journal, parts, begin, size)[parts.group[begin]])
    kept &= _synchronizing(journal)[journal.records.request[parts.row[begin]]]
    if len(begin):
        kept &= np.minimum.reduceat(created, begin) != NO_TIME
    begin, size = begin[kept], size[kept]
    none = np.empty(0, np.int64)
    rounds = Rounds(begin, size, none, none, none)
    return _timed(rounds, created) if len(begin) else rounds


def _present(journal: Journal, parts: Parts, begin: Int64s, size: Int64s) -> Int64s:
    """For each group how many of its members can tell when they came."""
    here = set(journal.recordings)
    described = [len(here.intersection(group.ranks)) for group in journal.groups]
    most = np.array(described, np.int64)
    np.maximum.at(most, parts.group[begin], size)
    return most


def _synchronizing(journal: Journal) -> Bools:
    """For each request whether nobody leaves it before the last has entered."""
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    return np.array([name in SYNCHRONIZING for name in names], np.bool_)


def _timed(rounds: Rounds, created: Int64s) -> Rounds:
    rows, own = rounds.parts(), rounds.of_parts()
    first = np.cumsum(rounds.size) - rounds.size
    times = created[rows]
    came = np.maximum.reduceat(times, first)
    places = np.flatnonzero(times == came[own])[::-1]
    last = np.empty(len(rounds), np.int64)
    last[own[places]] = places
    times[last] = NO_TIME
    late = came - np.maximum.reduceat(times, first)
    return Rounds(rounds.begin, rounds.size, rows[last], came, late)
