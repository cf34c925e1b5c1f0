"""Sends and receives of recorders, paired; who waits in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.hangs import is_stuck
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.participation import Attended, Outcome, Parts, Whereabouts
from tracelink.diagnosis.waits import Wait
from tracelink.linking.groups import Groups, Members
from tracelink.model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Columns,
    Int32s,
    Int64s,
    distinct,
    stable_order,
    starts_of,
)
from tracelink.model.operations import SYNCHRONIZING, Operation, operation_of
from tracelink.model.records import Int8s

# The ends of messages, out of the entries that tell of them: sends and receives, alone or in a batch.


@dataclass(frozen=True, slots=True)
class Ends(Columns):
    """One row for each send and each receive, in the order of rank, group and recording."""

    row: Int64s
    """Of the journal."""
    closing: Int64s
    """The entry that says what became of it: itself, or that which closes its batch."""
    group: Int32s
    rank: Int64s
    peer: Int64s
    """The rank of the job at the other end, or UNKNOWN: a receive may be from anybody."""
    sends: Bools
    batched: Bools
    shared: Bools
    """Whether it is in a batch with others."""
    request: Int32s
    outcome: Int8s

    def __len__(self) -> int:
        return len(self.row)


def ends_of(journal: Journal, outcome: Int8s) -> Ends:
    """All ends of messages; `outcome` is that of each entry."""
    records = journal.records
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    sending, receiving, closing = (
        np.array([name == operation for name in names], np.bool_)
        for operation in (Operation.SEND, Operation.RECV, Operation.COALESCED)
    )
    rows = np.flatnonzero(records.point_to_point & (records.group != UNKNOWN))
    rows = rows[(sending | receiving | closing)[records.request[rows]]]
    rows = _by_rank_and_group(journal, rows)
    closed_by = _closed_by(journal, rows, closing[records.request[rows]], outcome)
    kept = ~closing[records.request[rows]]
    rows, closed_by = rows[kept], closed_by[kept]
    request, group = records.request[rows], records.group[rows]
    sends = sending[request]
    within = np.where(sends, journal.requests.target[request], journal.requests.source[request])
    members = Members.of(Groups(journal.groups, group, UNKNOWN))
    return Ends(
        rows,
        closed_by,
        group,
        journal.rank[rows].astype(np.int64),
        members.rank_of(group, within, np.zeros(len(rows), np.bool_)),
        sends,
        closed_by != rows,
        _has_neighbours(closed_by),
        request,
        outcome[closed_by],
    )


def _by_rank_and_group(journal: Journal, rows: Int64s) -> Int64s:
    """The rows of each rank, those of one group together."""
    if not len(rows):
        return rows
    place = np.searchsorted(journal.ranks, journal.rank[rows])
    return rows[stable_order(place * len(journal.groups) + journal.records.group[rows])]


def _closed_by(journal: Journal, rows: Int64s, closes: Bools, outcome: Int8s) -> Int64s:
    """For each entry the one that closes its batch; itself where nothing does.

    What is closed by one entry comes just before it, has its number, and does not tell what became of it.
    """
    if not len(rows):
        return rows
    records = journal.records
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = closes[:-1] | (outcome[rows[:-1]] != Outcome.OPEN)
    for column in (journal.rank, records.group, records.sequence):
        begins[1:] |= column[rows[1:]] != column[rows[:-1]]
    starts = np.flatnonzero(begins)
    last = np.append(starts[1:], len(rows)) - 1
    length = last - starts + 1
    closed = np.repeat(closes[last], length)
    closed_by: Int64s = np.where(closed, np.repeat(rows[last], length), rows)
    return closed_by


def _has_neighbours(closed_by: Int64s) -> Bools:
    """Whether an entry closes more than one of them."""
    same = closed_by[1:] == closed_by[:-1]
    neighbours: Bools = np.append(same, False)[: len(closed_by)] | np.append(False, same)[: len(closed_by)]
    return neighbours


# Which send and which receive of a channel are one message, where a ring buffer forgot the oldest of them.


CLEARLY = 3
"""By so many times as close in time two sides must be if that is to decide."""
MANY = 2
"""So many messages do not happen to be of two sizes."""


@dataclass(frozen=True, slots=True)
class Side:
    """The sends of a channel, or the receives, in their order."""

    number: Int64s
    """As the rank counts its messages in the group."""
    finished: Bools
    completed: Int64s
    """When it was seen, or NO_TIME."""
    size: Int64s
    shared: Bools
    """Whether it is in one batch with others."""
    forgot: bool
    """Whether there were others before them."""

    def __len__(self) -> int:
        return len(self.number)

    @property
    def done(self) -> int | None:
        """How many are over; None where those may all be forgotten."""
        last = np.flatnonzero(self.finished)
        if not len(last):
            return None if self.forgot else 0
        return int(last[-1]) + 1

    @property
    def held(self) -> bool:
        """Whether the next may be over, and only what is in a batch with it is not."""
        return bool(self.shared[(self.done or 0) :][:1].any())


def shift_of(sends: Side, receives: Side) -> int | None:
    """Such that send i and receive i + shift are one message; None where nothing tells.

    Two ranks that do all in a group together also count the same. Others have finished the same messages, unless
    one was dumped earlier, or has finished one that is in a batch with others.
    """
    if not (sends.forgot or receives.forgot) or not (len(sends) and len(receives)):
        return 0
    by_number = _by_number(sends, receives)
    if sends.done is None or receives.done is None:
        return by_number
    by_outcome = receives.done - sends.done
    if by_number is not None:
        return by_outcome if _closer(sends, receives, by_outcome, by_number) else by_number
    possible = [
        by_outcome,
        *([by_outcome - 1] if sends.held else []),
        *([by_outcome + 1] if receives.held else []),
    ]
    return min(possible, key=lambda shift: _disagreeing(sends, receives, shift))


def _disagreeing(sends: Side, receives: Side, shift: int) -> int:
    """How many messages are of two sizes."""
    ones, others = _overlap(sends, receives, shift)
    return int(np.count_nonzero(sends.size[ones] != receives.size[others]))


def _closer(sends: Side, receives: Side, shift: int, other: int) -> bool:
    """Whether both ends are over at about the same time by one shift, and not by the other."""
    apart, otherwise = _apart(sends, receives, shift), _apart(sends, receives, other)
    return apart is not None and otherwise is not None and CLEARLY * apart < otherwise


def _by_number(sends: Side, receives: Side) -> int | None:
    """The shift by which all have the same number as the other end of their message."""
    shift = int(np.searchsorted(receives.number, sends.number[0]))
    if shift == 0:
        shift = -int(np.searchsorted(sends.number, receives.number[0]))
    ones, others = _overlap(sends, receives, shift)
    same = len(sends.number[ones]) > 1 and (sends.number[ones] == receives.number[others]).all()
    return shift if same else None


def _apart(sends: Side, receives: Side, shift: int) -> float | None:
    """How long after one end the other is usually over."""
    ones, others = _overlap(sends, receives, shift)
    sent, received = sends.completed[ones], receives.completed[others]
    known = (sent != NO_TIME) & (received != NO_TIME)
    return float(np.median(np.abs(sent - received)[known])) if known.any() else None


def _overlap(sends: Side, receives: Side, shift: int) -> tuple[slice, slice]:
    begin = max(0, -shift)
    length = max(0, min(len(sends) - begin, len(receives) - begin - shift))
    return slice(begin, begin + length), slice(begin + shift, begin + shift + length)


def shift_by_place(attended: Attended, ranks: tuple[int, int], sends: Int64s, receives: Int64s) -> int | None:
    """By what both ranks have joined: as many messages are sent as received before it, and after it.

    The sends and receives are entries of the journal. None where different collectives tell differently.
    """
    parts = attended.parts
    own, other = (attended.by(rank) for rank in ranks)
    _, ones, others = np.intersect1d(parts.round[own], parts.round[other], return_indices=True)
    before = np.searchsorted(receives, parts.row[other[others]]) - np.searchsorted(
        sends, parts.row[own[ones]]
    )
    return int(before[0]) if len(before) and (before == before[0]).all() else None


# Which sends and receives are the two ends of one message.


@dataclass(frozen=True, slots=True)
class Channels(Columns):
    """One row for each channel."""

    sends: Int64s
    """Where its sends begin in the order of `Matching.order`; its receives come after them."""
    receives: Int64s
    end: Int64s
    shift: Int64s
    """Send i and receive i + shift are one message, counted from the first of each that is kept."""
    certain: Bools
    """Whether neither end has forgotten anything."""
    told: Bools
    """Whether the shift is known at all."""

    def __len__(self) -> int:
        return len(self.sends)


@dataclass(frozen=True, slots=True)
class Matching:
    """The channels, and for each end which other one it belongs to."""

    channels: Channels
    order: Int64s
    """The ends, channel by channel: first its sends, then its receives."""
    channel: Int64s
    """Of each end, or UNKNOWN where its peer is."""
    partner: Int64s
    """The other end of the message, or UNKNOWN."""
    expected: Int64s
    """Which of the other side's kept ends should be its partner, whether it is there or not; negative if forgotten."""

    @property
    def messages(self) -> int:
        """How many messages have two ends."""
        return int(np.count_nonzero(self.partner != UNKNOWN)) // 2


