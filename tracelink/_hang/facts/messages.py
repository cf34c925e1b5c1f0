"""Messages: sends and receives of all recorders, paired to messages, and which ranks wait in them for whom.

Pairing is by order within a channel (sender, receiver, group). Dumps that do not contain the first messages are aligned
by collectives that both ranks joined, else by how much is finished, which is a guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._hang.facts.journal import Journal, operation_names
from tracelink._hang.facts.participation import (
    NEVER,
    DumpTimes,
    Outcome,
    Parts,
    PartsByRank,
    Positions,
    dump_times_of,
    find_outcomes,
    find_wrapped_ranks,
)
from tracelink._hang.facts.stalls import Elapsed, is_stuck
from tracelink._hang.facts.waits import Wait
from tracelink._match.groups import Groups, Members
from tracelink._model.columns import (
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
from tracelink._model.operations import Operation

IN_BATCHES = UNKNOWN
"""The peer of the queue of a rank's batches: a batch can have several peers."""


class Messages(Struct, frozen=True, dict=True):
    """The messages of a job, and what is known about when its dumps were taken."""

    elapsed: Elapsed
    ends: MessageEnds
    matching: Matching
    times: DumpTimes
    silent: Collection[int]
    """Ranks without a complete dump."""
    parts: PartsByRank

    @property
    def journal(self) -> Journal:
        """All entries."""
        return self.elapsed.journal

    @cached_property
    def waits(self) -> list[Wait]:
        """A wait for each rank that the first message of a queue waits for.

        If it waits for no rank, one wait of all ends of the messages in flight.
        """
        return _message_waits(self)

    @cached_property
    def runs_ahead(self) -> tuple[bool, bool]:
        """True if ranks make further calls before a receive, or a batch, and before a send is finished."""
        journal, ends = self.journal, self.ends
        following = ends.closing + 1
        has_next = following < journal.bounds[np.searchsorted(journal.bounds, ends.closing, side="right")]
        created = np.append(journal.records.created, NO_TIME)[following]
        completed = journal.records.completed[ends.closing]
        ahead = has_next & ((ends.outcome == Outcome.OPEN) | ((completed != NO_TIME) & (created < completed)))
        alone = ends.sends & ~ends.batched
        return bool((ahead & ~alone).any()), bool((ahead & alone).any())

    @cached_property
    def sends_early(self) -> bool:
        """True if sends are finished before they are received, as those are that go through a buffer.

        Then two ranks can send to each other first: they have finished messages in different orders.
        """
        ends, partner, records = self.ends, self.matching.partner, self.journal.records
        alone = ends.sends & ~ends.batched & (partner != UNKNOWN)
        sends = np.flatnonzero(alone & (ends.outcome == Outcome.FINISHED))
        sends = sends[self.matching.is_certain(sends)]
        own, other = ends.row[sends], ends.row[partner[sends]]
        sent, requested = records.completed[ends.closing[sends]], records.created[other]
        early = (sent != NO_TIME) & (requested != NO_TIME) & (sent < requested)
        done = ends.outcome[partner[sends]] == Outcome.FINISHED
        rank, peer = ends.rank[sends], ends.peer[sends]
        lower, upper = np.minimum(own, other)[done], np.maximum(own, other)[done]
        pair = ends.group[sends][done], np.minimum(rank, peer)[done], np.maximum(rank, peer)[done]
        order = np.lexsort((lower, *pair))
        crossing = upper[order][1:] < upper[order][:-1]
        for column in pair:
            crossing &= column[order][1:] == column[order][:-1]
        return bool(early.any() or crossing.any())

    def unpaired_channels(self, ranks: Collection[int]) -> Counter[int]:
        """For each of these ranks the number of its channels with more messages on one side than on the other.

        A rank that names a wrong peer has two such channels: that of the wrong peer, and that of the right one.
        """
        count: Counter[int] = Counter()
        channels, ends = self.matching.channels, self.matching.order
        surplus = channels.end + channels.sends - 2 * channels.receives - channels.shift
        for number in np.flatnonzero((surplus != 0) & (channels.pairing == Pairing.CERTAIN)).tolist():
            both = (int(side[ends[channels.sends[number]]]) for side in self.ends.ranks)
            concerned = set(both).intersection(ranks)
            count.update(concerned if concerned and self.paired_until(number) != NEVER else ())
        return count

    def paired_until(self, channel: int) -> int:
        """The first send that may not belong to the receive with its number; NEVER if all of them do.

        Before each collective that both ranks joined, they have made the same messages, unless one names a wrong peer.
        """
        channels, order, row = self.matching.channels, self.matching.order, self.ends.row
        first, middle, end = (
            int(column[channel]) for column in (channels.sends, channels.receives, channels.end)
        )
        source, target = (int(side[order[first]]) for side in self.ends.ranks)
        sends, receives = row[order[first:middle]], row[order[middle:end]]
        sent, received = count_messages_before(self.parts, (source, target), sends, receives)
        paired = received - sent == channels.shift[channel]
        return NEVER if paired.all() else int([*sends, NEVER][sent[paired].max(initial=0)])


