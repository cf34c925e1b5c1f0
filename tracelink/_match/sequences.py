"""Aligning the calls of several ranks in one group: by number, else by time if it decides, else by label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._match.timing import (
    DECIDES,
    DECIDES_ALONE,
    CallSequence,
    Shift,
    Timeline,
    best_shift,
    nearest,
    overlap,
    possible_shifts,
    sharp,
    shift_of,
)
from tracelink._model.columns import NO_TIME, UNKNOWN, Bools, Int64s, starts_of

# Pairing the calls of one rank with a reference: the calls of another rank, or the consensus of several.


AMBIGUOUS = -2
"""The index of a call that could be several reference calls."""

MOST_EDITS = 1000
"""If more calls are missing, labels alone cannot show which calls are the same."""


class SequencePairing(Struct, frozen=True):
    """The reference call that each call is."""

    index: Int64s
    """Of the reference call, UNKNOWN if there is none, AMBIGUOUS if it could be several."""
    time: Int64s
    entered: Int64s
    """The calls' times on the clock of the reference, or NO_TIME."""


def pair(calls: CallSequence, reference: CallSequence) -> SequencePairing:
    """Pairs calls by number, then by time if it decides, then by label; never against their order."""
    by_number = _by_sequence(calls, reference)
    if (by_number != UNKNOWN).all():
        return SequencePairing(by_number, *_no_times(calls))
    if known := shift_of(calls, reference, by_number):
        if sharp(known, reference, DECIDES):
            return _paired_by_time(calls, reference, by_number, known)
        return _paired_by_label(calls, reference, by_number, *_by_label(calls, reference, by_number))
    shifts = possible_shifts(calls, reference)
    if shift := best_shift(shifts, reference, DECIDES_ALONE):
        return _paired_by_time(calls, reference, by_number, shift)
    index, ambiguous = _by_label(calls, reference, by_number)
    label_shift = shift_of(calls, reference, index)
    if label_shift and overlap(calls, reference, index, label_shift.drift):
        shifts.append(label_shift)
    if shift := best_shift(shifts, reference, DECIDES):
        return _paired_by_time(calls, reference, by_number, shift)
    if ambiguous.any() and not label_shift and _have_times(calls, reference):
        index, ambiguous = by_number, ambiguous | (index != by_number)
    return _paired_by_label(calls, reference, by_number, index, ambiguous)


def _have_times(calls: CallSequence, reference: CallSequence) -> bool:
    """True if both have times, which prove more than a few certain labels among many ambiguous ones."""
    return bool((calls.time != NO_TIME).any() and (reference.time != NO_TIME).any())


def _paired_by_time(
    calls: CallSequence, reference: CallSequence, by_number: Int64s, shift: Shift
) -> SequencePairing:
    """By time, and by label where time leaves a choice."""
    index, ambiguous = _by_label(calls, reference, _by_time(calls, reference, by_number, shift))
    contradicted = _contradicted(calls, reference, index, shift) & (by_number == UNKNOWN)
    index = np.where(contradicted, UNKNOWN, np.where(ambiguous & (index == UNKNOWN), AMBIGUOUS, index))
    index = _without_other_numbers(calls, reference, index)
    return SequencePairing(index, shift.expected(calls.time), shift.expected(calls.entered))


def _paired_by_label(
    calls: CallSequence, reference: CallSequence, by_number: Int64s, index: Int64s, ambiguous: Bools
) -> SequencePairing:
    """By label alone, unless times contradict it."""
    if not overlap(calls, reference, index):
        index, ambiguous = by_number, ambiguous | (index != by_number)
    index = _without_other_numbers(
        calls, reference, np.where(ambiguous & (index == UNKNOWN), AMBIGUOUS, index)
    )
    stretch = np.cumsum(index >= 0)
    unclear = np.bincount(stretch, index == AMBIGUOUS)[stretch] > 0
    return SequencePairing(
        np.where((index == UNKNOWN) & unclear & (calls.sequence == UNKNOWN), AMBIGUOUS, index),
        *_no_times(calls),
    )