def match(journal: Journal, parts: Parts, ends: Ends) -> Matching:
    """Pairs the ends of each channel in their order."""
    known = np.flatnonzero(ends.peer != UNKNOWN)
    source = np.where(ends.sends, ends.rank, ends.peer)[known]
    target = np.where(ends.sends, ends.peer, ends.rank)[known]
    number, first = distinct(ends.group[known], source, target)
    order = known[stable_order(2 * number + ~ends.sends[known])] if len(known) else known
    channel = np.full(len(ends), UNKNOWN, np.int64)
    channel[known] = number
    forgetful = [rank for rank, one in journal.recordings.items() if one.overwritten]
    forgot = np.isin(source[first], forgetful), np.isin(target[first], forgetful)
    channels = _channels(ends, order, channel[order], *forgot)
    attended = Attended(parts)
    doubtful = _open(ends, order, channels) & ~channels.certain
    for row in np.flatnonzero(doubtful).tolist():
        begin, middle, end = (
            int(column[row]) for column in (channels.sends, channels.receives, channels.end)
        )
        sends, receives = order[begin:middle], order[middle:end]
        shift = shift_of(
            _side(journal, ends, sends, forgot=bool(forgot[0][row])),
            _side(journal, ends, receives, forgot=bool(forgot[1][row])),
        )
        if shift is None:
            ranks = int(source[first[row]]), int(target[first[row]])
            shift = shift_by_place(attended, ranks, ends.row[sends], ends.row[receives])
        channels.shift[row], channels.told[row] = shift or 0, shift is not None
    channels.told[_may_be_for_anybody(ends, ends.group[known][first], target[first])] = False
    return _paired(ends, channels, order, channel)


