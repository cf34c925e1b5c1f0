"""Messages: sends and receives of all recorders, paired to messages, and which ranks wait in them.

Pairing is by order within a channel (sender, receiver, group). Where ring buffers wrapped, the shift between both sides
is found by sequence numbers, by finished work, or by collectives that both ranks joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from tracelink.diagnosis.clocks import Elapsed
from tracelink.diagnosis.journal import Journal, operation_names
from tracelink.diagnosis.participation import DumpTimes, Outcome, Parts, PartsByRank, wrapped_ranks
from tracelink.diagnosis.stalls import is_stuck
from tracelink.diagnosis.waits import Wait
from tracelink.matching.groups import Groups, Members
from tracelink.model.columns import (
    NO_TIME,
    UNKNOWN,
    Bools,
    Int8s,
    Int32s,
    Int64s,
    Table,
    distinct,
    stable_order,
    starts_of,
)
from tracelink.model.operations import Operation

CLEARLY = 3
"""By this factor a pairing must be closer in time than another one to be preferred."""
IN_BATCHES = UNKNOWN
"""The peer of the queue of a rank's batches: a batch can have several peers."""


# Ends of messages, alone or in a batch.


class MessageEnds(Table, frozen=True):
    """One row for each send and each receive, sorted by rank, group and time."""

    row: Int64s
    """Entry of the journal."""
    closing: Int64s
    """The entry with its final state: itself, or the one that closes its batch."""
    group: Int32s
    rank: Int64s
    peer: Int64s
    """The job's rank at the other end, or UNKNOWN: a receive may be from any rank."""
    sends: Bools
    batched: Bools
    shared: Bools
    """Whether its batch contains other ends."""
    request: Int32s
    outcome: Int8s

    @property
    def ranks(self) -> tuple[Int64s, Int64s]:
        """The sending and the receiving rank of each."""
        return np.where(self.sends, self.rank, self.peer), np.where(self.sends, self.peer, self.rank)


def message_ends(journal: Journal, outcome: Int8s) -> MessageEnds:
    """All ends of messages; `outcome` is that of each entry."""
    records = journal.records
    names = operation_names(journal)
    sending, receiving, closing = (
        np.array([name == operation for name in names], np.bool_)
        for operation in (Operation.SEND, Operation.RECV, Operation.COALESCED)
    )
    rows = np.flatnonzero(records.point_to_point & (records.group != UNKNOWN))
    rows = rows[(sending | receiving | closing)[records.request[rows]]]
    rows = _by_rank_and_group(journal, rows)
    closed_by = _closed_by(journal, rows, closing[records.request[rows]], outcome)
    is_end = ~closing[records.request[rows]]
    rows, closed_by = rows[is_end], closed_by[is_end]
    request, group = records.request[rows], records.group[rows]
    sends = sending[request]
    position = np.where(sends, journal.requests.target[request], journal.requests.source[request])
    members = Members.of(Groups(journal.groups, UNKNOWN))
    return MessageEnds(
        rows,
        closed_by,
        group,
        journal.rank[rows].astype(np.int64),
        members.rank_of(group, position, np.zeros(len(rows), np.bool_)),
        sends,
        closed_by != rows,
        _shares_closing(closed_by),
        request,
        outcome[closed_by],
    )


def _by_rank_and_group(journal: Journal, rows: Int64s) -> Int64s:
    """The rows sorted by rank and group."""
    if not len(rows):
        return rows
    rank_index = np.searchsorted(journal.ranks, journal.rank[rows])
    return rows[stable_order(rank_index * len(journal.groups) + journal.records.group[rows])]


def _closed_by(journal: Journal, rows: Int64s, closes: Bools, outcome: Int8s) -> Int64s:
    """For each entry the one that closes its batch, or itself.

    The entries of a batch come just before the closing one, have its number, and no state of their own.
    """
    if not len(rows):
        return rows
    records = journal.records
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = closes[:-1] | (outcome[rows[:-1]] != Outcome.OPEN)
    for column in (journal.rank, records.group, records.sequence):
        is_first[1:] |= column[rows[1:]] != column[rows[:-1]]
    starts = np.flatnonzero(is_first)
    last = np.append(starts[1:], len(rows)) - 1
    length = last - starts + 1
    closed = np.repeat(closes[last], length)
    closed_by: Int64s = np.where(closed, np.repeat(rows[last], length), rows)
    return closed_by