def messages_of(
    journal: Journal, parts: Parts, positions: Positions, incomplete: Collection[int]
) -> Messages:
    """The messages of a job; `incomplete` are ranks whose dumps do not contain all of their last calls."""
    ends = find_message_ends(journal, find_outcomes(journal))
    matching = match_messages(journal, parts, ends)
    times = dump_times_of(journal, parts, positions)
    times = replace(times, outdated=times.outdated | _senders_that_moved_on(ends, matching))
    members = {rank for group in journal.groups for rank in group.ranks}
    silent = frozenset({*(members - set(journal.ranks.tolist())), *incomplete})
    return Messages(Elapsed(journal), ends, matching, times, silent, PartsByRank(parts))


def _senders_that_moved_on(ends: MessageEnds, matching: Matching) -> frozenset[int]:
    """Ranks in whose dumps the send of a message that was received is missing or unfinished."""
    sent = (ends.outcome >= Outcome.RETIRED) | ends.batched  # other ends of a batch may be unfinished
    unsent = ~np.append(sent, False)[matching.partner]
    received = ~ends.sends & (ends.outcome == Outcome.FINISHED) & (ends.peer != UNKNOWN)
    return frozenset(np.unique(ends.peer[received & unsent & (matching.expected >= 0)]).tolist())


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
    position: Int64s
    """The position of the other end in the group, as recorded."""
    sends: Bools
    batched: Bools
    request: Int32s
    outcome: Int8s

    @property
    def ranks(self) -> tuple[Int64s, Int64s]:
        """The sending and the receiving rank of each."""
        return np.where(self.sends, self.rank, self.peer), np.where(self.sends, self.peer, self.rank)


def find_message_ends(journal: Journal, outcome: Int8s) -> MessageEnds:
    """All ends of messages; `outcome` is that of each entry."""
    records = journal.records
    names = operation_names(journal)
    sending, receiving, closing = (
        np.array([name == operation for name in names], np.bool_)
        for operation in (Operation.SEND, Operation.RECV, Operation.COALESCED)
    )
    rows = np.flatnonzero(records.point_to_point & (records.group != UNKNOWN))
    rows = rows[(sending | receiving | closing)[records.request[rows]]]
    if len(rows):
        rank_index = np.searchsorted(journal.ranks, journal.rank[rows])
        rows = rows[stable_order(rank_index * len(journal.groups) + records.group[rows])]
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
        position.astype(np.int64),
        sends,
        closed_by != rows,
        request,
        outcome[closed_by],
    )


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
    closed_by: Int64s = np.where(np.repeat(closes[last], length), np.repeat(rows[last], length), rows)
    return closed_by