def _may_be_for_anybody(ends: Ends, group: Int32s, target: Int64s) -> Bools:
    """Channels to a rank that receives from anybody in the group: what it has received from whom is not recorded."""
    anybody = np.flatnonzero(~ends.sends & (ends.peer == UNKNOWN))
    ranks = set(zip(ends.group[anybody].tolist(), ends.rank[anybody].tolist(), strict=True))
    if not ranks:
        return np.zeros(len(group), np.bool_)
    return np.array([one in ranks for one in zip(group.tolist(), target.tolist(), strict=True)], np.bool_)


def _channels(ends: Ends, order: Int64s, channel: Int64s, *forgot: Bools) -> Channels:
    begin = starts_of(channel)
    end = np.append(begin[1:], len(order))[: len(begin)]
    sends = ends.sends[order]
    middle = begin + np.bincount(channel[sends], minlength=len(begin))
    finished = ends.outcome[order] >= Outcome.RETIRED
    certain = ~(forgot[0] | forgot[1])
    done = _done(channel, finished & sends, begin), _done(channel, finished & ~sends, middle)
    return Channels(
        begin, middle, end, np.where(certain, 0, done[1] - done[0]), certain, np.ones(len(begin), np.bool_)
    )


def _open(ends: Ends, order: Int64s, channels: Channels) -> Bools:
    """Which channels have ends that are not over."""
    over = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends.outcome[order] >= Outcome.RETIRED)])
    still_open: Bools = over[channels.end] - over[channels.sends] < channels.end - channels.sends
    return still_open


