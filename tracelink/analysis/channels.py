"""Which sends and receives are the two ends of one message.

Messages of a channel, which is a group and two of its ranks, are received in the order in which they are sent.
Where a ring buffer forgot the oldest, what both ends finished last is the same message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.analysis.ends import Ends
from tracelink.analysis.parts import Outcome
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int64s
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
    whole: Bools
    """Whether neither end has forgotten anything, so that the shift is certain."""

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
    """Which of the other side's kept ends on the channel should be its partner; there may be none."""

    @property
    def messages(self) -> int:
        """How many messages have two ends."""
        return int(np.count_nonzero(self.partner != UNKNOWN)) // 2


def match(journal: Journal, ends: Ends) -> Matching:
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
    channels = _channels(ends, order, channel, *forgot)
    return _paired(ends, channels, order, channel)


def _channels(ends: Ends, order: Int64s, channel: Int64s, *forgot: Bools) -> Channels:
    begin = starts_of(channel[order])
    end = np.append(begin[1:], len(order)) if len(begin) else begin
    sent = np.add.reduceat(ends.sends[order], begin, dtype=np.int64) if len(begin) else begin
    middle = begin + sent
    finished = ends.outcome[order] >= Outcome.RETIRED
    place = np.arange(len(order))
    both = []
    for side in (ends.sends[order], ~ends.sends[order]):
        last = np.where(finished & side, place, UNKNOWN)
        both.append(np.maximum.reduceat(last, begin) if len(begin) else begin)
    done_sends = np.where(both[0] == UNKNOWN, 0, both[0] - begin + 1)
    done_receives = np.where(both[1] == UNKNOWN, 0, both[1] - middle + 1)
    shift = done_receives - done_sends
    shift = np.where(forgot[0], shift, np.minimum(shift, 0))
    shift = np.where(forgot[1], shift, np.maximum(shift, 0))
    return Channels(begin, middle, end, shift, ~(forgot[0] | forgot[1]))


def _paired(ends: Ends, channels: Channels, order: Int64s, channel: Int64s) -> Matching:
    place = np.empty(len(ends), np.int64)
    place[order] = np.arange(len(order))
    known = channel != UNKNOWN
    of = channel[known]
    sends = ends.sends[known]
    own = place[known] - np.where(sends, channels.sends[of], channels.receives[of])
    expected = np.full(len(ends), UNKNOWN, np.int64)
    expected[known] = np.where(sends, own + channels.shift[of], own - channels.shift[of])
    count = np.where(
        sends, channels.end[of] - channels.receives[of], channels.receives[of] - channels.sends[of]
    )
    there = (expected[known] >= 0) & (expected[known] < count)
    start = np.where(sends, channels.receives[of], channels.sends[of])
    partner = np.full(len(ends), UNKNOWN, np.int64)
    partner[np.flatnonzero(known)[there]] = order[(start + expected[known])[there]]
    return Matching(channels, order, channel, partner, expected)
