"""The entries of a dump, of which those that repeat others but for their numbers need not be decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.events import Int64s


@dataclass(frozen=True, slots=True)
class Repeats:
    """Entries of one form: who tells what they say, field by field."""

    row: Int64s
    """Among the rows of all entries."""
    like: Int64s
    """For each a decoded entry that has the same fields."""
    tellers: Mapping[str, Int64s]
    """For each a decoded entry that says the same in a field."""
    numbers: Mapping[str, Int64s | None]
    """What each says itself in a field, -1 where it says None; None for a field of floats."""


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries: those that were decoded, and those that repeat them."""

    decoded: Sequence[Any]
    row: Int64s
    """Of those that were decoded, among the rows of all."""
    count: int
    repeats: Sequence[Repeats] = ()

    @classmethod
    def all_decoded(cls, entries: Sequence[Any]) -> Entries:
        """Entries of which none is known to repeat another."""
        return cls(entries, np.arange(len(entries)), len(entries))

    def numbered(self, *fields: str) -> bool:
        """Whether a field has numbers that no decoded entry tells."""
        return any(field in repeat.numbers for repeat in self.repeats for field in fields)

    def told(self, field: str, column: Any) -> Any:
        """A column of what decoded entries say in a field, for all entries."""
        return column if not self.repeats else self._spread(field, column)

    def tellers(self, fields: Sequence[str]) -> list[Int64s]:
        """For each field a decoded entry that says the same, for all entries; the same array for fields told alike."""
        known: dict[tuple[int, ...], Int64s] = {}
        keys = [tuple(id(repeat.tellers.get(field)) for repeat in self.repeats) for field in fields]
        for key, field in zip(keys, fields, strict=True):
            if key not in known:
                known[key] = self.told(field, np.arange(len(self.decoded)))
        return [known[key] for key in keys]

    def numbers(self, field: str, column: Int64s) -> Int64s:
        """The same of a field whose whole numbers each entry says itself."""
        if not self.repeats:
            return column
        rows: Int64s = self._spread(field, column)
        for repeat in self.repeats:
            if (values := repeat.numbers.get(field)) is not None:
                rows[repeat.row] = values
        return rows

    def _spread(self, field: str, column: Any) -> Any:
        rows = np.empty(self.count, column.dtype)
        rows[self.row] = column
        for repeat in self.repeats:
            rows[repeat.row] = column[repeat.tellers.get(field, repeat.like)]
        return rows