def _done(channel: Int64s, finished: Bools, begin: Int64s) -> Int64s:
    """How many of one side of each channel are over: up to the last that is."""
    done = np.zeros(len(begin), np.int64)
    place = np.flatnonzero(finished)
    done[channel[place]] = place - begin[channel[place]] + 1
    return done


def _side(journal: Journal, ends: Ends, rows: Int64s, *, forgot: bool) -> Side:
    request = ends.request[rows]
    return Side(
        journal.records.sequence[ends.row[rows]],
        ends.outcome[rows] >= Outcome.RETIRED,
        journal.records.completed[ends.closing[rows]],
        np.maximum(journal.requests.elements_in[request], journal.requests.elements_out[request]),
        ends.shared[rows],
        forgot,
    )


def _paired(ends: Ends, channels: Channels, order: Int64s, channel: Int64s) -> Matching:
    place = np.empty(len(ends), np.int64)
    place[order] = np.arange(len(order))
    known = np.flatnonzero(np.append(channels.told, False)[channel])
    of, sends = channel[known], ends.sends[known]
    own = place[known] - np.where(sends, channels.sends[of], channels.receives[of])
    theirs = np.where(sends, own + channels.shift[of], own - channels.shift[of])
    start = np.where(sends, channels.receives[of], channels.sends[of])
    count = np.where(sends, channels.end[of], channels.receives[of]) - start
    there = (theirs >= 0) & (theirs < count)
    expected = np.full(len(ends), UNKNOWN, np.int64)
    expected[known] = theirs
    partner = np.full(len(ends), UNKNOWN, np.int64)
    partner[known[there]] = order[(start + theirs)[there]]
    return Matching(channels, order, channel, partner, expected)


# Which dumps were taken before others, as what is in them tells, and what they cannot tell for that reason.


@dataclass(frozen=True, slots=True)
class DumpTimes:
    """What is known of when dumps were taken."""

    finished_since: Mapping[int, int]
    """By rank the last entry that is not finished in its dump, and is in that of another."""
    older: frozenset[int]
    """Ranks whose dumps were taken before something happened that others tell of."""
    kept_since: Mapping[int, int]
    """When the first entry was made that is kept, of ranks that forgot some."""

    def forgot(self, rank: int, time: int) -> bool:
        """Whether a rank may have forgotten what it asked for at about this time."""
        return rank in self.kept_since and (time == NO_TIME or time <= self.kept_since[rank])


def dump_times_of(journal: Journal, parts: Parts, where: Whereabouts) -> DumpTimes:
    """By the collectives that nobody finishes before all have joined."""
    overtaken = _overtaken(journal, parts)
    older = {*overtaken, *_left_behind(journal, parts, where)}
    return DumpTimes(overtaken, frozenset(older), _kept_since(journal))


def _overtaken(journal: Journal, parts: Parts) -> dict[int, int]:
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    synchronizing = np.array([name in SYNCHRONIZING for name in names], np.bool_)
    finished = (parts.outcome == Outcome.FINISHED) & synchronizing[journal.records.request[parts.row]]
    open_parts = np.flatnonzero(parts.outcome < Outcome.RETIRED)
    later = open_parts[np.isin(parts.round[open_parts], parts.round[finished])]
    found: dict[int, int] = {}
    for rank, row in zip(parts.rank[later].tolist(), parts.row[later].tolist(), strict=True):
        found[rank] = max(row, found.get(rank, UNKNOWN))
    return found


