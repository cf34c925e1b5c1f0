"""Which communication a wait of other work is for, where nothing says it."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.ordering.lanes import Lanes
from tracelink.analysis.ordering.launched import Launched
from tracelink.events import Bools, Events
from tracelink.excerpt import NONE


class JoinedWork:
    """Communications are waited for in the order of their launches, unless times show another one.

    Each wait is for one communication that none was for before. Work that was launched, and whose stream was free,
    while a communication still ran, and that began after its end, visibly waited for that one. Where no wait is
    visible, the first one is the safe answer: the later ones of its stream ended after it.
    """

    def __init__(self, events: Events, launched: Launched, communicates: Bools) -> None:
        self._start, self._end = events.start[launched.row], events.end[launched.row]
        self._begun, self._stream = launched.begun, launched.stream
        self._communications = np.flatnonzero(communicates)
        self._launched = launched.begun[self._communications]
        self._open = np.ones(len(self._communications), np.bool_)
        self._by_end = Lanes.of(launched.stream, self._end)

    def awaited(self, called: int, after: int) -> int:
        """The place of what the wait called then is for, before the work at `after`; or NONE."""
        launched = int(np.searchsorted(self._launched, called))
        numbers = np.flatnonzero(self._open[:launched])
        if after == NONE or not len(numbers):
            return NONE
        ends = self._end[self._communications[numbers]]
        visible = np.flatnonzero((ends <= self._start[after]) & (ends > self._ready(after)))
        if len(visible):
            return self._close(int(numbers[visible[np.argmax(ends[visible])]]))
        return self._close(int(numbers[0])) if ends[0] <= self._start[after] else NONE

    def _ready(self, after: int) -> int:
        """When the work at `after` was launched and what ran before it on its stream had ended."""
        previous = self._by_end.last_before(self._stream[[after]], self._start[[after]] + 1)[0]
        ended = self._begun[after] if previous in (NONE, after) else self._end[previous]
        return int(max(ended, self._begun[after]))

    def _close(self, number: int) -> int:
        """Nothing on its stream up to this one is waited for again."""
        place = int(self._communications[number])
        earlier = self._communications[: number + 1]
        self._open[: number + 1] &= self._stream[earlier] != self._stream[place]
        return place
