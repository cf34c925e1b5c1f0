"""Aligning what several ranks did in one group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.linking.alignment import (
    DECIDES,
    DECIDES_ALONE,
    Shift,
    Timeline,
    Track,
    align,
    best_shift,
    nearest,
    overlap,
    possible_shifts,
    sharp,
    shift_of,
)
from tracelink.model.columns import NO_TIME, UNKNOWN, Bools, Int64s, starts_of

# Pairing what one rank did with what others did, by what it was and, where that is not enough, by when.


LONELY = -2
"""Place of a call that could be more than one of the others."""

MOST_EDITS = 1000
"""Where more is missing, labels alone do not tell which calls are the same."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """For each call its place among the others, UNKNOWN where it is not there, LONELY where that is not certain."""

    place: Int64s
    time: Int64s
    entered: Int64s
    """The calls' times by the clock of the others; NO_TIME where not known."""


def pair(track: Track, others: Track) -> Pairing:
    """Pairs calls by their numbers, then by time where it decides, then by labels; never against their order."""
    numbered = _by_sequence(track, others)
    if (numbered != UNKNOWN).all():
        return Pairing(numbered, *_no_times(track))
    if known := shift_of(track, others, numbered):
        if sharp(known, others, DECIDES):
            return _timed(track, others, numbered, known)
        return _labelled(track, others, numbered, *_by_label(track, others, numbered))
    shifts = possible_shifts(track, others)
    if shift := best_shift(shifts, others, DECIDES_ALONE):
        return _timed(track, others, numbered, shift)
    place, ambiguous = _by_label(track, others, numbered)
    labelled = shift_of(track, others, place)
    if labelled and overlap(track, others, place, labelled.drift):
        shifts.append(labelled)
    if shift := best_shift(shifts, others, DECIDES):
        return _timed(track, others, numbered, shift)
    if ambiguous.any() and not labelled and _known_times(track, others):
        place, ambiguous = numbered, ambiguous | (place != numbered)
    return _labelled(track, others, numbered, place, ambiguous)


def _known_times(track: Track, others: Track) -> bool:
    """Whether times could tell more than a few labels amid many that could be several."""
    return bool((track.time != NO_TIME).any() and (others.time != NO_TIME).any())


def _timed(track: Track, others: Track, numbered: Int64s, shift: Shift) -> Pairing:
    """By time, and by labels where time leaves a choice."""
    place, ambiguous = _by_label(track, others, _by_time(track, others, numbered, shift))
    apart = _apart(track, others, place, shift) & (numbered == UNKNOWN)
    place = np.where(apart, UNKNOWN, np.where(ambiguous & (place == UNKNOWN), LONELY, place))
    place = _without_other_numbers(track, others, place)
    return Pairing(place, shift.expected(track.time), shift.expected(track.entered))


def _labelled(track: Track, others: Track, numbered: Int64s, place: Int64s, ambiguous: Bools) -> Pairing:
    """By labels alone, unless times contradict them."""
    if not overlap(track, others, place):
        place, ambiguous = numbered, ambiguous | (place != numbered)
    place = _without_other_numbers(track, others, np.where(ambiguous & (place == UNKNOWN), LONELY, place))
    stretch = np.cumsum(place >= 0)
    unclear = np.bincount(stretch, place == LONELY)[stretch] > 0
    return Pairing(
        np.where((place == UNKNOWN) & unclear & (track.sequence == UNKNOWN), LONELY, place), *_no_times(track)
    )


def _no_times(track: Track) -> tuple[Int64s, Int64s]:
    unknown = np.full(len(track), NO_TIME, np.int64)
    return unknown, unknown


def _without_other_numbers(track: Track, others: Track, place: Int64s) -> Int64s:
    """The places without those whose number is another."""
    number = np.append(others.sequence, UNKNOWN)[np.maximum(place, UNKNOWN)]
    differs = (track.sequence != UNKNOWN) & (number != UNKNOWN) & (track.sequence != number)
    return np.where(differs | ((place == LONELY) & (track.sequence != UNKNOWN)), UNKNOWN, place)


