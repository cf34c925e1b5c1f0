"""What a rank was to do: its program, habits, like groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from tracelink.diagnosis.journal import (
    Journal,
    answers_of_requests,
    ask_for_messages,
    codes_of_requests,
    like_groups,
)
from tracelink.diagnosis.participation import Parts
from tracelink.model.columns import UNKNOWN, Bools, Int64s, distinct
from tracelink.model.operations import Operation, operation_of

# What ranks have to agree on when they do something together.


ONLY_OUT = frozenset({Operation.SCATTER, Operation.BROADCAST})
"""Operations to which only the root gives something."""
ONLY_IN = frozenset({Operation.GATHER, Operation.REDUCE})
"""Operations that give only the root something."""
UNSIZED = frozenset({Operation.ALL_TO_ALL})
"""Operations in which each rank may have sizes of its own."""
FLAT_OUT = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER})
"""Operations whose result may be one tensor or several."""


BARRIER = "barrier"
"""Ends the names of what keeps ranks together, also where it is done by an all-reduce."""


class Aspect(IntEnum):
    """What ranks can disagree on, from the worst to the least."""

    OPERATION = 0
    DTYPE = 1
    SIZE = 2
    ROOT = 3
    """Told by profiles alone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """For each request a number, equal where ranks agree in that aspect; UNKNOWN agrees with everything.

    The last one is for a request that is not known itself.
    """

    aspect: Aspect
    value: Int64s


def comparisons_of(journal: Journal, wholes: Sequence[tuple[int, ...]]) -> list[Comparison]:
    """All that is compared; requests that were issued as one come after the single ones."""
    single = _of_requests(journal) if len(journal.requests) else []
    return [Comparison(one.aspect, _with_wholes(one.value, wholes)) for one in single]


def _of_requests(journal: Journal) -> list[Comparison]:
    requests = journal.requests
    texts = [journal.texts[code] for code in requests.operation.tolist()]
    names = [Operation.BARRIER if text.endswith(BARRIER) else operation_of(text) for text in texts]
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    operation = np.array([codes[name] for name in names], np.int64)
    closing = _is(names, frozenset({Operation.COALESCED}))
    uneven = np.array([text.endswith(("_v", "_v_single")) for text in texts], np.bool_)
    unsized = _is(names, UNSIZED) | uneven
    no_in, no_out = _is(names, ONLY_OUT), _is(names, ONLY_IN)
    out = np.where(_is(names, FLAT_OUT), requests.elements_out, requests.shape_out)
    return [
        Comparison(Aspect.OPERATION, np.where(closing, UNKNOWN, operation)),
        Comparison(Aspect.DTYPE, np.where(no_in, UNKNOWN, requests.type_in)),
        Comparison(Aspect.DTYPE, np.where(no_out, UNKNOWN, requests.type_out)),
        Comparison(
            Aspect.SIZE, np.where(unsized | no_in | (requests.elements_in < 0), UNKNOWN, requests.shape_in)
        ),
        Comparison(Aspect.SIZE, np.where(unsized | no_out | (requests.elements_out < 0), UNKNOWN, out)),
    ]


def _is(names: Sequence[str], operations: frozenset[Operation]) -> Bools:
    return np.array([name in operations for name in names], np.bool_)


def _with_wholes(value: Int64s, wholes: Sequence[tuple[int, ...]]) -> Int64s:
    """The same, with numbers for what several requests make up; negative ones, to differ from single requests."""
    known: dict[tuple[int, ...], int] = {}
    parts = [tuple(value[list(whole)].tolist()) for whole in wholes]
    numbers = [UNKNOWN - 1 - known.setdefault(part, len(known)) for part in parts]
    return np.concatenate([value.astype(np.int64), np.array([*numbers, UNKNOWN], np.int64)])


# What the ranks of a group do one after the other, as numbers that are equal where they do the same.


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


# Ranks in the same place of like groups, stages of other pipelines for example: they run the same program.


