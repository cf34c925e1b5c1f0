"""Shifts of clocks whose drifts are settled: nobody leaves too early, and nothing moves that need not."""

from __future__ import annotations

import numpy as np

from tracelink.clocks.passages import Passages
from tracelink.clocks.segments import Floats, Segments

MARGIN_NS = 3.0
"""Rounding to whole nanoseconds must not bring a violation back."""
ROWS = 1 << 24
"""So many rows are looked at: the rounds are as many as that allows, but not fewer than these."""
FEWEST_ROUNDS = 10


def closing_shift(times: Passages, clocks: int) -> Floats | None:
    """By how much to set each clock back; None where no shifts were found that violate nothing.

    Both moving clocks back only and moving them forward only lead to such shifts; so does their mean.
    """
    meetings = _Meetings(times, clocks)
    back, forward = meetings.closed(1), meetings.closed(-1)
    return None if back is None or forward is None else (back + forward) / 2


class _Meetings:
    def __init__(self, times: Passages, clocks: int) -> None:
        self._clock = times.clock
        self._entered = times.entered + MARGIN_NS
        self._left = np.maximum(times.left, self._entered)
        self._by_meeting = Segments(times.meeting, times.meetings)
        self._by_clock = Segments(times.clock, clocks)

    def closed(self, sign: int) -> Floats | None:
        """The nearest shifts, all of them negative (1) or positive (-1)."""
        ins, outs = (self._entered, self._left) if sign > 0 else (-self._left, -self._entered)
        shift = np.zeros(len(self._by_clock.sizes))
        # a chain of shifts has no more links than there are clocks, unless it never ends
        for _ in range(min(len(shift) + 1, max(FEWEST_ROUNDS, ROWS // max(len(ins), 1)))):
            latest = self._by_meeting.largest(ins - shift[self._clock])
            allowed = self._by_clock.smallest(outs - latest[self._by_meeting.number])
            if not (allowed < shift).any():
                return sign * shift
            shift = np.minimum(shift, allowed)
        return None
