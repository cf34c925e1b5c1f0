"""Slices: which beginning and which end belong together."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink.converters.perfetto.native.decode import pairs_of
from tracelink.converters.perfetto.track_events.schema import BEGIN, END


class Slices(Struct, frozen=True):
    """The rows of beginnings, and of their ends; UNKNOWN for a missing end. Ends without a beginning are counted."""

    begin: Int64s
    end: Int64s
    unmatched_ends: int


def slices_of(sequence: Int64s, track: Int64s, kind: Int64s, time: Int64s) -> Slices:
    """The slices among events in the order of the file.

    On a track the slice that began last ends first. PyTorch writes the beginnings of many slices, then their ends in
    the same order; there, times that are equal would pair the wrong ones.
    """
    rows = np.flatnonzero((kind == BEGIN) | (kind == END))
    rows = rows[np.argsort(sequence[rows], kind="stable")]
    partner = _of_blocks(sequence[rows], track[rows], kind[rows] == BEGIN, time[rows])
    in_blocks = np.flatnonzero(partner != UNKNOWN)
    begins = in_blocks[kind[rows[in_blocks]] == BEGIN]
    others = np.sort(rows[partner == UNKNOWN])
    _, tracks = np.unique(track, return_inverse=True)
    pairs = pairs_of(tracks.astype(np.int32), time, others, kind == BEGIN)
    begin = np.concatenate([rows[begins], pairs.begin])
    end = np.concatenate([rows[partner[begins]], pairs.end])
    order = np.argsort(begin, kind="stable")
    return Slices(begin[order], end[order], pairs.unmatched_ends)


def _of_blocks(sequence: Int64s, track: Int64s, begins: Bools, time: Int64s) -> Int64s:
    """For each row the other end of its slice if both are in such a block, else UNKNOWN.

    A block is a run of beginnings and a run of as many ends on the same tracks, none before its beginning, that are not
    in the order of time. The ends of the last block may be cut off.
    """
    partner = np.full(len(begins), UNKNOWN, np.int64)
    if len(begins) < 2:
        return partner
    changes = (begins[1:] != begins[:-1]) | (sequence[1:] != sequence[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    stops = np.append(starts[1:], len(begins))
    sizes = stops - starts
    first = np.flatnonzero(
        begins[starts[:-1]] & ~begins[starts[1:]] & (sequence[starts[:-1]] == sequence[starts[1:]])
    )
    is_last = first == len(starts) - 2
    fits = (sizes[first] == sizes[first + 1]) | (is_last & (sizes[first + 1] < sizes[first]))
    first = first[fits & (sizes[first] > 1)]
    if not len(first):
        return partner
    lengths = np.minimum(sizes[first], sizes[first + 1])
    offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    own, other = np.repeat(starts[first], lengths) + offset, np.repeat(starts[first + 1], lengths) + offset
    bounds = np.cumsum(lengths) - lengths
    matches = np.logical_and.reduceat((track[own] == track[other]) & (time[other] >= time[own]), bounds)
    block = starts[first]
    turns_back = np.concatenate([[0], np.cumsum((time[1:] < time[:-1]) & (sequence[1:] == sequence[:-1]))])
    unordered = turns_back[stops[first + 1] - 1] > turns_back[block]
    chosen = np.repeat(matches & unordered, lengths)
    partner[own[chosen]], partner[other[chosen]] = other[chosen], own[chosen]
    return partner