def _left_behind(journal: Journal, parts: Parts, where: Whereabouts) -> list[int]:
    """Ranks whose dumps lack a collective that others have finished."""
    if not len(parts):
        return []
    own = np.where(where.part == UNKNOWN, UNKNOWN, parts.sequence[where.part])
    forgotten = (where.part == UNKNOWN) & np.isin(where.rank, _forgetful(journal))
    older = (where.last > own) & ~forgotten & np.isin(where.rank, journal.ranks)
    return [int(rank) for rank in np.unique(where.rank[older])]


def _kept_since(journal: Journal) -> dict[int, int]:
    begins: Int64s = journal.bounds[np.searchsorted(journal.ranks, _forgetful(journal))]
    times = {
        rank: int(journal.records.created[begin])
        for rank, begin in zip(_forgetful(journal), begins.tolist(), strict=True)
        if begin < len(journal) and journal.rank[begin] == rank
    }
    return {rank: time for rank, time in times.items() if time != NO_TIME}


def _forgetful(journal: Journal) -> list[int]:
    return [rank for rank, one in journal.recordings.items() if one.overwritten]


# Who waits for whom in messages: in the first that is not finished of each queue in which a rank has some.


IN_BATCHES = UNKNOWN
"""Stands for the peer in the queue of a rank's batches, for they can be for several."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that tells who waits for a message."""

    elapsed: Elapsed
    ends: Ends
    matching: Matching
    times: DumpTimes
    silent: Collection[int]
    """Ranks of which there is no dump, or not all of it."""


def message_waits(scene: Scene) -> list[Wait]:
    """One for each rank that the first of a queue waits for; without any, one with those it is under way with."""
    ends, partner = scene.ends, scene.matching.partner
    heads = _heads(ends, np.flatnonzero(pending(scene)))
    waits: list[Wait] = []
    shown: set[int] = set()
    for closing, members in heads.items():
        found = list(_awaiting(scene, heads, members))
        waits += found
        if not found and closing not in shown:
            partners = [int(partner[end]) for end in members if partner[end] != UNKNOWN]
            waits.append(_wait(scene, [members[0], *partners]))
            shown.update(ends.closing[partners].tolist())
    return waits


def pending(scene: Scene) -> Bools:
    """Ends that are not finished; where the other end is, this one is too as soon as it is looked at.

    So is what stands before something that is not finished here but elsewhere.
    """
    ends, matching = scene.ends, scene.matching
    finished = np.append(ends.outcome, np.int8(Outcome.OPEN))[matching.partner] >= Outcome.RETIRED
    found: Bools = (ends.outcome < Outcome.RETIRED) & ~finished
    for rank, row in scene.times.finished_since.items():
        found &= (ends.rank != rank) | (ends.row > row)
    for rank in scene.silent:
        found &= ~_may_lack_its_closing(scene, rank)
    return found


def _may_lack_its_closing(scene: Scene, rank: int) -> Bools:
    """The last ends of a dump that breaks off: they may be of a batch."""
    ends = scene.ends
    own = np.flatnonzero((ends.rank == rank) & ~ends.batched)
    sequence = scene.elapsed.journal.records.sequence[ends.row[own]]
    last = np.append(ends.group[own][1:] != ends.group[own][:-1], True)[: len(own)]
    found = np.zeros(len(ends), np.bool_)
    for group, number in zip(ends.group[own][last].tolist(), sequence[last].tolist(), strict=True):
        found[own[(ends.group[own] == group) & (sequence == number)]] = True
    return found


