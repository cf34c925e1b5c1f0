"""Programs: what each rank calls in each group, in order, and what it was expected to call.

Requests are compared aspect by aspect. What is expected follows from similar groups and from earlier steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.journal import Journal, counterpart_codes, message_requests, request_codes
from tracelink.diagnosis.participation import Parts
from tracelink.model.columns import UNKNOWN, Bools, Int64s, distinct
from tracelink.model.operations import Operation, operation_of
from tracelink.model.trace import ProcessGroup

ROOT_TO_ALL = frozenset({Operation.SCATTER, Operation.BROADCAST})
"""Operations to which only the root contributes data."""
ALL_TO_ROOT = frozenset({Operation.GATHER, Operation.REDUCE})
"""Operations that return data only to the root."""
UNEVEN = frozenset({Operation.ALL_TO_ALL})
"""Operations whose sizes may differ from rank to rank."""
FLAT_RESULT = frozenset({Operation.ALL_GATHER, Operation.REDUCE_SCATTER})
"""Operations whose result may be one tensor or several."""
BARRIER = "barrier"
"""Suffix of operations that synchronize ranks, also if they are implemented as an all-reduce."""
CONTEXT = 3
"""This many consecutive equal collectives identify a position in a repeating program."""
SHORTEST_CONTEXT, LONGEST_CONTEXT = 8, 256
"""So many entries in a row must be the same before what follows is usual; more than that are not compared."""
REPETITIONS = 3


# What ranks have to agree on in a collective.


class Aspect(IntEnum):
    """What ranks can disagree on, the worst first."""

    OPERATION = 0
    DTYPE = 1
    SIZE = 2
    ROOT = 3
    """Known from profiles only."""
    FIT = 4
    """The input and the output of a rank, which have to fit together."""


class Comparison(Struct, frozen=True):
    """A number for each request, equal where ranks agree in this aspect; UNKNOWN agrees with everything.

    The last number is that of an unknown request.
    """

    aspect: Aspect
    value: Int64s


def comparisons_of(journal: Journal, compositions: Sequence[tuple[int, ...]]) -> list[Comparison]:
    """All comparisons; coalesced requests come after the single ones."""
    single = _request_comparisons(journal) if len(journal.requests) else []
    return [
        Comparison(comparison.aspect, _with_compositions(comparison.value, compositions))
        for comparison in single
    ]


def _request_comparisons(journal: Journal) -> list[Comparison]:
    requests = journal.requests
    operations = [journal.strings[code] for code in requests.operation.tolist()]
    names = [Operation.BARRIER if name.endswith(BARRIER) else operation_of(name) for name in operations]
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    operation = np.array([codes[name] for name in names], np.int64)
    closing = _is(names, frozenset({Operation.COALESCED}))
    uneven = _is(names, UNEVEN) | np.array(
        [name.endswith(("_v", "_v_single")) for name in operations], np.bool_
    )
    no_in, no_out = _is(names, ROOT_TO_ALL), _is(names, ALL_TO_ROOT)
    size_in = np.where(uneven | no_in | (requests.elements_in < 0), UNKNOWN, requests.shape_in)
    out = np.where(_is(names, FLAT_RESULT), requests.elements_out, requests.shape_out)
    size_out = np.where(uneven | no_out | (requests.elements_out < 0), UNKNOWN, out)
    return [
        Comparison(Aspect.OPERATION, np.where(closing, UNKNOWN, operation)),
        Comparison(Aspect.DTYPE, np.where(no_in, UNKNOWN, requests.type_in)),
        Comparison(Aspect.DTYPE, np.where(no_out, UNKNOWN, requests.type_out)),
        Comparison(Aspect.SIZE, size_in),
        Comparison(Aspect.SIZE, size_out),
    ]


def _is(names: Sequence[str], operations: frozenset[Operation]) -> Bools:
    return np.array([name in operations for name in names], np.bool_)


def _with_compositions(value: Int64s, compositions: Sequence[tuple[int, ...]]) -> Int64s:
    """Adds numbers of coalesced requests: negative ones, so that they differ from all single requests."""
    number_of: dict[tuple[int, ...], int] = {}
    parts = [tuple(value[list(composition)].tolist()) for composition in compositions]
    numbers = [UNKNOWN - 1 - number_of.setdefault(part, len(number_of)) for part in parts]
    return np.concatenate([value.astype(np.int64), np.array([*numbers, UNKNOWN], np.int64)])


# What the ranks of a group call, as codes that are equal where they agree.


class Program(Struct, frozen=True):
    """What is called under each sequence number, in ascending order."""

    sequence: Int64s
    code: Int64s

    def from_number(self, sequence: int) -> Int64s:
        """What is called from this sequence number on."""
        return self.code[np.searchsorted(self.sequence, sequence) :]

    def before(self, sequence: int) -> Int64s:
        """What is called before this sequence number."""
        return self.code[: np.searchsorted(self.sequence, sequence)]


class Programs(Struct, frozen=True, dict=True):
    """The programs of all groups and ranks."""

    journal: Journal
    parts: Parts
    comparisons: Sequence[Comparison]

    @cached_property
    def _codes(self) -> Int64s:
        requests = distinct(*(comparison.value for comparison in self.comparisons))[0]
        return requests[self.parts.request]

    def codes_of(self, rows: Int64s) -> Int64s:
        """The codes of these parts; equal codes agree in all aspects."""
        return self._codes[rows]

    def of_group(self, group: int, without: Sequence[int] = ()) -> Program:
        """What most ranks of a group call, ignoring the ranks in `without`."""
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


def expected_code(programs: Programs, group: int, sequence: int) -> int:
    """The code expected under a sequence number, from similar groups or from earlier steps; UNKNOWN if unclear."""
    before = programs.of_group(group).before(sequence)
    similar = [row for row in similar_groups(programs.journal.groups, group) if row != group]
    votes = [
        int(other.from_number(sequence)[0])
        for other in map(programs.of_group, similar)
        if sequence in other.sequence and np.array_equal(other.before(sequence), before)
    ]
    if not votes:
        votes = successors(before)
    values, counts = np.unique(np.array(votes, np.int64), return_counts=True)
    if not len(values) or np.count_nonzero(counts == counts.max()) > 1:
        return UNKNOWN
    return int(values[counts.argmax()])


def successors(before: Int64s) -> list[int]:
    """The codes that followed wherever the program was the same as at the end."""
    return (
        [int(before[position + 1]) for position in _positions_like_the_end(before)]
        if len(before) > CONTEXT
        else []
    )


def _positions_like_the_end(done: Int64s) -> list[int]:
    """Earlier positions with the same code and the same codes before it as at the end."""
    last = len(done) - 1
    positions = np.flatnonzero(done[:last] == done[last])
    depth = min(CONTEXT, last)
    return [
        position
        for position in positions.tolist()
        if all(done[max(position - back, 0)] == done[last - back] for back in range(min(depth, position + 1)))
    ]


# Similar groups, such as the tensor-parallel ones, and ranks at the same position in them.


def similar_groups(groups: Sequence[ProcessGroup], row: int) -> list[int]:
    """The rows of the group itself and of all groups of the same description and size (all `tp` groups)."""
    group = groups[row]
    return [
        number
        for number, other in enumerate(groups)
        if number == row or (other.description == group.description and len(other.ranks) == len(group.ranks))
    ]


class Counterparts(Struct, frozen=True, dict=True):
    """Ranks at the same position in similar groups (stages of other pipelines), which run the same program."""

    journal: Journal

    def expected(self, group: int, rank: int, number: int) -> tuple[int, ...]:
        """The requests of all counterparts under this message number; empty if they differ."""
        calls = {self.codes(self.message_rows(*other, number)) for other in self.of(group, rank)} - {()}
        return calls.pop() if len(calls) == 1 else ()

    def of(self, group: int, rank: int) -> list[tuple[int, int]]:
        """The counterparts of a member of a group, each with its group."""
        groups = self.journal.groups
        if rank not in groups[group].ranks:
            return []
        position = list(groups[group].ranks).index(rank)
        return [
            (other, groups[other].ranks[position])
            for other in similar_groups(groups, group)
            if other != group
        ]

    def similar_ends(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of messages of a rank with the same request as this one, in any group."""
        return self._rows_with_code(group, rank, self._codes[self.journal.records.request[end]])

    def opposite_ends(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of messages of a rank that can be the other ends of messages like this one."""
        return self._rows_with_code(group, rank, self._counterpart_codes[self.journal.records.request[end]])

    def message_rows(self, group: int, rank: int, number: int) -> Int64s:
        """The sends and receives of a rank under a message number: one, or those of a batch."""
        records, entries = self.journal.records, self._entries(rank)
        rows: Int64s = entries.start + np.flatnonzero(
            (records.group[entries] == group)
            & (records.sequence[entries] == number)
            & self._messages[records.request[entries]]
        )
        return rows

    def codes(self, rows: Int64s) -> tuple[int, ...]:
        """The request codes of entries, sorted: the order within a batch does not matter."""
        return tuple(sorted(self._codes[self.journal.records.request[rows]].tolist()))

    def _rows_with_code(self, group: int, rank: int, code: int) -> Int64s:
        records, entries = self.journal.records, self._entries(rank)
        rows: Int64s = entries.start + np.flatnonzero(
            (records.group[entries] == group) & (self._codes[records.request[entries]] == code)
        )
        return rows

    def _entries(self, rank: int) -> slice:
        index = int(np.searchsorted(self.journal.ranks, rank))
        known = index < len(self.journal.ranks) and self.journal.ranks[index] == rank
        first, end = self.journal.bounds[index : index + 2].tolist() if known else (0, 0)
        return slice(first, end)

    @cached_property
    def _counterpart_codes(self) -> Int64s:
        return counterpart_codes(self.journal)

    @cached_property
    def _messages(self) -> Bools:
        return message_requests(self.journal)

    @cached_property
    def _codes(self) -> Int64s:
        return request_codes(self.journal)


# What a rank usually requests next.


class Habits(Struct, frozen=True, dict=True):
    """What each rank usually calls next: group, operation, and peers of messages."""

    journal: Journal

    def deviates(self, row: int) -> bool:
        """Whether an entry differs from what usually follows."""
        usual = self.usual(row)
        return usual is not None and usual != self.code(row)

    def code(self, row: int) -> int:
        """A number for what an entry requests, equal for equal requests."""
        return int(self._codes[row])

    def usual(self, row: int) -> int | None:
        """The usual code at the position of an entry; None if unknown."""
        first = int(self.journal.bounds[np.searchsorted(self.journal.bounds, row, side="right") - 1])
        done = self._codes[first:row]
        positions, longest = np.arange(1, len(done)), 0
        for back in range(1, min(LONGEST_CONTEXT, len(done)) + 1):
            reaching = positions[positions >= back]
            equal = reaching[done[reaching - back] == done[-back]]
            if not len(equal):
                break
            positions, longest = equal, back
        if (
            longest < SHORTEST_CONTEXT
            or len(np.unique(done[positions])) > 1
            or _is_only_a_loop(done, longest)
        ):
            return None
        return int(done[positions[0]])

    @cached_property
    def _codes(self) -> Int64s:
        records = self.journal.records
        return distinct(records.group, request_codes(self.journal)[records.request])[0]


def _is_only_a_loop(done: Int64s, length: int) -> bool:
    """Whether the repetition is a loop within a step, and not the repetition of steps."""
    context = done[len(done) - length :]
    for period in range(1, length // 2 + 1):
        if (context[period:] == context[:-period]).all():
            return len(done) - length > period or len(done) < REPETITIONS * period
    return False
