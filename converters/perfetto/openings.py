"""In which order slices open on each lane: what an arrow's end binds to depends on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.drawing import Drawing
from tracelink.events import Bools, Int64s


@dataclass(frozen=True, slots=True)
class Openings:
    """The drawn rows, lane by lane in the order in which they open."""

    order: Int64s
    first: Bools
    """For each row, whether it opens before all others of its lane that open at the same instant."""
    last: Bools
    """Whether it opens after all of those."""


def openings_of(drawing: Drawing, seat: Int64s, order: Int64s) -> Openings:
    """`order` holds the drawn rows by track in opening order; the lanes of a track are told apart here."""
    order = order[np.argsort(seat[order], kind="stable")]
    start, lane = drawing.start[order], seat[order]
    apart = np.ones(len(order) + 1, np.bool_)
    apart[1:-1] = (start[1:] != start[:-1]) | (lane[1:] != lane[:-1])
    first = np.zeros(len(seat), np.bool_)
    last = np.zeros(len(seat), np.bool_)
    first[order] = apart[:-1]
    last[order] = apart[1:]
    return Openings(order, first, last)