def _no_times(calls: CallSequence) -> tuple[Int64s, Int64s]:
    unknown = np.full(len(calls), NO_TIME, np.int64)
    return unknown, unknown


def _without_other_numbers(calls: CallSequence, reference: CallSequence, index: Int64s) -> Int64s:
    """The indexes, UNKNOWN where the two numbers differ."""
    number = np.append(reference.sequence, UNKNOWN)[np.maximum(index, UNKNOWN)]
    differs = (calls.sequence != UNKNOWN) & (number != UNKNOWN) & (calls.sequence != number)
    return np.where(differs | ((index == AMBIGUOUS) & (calls.sequence != UNKNOWN)), UNKNOWN, index)


def _by_sequence(calls: CallSequence, reference: CallSequence) -> Int64s:
    """The reference call with the same number, or UNKNOWN."""
    index = np.full(len(calls), UNKNOWN, np.int64)
    numbered = np.flatnonzero(calls.sequence != UNKNOWN)
    reference_numbered = np.flatnonzero(reference.sequence != UNKNOWN)
    if len(numbered) and len(reference_numbered):
        ranked = reference_numbered[np.argsort(reference.sequence[reference_numbered], kind="stable")]
        at = np.searchsorted(reference.sequence[ranked], calls.sequence[numbered])
        at = np.minimum(at, len(ranked) - 1)
        same = reference.sequence[ranked[at]] == calls.sequence[numbered]
        index[numbered[same]] = ranked[at[same]]
    return index


def _by_label(calls: CallSequence, reference: CallSequence, index: Int64s) -> tuple[Int64s, Bools]:
    """Fills the gaps between paired calls; also returns which calls could have several indexes there."""
    index, ambiguous = index.copy(), np.zeros(len(calls), np.bool_)
    for gap, gap_reference in _gaps(index, len(reference)):
        from tracelink._link.alignment import align  # most calls are paired by sequence number

        alignment = align(calls.label[gap], reference.label[gap_reference], MOST_EDITS)
        matched = alignment.index != UNKNOWN
        index[gap[matched]] = gap_reference[alignment.index[matched]]
        ambiguous[gap] = alignment.ambiguous
    return index, ambiguous


def _by_time(calls: CallSequence, reference: CallSequence, index: Int64s, shift: Shift) -> Int64s:
    """Fills the gaps between paired calls where times are clear."""
    index = index.copy()
    expected = shift.expected(calls.time)
    for gap, gap_reference in _gaps(index, len(reference)):
        if len(gap_reference):
            found = nearest(calls.take(gap), reference.take(gap_reference), expected[gap], shift.spread)
            index[gap[found != UNKNOWN]] = gap_reference[found[found != UNKNOWN]]
    return index


def _contradicted(calls: CallSequence, reference: CallSequence, index: Int64s, shift: Shift) -> Bools:
    """Pairs that times contradict.

    Either one call ended before the other started, although no rank can end it before all have started; or the
    times differ by more than half the time between equal calls.
    """
    contradicted = np.zeros(len(calls), np.bool_)
    known = np.flatnonzero((index >= 0) & (calls.time != NO_TIME))
    known = known[reference.time[index[known]] != NO_TIME]
    partner, ended = index[known], shift.expected(calls.time)[known]
    slack = DECIDES * shift.spread
    distance = np.abs(reference.time[partner] - ended)
    contradicted[known] = distance > np.maximum(Timeline(reference).gaps(len(reference))[partner] / 2, slack)
    started = shift.expected(calls.entered)[known]
    contradicted[known] |= (reference.entered[partner] > ended + slack) | (
        started > reference.time[partner] + slack
    )
    return contradicted


