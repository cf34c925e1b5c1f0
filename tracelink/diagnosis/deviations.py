"""Deviations: ranks that left calls out, or made extra ones, compared with ranks that ran the same program until then.

A rank that only waits makes no call that others do not make: its program just ends earlier. So a rank that calls
something else than ranks with the same calls before, and then goes on like these, has skipped calls or made extra ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Kind, Problem
from tracelink.diagnosis.programs import Comparison, similar_groups
from tracelink.diagnosis.waits import Wait
from tracelink.model.columns import UNKNOWN, Int64s, distinct
from tracelink.model.operations import Operation, operation_of
from tracelink.model.text import collective_in_words, counted, lowered, ranks_in_words
from tracelink.model.trace import ProcessGroup

MOST_SHIFT = 512
"""More calls in a row are not looked for."""
MOST_SPLITS = 64
"""Programs that differ more often have little in common."""
MOST_CALLS = 1 << 24
"""Larger tables of calls are not compared."""
CERTAIN = 2
"""So many calls after skipped ones must be as expected: a single one may also be the first of two exchanged calls."""
CONTEXT = 3
"""So many calls identify a position in a repeating program."""
END = -1
"""In place of a call: the rank made no more."""
Disputed = Collection[tuple[int, int]]
"""Ranks that disagree with others in a message, each with the row of the group."""


class Deviation(Struct, frozen=True):
    """A rank that left calls out or made extra ones."""

    rank: int
    other: int
    """A rank that did not."""
    row: int
    """The journal entry of the rank after the skipped calls, or of the first extra one."""
    usual: int
    """The journal entry of the other rank at this position: the first skipped call, or what comes after extra ones."""
    skipped: int
    extra: int
    agreeing: int
    """How many calls the rank made after these, all of them as expected."""

    @property
    def is_certain(self) -> bool:
        """Whether it is neither an exchange of calls nor a coincidence."""
        return self.agreeing >= max(CERTAIN, self.skipped, self.extra)


class Deviations(Struct, frozen=True, dict=True):
    """The calls of all ranks, compared from the first one on."""

    journal: Journal
    comparisons: Sequence[Comparison]
    incomplete: Collection[int] = ()
    """Ranks whose dumps do not contain all of their last calls."""

    def behind(self, waits: Sequence[Wait], disputed: Disputed = ()) -> list[Deviation]:
        """The deviations because of which ranks wait, or disagree in messages.

        It waits, or is awaited, in a group of the skipped or extra calls.
        """
        if not waits or not self._is_comparable:
            return []
        found: dict[int, Deviation] = {}
        for position, sides in self._splits():
            for deviation in self._of_split(position, sides, waits, disputed) if position else ():
                found.setdefault(deviation.rank, deviation)
        return list(found.values())

    # The table of calls: a row for each rank, a column for each position.

    @cached_property
    def _starts(self) -> Int64s:
        """The first compared entry of each rank; empty if ring buffers have lost the first common one."""
        first = self.journal.bounds[:-1]
        if not any(recording.overwritten for recording in self.journal.recordings.values()):
            return first
        records, ranks = self.journal.records, self.journal.rank
        rows = np.flatnonzero(~records.point_to_point & (records.group != UNKNOWN) & (records.sequence >= 0))
        keys = self._kind_of_group[records.group[rows]] << 40 | records.sequence[rows]
        index = np.searchsorted(self.journal.ranks, ranks[rows])
        _, once = np.unique(keys * len(first) + index, return_index=True)
        keys, rows, index = keys[once], rows[once], index[once]
        values, number, count = np.unique(keys, return_inverse=True, return_counts=True)
        common = count == len(first)
        if not common.any():
            return first[:0]
        offset = np.zeros(len(values), np.int64)
        np.add.at(offset, number, rows - first[index])
        chosen = int(np.flatnonzero(common)[offset[common].argmin()])
        starts = np.empty(len(first), np.int64)
        starts[index[number == chosen]] = rows[number == chosen]
        return starts

    @cached_property
    def _is_comparable(self) -> bool:
        if not len(self.journal) or not self.comparisons or len(self._starts) < 2:
            return False
        return len(self._lengths) * int(self._lengths.max()) <= MOST_CALLS

    @cached_property
    def _kind_of_group(self) -> Int64s:
        """A number for each group, equal for groups of the same description and size."""
        kinds: dict[tuple[str, int], int] = {}
        found = [
            kinds.setdefault((group.description, len(group.ranks)), len(kinds))
            for group in self.journal.groups
        ]
        return np.array([*found, UNKNOWN], np.int64)

    @cached_property
    def _codes(self) -> Int64s:
        """What each entry requests, equal where ranks agree; peers of messages count by their distance.

        Ranks at different positions of a pipeline run different programs: their codes differ.
        """
        records, requests = self.journal.records, self.journal.requests
        sizes = np.array([*(max(1, len(group.ranks)) for group in self.journal.groups), 1], np.int64)
        request = distinct(*(comparison.value for comparison in self.comparisons))[0][records.request]
        source, target = (end[records.request].astype(np.int64) for end in (requests.source, requests.target))
        between = records.point_to_point & (source != UNKNOWN) & (target != UNKNOWN)
        distance = np.where(between, (target - source) % sizes[records.group], UNKNOWN)
        wraps = between & (np.abs(target - source) == sizes[records.group] - 1) & (sizes[records.group] > 2)
        rings = np.unique(self._kind_of_group[records.group[wraps]])
        piped = np.setdiff1d(np.unique(records.group[between]), [UNKNOWN])
        stages = self._stages(piped[~np.isin(self._kind_of_group[piped], rings)])
        stage = np.repeat(stages, np.diff(self.journal.bounds))
        return distinct(stage, self._kind_of_group[records.group], request, distance)[0]

    def _stages(self, pipelines: Int64s) -> Int64s:
        """A number for each rank, equal for ranks at the same positions of pipelines."""
        positions: dict[int, list[tuple[int, int]]] = {}
        for group in pipelines.tolist():
            for position, rank in enumerate(self.journal.groups[group].ranks):
                positions.setdefault(rank, []).append((int(self._kind_of_group[group]), position))
        numbers: dict[tuple[tuple[int, int], ...], int] = {}
        return np.array(
            [
                numbers.setdefault(tuple(sorted(positions.get(rank, []))), len(numbers))
                for rank in self.journal.ranks.tolist()
            ],
            np.int64,
        )

    @cached_property
    def _lengths(self) -> Int64s:
        lengths: Int64s = self.journal.bounds[1:] - self._starts
        return lengths

    @cached_property
    def _calls(self) -> Int64s:
        calls = np.full((len(self._lengths), int(self._lengths.max())), END, np.int64)
        for index, (start, length) in enumerate(zip(self._starts, self._lengths, strict=True)):
            calls[index, :length] = self._codes[start : start + length]
        return calls

    # Splits: where ranks with equal calls go on differently.

    def _splits(self) -> Iterator[tuple[int, list[Int64s]]]:
        """Each position where ranks with the same calls so far differ, and the ranks of each side."""
        pending = [(np.arange(len(self._lengths)), 0)]
        count = 0
        while pending and count < MOST_SPLITS:
            rows, start = pending.pop()
            calls = self._calls[rows, start:]
            longest = calls[self._lengths[rows].argmax()]
            differs = ((calls != longest) & (calls != END)).any(axis=0)
            if not differs.any():
                continue
            column = calls[:, int(differs.argmax())]
            position = start + int(differs.argmax())
            sides = [rows[column == value] for value in np.unique(column[column != END])]
            yield position, sides
            pending += [(side, position + 1) for side in sides if len(side) > 1]
            count += 1

    def _of_split(
        self, position: int, sides: Sequence[Int64s], waits: Sequence[Wait], disputed: Disputed
    ) -> Iterator[Deviation]:
        """The deviations of the smaller sides; of equally large ones of that which does not do what is usual here."""
        for number, side in enumerate(sides):
            for other in sides[number + 1 :]:
                small, large = sorted((side, other), key=len)
                found = self._compared_sides(position, small, large, waits, disputed)
                if not found and len(small) < len(large):
                    found = self._without_rest(position, small, large, waits)
                if len(small) == len(large):
                    opposite = self._compared_sides(position, large, small, waits, disputed)
                    usual = self._made_by_third(position, large, [*small, *large])
                    usual = usual or -self._made_by_third(position, small, [*small, *large])
                    usual = usual or self._usual(position, small, large)
                    if opposite and found and not usual:
                        continue
                    if not opposite and not found and usual:
                        found = self._without_rest(
                            position, *((small, large) if usual > 0 else (large, small)), waits
                        )
                    found = opposite if opposite and (not found or usual < 0) else found
                yield from found

    def _compared_sides(
        self, position: int, side: Int64s, others: Int64s, waits: Sequence[Wait], disputed: Disputed
    ) -> list[Deviation]:
        found = [self._compared(int(own), others, position) for own in side]
        return [each for each in found if each and self._is_behind(each, waits, disputed)]

    def _compared(self, own: int, others: Int64s, position: int) -> Deviation | None:
        """How a rank deviates from the one of these that made the most calls."""
        other = int(others[self._lengths[others].argmax()])
        calls = self._calls[own, position : self._lengths[own]]
        usual = self._calls[other, position : self._lengths[other]]
        skipped, extra = _shift(calls, usual), _shift(usual, calls)
        foreseen = not skipped and not extra
        if foreseen:
            done = self._calls[other, : self._lengths[other]]
            usual = np.append(usual, done[_continued(done)][:MOST_SHIFT])
            skipped = _shift(calls, usual)
        if (not skipped and not extra) or _is_exchange(calls, usual):
            return None
        if skipped and extra:
            fewer = len(usual) - skipped <= len(calls) - extra
            skipped, extra = (0, extra) if fewer else (skipped, 0)
        rest = len(calls) - extra, len(usual) - skipped
        ranks, starts = self.journal.ranks, self._starts
        first = int(starts[other if skipped else own]) + position
        if not self._have_in_common(
            int(ranks[own]), int(ranks[other]), slice(first, first + skipped + extra)
        ):
            return None
        return Deviation(
            int(ranks[own]),
            int(ranks[other]),
            int(starts[own]) + position,
            int(starts[other]) + position,
            skipped,
            extra,
            min(*rest, 1) if foreseen else min(rest),
        )

    def _have_in_common(self, rank: int, other: int, rows: slice) -> bool:
        """Whether both ranks are members of groups like those of these calls: else only one has to make them."""
        needed = set(self._kind_of_group[self.journal.records.group[rows]].tolist())
        return needed <= self._kinds_of_rank(rank) & self._kinds_of_rank(other)

    def _kinds_of_rank(self, rank: int) -> set[int]:
        return {
            int(self._kind_of_group[number])
            for number, group in enumerate(self.journal.groups)
            if rank in group.ranks or not group.ranks
        }

    def _is_behind(self, deviation: Deviation, waits: Sequence[Wait], disputed: Disputed) -> bool:
        """Whether the rank waits, is awaited, or disagrees with others, in a group of the skipped or extra calls."""
        if deviation.rank in self.incomplete:
            return False
        first = deviation.usual if deviation.skipped else deviation.row
        rows = slice(first, first + max(deviation.skipped, deviation.extra))
        kinds = set(self._kind_of_group[self.journal.records.group[rows]].tolist())
        involved = [
            *(wait.group for wait in waits if deviation.rank in (*wait.awaited, *wait.rows)),
            *(group for rank, group in disputed if rank == deviation.rank),
        ]
        return any(int(self._kind_of_group[group]) in kinds for group in involved)

    def _usual(self, position: int, side: Int64s, other: Int64s) -> int:
        """Positive if what the other side calls followed here more often in earlier steps, negative if less often."""
        done = self._calls[side[0], :position]
        following = done[_positions_like_the_end(done) + 1]
        own, usual = (int(self._calls[rows[0], position]) for rows in (side, other))
        return int(np.count_nonzero(following == usual)) - int(np.count_nonzero(following == own))

    def _made_by_third(self, position: int, side: Int64s, sides: Sequence[int]) -> int:
        """Whether ranks of neither side made the collective that this side calls here, as far as their calls show.

        A rank that runs ahead makes later calls too: ranks that made as many calls as third ones are then right.
        """
        journal, row = self.journal, int(self._starts[side[0]]) + position
        if journal.records.point_to_point[row] or operation_of(journal.operation(row)) == Operation.COALESCED:
            return 0
        sequence, last = (
            int(journal.records.sequence[row]),
            self._last_sequences(int(journal.records.group[row])),
        )
        outside = np.delete(last, sides)
        third = np.unique(outside[outside != UNKNOWN])
        if not len(third):
            return 0
        own, opposite = np.unique(last[side]), np.unique(last[np.setdiff1d(sides, side)])
        if len(third) == 1 and not np.array_equal(own, opposite):
            return int(np.array_equal(own, third))
        return int(third.max() >= sequence > opposite.max())

    def _last_sequences(self, group: int) -> Int64s:
        """The number of the last collective of each rank in a group, or UNKNOWN."""
        journal, records = self.journal, self.journal.records
        rows = np.flatnonzero((records.group == group) & ~records.point_to_point)
        last = np.full(len(journal.ranks), UNKNOWN, np.int64)
        index = np.searchsorted(journal.bounds, rows, side="right") - 1
        np.maximum.at(last, index, records.sequence[rows])
        return last

    def _without_rest(
        self, position: int, side: Int64s, others: Int64s, waits: Sequence[Wait]
    ) -> list[Deviation]:
        """Ranks that are awaited in a call which others made here, and called something else."""
        ranks, usual = self.journal.ranks, int(self._starts[others[0]]) + position
        group, sequence = int(self.journal.records.group[usual]), int(self.journal.records.sequence[usual])
        awaited = {
            rank
            for wait in waits
            if (wait.group, wait.sequence, wait.message) == (group, sequence, False)
            for rank in wait.awaited
        }
        other = int(ranks[others[0]])
        return [
            Deviation(int(ranks[own]), other, int(self._starts[own]) + position, usual, 1, 0, 0)
            for own in side
            if int(ranks[own]) in awaited and int(ranks[own]) not in self.incomplete
        ]


def _shift(calls: Int64s, usual: Int64s) -> int:
    """How many of the usual calls are left out here, if all of the rest is as usual; 0 if it is not."""
    starts: Int64s = 1 + np.flatnonzero(usual[1 : MOST_SHIFT + 1] == calls[0])
    for shift in starts.tolist():
        common = min(len(calls), len(usual) - shift)
        if (calls[:common] == usual[shift : shift + common]).all():
            return int(shift)
    return 0


def _is_exchange(calls: Int64s, usual: Int64s) -> bool:
    """Whether the first two calls are the usual ones in the other order, and all of the rest is as usual."""
    common = min(len(calls), len(usual))
    return bool(
        common > 1 and (calls[:2] == usual[1::-1]).all() and (calls[2:common] == usual[2:common]).all()
    )


def _continued(done: Int64s) -> slice:
    """What followed the last time when the calls were as at the end."""
    positions = _positions_like_the_end(done)
    return slice(int(positions[-1]) + 1 if len(positions) else len(done), None)


def _positions_like_the_end(done: Int64s) -> Int64s:
    """Earlier positions with the same calls up to there as at the end, of as many as are found anywhere."""
    positions = np.arange(len(done) - 1)
    for back in range(min(CONTEXT, len(done))):
        equal = positions[(positions >= back) & (done[positions - back] == done[-1 - back])]
        if not len(equal):
            return positions if back else equal
        positions = equal
    return positions


# Deviations as problems.


def deviation_problem(
    journal: Journal, deviations: Sequence[Deviation], waiting: Collection[int], **details: Any
) -> Problem:
    """The problem that ranks have skipped the same calls of a group, or made the same extra ones.

    Its message is without the waiting ranks, and without the full stop.
    """
    deviations = sorted(deviations, key=lambda deviation: deviation.rank)
    first = deviations[0]
    records = journal.records
    usual = first.usual if first.skipped else first.row
    group, sequence = _own_group(journal, first, usual), int(records.sequence[usual])
    ranks = [deviation.rank for deviation in deviations]
    what = collective_in_words(journal.operation(usual), sequence, group)
    number = first.skipped or first.extra
    more = f" and the {counted(number - 1, 'call')} after it" if number > 1 else ""
    if first.skipped:
        kind, did = Kind.SKIPPED, f"skipped {what}{more} and continued with {_call(journal, first.row)}"
    else:
        kind = Kind.OPERATION_MISMATCH
        did = f"called {what}{more} in addition to what {lowered(ranks_in_words([first.other]))} called"
    return Problem.at(
        kind,
        group,
        sequence,
        journal.operation(usual),
        culprits=ranks,
        waiting=set(waiting).difference(ranks),
        message=f"{ranks_in_words(ranks)} {did}",
        **{
            "rows": {first.other: first.usual, **{each.rank: each.row for each in deviations}},
            **details,
        },
    )


def _own_group(journal: Journal, deviation: Deviation, usual: int) -> ProcessGroup:
    """The group of the rank that is like that of an entry of another rank."""
    row = int(journal.records.group[usual])
    similar = similar_groups(journal.groups, row)
    own = [number for number in similar if deviation.rank in journal.groups[number].ranks]
    return journal.groups[row if row in own or not own else own[0]]


def _call(journal: Journal, row: int) -> str:
    records = journal.records
    group = journal.groups[records.group[row]]
    return collective_in_words(journal.operation(row), int(records.sequence[row]), group)