def _shares_closing(closed_by: Int64s) -> Bools:
    """Whether an entry closes several of them."""
    same = closed_by[1:] == closed_by[:-1]
    neighbours: Bools = np.append(same, False)[: len(closed_by)] | np.append(False, same)[: len(closed_by)]
    return neighbours


# Pairing the ends of each channel.


class Channels(Table, frozen=True):
    """One row for each channel: sender, receiver and group."""

    sends: Int64s
    """Where its sends start in `Matching.order`; its receives follow."""
    receives: Int64s
    end: Int64s
    shift: Int64s
    """Send i and receive i + shift are one message, counted from the first recorded one of each side."""
    certain: Bools
    """Whether neither ring buffer wrapped."""
    known_shift: Bools
    """Whether the shift is known."""


class Matching(Struct, frozen=True):
    """The channels, and the other end of each end."""

    channels: Channels
    order: Int64s
    """The ends, channel by channel: first its sends, then its receives."""
    channel: Int64s
    """Of each end; UNKNOWN if its peer is."""
    partner: Int64s
    """The other end of the message, or UNKNOWN."""
    expected: Int64s
    """Index of its partner among the other side's recorded ends, present or not; negative if lost."""

    @property
    def messages(self) -> int:
        """How many messages have both ends."""
        return int(np.count_nonzero(self.partner != UNKNOWN)) // 2


def match_messages(journal: Journal, parts: Parts, ends: MessageEnds) -> Matching:
    """Pairs the ends of each channel in order."""
    known = np.flatnonzero(ends.peer != UNKNOWN)
    source = np.where(ends.sends, ends.rank, ends.peer)[known]
    target = np.where(ends.sends, ends.peer, ends.rank)[known]
    number, first = distinct(ends.group[known], source, target)
    order = known[stable_order(2 * number + ~ends.sends[known])] if len(known) else known
    channel = np.full(len(ends), UNKNOWN, np.int64)
    channel[known] = number
    overwritten = wrapped_ranks(journal)
    wrapped = np.isin(source[first], overwritten), np.isin(target[first], overwritten)
    channels = _channels(ends, order, channel[order], *wrapped)
    parts_by_rank = PartsByRank(parts)
    uncertain = _unfinished(ends, order, channels) & ~channels.certain
    for row in np.flatnonzero(uncertain).tolist():
        sends = order[channels.sends[row] : channels.receives[row]]
        receives = order[channels.receives[row] : channels.end[row]]
        shift = channel_shift(
            _side(journal, ends, sends, wrapped=bool(wrapped[0][row])),
            _side(journal, ends, receives, wrapped=bool(wrapped[1][row])),
        )
        if shift is None:
            ranks = int(source[first[row]]), int(target[first[row]])
            shift = shift_by_collectives(parts_by_rank, ranks, ends.row[sends], ends.row[receives])
        channels.shift[row], channels.known_shift[row] = shift or 0, shift is not None
    channels.known_shift[_from_any_rank(ends, ends.group[known][first], target[first])] = False
    return _paired(ends, channels, order, channel)


def _channels(ends: MessageEnds, order: Int64s, channel: Int64s, *wrapped: Bools) -> Channels:
    first = starts_of(channel)
    end = np.append(first[1:], len(order))[: len(first)]
    sends = ends.sends[order]
    first_receive = first + np.bincount(channel[sends], minlength=len(first))
    finished = ends.outcome[order] >= Outcome.RETIRED
    certain = ~(wrapped[0] | wrapped[1])
    done = _done(channel, finished & sends, first), _done(channel, finished & ~sends, first_receive)
    return Channels(
        first,
        first_receive,
        end,
        np.where(certain, 0, done[1] - done[0]),
        certain,
        np.ones(len(first), np.bool_),
    )


def _done(channel: Int64s, finished: Bools, first: Int64s) -> Int64s:
    """How many ends of one side of each channel are finished, up to the last finished one."""
    done = np.zeros(len(first), np.int64)
    index = np.flatnonzero(finished)
    done[channel[index]] = index - first[channel[index]] + 1
    return done


def _unfinished(ends: MessageEnds, order: Int64s, channels: Channels) -> Bools:
    """Which channels have unfinished ends."""
    finished = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends.outcome[order] >= Outcome.RETIRED)])
    unfinished: Bools = finished[channels.end] - finished[channels.sends] < channels.end - channels.sends
    return unfinished


