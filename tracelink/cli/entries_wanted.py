"""Which entries a user wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tracelink.ranges import Numbers


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries a user wants to see."""

    ranks: Numbers | None = None
    groups: Sequence[str] = ()
    stacks: bool = False
    limit: int | None = None
    """At most so many rows, 0 for all; None where the user says nothing."""
    csv: bool = False

    def last(self, default: int | None) -> int | None:
        """How many rows there are to be."""
        return default if self.limit is None else self.limit or None