def _gaps(index: Int64s, length: int) -> list[tuple[Int64s, Int64s]]:
    """Runs of unpaired calls between two paired ones, each with the reference indexes between those two."""
    fixed = np.flatnonzero(index >= 0)
    calls = np.concatenate([[-1], fixed, [len(index)]])
    partners = np.concatenate([[-1], index[fixed], [length]])
    wide = np.flatnonzero(np.diff(calls) > 1)
    return [
        (np.arange(calls[i] + 1, calls[i + 1]), np.arange(partners[i] + 1, partners[i + 1]))
        for i in wide.tolist()
    ]


# A common order for the calls of several ranks, of which some or all are not numbered.


class AlignedSequences(Struct, frozen=True):
    """The common order of the calls of several ranks."""

    order: Sequence[Int64s]
    """For each sequence the position of each of its calls."""
    sequence: Int64s
    """The number of each position, or UNKNOWN."""
    ambiguous: Bools
    """True if the position has one call, which could also be at several others."""
    uncertain: Bools
    """True if an ambiguous call could be at this position."""


class _Consensus:
    """All calls so far, in order; an entry keeps its identity while others are inserted."""

    def __init__(self, calls: CallSequence) -> None:
        self.calls = calls
        self.identity = np.arange(len(calls))
        self.uncertain = np.zeros(len(calls), np.bool_)

    def insert(self, before: Int64s, new: CallSequence) -> Int64s:
        """Adds entries before these indexes; returns their identities."""
        identity = np.arange(len(self.identity), len(self.identity) + len(new))
        self.calls = CallSequence(
            np.insert(self.calls.label, before, new.label),
            np.insert(self.calls.time, before, new.time),
            np.insert(self.calls.sequence, before, new.sequence),
            np.insert(self.calls.entered, before, new.entered),
        )
        self.identity = np.insert(self.identity, before, identity)
        self.uncertain = np.insert(self.uncertain, before, False)
        return identity

    def learn(self, index: Int64s, sequence: Int64s) -> None:
        """Adds numbers to entries without one."""
        known = self.calls.sequence.copy()
        known[index] = np.where(known[index] == UNKNOWN, sequence, known[index])
        self.calls = replace(self.calls, sequence=known)

    def mark_uncertain(self, index: Int64s) -> None:
        """Marks the entries that ambiguous calls could be."""
        ambiguous = index == AMBIGUOUS
        before = np.maximum.accumulate(np.where(index >= 0, index, UNKNOWN))
        after = np.where(index >= 0, index, len(self.identity))
        after = np.minimum.accumulate(after[::-1])[::-1]
        change = np.zeros(len(self.identity) + 2, np.int64)
        np.add.at(change, before[ambiguous] + 1, 1)
        np.add.at(change, np.maximum(after, before + 1)[ambiguous], -1)
        self.uncertain |= np.cumsum(change)[: len(self.identity)] > 0


def align_sequences(sequences: Sequence[CallSequence]) -> AlignedSequences:
    """The common order of all calls of all sequences."""
    sequences = _with_common_labels(sequences)
    numbered = [bool((calls.sequence != UNKNOWN).any()) for calls in sequences]
    longest = sorted(
        range(len(sequences)), key=lambda number: (not numbered[number], -len(sequences[number]))
    )
    consensus = _Consensus(sequences[longest[0]])
    identities = [np.full(len(calls), UNKNOWN, np.int64) for calls in sequences]
    predecessors = [np.full(len(calls), UNKNOWN, np.int64) for calls in sequences]
    identities[longest[0]] = consensus.identity
    for number in longest[1:]:
        pairing = pair(sequences[number], consensus.calls)
        index = pairing.index
        matched = index >= 0
        identities[number][matched] = consensus.identity[index[matched]]
        previous = np.maximum.accumulate(np.where(matched, index, UNKNOWN))
        predecessors[number] = np.where(previous >= 0, consensus.identity[previous], UNKNOWN)
        consensus.learn(index[matched], sequences[number].sequence[matched])
        consensus.mark_uncertain(index)
        new = np.flatnonzero(index == UNKNOWN)
        added = replace(sequences[number], time=pairing.time, entered=pairing.entered)
        before = _insertion(consensus.calls, added, index, new)
        identities[number][new] = consensus.insert(before, added.take(new))
    return _numbered(consensus, identities, predecessors)


