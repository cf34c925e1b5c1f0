"""Pairing what one rank did with what others did, by what it was and, where that is not enough, by when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.alignment import NONE, align
from tracelink.linking.timing import expected_times, nearest_in_time

LONELY = -2
"""Place of a call that could be more than one of the others."""


@dataclass(frozen=True, slots=True)
class Track:
    """What one rank did in one group, in order."""

    label: Int64s
    """What it did: equal for what can be the same."""
    time: Int64s
    """Of one kind for all ranks, by the rank's own clock; NO_TIME where not known."""
    sequence: Int64s

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, slots=True)
class Pairing:
    """For each call its place among the others, NONE where it is not there, LONELY where that is not certain."""

    place: Int64s
    time: Int64s
    """The calls' times by the clock of the others; NO_TIME where not known."""


def pair(track: Track, others: Track) -> Pairing:
    """Pairs calls by their numbers, then by labels, then by time; never against their order."""
    place, ambiguous = _by_sequence(track, others)
    place, ambiguous = _by_label(track, others, place, ambiguous)
    time = expected_times(track.time, place, others.time)
    if time is None:
        return Pairing(np.where(ambiguous, LONELY, place), np.full(len(track), NO_TIME, np.int64))
    if ambiguous.any():
        found = _by_time(track, others, place, ambiguous, time)
        if (found != place).any():
            place, ambiguous = _by_label(track, others, found, ambiguous)
    return Pairing(np.where(ambiguous & (place == NONE), LONELY, place), time)


def _by_sequence(track: Track, others: Track) -> tuple[Int64s, Bools]:
    """Places of the calls whose number the others have too."""
    place = np.full(len(track), NONE, np.int64)
    numbered = np.flatnonzero(track.sequence != UNKNOWN)
    theirs = np.flatnonzero(others.sequence != UNKNOWN)
    if len(numbered) and len(theirs):
        ranked = theirs[np.argsort(others.sequence[theirs], kind="stable")]
        at = np.searchsorted(others.sequence[ranked], track.sequence[numbered])
        at = np.minimum(at, len(ranked) - 1)
        same = others.sequence[ranked[at]] == track.sequence[numbered]
        place[numbered[same]] = ranked[at[same]]
    return place, np.zeros(len(track), np.bool_)


def _by_label(track: Track, others: Track, place: Int64s, ambiguous: Bools) -> tuple[Int64s, Bools]:
    """Fills the stretches between calls that have a place already."""
    place, ambiguous = place.copy(), ambiguous.copy()
    for calls, free in _stretches(place, len(others)):
        open_calls = calls[track.sequence[calls] == UNKNOWN]
        alignment = align(track.label[open_calls], others.label[free])
        matched = alignment.place != NONE
        place[open_calls[matched]] = free[alignment.place[matched]]
        ambiguous[open_calls] = alignment.ambiguous
    return place, ambiguous


def _by_time(track: Track, others: Track, place: Int64s, ambiguous: Bools, time: Int64s) -> Int64s:
    """Gives places to calls of which labels leave several."""
    place = place.copy()
    for calls, free in _stretches(place, len(others)):
        open_calls = calls[ambiguous[calls]]
        if len(open_calls):
            found = nearest_in_time(
                track.label[open_calls], time[open_calls], others.label[free], others.time[free]
            )
            matched = found != NONE
            place[open_calls[matched]] = free[found[matched]]
    return place


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
