"""The order of packets: everything begins and ends in time, and of what happens at once the engine meets ends first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.converters.perfetto.lanes import halves
from tracelink.converters.perfetto.picture import Picture
from tracelink.converters.perfetto_native.schema import Type
from tracelink.events import Int64s


@dataclass(frozen=True, slots=True)
class Packets:
    """Beginnings, ends and instants in the order in which they are written."""

    row: Int64s
    time: Int64s
    type: Int64s

    def where(self, some: slice) -> Packets:
        """Some of them."""
        return Packets(self.row[some], self.time[some], self.type[some])


def packets_of(picture: Picture) -> Packets:
    """All packets of a rank's slices and instants."""
    drawing, order = picture.drawing, picture.openings.order
    closing = order[~drawing.instant[order]][::-1]
    types = np.where(drawing.instant[order], Type.INSTANT, Type.BEGIN)
    return ordered(
        np.concatenate([closing, order]),
        np.concatenate([np.full(len(closing), Type.END), types]),
        drawing.start,
        drawing.duration,
    )


def ordered(row: Int64s, types: Int64s, start: Int64s, duration: Int64s) -> Packets:
    """Packets by time; ends come innermost first, all else in opening order, and so they must be given."""
    begin, end = halves(start, duration)
    ends = types == Type.END
    half = np.where(ends, end[row], begin[row])
    turn = np.argsort(2 * half + ~ends, kind="stable")
    return Packets(row[turn], half[turn] >> 1, types[turn])