# Pairing the ends of each channel.


class Pairing(IntEnum):
    """How well it is known which send of a channel belongs to which receive."""

    UNKNOWN = 0
    GUESSED = 1
    """From how many are finished: a dump of another moment contains other ones."""
    CERTAIN = 2


class Channels(Table, frozen=True):
    """One row for each channel: sender, receiver and group."""

    sends: Int64s
    """Where its sends start in `Matching.order`; its receives follow."""
    receives: Int64s
    end: Int64s
    shift: Int64s
    """Send i and receive i + shift are one message, counted from the first recorded one of each side."""
    pairing: Int8s


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

    def is_certain(self, ends: Int64s) -> Bools:
        """True where it is certain which message these ends belong to."""
        certain: Bools = np.append(self.channels.pairing == Pairing.CERTAIN, False)[self.channel[ends]]
        return certain


def match_messages(journal: Journal, parts: Parts, ends: MessageEnds) -> Matching:
    """Pairs the ends of each channel in order."""
    known = np.flatnonzero(ends.peer != UNKNOWN)
    source, target = (ranks[known] for ranks in ends.ranks)
    number, first = distinct(ends.group[known], source, target)
    order = known[stable_order(2 * number + ~ends.sends[known])] if len(known) else known
    channel = np.full(len(ends), UNKNOWN, np.int64)
    channel[known] = number
    group, source, target = ends.group[known][first], source[first], target[first]
    channels = _channels(journal, ends, order, channel[order], source, target)
    parts_by_rank = PartsByRank(parts)
    for row in np.flatnonzero(
        _unfinished(ends, order, channels) & (channels.pairing != Pairing.CERTAIN)
    ).tolist():
        sends = ends.row[order[channels.sends[row] : channels.receives[row]]]
        receives = ends.row[order[channels.receives[row] : channels.end[row]]]
        shift = shift_by_collectives(parts_by_rank, (int(source[row]), int(target[row])), sends, receives)
        if shift is not None:
            channels.shift[row], channels.pairing[row] = shift, Pairing.CERTAIN
    from_any = ~ends.sends & (ends.peer == UNKNOWN)
    takes_any = np.isin(_member(group, target), _member(ends.group[from_any], ends.rank[from_any]))
    channels.pairing[takes_any] = Pairing.UNKNOWN
    return _paired(ends, channels, order, channel)


def _member(group: Int32s, rank: Int64s) -> Int64s:
    """A number for each pair of a group and a rank."""
    member: Int64s = group.astype(np.int64) << 32 | rank
    return member


def _channels(
    journal: Journal, ends: MessageEnds, order: Int64s, channel: Int64s, source: Int64s, target: Int64s
) -> Channels:
    """The channels, paired by how many messages are finished where dumps lack the first ones."""
    first = starts_of(channel)
    end = np.append(first[1:], len(order))[: len(first)]
    sends, finished = ends.sends[order], ends.outcome[order] >= Outcome.RETIRED
    first_receive = first + np.bincount(channel[sends], minlength=len(first))
    sent = _done(channel, finished & sends, first)
    received = _done(channel, finished & ~sends, first_receive)
    wrapped = find_wrapped_ranks(journal)
    active = [rank for rank, recording in journal.recordings.items() if recording.only_active]
    partial = np.isin(source, [*wrapped, *active]) | np.isin(target, [*wrapped, *active])
    partial &= (first < first_receive) & (first_receive < end)
    # Without a finished one it is unknown how many a ring buffer has lost.
    unclear = np.isin(source, wrapped) & (sent == 0) | np.isin(target, wrapped) & (received == 0)
    guessed = np.where(unclear, np.int8(Pairing.UNKNOWN), np.int8(Pairing.GUESSED))
    return Channels(
        first,
        first_receive,
        end,
        np.where(partial, received - sent, 0),
        np.where(partial, guessed, np.int8(Pairing.CERTAIN)),
    )


