"""Which sends and receives of one channel are one message; a channel is a group, two of its ranks, and a tag."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int32s, Int64s
from tracelink.linking.alignment import NONE
from tracelink.linking.coding import distinct, starts_of
from tracelink.linking.pairing import LONELY, pair
from tracelink.linking.timing import Track


@dataclass(frozen=True, slots=True)
class Ends:
    """Sends and receives, in the order of their channel and of their rank's asking for them."""

    row: Int64s
    """Of the stack."""
    group: Int32s
    source: Int64s
    target: Int64s
    tag: Int64s
    size: Int64s
    sends: Bools
    ended: Int64s
    began: Int64s
    asked: Int64s
    """By the clock of the rank whose end it is; NO_TIME where not known."""

    def take(self, rows: Int64s) -> Ends:
        """Some of the ends."""
        return Ends(*(getattr(self, field.name)[rows] for field in fields(self)))


def partners(ends: Ends, channel: Int64s) -> tuple[Int64s, Bools]:
    """For each end the other end of its message or NONE; and whether the two are of different sizes."""
    partner = np.full(len(ends.row), NONE, np.int64)
    mismatch = np.zeros(len(ends.row), np.bool_)
    if not len(channel):
        return partner, mismatch
    starts = starts_of(channel)
    length = np.diff(np.append(starts, len(channel)))
    known = (ends.source[starts] != UNKNOWN) & (ends.target[starts] != UNKNOWN)
    sent = np.add.reduceat(ends.sends, starts)
    even = known & (2 * sent == length)
    inside = np.repeat(even, length)
    sends, receives = np.flatnonzero(inside & ends.sends), np.flatnonzero(inside & ~ends.sends)
    simple = np.zeros(len(starts), np.bool_)
    simple[even] = _in_step(ends, sends, receives, starts_of(channel[sends]))
    good = simple[channel[sends]]
    partner[sends[good]], partner[receives[good]] = receives[good], sends[good]
    for number in np.flatnonzero(known & ~simple & (sent > 0) & (sent < length)).tolist():
        rows = np.arange(starts[number], starts[number] + length[number])
        _align(ends, rows[ends.sends[rows]], rows[~ends.sends[rows]], partner, mismatch)
    return partner, mismatch


def _in_step(ends: Ends, sends: Int64s, receives: Int64s, starts: Int64s) -> Bools:
    """For channels of as many sends as receives: whether each and its counterpart are of one size, and in time.

    What takes now much longer and now much shorter than the time between messages is rather two that are lost.
    """
    if not len(sends):
        return np.zeros(0, np.bool_)
    equal = np.logical_and.reduceat(ends.size[sends] == ends.size[receives], starts)
    sent, received = ends.ended[sends], ends.ended[receives]
    known = (sent != NO_TIME) & (received != NO_TIME)
    timed = np.logical_and.reduceat(known, starts)
    took = np.where(known, received - sent, 0)
    differ = np.maximum.reduceat(took, starts) - np.minimum.reduceat(took, starts)
    lasted = np.maximum.reduceat(sent, starts) - np.minimum.reduceat(sent, starts)
    count = np.diff(np.append(starts, len(sends)))
    in_time = ~timed | (2 * differ * np.maximum(count - 1, 1) <= lasted)
    in_step: Bools = equal & (in_time | (count == 1))
    return in_step


def _tracks(ends: Ends, sends: Int64s, receives: Int64s) -> tuple[Track, Track]:
    """Both sides of a channel, by when they ended, or by when they were asked for where not all ends are known.

    Nothing is received before the sending of it began.
    """
    _, label = np.unique(ends.size[np.append(sends, receives)], return_inverse=True)
    never = np.full(len(label), NO_TIME, np.int64)
    whole = np.append(sends, receives)
    time, began = ends.ended[whole], np.append(ends.began[sends], never[: len(receives)])
    if (time == NO_TIME).any():
        time, began = ends.asked[whole], never
    both = Track(label, time, np.full(len(label), UNKNOWN, np.int64), began)
    return both.take(slice(0, len(sends))), both.take(slice(len(sends), len(whole)))


def _align(ends: Ends, sends: Int64s, receives: Int64s, partner: Int64s, mismatch: Bools) -> None:
    """Pairs by size and time; as many left over between the same neighbours are of different sizes."""
    place = pair(*_tracks(ends, sends, receives)).place
    found = np.flatnonzero(place >= 0)
    partner[sends[found]], partner[receives[place[found]]] = receives[place[found]], sends[found]
    left = np.concatenate([[-1], found, [len(sends)]])
    right = np.concatenate([[-1], place[found], [len(receives)]])
    gap = (np.diff(left) > 1) & (np.diff(left) == np.diff(right))
    for begin, other, count in zip(
        (left[:-1] + 1)[gap].tolist(),
        (right[:-1] + 1)[gap].tolist(),
        (np.diff(left) - 1)[gap].tolist(),
        strict=True,
    ):
        ours, theirs = sends[begin : begin + count], receives[other : other + count]
        differs = ends.size[ours] != ends.size[theirs]
        if differs.all() and (place[begin : begin + count] != LONELY).all():
            partner[ours], partner[theirs] = theirs, ours
            mismatch[ours] = True


def from_anybody(ends: Ends, partner: Int64s) -> Int64s:
    """Receives from any source, where only as many unpaired sends from one rank can be meant."""
    anybody = np.flatnonzero((ends.source == UNKNOWN) & (partner == NONE) & ~ends.sends)
    if not len(anybody):
        return partner
    partner = partner.copy()
    place, first = distinct(ends.group[anybody], ends.target[anybody], ends.tag[anybody])
    free = np.flatnonzero(ends.sends & (partner == NONE))
    for number in range(len(first)):
        receives = anybody[place == number]
        one = receives[0]
        sends = free[
            (ends.group[free] == ends.group[one])
            & (ends.target[free] == ends.target[one])
            & (ends.tag[free] == ends.tag[one])
        ]
        same_source = len(np.unique(ends.source[sends])) == 1
        if len(sends) == len(receives) and same_source and (ends.size[sends] == ends.size[receives]).all():
            partner[receives], partner[sends] = sends, receives
    return partner