def _from_any_rank(ends: MessageEnds, group: Int32s, target: Int64s) -> Bools:
    """Channels to a rank that receives from any rank of the group: the actual senders are not recorded."""
    receives = np.flatnonzero(~ends.sends & (ends.peer == UNKNOWN))
    ranks = set(zip(ends.group[receives].tolist(), ends.rank[receives].tolist(), strict=True))
    if not ranks:
        return np.zeros(len(group), np.bool_)
    return np.array(
        [channel in ranks for channel in zip(group.tolist(), target.tolist(), strict=True)], np.bool_
    )


def _side(journal: Journal, ends: MessageEnds, rows: Int64s, *, wrapped: bool) -> ChannelSide:
    request = ends.request[rows]
    return ChannelSide(
        journal.records.sequence[ends.row[rows]],
        ends.outcome[rows] >= Outcome.RETIRED,
        journal.records.completed[ends.closing[rows]],
        np.maximum(journal.requests.elements_in[request], journal.requests.elements_out[request]),
        ends.shared[rows],
        wrapped,
    )


def _paired(ends: MessageEnds, channels: Channels, order: Int64s, channel: Int64s) -> Matching:
    position = np.empty(len(ends), np.int64)
    position[order] = np.arange(len(order))
    paired = np.flatnonzero(np.append(channels.known_shift, False)[channel])
    own_channel, sends = channel[paired], ends.sends[paired]
    index = position[paired] - np.where(sends, channels.sends[own_channel], channels.receives[own_channel])
    partner_index = np.where(sends, index + channels.shift[own_channel], index - channels.shift[own_channel])
    start = np.where(sends, channels.receives[own_channel], channels.sends[own_channel])
    count = np.where(sends, channels.end[own_channel], channels.receives[own_channel]) - start
    present = (partner_index >= 0) & (partner_index < count)
    expected = np.full(len(ends), UNKNOWN, np.int64)
    expected[paired] = partner_index
    partner = np.full(len(ends), UNKNOWN, np.int64)
    partner[paired[present]] = order[(start + partner_index)[present]]
    return Matching(channels, order, channel, partner, expected)


# The shift between both sides of a channel whose first messages a ring buffer lost.


class ChannelSide(Struct, frozen=True):
    """The sends or the receives of a channel, in order."""

    number: Int64s
    """The message number that the rank assigned within the group."""
    finished: Bools
    completed: Int64s
    """When the recorder saw it completed, or NO_TIME."""
    size: Int64s
    shared: Bools
    """Whether it is in one batch with others."""
    wrapped: bool
    """Whether the ring buffer lost others before them."""

    def __len__(self) -> int:
        return len(self.number)

    @property
    def done(self) -> int | None:
        """How many are finished; None if these may all be lost."""
        last = np.flatnonzero(self.finished)
        if not len(last):
            return None if self.wrapped else 0
        return int(last[-1]) + 1

    @property
    def possibly_further(self) -> bool:
        """Whether the next one may be finished, and only others in its batch are not."""
        return bool(self.shared[(self.done or 0) :][:1].any())


def channel_shift(sends: ChannelSide, receives: ChannelSide) -> int | None:
    """The shift such that send i and receive i + shift are one message; None if unknown.

    Two ranks that exchange all messages of a group number them equally. Others have finished the same messages, unless
    one was dumped earlier, or has finished a message that is in a batch with others.
    """
    if not (sends.wrapped or receives.wrapped) or not (len(sends) and len(receives)):
        return 0
    by_number = _by_number(sends, receives)
    if sends.done is None or receives.done is None:
        return by_number
    by_outcome = receives.done - sends.done
    if by_number is not None:
        return by_outcome if _closer(sends, receives, by_outcome, by_number) else by_number
    possible = [
        by_outcome,
        *([by_outcome - 1] if sends.possibly_further else []),
        *([by_outcome + 1] if receives.possibly_further else []),
    ]
    return min(possible, key=lambda shift: _disagreeing(sends, receives, shift))


def _by_number(sends: ChannelSide, receives: ChannelSide) -> int | None:
    """The shift by which both ends of all messages have the same number."""
    shift = int(np.searchsorted(receives.number, sends.number[0]))
    if shift == 0:
        shift = -int(np.searchsorted(sends.number, receives.number[0]))
    sent, received = _overlap(sends, receives, shift)
    same = len(sends.number[sent]) > 1 and (sends.number[sent] == receives.number[received]).all()
    return shift if same else None


