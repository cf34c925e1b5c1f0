"""Aligning what several ranks did in one group where nobody numbers it, or not everybody.

A consensus holds everything that any rank did, in order. Each rank is paired with it; what is new is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.alignment import NONE
from tracelink.linking.coding import starts_of
from tracelink.linking.pairing import LONELY, pair
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

    def learn(self, place: Int64s, sequence: Int64s) -> None:
        """Takes numbers for places that have none."""
        known = self.track.sequence.copy()
        known[place] = np.where(known[place] == UNKNOWN, sequence, known[place])
        self.track = replace(self.track, sequence=known)

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
    tracks = _labelled_alike(tracks)
    numbered = [bool((track.sequence != UNKNOWN).any()) for track in tracks]
    longest = sorted(range(len(tracks)), key=lambda number: (not numbered[number], -len(tracks[number])))
    consensus = _Consensus(tracks[longest[0]])
    identities = [np.full(len(track), NONE, np.int64) for track in tracks]
    behind = [np.full(len(track), NONE, np.int64) for track in tracks]
    identities[longest[0]] = consensus.identity
    for number in longest[1:]:
        pairing = pair(tracks[number], consensus.track)
        place = pairing.place
        matched = place >= 0
        identities[number][matched] = consensus.identity[place[matched]]
        previous = np.maximum.accumulate(np.where(matched, place, NONE))
        behind[number] = np.where(previous >= 0, consensus.identity[previous], NONE)
        consensus.learn(place[matched], tracks[number].sequence[matched])
        consensus.doubt(place)
        new = np.flatnonzero(place == NONE)
        added = replace(tracks[number], time=pairing.time, entered=pairing.entered)
        before = _insertion(consensus.track, added, place, new)
        identities[number][new] = consensus.insert(before, added.take(new))
    return _in_order(consensus, identities, behind)


def _labelled_alike(tracks: Sequence[Track]) -> list[Track]:
    """The tracks with the label that most have for a number in place of each one's own."""
    sequence = np.concatenate([track.sequence for track in tracks])
    label = np.concatenate([track.label for track in tracks])
    known = np.flatnonzero(sequence != UNKNOWN)
    if not len(known):
        return list(tracks)
    order = known[np.lexsort((label[known], sequence[known]))]
    alike = starts_of(_changes(sequence[order], label[order]))
    count = np.diff(np.append(alike, len(order)))
    most_first = alike[np.lexsort((-count, sequence[order][alike]))]
    chosen = order[most_first[starts_of(sequence[order][most_first])]]
    common = np.append(label[chosen], UNKNOWN)
    places = [np.searchsorted(sequence[chosen], track.sequence) for track in tracks]
    return [
        replace(track, label=np.where(track.sequence == UNKNOWN, track.label, common[place]))
        for track, place in zip(tracks, places, strict=True)
    ]


def _changes(one: Int64s, other: Int64s) -> Int64s:
    """A number that changes whenever either does."""
    changes = np.concatenate([np.zeros(1, np.bool_), (np.diff(one) != 0) | (np.diff(other) != 0)])
    return np.cumsum(changes[: len(one)])


def _insertion(consensus: Track, track: Track, place: Int64s, new: Int64s) -> Int64s:
    """Before which places new calls belong: after what precedes them, and after what is known to be earlier."""
    previous = np.maximum.accumulate(np.where(place >= 0, place, NONE))
    following = np.where(place >= 0, place, len(consensus))
    following = np.minimum.accumulate(following[::-1])[::-1]
    before = previous[new] + 1
    for number, call in enumerate(new.tolist()):
        between = consensus.take(slice(int(before[number]), int(following[call])))
        if not len(between):
            continue
        if track.sequence[call] != UNKNOWN:
            earlier = (between.sequence != UNKNOWN) & (between.sequence < track.sequence[call])
        else:
            earlier = (between.time != NO_TIME) & (between.time <= track.time[call])
        before[number] += int(np.flatnonzero(earlier)[-1]) + 1 if earlier.any() else 0
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