@dataclass(frozen=True)
class Siblings:
    """What ranks and their siblings ask for under the same number."""

    journal: Journal

    def due(self, group: int, rank: int, number: int) -> tuple[int, ...]:
        """What all siblings of a rank ask for in the message of this number; nothing where they do not agree."""
        calls = {self.codes(self.call(*other, number)) for other in self.of(group, rank)} - {()}
        return calls.pop() if len(calls) == 1 else ()

    def of(self, group: int, rank: int) -> list[tuple[int, int]]:
        """The siblings of a member of a group, with their groups."""
        groups = self.journal.groups
        if rank not in groups[group].ranks:
            return []
        place = list(groups[group].ranks).index(rank)
        return [(other, groups[other].ranks[place]) for other in like_groups(groups, group) if other != group]

    def like(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of messages of a rank that are like this one, of whatever group."""
        return self._with_code(group, rank, self._codes[self.journal.records.request[end]])

    def answers(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of a rank that can be the other ends of messages like this one."""
        return self._with_code(group, rank, self._answers[self.journal.records.request[end]])

    def call(self, group: int, rank: int, number: int) -> Int64s:
        """The sends and receives of a rank under a number: one, or those of a batch."""
        records, own = self.journal.records, self._entries(rank)
        rows: Int64s = own.start + np.flatnonzero(
            (records.group[own] == group)
            & (records.sequence[own] == number)
            & self._messages[records.request[own]]
        )
        return rows

    def codes(self, rows: Int64s) -> tuple[int, ...]:
        """What entries ask for, in any order, for in a batch there is none."""
        return tuple(sorted(self._codes[self.journal.records.request[rows]].tolist()))

    def _with_code(self, group: int, rank: int, code: int) -> Int64s:
        records, own = self.journal.records, self._entries(rank)
        rows: Int64s = own.start + np.flatnonzero(
            (records.group[own] == group) & (self._codes[records.request[own]] == code)
        )
        return rows

    def _entries(self, rank: int) -> slice:
        place = int(np.searchsorted(self.journal.ranks, rank))
        there = place < len(self.journal.ranks) and self.journal.ranks[place] == rank
        begin, end = self.journal.bounds[place : place + 2].tolist() if there else (0, 0)
        return slice(begin, end)

    @cached_property
    def _answers(self) -> Int64s:
        """For each request the code of those at the other end of the message; UNKNOWN where nobody asks for it."""
        return answers_of_requests(self.journal)

    @cached_property
    def _messages(self) -> Bools:
        return ask_for_messages(self.journal)

    @cached_property
    def _codes(self) -> Int64s:
        return codes_of_requests(self.journal)


# What a rank usually does next, by what it did where it came from the same.


SHORTEST, LONGEST = 8, 256
"""So many entries in a row must be the same before what follows is usual; more than that are not compared."""
REPETITIONS = 3


@dataclass(frozen=True)
class Habits:
    """The programs of ranks, entry by entry: the group, the operation, and of messages the ranks."""

    journal: Journal

    def deviates(self, row: int) -> bool:
        """Whether an entry is not what usually follows."""
        usual = self.usual(row)
        return usual is not None and usual != self.code(row)

    def code(self, row: int) -> int:
        """A number for what an entry does, equal for the same."""
        return int(self._codes[row])

    def usual(self, row: int) -> int | None:
        """What is usually done in the place of an entry; None where nothing tells."""
        begin = int(self.journal.bounds[np.searchsorted(self.journal.bounds, row, side="right") - 1])
        done = self._codes[begin:row]
        places, longest = np.arange(1, len(done)), 0
        for back in range(1, min(LONGEST, len(done)) + 1):
            reaching = places[places >= back]
            alike = reaching[done[reaching - back] == done[-back]]
            if not len(alike):
                break
            places, longest = alike, back
        if longest < SHORTEST or len(np.unique(done[places])) > 1 or _is_only_a_loop(done, longest):
            return None
        return int(done[places[0]])

    @cached_property
    def _codes(self) -> Int64s:
        records = self.journal.records
        return distinct(records.group, codes_of_requests(self.journal)[records.request])[0]


def _is_only_a_loop(done: Int64s, length: int) -> bool:
    """Whether what is the same is the same over and over inside a step, and not from step to step."""
    context = done[len(done) - length :]
    for period in range(1, length // 2 + 1):
        if (context[period:] == context[:-period]).all():
            return len(done) - length > period or len(done) < REPETITIONS * period
    return False
