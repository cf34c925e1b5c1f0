"""Aligning what several ranks did in one group where nobody numbers it, or not everybody.

A consensus holds everything that any rank did, in order. Each rank is paired with it; what is new is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.coding import starts_of
from tracelink.linking.pairing import LONELY, NONE, Pairing, pair
from tracelink.linking.timing import Track


@dataclass(frozen=True, slots=True)
class Aligned:
    """For each track the place of each call in the common order."""

    places: Sequence[Int64s]
    sequence: Int64s
    """Of each place, or UNKNOWN."""
    lonely: Bools
    """Whether the one call of a place could be of several others."""
    doubtful: Bools
    """Whether a lonely call of another place could be of this one."""


class _Consensus:
    """Everything that was done, in order; each entry keeps its identity while others are inserted."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.identity = np.arange(len(track))
        self.doubtful = np.zeros(len(track), np.bool_)

    def insert(self, before: Int64s, new: Track) -> Int64s:
        """Adds entries before these places; returns their identities."""
        identity = np.arange(len(self.identity), len(self.identity) + len(new))
        self.track = Track(
            np.insert(self.track.label, before, new.label),
            np.insert(self.track.time, before, new.time),
            np.insert(self.track.sequence, before, new.sequence),
            np.insert(self.track.entered, before, new.entered),
        )
        self.identity = np.insert(self.identity, before, identity)
        self.doubtful = np.insert(self.doubtful, before, False)
        return identity

    def doubt(self, place: Int64s) -> None:
        """Marks the places which lonely calls could have."""
        lonely = place == LONELY
        before = np.maximum.accumulate(np.where(place >= 0, place, NONE))
        after = np.where(place >= 0, place, len(self.identity))
        after = np.minimum.accumulate(after[::-1])[::-1]
        change = np.zeros(len(self.identity) + 2, np.int64)
        np.add.at(change, before[lonely] + 1, 1)
        np.add.at(change, np.maximum(after, before + 1)[lonely], -1)
        self.doubtful |= np.cumsum(change)[: len(self.identity)] > 0


def align_tracks(tracks: Sequence[Track]) -> Aligned:
    """The common order of all calls of all tracks."""
    longest = sorted(range(len(tracks)), key=lambda number: -len(tracks[number]))
    consensus = _Consensus(_numbered(tracks, longest) or tracks[longest[0]])
    identities = [np.full(len(track), NONE, np.int64) for track in tracks]
    behind = [np.full(len(track), NONE, np.int64) for track in tracks]
    for number in longest:
        pairing = pair(tracks[number], consensus.track)
        place = pairing.place
        matched = place >= 0
        identities[number][matched] = consensus.identity[place[matched]]
        previous = np.maximum.accumulate(np.where(matched, place, NONE))
        behind[number] = np.where(previous >= 0, consensus.identity[previous], NONE)
        consensus.doubt(place)
        new = np.flatnonzero(place == NONE)
        added = replace(tracks[number], time=pairing.time, entered=pairing.entered).take(new)
        identities[number][new] = consensus.insert(_insertion(consensus.track, pairing, new), added)
    return _in_order(consensus, identities, behind)


def _numbered(tracks: Sequence[Track], longest: Sequence[int]) -> Track | None:
    """Everything that has a number, in the order of the numbers; None where nothing has."""
    having = [tracks[number] for number in longest if (tracks[number].sequence != UNKNOWN).any()]
    if not having:
        return None
    parts = [_by_clock_of(having[0], track) for track in having]
    everything = Track(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Track)))
    known = np.flatnonzero(everything.sequence != UNKNOWN)
    order = known[np.lexsort((everything.label[known], everything.sequence[known]))]
    ordered = everything.take(order)
    alike = starts_of(_changes(ordered.sequence, ordered.label))
    count = np.diff(np.append(alike, len(order)))
    most_first = alike[np.lexsort((-count, ordered.sequence[alike]))]
    return ordered.take(most_first[starts_of(ordered.sequence[most_first])])


def _by_clock_of(base: Track, track: Track) -> Track:
    """The track with times by the clock of another, as far as numbers that both have tell."""
    _, mine, theirs = np.intersect1d(track.sequence, base.sequence, return_indices=True)
    both = (track.time[mine] != NO_TIME) & (base.time[theirs] != NO_TIME)
    both &= track.sequence[mine] != UNKNOWN
    if track is base or not both.any():
        return track
    apart = int(np.median(base.time[theirs[both]] - track.time[mine[both]]))
    return replace(track, time=_moved(track.time, apart), entered=_moved(track.entered, apart))


def _moved(time: Int64s, apart: int) -> Int64s:
    return np.where(time == NO_TIME, NO_TIME, time + apart)


def _changes(one: Int64s, other: Int64s) -> Int64s:
    """A number that changes whenever either does."""
    changes = np.concatenate([np.zeros(1, np.bool_), (np.diff(one) != 0) | (np.diff(other) != 0)])
    return np.cumsum(changes[: len(one)])


def _insertion(consensus: Track, pairing: Pairing, new: Int64s) -> Int64s:
    """Before which places new calls belong: after what precedes them, and after what is known to be earlier."""
    place = pairing.place
    previous = np.maximum.accumulate(np.where(place >= 0, place, NONE))
    following = np.where(place >= 0, place, len(consensus))
    following = np.minimum.accumulate(following[::-1])[::-1]
    before = previous[new] + 1
    for number, call in enumerate(new.tolist()):
        between = consensus.time[before[number] : following[call]]
        if len(between) and pairing.time[call] != NO_TIME:
            before[number] += np.count_nonzero(between <= pairing.time[call])
    return np.maximum.accumulate(before) if len(before) else before


def _in_order(consensus: _Consensus, identities: Sequence[Int64s], behind: Sequence[Int64s]) -> Aligned:
    """Numbers for all entries, those of lonely calls directly after what precedes them."""
    count = len(consensus.identity)
    position = np.empty(count + 1, np.int64)
    position[consensus.identity] = np.arange(count)
    position[NONE] = NONE
    lonely = [np.flatnonzero(identity == NONE) for identity in identities]
    after = [position[places[calls]] for places, calls in zip(behind, lonely, strict=True)]
    stands = np.concatenate([2 * np.arange(count), *(2 * places + 1 for places in after)])
    order = np.argsort(stands, kind="stable")
    number = np.empty(len(stands), np.int64)
    number[order] = np.arange(len(stands))
    places, used = [], count
    for identity, calls in zip(identities, lonely, strict=True):
        place = number[position[identity]]
        place[calls] = number[used : used + len(calls)]
        used += len(calls)
        places.append(place)
    alone = order >= count
    whole = np.minimum(order, max(count - 1, 0))
    sequence = np.where(alone, UNKNOWN, consensus.track.sequence[whole] if count else UNKNOWN)
    return Aligned(places, sequence, alone, ~alone & (consensus.doubtful[whole] if count else False))