def _done(channel: Int64s, finished: Bools, first: Int64s) -> Int64s:
    """How many ends of one side of each channel are finished, up to the last finished one."""
    done = np.zeros(len(first), np.int64)
    index = np.flatnonzero(finished)
    done[channel[index]] = index - first[channel[index]] + 1
    return done


def _unfinished(ends: MessageEnds, order: Int64s, channels: Channels) -> Bools:
    """True where a channel has unfinished ends."""
    finished = np.concatenate([np.zeros(1, np.int64), np.cumsum(ends.outcome[order] >= Outcome.RETIRED)])
    unfinished: Bools = finished[channels.end] - finished[channels.sends] < channels.end - channels.sends
    return unfinished


def shift_by_collectives(
    parts_by_rank: PartsByRank, ranks: tuple[int, int], sends: Int64s, receives: Int64s
) -> int | None:
    """The shift from collectives that both ranks joined: both have the same messages before each of them.

    Sends and receives are entries of the journal. None if different collectives give different shifts.
    """
    sent, received = count_messages_before(parts_by_rank, ranks, sends, receives)
    before = received - sent
    return int(before[0]) if len(before) and (before == before[0]).all() else None


def count_messages_before(
    parts_by_rank: PartsByRank, ranks: tuple[int, int], sends: Int64s, receives: Int64s
) -> tuple[Int64s, Int64s]:
    """How many sends, and how many receives, come before each collective that both ranks joined."""
    parts = parts_by_rank.parts
    own, other = (parts_by_rank.of(rank) for rank in ranks)
    _, own_rows, other_rows = np.intersect1d(
        parts.collective[own], parts.collective[other], return_indices=True
    )
    return (
        np.searchsorted(sends, parts.row[own[own_rows]]),
        np.searchsorted(receives, parts.row[other[other_rows]]),
    )


def _paired(ends: MessageEnds, channels: Channels, order: Int64s, channel: Int64s) -> Matching:
    position = np.empty(len(ends), np.int64)
    position[order] = np.arange(len(order))
    paired = np.flatnonzero(np.append(channels.pairing != Pairing.UNKNOWN, False)[channel])
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


# Waits for messages: the first unfinished one of each queue of a rank.


def _message_waits(messages: Messages) -> list[Wait]:
    ends, partner = messages.ends, messages.matching.partner
    heads = _heads(ends, np.flatnonzero(_pending(messages)))
    waits: list[Wait] = []
    shown: set[int] = set()
    for closing, members in heads.items():
        found = list(_waits_for_peers(messages, heads, members))
        waits += found
        if not found and closing not in shown:
            partners = [int(partner[end]) for end in members if partner[end] != UNKNOWN]
            partners = [end for end in partners if ends.outcome[end] < Outcome.RETIRED]
            waits.append(_wait(messages, [members[0], *partners]))
            shown.update(ends.closing[partners].tolist())
    return waits


def _pending(messages: Messages) -> Bools:
    """Unfinished ends. An end is finished if the other end is: the recorder has just not seen it yet.

    The same holds for ends before an entry that is unfinished here and finished elsewhere.
    """
    ends, journal = messages.ends, messages.journal
    finished = np.append(ends.outcome, np.int8(Outcome.OPEN))[messages.matching.partner] >= Outcome.RETIRED
    # A send may end before its message is received: it does not show that a receive, its rank's last call, ended.
    finished &= ends.sends | ~np.isin(ends.closing, journal.bounds[1:] - 1)
    unfinished: Bools = (ends.outcome < Outcome.RETIRED) & ~finished
    unfinished &= ~journal.has_left(ends.rank.astype(np.int32), ends.group)
    for rank, row in messages.times.overtaken.items():
        unfinished &= (ends.rank != rank) | (ends.row > row)
    for rank in set(ends.rank.tolist()).intersection(messages.silent):
        unfinished &= ~_possibly_unclosed(messages, rank)
    return unfinished


