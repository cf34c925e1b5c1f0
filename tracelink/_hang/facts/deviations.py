"""Deviations: ranks that left calls out, or made extra ones, compared with ranks that ran the same program until then.

Two ranks run the same program until the first call that differs: in what it requests, or in its call site. A rank that
only waits makes no call that others do not make: its program just ends earlier. So a rank that calls something else
than ranks with the same calls before, and then goes on like these, has skipped calls or made extra ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from operator import itemgetter

import numpy as np
from msgspec import Struct

from tracelink._hang.facts.journal import Journal, mark_requests
from tracelink._hang.facts.participation import highest
from tracelink._hang.facts.programs import SHORTEST_CONTEXT, Comparison, positions_like_the_end
from tracelink._hang.facts.waits import Wait
from tracelink._model.columns import UNKNOWN, Int32s, Int64s, distinct
from tracelink._model.operations import Operation, operation_of

MOST_SHIFT = 512
"""More calls in a row are not looked for."""
MOST_SPLITS = 64
"""Programs that differ more often have little in common."""
MOST_CALLS = 1 << 24
"""Larger tables of calls are not compared."""
CERTAIN = 2
"""So many calls after skipped ones must be as expected: a single one may also be the first of two exchanged calls."""
UNKNOWN_STEP = 1 << 40
END = -1
"""In place of a call: the rank made no more."""
Involved = Mapping[int, Collection[int]]
"""By rank the groups in which it waits, is awaited, or disagrees with others."""


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
        """True if it is neither an exchange of calls nor a coincidence."""
        return self.agreeing >= max(CERTAIN, self.skipped, self.extra)

    @property
    def first(self) -> int:
        """The journal entry of the first skipped or extra call."""
        return self.usual if self.skipped else self.row


class Deviations(Struct, frozen=True, dict=True):
    """Finds ranks that deviate from the programs of others."""

    journal: Journal
    comparisons: Sequence[Comparison]
    incomplete: Collection[int] = ()
    """Ranks whose dumps do not contain all of their last calls."""

    def behind(self, waits: Sequence[Wait], disputed: Collection[tuple[int, int]] = ()) -> list[Deviation]:
        """The deviations because of which ranks wait, or disagree in a group: `disputed` are ranks with such groups."""
        involved: dict[int, set[int]] = {}
        waiting = [(rank, wait.group) for wait in waits for rank in (*wait.awaited, *wait.rows)]
        for rank, group in [*waiting, *disputed]:
            if rank not in self.incomplete:
                involved.setdefault(rank, set()).add(int(self._kind_of_group[group]))
        if not involved or not self.comparisons:
            return []
        by_site = self._by_site.deviations(waits, involved) if self._by_site else []
        if any(deviation.is_certain for deviation in by_site):
            return by_site
        # ranks may make the same calls at different lines
        by_request = self._by_request.deviations(waits, involved)
        certain = any(deviation.is_certain for deviation in by_request)
        return by_request if certain or not by_site else by_site

    def wrong_among(self, rows: Int64s) -> list[int]:
        """Of entries that request different things those whose ranks are fewer, or deviate from earlier steps."""
        return self._by_request.wrong_among(rows) if self.comparisons else []

    def in_group(self, group: int) -> list[Deviation]:
        """The deviations in the collectives of one group: its members may run different programs otherwise."""
        records = self.journal.records
        rows = np.flatnonzero((records.group == group) & ~records.point_to_point & (records.sequence >= 0))
        rows = rows[~np.isin(self.journal.rank[rows], list(self.incomplete))]
        kinds = dict.fromkeys(self.journal.ranks.tolist(), frozenset([int(self._kind_of_group[group])]))
        for codes in (self._requests_by_site, self._requests):
            if codes is not None and (found := self._programs(codes, rows, 0).deviations((), kinds)):
                return found
        return []

    # Programs, by what is compared.

    @cached_property
    def _by_request(self) -> _Programs:
        return self._programs(_numbered(self._stage(), self._requests))

    @cached_property
    def _by_site(self) -> _Programs | None:
        codes = self._with_sites(self._by_request.codes)
        return None if codes is None else self._programs(codes)

    @cached_property
    def _requests_by_site(self) -> Int32s | None:
        return self._with_sites(self._requests)

    def _with_sites(self, codes: Int32s) -> Int32s | None:
        """The codes, which differ also where call sites do; None without call sites."""
        site = self.journal.records.site
        return _numbered(codes, site) if (site != UNKNOWN).any() else None

    @cached_property
    def _all_rows(self) -> Int64s:
        return np.arange(len(self.journal))

    def _programs(self, codes: Int32s, rows: Int64s | None = None, common: int = 1) -> _Programs:
        """The programs of all ranks; with `rows` only these entries of each."""
        journal = self.journal
        rows = self._all_rows if rows is None else rows
        index = np.searchsorted(journal.bounds, rows, side="right") - 1
        bounds = np.searchsorted(index, np.arange(len(journal.ranks) + 1))
        starts = self._starts(rows, index, bounds)
        return _Programs(journal, codes, self._kind_of_group, rows, starts, bounds[1:] - starts, common)

    def _starts(self, rows: Int64s, index: Int64s, bounds: Int64s) -> Int64s:
        """Where the programs begin: if ring buffers have lost calls, with the first common collective; else nowhere."""
        recordings, records = self.journal.recordings.values(), self.journal.records
        if any(recording.only_active for recording in recordings):
            return bounds[1:]  # calls are missing in the middle
        if not any(recording.overwritten for recording in recordings):
            return bounds[:-1]
        place = np.flatnonzero(~records.point_to_point[rows] & (records.group[rows] != UNKNOWN))
        place = place[records.sequence[rows[place]] >= 0]
        if not len(place):
            return bounds[1:]
        number, _ = distinct(self._kind_of_group[records.group[rows[place]]], records.sequence[rows[place]])
        _, once = np.unique(number * len(bounds) + index[place], return_index=True)
        number, place = number[once], place[once]
        common = np.bincount(number) == np.count_nonzero(np.diff(bounds))
        before = np.bincount(number, place - bounds[index[place]])
        starts = bounds[1:].copy()
        if common.any():
            chosen = place[number == np.flatnonzero(common)[before[common].argmin()]]
            starts[index[chosen]] = chosen
        return starts

    @cached_property
    def _kind_of_group(self) -> Int64s:
        """A number for each group, equal for groups side by side: of one description and size, without common ranks."""
        kinds: dict[tuple[str, int, int], int] = {}
        seen: Counter[tuple[str, int, int]] = Counter()
        found = []
        for group in self.journal.groups:
            alike = group.description, len(group.ranks)
            places = [(*alike, rank) for rank in group.ranks]
            before = max((seen[place] for place in places), default=0)
            seen.update(places)
            found.append(kinds.setdefault((*alike, before), len(kinds)))
        return np.array([*found, UNKNOWN], np.int64)

    @cached_property
    def _alike(self) -> tuple[Int32s, Int64s, Int64s]:
        """A number for each entry, equal for one request in one group; the first entry of each, and its message's step.

        The step of a message is by how many members of its group it moves.
        """
        records, requests = self.journal.records, self.journal.requests
        number, first = distinct(records.group, records.request, records.point_to_point.astype(np.int8))
        source, target = (
            end[records.request[first]].astype(np.int64) for end in (requests.source, requests.target)
        )
        known = records.point_to_point[first] & (source != UNKNOWN) & (target != UNKNOWN)
        return number.astype(np.int32), first, np.where(known, target - source, UNKNOWN_STEP)

    @cached_property
    def _sizes(self) -> Int64s:
        """The number of members of each group."""
        return np.array([*(max(1, len(group.ranks)) for group in self.journal.groups), 1], np.int64)

    @cached_property
    def _requests(self) -> Int32s:
        """What each entry requests, equal where ranks agree; peers of messages count by their distance."""
        records, (number, first, step) = self.journal.records, self._alike
        group = records.group[first]
        request = distinct(*(comparison.value for comparison in self.comparisons))[0][records.request[first]]
        distance = np.where(step == UNKNOWN_STEP, UNKNOWN, step % self._sizes[group])
        codes, _ = distinct(self._kind_of_group[group], request, distance)
        return codes.astype(np.int32)[number]

    def _stage(self) -> Int32s:
        """For each entry a number, equal for ranks at the same positions of pipelines: these run one program.

        Groups whose messages also go from the last member to the first are rings: their members run one program.
        """
        journal, (_, first, step) = self.journal, self._alike
        between = step != UNKNOWN_STEP
        group, moved = journal.records.group[first][between], np.abs(step[between])
        around = (moved == self._sizes[group] - 1) & (self._sizes[group] > 2)
        kinds, sends = self._kind_of_group[group], mark_requests(journal, {Operation.SEND})
        sent = sends[journal.records.request[first][between]]
        without_dump = [not journal.recordings.keys() >= {*each.ranks} for each in journal.groups]
        unseen = np.array([*without_dump, False], np.bool_)[group]
        # a send alone may go to a wrong target
        rings = np.intersect1d(kinds[around & (sent | unseen)], kinds[around & (~sent | unseen)])
        piped = np.setdiff1d(group, [UNKNOWN])
        positions: dict[int, list[tuple[int, int]]] = {}
        for number in piped[~np.isin(self._kind_of_group[piped], rings)].tolist():
            for position, rank in enumerate(journal.groups[number].ranks):
                positions.setdefault(rank, []).append((int(self._kind_of_group[number]), position))
        stages: dict[tuple[tuple[int, int], ...], int] = {}
        found = [
            stages.setdefault(tuple(sorted(positions.get(rank, []))), len(stages))
            for rank in journal.ranks.tolist()
        ]
        return np.repeat(np.array(found, np.int32), np.diff(journal.bounds))


class _Programs(Struct, frozen=True, dict=True):
    """What ranks call from a point on that all of them passed."""

    journal: Journal
    codes: Int32s
    """A number for each entry of the journal, equal for equal calls."""
    kinds: Int64s
    """For each group a number, equal for groups side by side."""
    rows: Int64s
    """The compared entries of the journal, rank by rank."""
    starts: Int64s
    """For each rank its first compared entry among `rows`."""
    lengths: Int64s
    """How many there are of each rank."""
    common: int
    """Programs with fewer common calls at their beginnings are different ones."""

    def deviations(self, waits: Sequence[Wait], involved: Involved) -> list[Deviation]:
        """The first deviation of each rank, if it is in calls of groups in which the rank is `involved`."""
        found: dict[int, Deviation] = {}
        for position, sides in self._splits:
            if position >= self.common:
                for deviation in self._of_split(position, sides, waits, involved):
                    found.setdefault(deviation.rank, deviation)
        return list(found.values())

    @cached_property
    def _calls(self) -> Int32s:
        """A row for each rank, a column for each position."""
        calls = np.full((len(self.lengths), int(self.lengths.max())), END, np.int32)
        for index, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            calls[index, :length] = self.codes[self.rows[start : start + length]]
        return calls

    def _row(self, index: int | np.int64, position: int) -> int:
        """The journal entry of a rank at a position."""
        return int(self.rows[self.starts[index] + position])

    def _group(self, row: int) -> int:
        return int(self.journal.records.group[row])

    # Splits: where ranks with equal calls go on differently.

    @cached_property
    def _splits(self) -> list[tuple[int, list[Int64s]]]:
        """Each position where ranks with the same calls so far differ, and the ranks of each side."""
        comparable = 0 < len(self.lengths) * int(self.lengths.max(initial=0)) <= MOST_CALLS
        pending = [(np.arange(len(self.lengths)), 0)] if comparable else []
        splits: list[tuple[int, list[Int64s]]] = []
        while pending and len(splits) < MOST_SPLITS:
            rows, start = pending.pop()
            calls = self._calls[rows, start:]
            longest = calls[self.lengths[rows].argmax()]
            differs = ((calls != longest) & (calls != END)).any(axis=0)
            if not differs.any():
                continue
            column = calls[:, int(differs.argmax())]
            position = start + int(differs.argmax())
            sides = [rows[column == value] for value in np.unique(column[column != END])]
            splits.append((position, sides))
            pending += [(side, position + 1) for side in sides if len(side) > 1]
        return splits

    def wrong_among(self, rows: Int64s) -> list[int]:
        """The entries that are on the smaller side of a split, or on that which is less usual; empty if unknown."""
        index = np.searchsorted(self.journal.bounds, rows, side="right") - 1
        places = np.searchsorted(self.rows, rows) - self.starts[index]
        for position, sides in self._splits if (places == places[0]).all() else ():
            side_of = {int(each): number for number, side in enumerate(sides) for each in side}
            found = [side_of.get(each, UNKNOWN) for each in index.tolist()]
            if position != places[0] or UNKNOWN in found or len(set(found)) < 2:
                continue
            large, small = sorted(sides, key=len, reverse=True)[:2]
            if len(large) == len(small):
                usual = self._usual(position, small, large)
                large = large if usual > 0 else small if usual < 0 else large[:0]
            right = [each in large for each in index]
            return rows[np.invert(right)].tolist() if any(right) else []
        return []

    def _of_split(
        self, position: int, sides: Sequence[Int64s], waits: Sequence[Wait], involved: Involved
    ) -> Iterator[Deviation]:
        """The deviations of the smaller sides; of equally large ones of that which does not do what is usual here."""
        for side, other in combinations(sides, 2):
            small, large = sorted((side, other), key=len)
            found = self._compared_sides(position, small, large, involved)
            if len(small) < len(large):
                yield from found or self._without_rest(position, small, large, waits, involved)
                continue
            opposite = self._compared_sides(position, large, small, involved)
            usual = (
                self._made_by_third(position, large, [*small, *large])
                or -self._made_by_third(position, small, [*small, *large])
                or self._usual(position, small, large)
            )
            if opposite and (not found or usual < 0):
                yield from opposite
            elif found and (not opposite or usual):
                yield from found
            elif not found and usual:
                small, large = (small, large) if usual > 0 else (large, small)
                yield from self._without_rest(position, small, large, waits, involved)

    def _compared_sides(
        self, position: int, side: Int64s, others: Int64s, involved: Involved
    ) -> list[Deviation]:
        found = [self._compared(int(own), others, position) for own in side]
        return [each for each in found if each and self._concerns(each, involved)]

    def _compared(self, own: int, others: Int64s, position: int) -> Deviation | None:
        """How a rank deviates from the one of these that made the most calls."""
        other = int(others[self.lengths[others].argmax()])
        calls = self._calls[own, position : self.lengths[own]]
        usual = self._calls[other, position : self.lengths[other]]
        foreseen = np.append(usual, _continuation(self._calls[other, : self.lengths[other]]))
        ways = []
        if extra := _shift(usual, calls):
            ways.append((min(len(calls) - extra, len(usual)), 0, extra))
        if skipped := _shift(calls, usual):
            ways.append((min(len(calls), len(usual) - skipped), skipped, 0))
        elif skipped := _shift(calls, foreseen):
            expected = min(len(calls), len(foreseen) - skipped)
            again = usual[0] in calls[:expected]  # else the rank may still make it: later than the others
            ways.append((expected if again else min(expected, 1), skipped, 0))
        elif repeated := _repeated(self._calls[own, :position], calls):
            ways.append((repeated, len(usual), 0))
        agreeing, skipped, extra = max(ways, key=itemgetter(0), default=(0, 0, 0))
        if not agreeing or _is_exchange(calls, foreseen) or _agreeing(calls[1:], foreseen[1:]) >= agreeing:
            return None
        ranks, row, first = self.journal.ranks, self._row(own, position), self._row(other, position)
        return Deviation(int(ranks[own]), int(ranks[other]), row, first, skipped, extra, agreeing)

    def _concerns(self, deviation: Deviation, involved: Involved) -> bool:
        """True if the calls are of groups that both ranks have, in one of which the rank is involved."""
        place = int(np.searchsorted(self.rows, deviation.first))
        rows = self.rows[place : place + max(deviation.skipped, deviation.extra)]
        called = set(self.kinds[self.journal.records.group[rows]].tolist())
        both = self._kinds_of_rank(deviation.rank) & self._kinds_of_rank(deviation.other)
        return called <= both and not called.isdisjoint(involved.get(deviation.rank, ()))

    def _kinds_of_rank(self, rank: int) -> set[int]:
        groups = self.journal.groups
        return {
            int(self.kinds[number])
            for number, group in enumerate(groups)
            if rank in group.ranks or not group.ranks
        }

    def _usual(self, position: int, side: Int64s, other: Int64s) -> int:
        """Positive if what the other side calls followed here more often in earlier steps, negative if less often."""
        done = self._calls[side[0], :position]
        following = done[positions_like_the_end(done) + 1]
        own, usual = (int(self._calls[rows[0], position]) for rows in (side, other))
        return int(np.count_nonzero(following == usual)) - int(np.count_nonzero(following == own))

    def _made_by_third(self, position: int, side: Int64s, sides: Sequence[int]) -> int:
        """True if ranks of neither side made the collective that this side calls here, as far as their calls show.

        A rank that runs ahead makes later calls too: ranks that made as many calls as third ones are then right.
        """
        journal, row = self.journal, self._row(side[0], position)
        if journal.records.point_to_point[row] or operation_of(journal.operation(row)) == Operation.COALESCED:
            return 0
        last = self._last_sequences(self._group(row))
        third, others = np.setdiff1d(np.delete(last, sides), [UNKNOWN]), np.setdiff1d(sides, side)
        members = journal.groups[self._group(row)].ranks
        if not len(third) or (members and not set(journal.ranks[others].tolist()) <= set(members)):
            return 0
        own, opposite = np.unique(last[side]), np.unique(last[others])
        if len(third) == 1 and not np.array_equal(own, opposite):
            return int(np.array_equal(own, third))
        return int(third.max() >= int(journal.records.sequence[row]) > opposite.max())

    def _last_sequences(self, group: int) -> Int64s:
        """The number of the last collective of each rank in a group, or UNKNOWN."""
        journal, records = self.journal, self.journal.records
        rows = np.flatnonzero((records.group == group) & ~records.point_to_point)
        index = np.searchsorted(journal.bounds, rows, side="right") - 1
        return highest(index, records.sequence[rows], len(journal.ranks))

    def _without_rest(
        self, position: int, side: Int64s, others: Int64s, waits: Sequence[Wait], involved: Involved
    ) -> list[Deviation]:
        """Ranks that are awaited in a call which others made here, and called something else."""
        ranks, usual = self.journal.ranks, self._row(others[0], position)
        call = self._group(usual), int(self.journal.records.sequence[usual]), False
        awaited = {
            rank
            for wait in waits
            if (wait.group, wait.sequence, wait.message) == call
            for rank in wait.awaited
        }
        return [
            Deviation(int(ranks[own]), int(ranks[others[0]]), self._row(own, position), usual, 1, 0, 0)
            for own in side
            if int(ranks[own]) in awaited & involved.keys()
        ]


def _numbered(*columns: Int32s) -> Int32s:
    """A number for each row, equal for equal rows."""
    return distinct(*columns)[0].astype(np.int32)


def _shift(calls: Int32s, usual: Int32s) -> int:
    """How many of the usual calls are left out here, if all of the rest is as usual; 0 if it is not."""
    starts: Int64s = 1 + np.flatnonzero(usual[1 : MOST_SHIFT + 1] == calls[0])
    for shift in starts.tolist():
        common = min(len(calls), len(usual) - shift)
        if (calls[:common] == usual[shift : shift + common]).all():
            return int(shift)
    return 0


def _repeated(done: Int32s, calls: Int32s) -> int:
    """The length of the round that the calls begin again, since the first one like these; 0 without a whole one."""
    starts = np.flatnonzero(done == calls[0])
    round_ = done[int(starts[0]) :] if len(starts) else done[:0]
    whole = SHORTEST_CONTEXT <= len(round_) <= len(calls) and (calls[: len(round_)] == round_).all()
    return len(round_) if whole else 0


def _agreeing(calls: Int32s, usual: Int32s) -> int:
    """How many calls are as usual: a call in place of another one shifts no others."""
    common = min(len(calls), len(usual))
    return int(np.count_nonzero(calls[:common] == usual[:common]))


def _is_exchange(calls: Int32s, usual: Int32s) -> bool:
    """True if the first two calls are the usual ones in the other order, and all of the rest is as usual."""
    common = min(len(calls), len(usual))
    return bool(
        common > 1 and (calls[:2] == usual[1::-1]).all() and (calls[2:common] == usual[2:common]).all()
    )


def _continuation(done: Int32s) -> Int32s:
    """What followed the last time when the calls were as at the end."""
    positions = positions_like_the_end(done)
    following: Int32s = done[int(positions[-1]) + 1 if len(positions) else len(done) :]
    return following[:MOST_SHIFT]
