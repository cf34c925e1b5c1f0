"""What every finder of an order gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tracelink.events import Bools, Events, Int64s


@dataclass(frozen=True, slots=True)
class Order:
    """Pairs of rows: `after[i]` could not begin until `before[i]` had ended."""

    before: Int64s
    after: Int64s
    counts: Mapping[str, int] = field(default_factory=dict)
    """How the pairs were found, and what could not be explained, for a report."""

    def __len__(self) -> int:
        return len(self.before)

    @classmethod
    def of(cls, before: Int64s, after: Int64s, counts: Mapping[str, int] | None = None) -> Order:
        """Each pair once, by what had to wait and then by what it waited for."""
        if not len(before):
            return cls(np.empty(0, np.int64), np.empty(0, np.int64), counts or {})
        order = np.lexsort((before, after))
        before, after = before[order], after[order]
        fresh = np.append(True, (before[1:] != before[:-1]) | (after[1:] != after[:-1]))
        return cls(before[fresh], after[fresh], counts or {})


def can_follow(events: Events, before: Int64s, after: Int64s) -> Bools:
    """Whether the times allow each pair: `before` had ended when `after` began.

    Of events without length at one time the one that is recorded first comes first: no circle can arise, whatever
    pairs of all orders are put together.
    """
    known = events.timed[before] & events.timed[after] & (events.duration[before] >= 0)
    ended, began = events.end[before], events.start[after]
    instant = (events.start[before] == began) & (events.duration[after] == 0)
    allowed: Bools = known & (ended <= began) & (~instant | (before < after))
    return allowed
