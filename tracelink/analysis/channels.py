"""Which sends and receives are the two ends of one message.

Messages of a channel, which is a group and two of its ranks, are received in the order in which they are sent.
Where a ring buffer forgot the oldest, what both ends finished last is the same message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.attended import Attended
from tracelink.analysis.channel_shifts import Side, shift_by_place, shift_of
from tracelink.analysis.ends import Ends
from tracelink.analysis.parts import Outcome, Parts
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct, stable_order, starts_of


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