def _possibly_unclosed(messages: Messages, rank: int) -> Bools:
    """The last ends of a truncated dump: the entry that closes their batch may be missing."""
    ends = messages.ends
    own = np.flatnonzero((ends.rank == rank) & ~ends.batched)
    sequence = messages.journal.records.sequence[ends.row[own]]
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
    batched = ends.batched[pending]
    peer = np.where(batched, IN_BATCHES, ends.peer[pending])
    queue, first = distinct(ends.rank[pending], ends.group[pending], batched.astype(np.int8), peer)
    closing = ends.closing[pending]
    for end in pending[closing == closing[first][queue]].tolist():
        heads.setdefault(int(ends.closing[end]), []).append(end)
    return heads


def _waits_for_peers(
    messages: Messages, heads: Mapping[int, list[int]], members: Sequence[int]
) -> Iterator[Wait]:
    """A wait for each peer that has not reached the message."""
    known: set[int] = set()
    for end in members:
        peer = int(messages.ends.peer[end])
        wait = _wait_for_peer(messages, heads, end) if peer not in known | {UNKNOWN} else None
        if wait:
            known.add(peer)
            yield wait


def _wait_for_peer(messages: Messages, heads: Mapping[int, list[int]], end: int) -> Wait | None:
    """A wait if the peer has to finish something else first, or has not requested the message.

    What an older dump does not show counts only if it is stuck.
    """
    ends, matching, times = messages.ends, messages.matching, messages.times
    peer, partner = (int(ends.peer[end]),), int(matching.partner[end])
    by_guess = not matching.is_certain(np.array([end]))[0]
    if partner != UNKNOWN:
        behind = int(ends.closing[partner]) not in heads and ends.outcome[partner] < Outcome.RETIRED
        return _wait(messages, [end], peer, by_guess=by_guess, queued=True) if behind else None
    if matching.expected[end] < 0:
        return None
    if peer[0] in messages.silent:
        return _wait(messages, [end], peer, by_guess=True)
    created, own = int(messages.journal.records.created[ends.row[end]]), int(ends.rank[end])
    if times.may_have_lost(peer[0], messages.elapsed.on_clock_of(peer[0], own, created)):
        return None
    if peer[0] not in times.outdated:
        return _wait(messages, [end], peer, by_guess=by_guess)
    uncertain = _wait(messages, [end], peer, by_guess=True)
    return uncertain if is_stuck(messages.elapsed, uncertain) else None


def _wait(
    messages: Messages,
    members: Sequence[int],
    awaited: tuple[int, ...] = (),
    *,
    by_guess: bool = False,
    queued: bool = False,
) -> Wait:
    ends, journal = messages.ends, messages.journal
    first = members[0]
    row, alone = int(ends.row[first]), bool(ends.sends[first] and not ends.batched[first])
    return Wait(
        int(ends.group[first]),
        int(journal.records.sequence[row]),
        journal.operation(row),
        {int(ends.rank[end]): int(ends.closing[end]) for end in members},
        absent=() if by_guess else awaited,
        unknown=awaited if by_guess else (),
        created=int(journal.records.created[row]),
        dropped=bool((ends.outcome[list(members)] == Outcome.DROPPED).any()),
        queued=queued,
        message=True,
        blocks=not messages.runs_ahead[alone],
        buffered=alone and messages.sends_early,
        passed=bool(awaited) and not queued and not by_guess and _has_passed(messages, first),
    )


def _has_passed(messages: Messages, end: int) -> bool:
    """True if the rank at the other end joined a collective that the rank at this end joined after the message."""
    ends, parts = messages.ends, messages.parts.parts
    own, other = (messages.parts.of(int(rank[end])) for rank in (ends.rank, ends.peer))
    later = parts.collective[own[parts.row[own] > ends.closing[end]]]
    return bool(np.isin(later, parts.collective[other]).any())
