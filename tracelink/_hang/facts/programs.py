"""Programs: in what the requests of ranks have to agree, and what ranks were expected to call.

What is expected follows from ranks at the same position in similar groups, and from earlier steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink._hang.facts.journal import Journal, counterpart_codes, mark_messages, request_codes
from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, distinct
from tracelink._model.operations import Operation, operation_of
from tracelink._model.trace import ProcessGroup

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
"""So many calls identify a position in a repeating program."""
SHORTEST_CONTEXT, LONGEST_CONTEXT = 8, 256
"""So many entries in a row must be the same before what follows is usual; more than that are not compared."""


# What ranks have to agree on in a collective.


class Aspect(IntEnum):
    """What ranks can disagree on, the worst first."""

    OPERATION = 0
    DTYPE = 1
    SIZE = 2
    ROOT = 3
    """Known from profiles only."""


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
    operations = journal.recorded_operations()
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


# Where a repeating program is at its end.


def positions_like_the_end(done: Int32s | Int64s) -> Int64s:
    """Earlier positions with the same calls up to there as at the end, of as many as are found anywhere."""
    positions = np.arange(len(done) - 1)
    for back in range(min(CONTEXT, len(done))):
        equal = positions[(positions >= back) & (done[positions - back] == done[-1 - back])]
        if not len(equal):
            return positions if back else equal
        positions = equal
    return positions


def successors(before: Int64s) -> list[int]:
    """The codes that followed wherever the program was the same as at the end."""
    followed: list[int] = before[positions_like_the_end(before) + 1].tolist()
    return followed


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
        records, entries = self.journal.records, self.journal.entries_of(rank)
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
        records, entries = self.journal.records, self.journal.entries_of(rank)
        rows: Int64s = entries.start + np.flatnonzero(
            (records.group[entries] == group) & (self._codes[records.request[entries]] == code)
        )
        return rows

    @cached_property
    def _counterpart_codes(self) -> Int64s:
        return counterpart_codes(self.journal)

    @cached_property
    def _messages(self) -> Bools:
        return mark_messages(self.journal)

    @cached_property
    def _codes(self) -> Int64s:
        return request_codes(self.journal)


# What a rank usually requests next.


class Habits(Struct, frozen=True, dict=True):
    """What each rank usually calls next: group, operation, and peers of messages."""

    journal: Journal

    def deviates(self, row: int) -> bool:
        """True if an entry differs from what followed wherever the entries before it were the same.

        Only entries with a collective among them show the position in a step: a loop of messages ends at some time.
        """
        first = int(self.journal.bounds[np.searchsorted(self.journal.bounds, row, side="right") - 1])
        done = self._codes[first:row]
        positions, longest = np.arange(1, len(done)), 0
        for back in range(1, min(LONGEST_CONTEXT, len(done)) + 1):
            reaching = positions[positions >= back]
            equal = reaching[done[reaching - back] == done[-back]]
            if not len(equal):
                break
            positions, longest = equal, back
        if longest < SHORTEST_CONTEXT or self.journal.records.point_to_point[row - longest : row].all():
            return False
        usual = np.unique(done[positions])
        return len(usual) == 1 and int(usual[0]) != int(self._codes[row])

    @cached_property
    def _codes(self) -> Int64s:
        records = self.journal.records
        return distinct(records.group, request_codes(self.journal)[records.request])[0]