def _closer(sends: ChannelSide, receives: ChannelSide, shift: int, other: int) -> bool:
    """Whether both ends finish at about the same time with this shift, and not with the other one."""
    time, other_time = _time_between(sends, receives, shift), _time_between(sends, receives, other)
    return time is not None and other_time is not None and CLEARLY * time < other_time


def _time_between(sends: ChannelSide, receives: ChannelSide, shift: int) -> float | None:
    """Median time between the completion of both ends."""
    own, opposite = _overlap(sends, receives, shift)
    sent, received = sends.completed[own], receives.completed[opposite]
    known = (sent != NO_TIME) & (received != NO_TIME)
    return float(np.median(np.abs(sent - received)[known])) if known.any() else None


def _disagreeing(sends: ChannelSide, receives: ChannelSide, shift: int) -> int:
    """How many messages have different sizes at both ends."""
    sent, received = _overlap(sends, receives, shift)
    return int(np.count_nonzero(sends.size[sent] != receives.size[received]))


def _overlap(sends: ChannelSide, receives: ChannelSide, shift: int) -> tuple[slice, slice]:
    first = max(0, -shift)
    length = max(0, min(len(sends) - first, len(receives) - first - shift))
    return slice(first, first + length), slice(first + shift, first + shift + length)


def shift_by_collectives(
    parts_by_rank: PartsByRank, ranks: tuple[int, int], sends: Int64s, receives: Int64s
) -> int | None:
    """The shift from collectives that both ranks joined: both have the same messages before each of them.

    Sends and receives are entries of the journal. None if different collectives give different shifts.
    """
    parts = parts_by_rank.parts
    own, other = (parts_by_rank.of(rank) for rank in ranks)
    _, own_rows, other_rows = np.intersect1d(
        parts.collective[own], parts.collective[other], return_indices=True
    )
    before = np.searchsorted(receives, parts.row[other[other_rows]]) - np.searchsorted(
        sends, parts.row[own[own_rows]]
    )
    return int(before[0]) if len(before) and (before == before[0]).all() else None


# Waits for messages: the first unfinished one of each queue of a rank.


class MessageState(Struct, frozen=True):
    """The data that shows which ranks wait for a message."""

    elapsed: Elapsed
    ends: MessageEnds
    matching: Matching
    times: DumpTimes
    silent: Collection[int]
    """Ranks without a complete dump."""


def message_waits(state: MessageState) -> list[Wait]:
    """A wait for each rank that the first message of a queue waits for.

    If it waits for no rank, one wait of all ends of the messages in flight.
    """
    ends, partner = state.ends, state.matching.partner
    heads = _heads(ends, np.flatnonzero(pending_ends(state)))
    waits: list[Wait] = []
    shown: set[int] = set()
    for closing, members in heads.items():
        found = list(_waits_for_peers(state, heads, members))
        waits += found
        if not found and closing not in shown:
            partners = [int(partner[end]) for end in members if partner[end] != UNKNOWN]
            partners = [end for end in partners if ends.outcome[end] < Outcome.RETIRED]
            waits.append(_wait(state, [members[0], *partners]))
            shown.update(ends.closing[partners].tolist())
    return waits


def pending_ends(state: MessageState) -> Bools:
    """Unfinished ends. An end is finished if the other end is: the recorder has just not seen it yet.

    The same holds for ends before an entry that is unfinished here and finished elsewhere.
    """
    ends, matching = state.ends, state.matching
    finished = np.append(ends.outcome, np.int8(Outcome.OPEN))[matching.partner] >= Outcome.RETIRED
    # A send may end before its message is received: it does not show that a receive, its rank's last call, ended.
    finished &= ends.sends | ~_last_of_ranks(state)
    unfinished: Bools = (ends.outcome < Outcome.RETIRED) & ~finished
    unfinished &= ~state.elapsed.journal.has_left(ends.rank.astype(np.int32), ends.group)
    for rank, row in state.times.overtaken.items():
        unfinished &= (ends.rank != rank) | (ends.row > row)
    for rank in set(ends.rank.tolist()).intersection(state.silent):
        unfinished &= ~_possibly_unclosed(state, rank)
    return unfinished