def _with_common_labels(sequences: Sequence[CallSequence]) -> list[CallSequence]:
    """The sequences, where calls of one number get the label that most of them have."""
    sequence = np.concatenate([calls.sequence for calls in sequences])
    label = np.concatenate([calls.label for calls in sequences])
    known = np.flatnonzero(sequence != UNKNOWN)
    if not len(known):
        return list(sequences)
    order = known[np.lexsort((label[known], sequence[known]))]
    similar = starts_of(_changes(sequence[order], label[order]))
    count = np.diff(np.append(similar, len(order)))
    most_first = similar[np.lexsort((-count, sequence[order][similar]))]
    chosen = order[most_first[starts_of(sequence[order][most_first])]]
    common = np.append(label[chosen], UNKNOWN)
    indexes = [np.searchsorted(sequence[chosen], calls.sequence) for calls in sequences]
    return [
        replace(calls, label=np.where(calls.sequence == UNKNOWN, calls.label, common[index]))
        for calls, index in zip(sequences, indexes, strict=True)
    ]


def _changes(first: Int64s, second: Int64s) -> Int64s:
    """A number that changes whenever either column changes."""
    changes = np.concatenate([np.zeros(1, np.bool_), (np.diff(first) != 0) | (np.diff(second) != 0)])
    return np.cumsum(changes[: len(first)])


def _insertion(consensus: CallSequence, calls: CallSequence, index: Int64s, new: Int64s) -> Int64s:
    """Before which entries new calls belong: after their predecessors and after entries known to be earlier."""
    previous = np.maximum.accumulate(np.where(index >= 0, index, UNKNOWN))
    following = np.where(index >= 0, index, len(consensus))
    following = np.minimum.accumulate(following[::-1])[::-1]
    before = previous[new] + 1
    for number, call in enumerate(new.tolist()):
        between = consensus.take(slice(int(before[number]), int(following[call])))
        if not len(between):
            continue
        if calls.sequence[call] != UNKNOWN:
            earlier = (between.sequence != UNKNOWN) & (between.sequence < calls.sequence[call])
        else:
            earlier = (between.time != NO_TIME) & (between.time <= calls.time[call])
        before[number] += int(np.flatnonzero(earlier)[-1]) + 1 if earlier.any() else 0
    return np.maximum.accumulate(before) if len(before) else before


def _numbered(
    consensus: _Consensus, identities: Sequence[Int64s], predecessors: Sequence[Int64s]
) -> AlignedSequences:
    """Positions for all entries, and for ambiguous calls directly after their predecessors."""
    count = len(consensus.identity)
    position = np.empty(count + 1, np.int64)
    position[consensus.identity] = np.arange(count)
    position[UNKNOWN] = UNKNOWN
    ambiguous = [np.flatnonzero(identity == UNKNOWN) for identity in identities]
    after = [position[before[calls]] for before, calls in zip(predecessors, ambiguous, strict=True)]
    sort_key = np.concatenate([2 * np.arange(count), *(2 * positions + 1 for positions in after)])
    sorted_entries = np.argsort(sort_key, kind="stable")
    number = np.empty(len(sort_key), np.int64)
    number[sorted_entries] = np.arange(len(sort_key))
    orders, used = [], count
    for identity, calls in zip(identities, ambiguous, strict=True):
        order = number[position[identity]]
        order[calls] = number[used : used + len(calls)]
        used += len(calls)
        orders.append(order)
    is_ambiguous = sorted_entries >= count
    entry = np.minimum(sorted_entries, max(count - 1, 0))
    sequence = np.where(is_ambiguous, UNKNOWN, consensus.calls.sequence[entry] if count else UNKNOWN)
    return AlignedSequences(
        orders, sequence, is_ambiguous, ~is_ambiguous & (consensus.uncertain[entry] if count else False)
    )
