"""Stretches of time, and what lies in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.events import Bools, Int64s

EARLIEST = int(np.iinfo(np.int64).min)
LATEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches that are in order and apart; each holds its start, and not its end."""

    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, starts: Int64s, ends: Int64s) -> Spans:
        """What these stretches cover together."""
        some = starts < ends
        starts, ends = starts[some], ends[some]
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        first = np.append(True, starts[1:] > reached[:-1])[: len(starts)]
        last = np.append(first[1:], True)[: len(starts)]
        return cls(starts[first], reached[last])

    @classmethod
    def between(cls, first: int | None, last: int | None) -> Spans:
        """One stretch; None where it has no bound."""
        lower = EARLIEST if first is None else first
        upper = LATEST if last is None else last
        return cls.of(np.array([lower], np.int64), np.array([upper], np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    def within(self, first: int | None, last: int | None) -> Spans:
        """The parts of the stretches that lie between these times."""
        lower = EARLIEST if first is None else first
        upper = LATEST if last is None else last
        return Spans.of(np.maximum(self.starts, lower), np.minimum(self.ends, upper))

    def overlap(self, start: Int64s, end: Int64s) -> Bools:
        """Which of the events from `start` to `end` lie in the stretches, with any part of them.

        An event without length lies where it starts.
        """
        following = np.searchsorted(self.ends, start, side="right")
        begins = np.append(self.starts, LATEST)[following]
        overlapping: Bools = (following < len(self)) & ((begins < end) | (begins <= start))
        return overlapping
