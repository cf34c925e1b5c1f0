"""Which operator encloses what, for whole columns at once."""

from __future__ import annotations

import numpy as np

from tracelink.events import Bools, Int64s, Relation
from tracelink.excerpt import NONE, Excerpt


def callers(part: Excerpt) -> Int64s:
    """The caller of each row, or -1."""
    calls = part.where(Relation.CALLS)
    caller = np.full(len(part.events), NONE, np.int64)
    caller[calls.target] = calls.source
    return caller


def innermost(caller: Int64s, marked: Bools) -> Int64s:
    """For each row the nearest marked one among itself and what encloses it, or -1.

    Every step doubles how far each row has looked, so that depth costs little and a circle ends.
    """
    nowhere = len(caller)
    place = np.where(marked, np.arange(nowhere), np.where(caller == NONE, nowhere, caller))
    place = np.append(place, nowhere)
    for _ in range(nowhere.bit_length()):
        further = place[place]
        if np.array_equal(further, place):
            break
        place = further
    found = place[:nowhere]
    return np.where(np.append(marked, False)[found], found, NONE)


def outside(caller: Int64s, nearest: Int64s) -> Int64s:
    """For each row the nearest marked one around it, itself left out, or -1."""
    return np.where(caller == NONE, NONE, nearest[caller])


def depths(parent: Int64s) -> Int64s:
    """How many enclose each; every step doubles how far it looks, so that a circle ends too."""
    hop = np.append(parent, NONE)
    depth: Int64s = (hop != NONE).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        inside = np.flatnonzero(hop != NONE)
        if not len(inside):
            break
        depth[inside] += depth[hop[inside]]
        hop[inside] = hop[hop[inside]]
    return depth[: len(parent)]


def greatest_inside(parent: Int64s, values: Int64s) -> Int64s:
    """For each the greatest value of itself and of all that it encloses; every step looks twice as far down."""
    nowhere = len(parent)
    greatest = np.append(values, np.iinfo(np.int64).min)
    above = np.append(np.where(parent == NONE, nowhere, parent), nowhere)
    for _ in range(nowhere.bit_length()):
        if (above == nowhere).all():
            break
        seen = greatest.copy()
        np.maximum.at(seen, above, greatest)
        greatest = seen
        above = above[above]
    return greatest[:nowhere]
