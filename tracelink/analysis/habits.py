"""What a rank usually does next, by what it did where it came from the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.asked import codes_of_requests
from tracelink.events import Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct

SHORTEST, LONGEST = 8, 256
"""So many entries in a row must be the same before what follows is usual; more than that are not compared."""
REPETITIONS = 3


@dataclass(frozen=True)
class Habits:
    """The programs of ranks, entry by entry: the group, the operation, and of messages the ranks."""

    journal: Journal

    def deviates(self, row: int) -> bool:
        """Whether an entry is not what usually follows."""
        usual = self.usual(row)
        return usual is not None and usual != self.code(row)

    def code(self, row: int) -> int:
        """A number for what an entry does, equal for the same."""
        return int(self._codes[row])

    def usual(self, row: int) -> int | None:
        """What is usually done in the place of an entry; None where nothing tells."""
        begin = int(self.journal.bounds[np.searchsorted(self.journal.bounds, row, side="right") - 1])
        done = self._codes[begin:row]
        places, longest = np.arange(1, len(done)), 0
        for back in range(1, min(LONGEST, len(done)) + 1):
            reaching = places[places >= back]
            alike = reaching[done[reaching - back] == done[-back]]
            if not len(alike):
                break
            places, longest = alike, back
        if longest < SHORTEST or len(np.unique(done[places])) > 1 or _is_only_a_loop(done, longest):
            return None
        return int(done[places[0]])

    @cached_property
    def _codes(self) -> Int64s:
        records = self.journal.records
        return distinct(records.group, codes_of_requests(self.journal)[records.request])[0]


def _is_only_a_loop(done: Int64s, length: int) -> bool:
    """Whether what is the same is the same over and over inside a step, and not from step to step."""
    context = done[len(done) - length :]
    for period in range(1, length // 2 + 1):
        if (context[period:] == context[:-period]).all():
            return len(done) - length > period or len(done) < REPETITIONS * period
    return False