def _by_sequence(track: Track, others: Track) -> Int64s:
    """Places of the calls whose number the others have too."""
    place = np.full(len(track), UNKNOWN, np.int64)
    numbered = np.flatnonzero(track.sequence != UNKNOWN)
    theirs = np.flatnonzero(others.sequence != UNKNOWN)
    if len(numbered) and len(theirs):
        ranked = theirs[np.argsort(others.sequence[theirs], kind="stable")]
        at = np.searchsorted(others.sequence[ranked], track.sequence[numbered])
        at = np.minimum(at, len(ranked) - 1)
        same = others.sequence[ranked[at]] == track.sequence[numbered]
        place[numbered[same]] = ranked[at[same]]
    return place


def _by_label(track: Track, others: Track, place: Int64s) -> tuple[Int64s, Bools]:
    """Fills the stretches between calls that have a place already; and which calls could have several there."""
    place, ambiguous = place.copy(), np.zeros(len(track), np.bool_)
    for calls, free in _stretches(place, len(others)):
        alignment = align(track.label[calls], others.label[free], MOST_EDITS)
        matched = alignment.place != UNKNOWN
        place[calls[matched]] = free[alignment.place[matched]]
        ambiguous[calls] = alignment.ambiguous
    return place, ambiguous


def _by_time(track: Track, others: Track, place: Int64s, shift: Shift) -> Int64s:
    """Fills the stretches between calls that have a place already, where the time is clear."""
    place = place.copy()
    expected = shift.expected(track.time)
    for calls, free in _stretches(place, len(others)):
        if len(free):
            found = nearest(track.take(calls), others.take(free), expected[calls], shift.spread)
            place[calls[found != UNKNOWN]] = free[found[found != UNKNOWN]]
    return place


def _apart(track: Track, others: Track, place: Int64s, shift: Shift) -> Bools:
    """Pairs that time contradicts.

    One had ended before the other began, though nobody ends such a thing before all begin it; or the times differ
    by more than half of what lies between equal calls.
    """
    apart = np.zeros(len(track), np.bool_)
    known = np.flatnonzero((place >= 0) & (track.time != NO_TIME))
    known = known[others.time[place[known]] != NO_TIME]
    theirs, ended = place[known], shift.expected(track.time)[known]
    slack = DECIDES * shift.spread
    distance = np.abs(others.time[theirs] - ended)
    apart[known] = distance > np.maximum(Timeline(others).gaps(len(others))[theirs] / 2, slack)
    began = shift.expected(track.entered)[known]
    apart[known] |= (others.entered[theirs] > ended + slack) | (began > others.time[theirs] + slack)
    return apart


def _stretches(place: Int64s, length: int) -> list[tuple[Int64s, Int64s]]:
    """The calls without a place between two that have one, and the places that lie between those two."""
    fixed = np.flatnonzero(place >= 0)
    calls = np.concatenate([[-1], fixed, [len(place)]])
    theirs = np.concatenate([[-1], place[fixed], [length]])
    wide = np.flatnonzero(np.diff(calls) > 1)
    return [
        (np.arange(calls[i] + 1, calls[i + 1]), np.arange(theirs[i] + 1, theirs[i + 1]))
        for i in wide.tolist()
    ]


# Aligning what several ranks did in one group where nobody numbers it, or not everybody.


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
        before = np.maximum.accumulate(np.where(place >= 0, place, UNKNOWN))
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
    identities = [np.full(len(track), UNKNOWN, np.int64) for track in tracks]
    behind = [np.full(len(track), UNKNOWN, np.int64) for track in tracks]
    identities[longest[0]] = consensus.identity
    for number in longest[1:]:
        pairing = pair(tracks[number], consensus.track)
        place = pairing.place
        matched = place >= 0
        identities[number][matched] = consensus.identity[place[matched]]
        previous = np.maximum.accumulate(np.where(matched, place, UNKNOWN))
        behind[number] = np.where(previous >= 0, consensus.identity[previous], UNKNOWN)
        consensus.learn(place[matched], tracks[number].sequence[matched])
        consensus.doubt(place)
        new = np.flatnonzero(place == UNKNOWN)
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
    previous = np.maximum.accumulate(np.where(place >= 0, place, UNKNOWN))
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
    position[UNKNOWN] = UNKNOWN
    lonely = [np.flatnonzero(identity == UNKNOWN) for identity in identities]
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
