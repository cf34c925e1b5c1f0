"""Pairing what one rank did with what others did, by what it was and, where that is not enough, by when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.linking.alignment import NONE, align
from tracelink.linking.shifts import (
    DECIDES,
    DECIDES_ALONE,
    Shift,
    best_shift,
    overlap,
    possible_shifts,
    sharp,
    shift_of,
)
from tracelink.linking.timing import Timeline, Track, nearest

LONELY = -2
"""Place of a call that could be more than one of the others."""

MOST_EDITS = 1000
"""Where more is missing, labels alone do not tell which calls are the same."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """For each call its place among the others, NONE where it is not there, LONELY where that is not certain."""

    place: Int64s
    time: Int64s
    entered: Int64s
    """The calls' times by the clock of the others; NO_TIME where not known."""


def pair(track: Track, others: Track) -> Pairing:
    """Pairs calls by their numbers, then by time where it decides, then by labels; never against their order."""
    numbered = _by_sequence(track, others)
    if (numbered != NONE).all():
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
    apart = _apart(track, others, place, shift) & (numbered == NONE)
    place = np.where(apart, NONE, np.where(ambiguous & (place == NONE), LONELY, place))
    place = _without_other_numbers(track, others, place)
    return Pairing(place, shift.expected(track.time), shift.expected(track.entered))


def _labelled(track: Track, others: Track, numbered: Int64s, place: Int64s, ambiguous: Bools) -> Pairing:
    """By labels alone, unless times contradict them."""
    if not overlap(track, others, place):
        place, ambiguous = numbered, ambiguous | (place != numbered)
    place = _without_other_numbers(track, others, np.where(ambiguous & (place == NONE), LONELY, place))
    stretch = np.cumsum(place >= 0)
    unclear = np.bincount(stretch, place == LONELY)[stretch] > 0
    return Pairing(
        np.where((place == NONE) & unclear & (track.sequence == UNKNOWN), LONELY, place), *_no_times(track)
    )


def _no_times(track: Track) -> tuple[Int64s, Int64s]:
    unknown = np.full(len(track), NO_TIME, np.int64)
    return unknown, unknown


def _without_other_numbers(track: Track, others: Track, place: Int64s) -> Int64s:
    """The places without those whose number is another."""
    number = np.append(others.sequence, UNKNOWN)[np.maximum(place, NONE)]
    differs = (track.sequence != UNKNOWN) & (number != UNKNOWN) & (track.sequence != number)
    return np.where(differs | ((place == LONELY) & (track.sequence != UNKNOWN)), NONE, place)


def _by_sequence(track: Track, others: Track) -> Int64s:
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
    return place


def _by_label(track: Track, others: Track, place: Int64s) -> tuple[Int64s, Bools]:
    """Fills the stretches between calls that have a place already; and which calls could have several there."""
    place, ambiguous = place.copy(), np.zeros(len(track), np.bool_)
    for calls, free in _stretches(place, len(others)):
        alignment = align(track.label[calls], others.label[free], MOST_EDITS)
        matched = alignment.place != NONE
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
            place[calls[found != NONE]] = free[found[found != NONE]]
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