def _heads(ends: Ends, pending: Int64s) -> dict[int, list[int]]:
    """The ends that are first in their queues, by the entry that tells of their outcome."""
    heads: dict[int, list[int]] = {}
    if not len(pending):
        return heads
    peer = np.where(ends.batched[pending], IN_BATCHES, ends.peer[pending])
    queue, first = distinct(
        ends.rank[pending], ends.group[pending], ends.batched[pending].astype(np.int8), peer
    )
    closing = ends.closing[pending]
    for end in pending[closing == closing[first][queue]].tolist():
        heads.setdefault(int(ends.closing[end]), []).append(end)
    return heads


def _awaiting(scene: Scene, heads: Mapping[int, list[int]], members: Sequence[int]) -> Iterator[Wait]:
    """A wait for each peer that has not come to the message."""
    told = set()
    for end in members:
        peer = int(scene.ends.peer[end])
        if peer in told:
            continue
        wait = (
            _with_partner(scene, heads, end) if scene.matching.partner[end] != UNKNOWN else _alone(scene, end)
        )
        if wait:
            told.add(peer)
            yield wait


def _with_partner(scene: Scene, heads: Mapping[int, list[int]], end: int) -> Wait | None:
    """Whether the peer has something else to finish first."""
    behind = int(scene.ends.closing[scene.matching.partner[end]]) not in heads
    return _wait(scene, [end], absent=(int(scene.ends.peer[end]),)) if behind else None


def _alone(scene: Scene, end: int) -> Wait | None:
    """Whether the peer has not asked for it; what dumps do not tell, because they are older, is told if it is stuck."""
    peer, times = int(scene.ends.peer[end]), scene.times
    if peer == UNKNOWN or scene.matching.expected[end] < 0:
        return None
    if peer in scene.silent:
        return _wait(scene, [end], unknown=(peer,))
    if times.forgot(peer, int(scene.elapsed.journal.records.created[scene.ends.row[end]])):
        return None
    if peer not in times.older:
        return _wait(scene, [end], absent=(peer,))
    uncertain = _wait(scene, [end], unknown=(peer,))
    return uncertain if is_stuck(scene.elapsed, uncertain) else None


def _wait(
    scene: Scene, members: Sequence[int], absent: tuple[int, ...] = (), unknown: tuple[int, ...] = ()
) -> Wait:
    ends, journal = scene.ends, scene.elapsed.journal
    row = int(ends.row[members[0]])
    return Wait(
        int(ends.group[members[0]]),
        int(journal.records.sequence[row]),
        journal.operation(row),
        {int(ends.rank[end]): int(ends.closing[end]) for end in members},
        absent,
        unknown,
        created=int(journal.records.created[row]),
        dropped=bool((ends.outcome[list(members)] == Outcome.DROPPED).any()),
        message=True,
    )


# Whether a rank will ever come to what another waits for.


@dataclass(frozen=True)
class Reach:
    """What ranks have joined, and who waits for whom."""

    attended: Attended
    waits: Sequence[Wait]

    def comes_no_more(self, awaited: int, rank: int, row: int, *, only_past: bool = False) -> bool:
        """Whether one that is awaited by a rank since an entry has gone past that, or waits for the rank itself."""
        in_a_ring = self._ring.get(rank) == self._ring.get(awaited, UNKNOWN)
        return (in_a_ring and not only_past) or self.went_past(awaited, rank, row)

    def went_past(self, awaited: int, rank: int, row: int) -> bool:
        """Whether it joined something that the rank did after this entry."""
        parts, own, other = self.attended.parts, self.attended.by(rank), self.attended.by(awaited)
        later = parts.round[own[parts.row[own] > row]]
        return bool(np.isin(later, parts.round[other]).any())

    @cached_property
    def _ring(self) -> dict[int, int]:
        """For each rank a number that it shares with all that wait for it and that it waits for, directly or not."""
        from networkx import DiGraph, strongly_connected_components

        graph: DiGraph[int] = DiGraph()
        for wait in self.waits:
            graph.add_edges_from((rank, other) for rank in wait.rows for other in wait.awaited)
        rings = strongly_connected_components(graph)
        return {rank: number for number, ring in enumerate(rings) for rank in ring}