def _last_of_ranks(state: MessageState) -> Bools:
    """Ends that are the last entry of their rank: its program has stopped there."""
    bounds = state.elapsed.journal.bounds[1:] - 1
    last: Bools = np.isin(state.ends.closing, bounds)
    return last


def _possibly_unclosed(state: MessageState, rank: int) -> Bools:
    """The last ends of a truncated dump: the entry that closes their batch may be missing."""
    ends = state.ends
    own = np.flatnonzero((ends.rank == rank) & ~ends.batched)
    sequence = state.elapsed.journal.records.sequence[ends.row[own]]
    last = np.append(ends.group[own][1:] != ends.group[own][:-1], True)[: len(own)]
    unclosed = np.zeros(len(ends), np.bool_)
    for group, number in zip(ends.group[own][last].tolist(), sequence[last].tolist(), strict=True):
        unclosed[own[(ends.group[own] == group) & (sequence == number)]] = True
    return unclosed


def _heads(ends: MessageEnds, pending: Int64s) -> dict[int, list[int]]:
    """The first ends of all queues, by the entry with their final state."""
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


def _waits_for_peers(
    state: MessageState, heads: Mapping[int, list[int]], members: Sequence[int]
) -> Iterator[Wait]:
    """A wait for each peer that has not reached the message."""
    known_shift = set()
    for end in members:
        peer = int(state.ends.peer[end])
        if peer in known_shift:
            continue
        wait = (
            _wait_for_partner(state, heads, end)
            if state.matching.partner[end] != UNKNOWN
            else _wait_for_missing_end(state, end)
        )
        if wait:
            known_shift.add(peer)
            yield wait


def _wait_for_partner(state: MessageState, heads: Mapping[int, list[int]], end: int) -> Wait | None:
    """A wait if the peer has to finish something else first."""
    partner = state.matching.partner[end]
    behind = int(state.ends.closing[partner]) not in heads and state.ends.outcome[partner] < Outcome.RETIRED
    return _wait(state, [end], absent=(int(state.ends.peer[end]),)) if behind else None


def _wait_for_missing_end(state: MessageState, end: int) -> Wait | None:
    """A wait if the peer has not requested it; what an older dump does not show counts only if it is stuck."""
    peer, times = int(state.ends.peer[end]), state.times
    if peer == UNKNOWN or state.matching.expected[end] < 0:
        return None
    if peer in state.silent:
        return _wait(state, [end], unknown=(peer,))
    if times.may_have_lost(peer, int(state.elapsed.journal.records.created[state.ends.row[end]])):
        return None
    if peer not in times.outdated:
        return _wait(state, [end], absent=(peer,))
    uncertain = _wait(state, [end], unknown=(peer,))
    return uncertain if is_stuck(state.elapsed, uncertain) else None


def _wait(
    state: MessageState, members: Sequence[int], absent: tuple[int, ...] = (), unknown: tuple[int, ...] = ()
) -> Wait:
    ends, journal = state.ends, state.elapsed.journal
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


class Progress(Struct, frozen=True, dict=True):
    """Whether a rank will ever reach what another rank waits for."""

    parts_by_rank: PartsByRank
    waits: Sequence[Wait]

    def has_passed_or_waits(self, awaited: int, rank: int, row: int, *, only_past: bool = False) -> bool:
        """Whether the awaited rank has passed this entry of a rank, or waits for that rank itself."""
        in_a_ring = self._cycle.get(rank) == self._cycle.get(awaited, UNKNOWN)
        return (in_a_ring and not only_past) or self.has_passed(awaited, rank, row)

    def has_passed(self, awaited: int, rank: int, row: int) -> bool:
        """Whether the awaited rank joined a collective that the rank joined after this entry."""
        parts, own, other = (
            self.parts_by_rank.parts,
            self.parts_by_rank.of(rank),
            self.parts_by_rank.of(awaited),
        )
        later = parts.collective[own[parts.row[own] > row]]
        return bool(np.isin(later, parts.collective[other]).any())

    @cached_property
    def _cycle(self) -> dict[int, int]:
        """A number for each rank, equal for ranks that wait for each other, directly or indirectly."""
        from networkx import DiGraph, strongly_connected_components

        graph: DiGraph[int] = DiGraph()
        for wait in self.waits:
            graph.add_edges_from((rank, other) for rank in wait.rows for other in wait.awaited)
        rings = strongly_connected_components(graph)
        return {rank: number for number, ring in enumerate(rings) for rank in ring}
