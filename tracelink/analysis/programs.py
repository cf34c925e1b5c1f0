"""What the ranks of a group do one after the other, as numbers that are equal where they do the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.alike import like_groups
from tracelink.analysis.comparing import Comparison
from tracelink.analysis.parts import Parts
from tracelink.communications import UNKNOWN
from tracelink.events import Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct

MOST_LEFT_OUT = 16
"""More collectives are not left out in one place; a longer shift would be a coincidence."""

CONTEXT = 3
"""So many collectives in a row are alike where a program repeats itself."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is done under each number, in the order of the numbers."""

    sequence: Int64s
    code: Int64s

    def from_number(self, sequence: int) -> Int64s:
        """What is done from a number on."""
        return self.code[np.searchsorted(self.sequence, sequence) :]

    def before(self, sequence: int) -> Int64s:
        """What is done before a number."""
        return self.code[: np.searchsorted(self.sequence, sequence)]


@dataclass(frozen=True)
class Programs:
    """The programs of all groups and ranks."""

    journal: Journal
    parts: Parts
    comparisons: Sequence[Comparison]

    @cached_property
    def _codes(self) -> Int64s:
        requests = distinct(*(comparison.value for comparison in self.comparisons))[0]
        return requests[self.parts.request]

    def codes_of(self, rows: Int64s) -> Int64s:
        """The numbers of some parts."""
        return self._codes[rows]

    def of_rank(self, group: int, rank: int) -> Program:
        """What one rank does in a group."""
        rows = self._rows(group)
        own = rows[self.parts.rank[rows] == rank]
        return Program(self.parts.sequence[own], self._codes[own])

    def of_group(self, group: int, without: Sequence[int] = ()) -> Program:
        """What most ranks of a group do, or most of those that are not left out."""
        rows = self._rows(group)
        rows = rows[~np.isin(self.parts.rank[rows], without)]
        if not len(rows):
            return Program(np.empty(0, np.int64), np.empty(0, np.int64))
        pair, first = distinct(self.parts.sequence[rows], self._codes[rows])
        sequence, code, count = self.parts.sequence[rows[first]], self._codes[rows[first]], np.bincount(pair)
        order = np.lexsort((-count, sequence))
        _, most = np.unique(sequence[order], return_index=True)
        return Program(sequence[order[most]], code[order[most]])

    def _rows(self, group: int) -> Int64s:
        begin, end = np.searchsorted(self.parts.group, [group, group + 1]).tolist()
        return np.arange(begin, end)


def left_out(own: Int64s, typical: Int64s, before: Int64s) -> int | None:
    """How many collectives a rank left out, if what it does from here on is what others do that much later.

    Where the others did not get so far, what they did before tells what was to follow.
    """
    due = _continued(before, typical, len(own) + MOST_LEFT_OUT)
    unmoved = _agreeing(own[1:], typical[1:])
    for count in range(1, MOST_LEFT_OUT + 1):
        if _goes_on_alike(own, due[count:], unmoved):
            return count
    return None


def _continued(before: Int64s, typical: Int64s, length: int) -> Int64s:
    """What is done from here on, and what would follow if everything went on as it did before."""
    done = np.append(before, typical)
    places = _like_the_end(done)
    if not places or len(typical) >= length:
        return typical
    period = len(done) - 1 - places[-1]
    following = done[len(done) - period :]
    return np.append(typical, np.resize(following, length - len(typical)))


def _goes_on_alike(one: Int64s, other: Int64s, unmoved: int) -> bool:
    """Whether all of what can be compared agrees, and more than agrees where nothing is moved."""
    common = min(len(one), len(other))
    return common > unmoved and _agreeing(one, other) == common


def _agreeing(one: Int64s, other: Int64s) -> int:
    common = min(len(one), len(other))
    return int(np.count_nonzero(one[:common] == other[:common]))


def _like_the_end(done: Int64s) -> list[int]:
    """Where the same was done as at the end, with the same before it."""
    last = len(done) - 1
    places = np.flatnonzero(done[:last] == done[last])
    depth = min(CONTEXT, last)
    return [
        place
        for place in places.tolist()
        if all(done[max(place - back, 0)] == done[last - back] for back in range(min(depth, place + 1)))
    ]


def inserted(own: Int64s, typical: Int64s) -> int | None:
    """How many collectives a rank did that nobody else does, if it goes on as others do from here on."""
    unmoved = _agreeing(own[1:], typical[1:])
    for count in range(1, MOST_LEFT_OUT + 1):
        if _goes_on_alike(own[count:], typical, unmoved):
            return count
    return None


def expected(programs: Programs, group: int, sequence: int) -> int:
    """What is to be done under a number, by what like groups do and what this one did before; or UNKNOWN."""
    before = programs.of_group(group).before(sequence)
    alike = [row for row in like_groups(programs.journal.groups, group) if row != group]
    votes = [
        int(other.from_number(sequence)[0])
        for other in map(programs.of_group, alike)
        if sequence in other.sequence and np.array_equal(other.before(sequence), before)
    ]
    if not votes:
        votes = habits(before)
    values, counts = np.unique(np.array(votes, np.int64), return_counts=True)
    if not len(values) or np.count_nonzero(counts == counts.max()) > 1:
        return UNKNOWN
    return int(values[counts.argmax()])


def habits(before: Int64s) -> list[int]:
    """What followed where the same was done as at the end."""
    return [int(before[place + 1]) for place in _like_the_end(before)] if len(before) > CONTEXT else []
