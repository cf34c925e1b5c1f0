"""What comes first in the program that all ranks run, by what each has done first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.alike import like_groups
from tracelink.analysis.message_places import NEVER, rows_of_message
from tracelink.analysis.parts import Parts
from tracelink.analysis.waits import Wait
from tracelink.journal import Journal


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which ranks take part in collectives of different groups.

    Ranks of like groups, tensor-parallel ones for example, run the same program, each with its own group.
    """

    journal: Journal
    parts: Parts
    _found: dict[tuple[str, int, int, str], dict[int, int]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def first_for(self, one: Wait, other: Wait) -> tuple[set[int], set[int]]:
        """The ranks that do the one first, and those that do the other first; each in its own like groups."""
        ones, others = self._rows(one), self._rows(other)
        if one.message or other.message:
            ranks = [rank for wait, rows in ((one, ones), (other, others)) if wait.message for rank in rows]
            ones, others = ({rank: rows.get(rank, NEVER) for rank in ranks} for rows in (ones, others))
        one_first = {rank for rank, row in ones.items() if row < others.get(rank, row + 1)}
        other_first = {rank for rank, row in others.items() if row < ones.get(rank, row + 1)}
        return one_first, other_first

    def earliest(self, waits: Sequence[Wait], without: Iterable[int] = ()) -> int:
        """Which of these comes first for most ranks; where that is not clear, in which ranks began to wait first."""
        left_out = set(without)
        best = min(range(len(waits)), key=lambda number: waits[number].created)
        for number, wait in enumerate(waits):
            if number != best:
                sooner, later = self.first_for(wait, waits[best])
                if len(sooner - left_out) > len(later - left_out):
                    best = number
        return best

    def _rows(self, wait: Wait) -> dict[int, int]:
        group = self.journal.groups[wait.group]
        message = wait.operation if wait.message else ""
        kind = (group.description, len(group.ranks), wait.sequence, message)
        if kind not in self._found:  # rings of hundreds of groups ask for each of them again and again
            self._found[kind] = rows_of_message(self.journal, wait) if wait.message else self._searched(wait)
        return self._found[kind]

    def _searched(self, wait: Wait) -> dict[int, int]:
        alike = like_groups(self.journal.groups, wait.group)
        chosen = np.flatnonzero((self.parts.sequence == wait.sequence) & np.isin(self.parts.group, alike))
        return dict(zip(self.parts.rank[chosen].tolist(), self.parts.row[chosen].tolist(), strict=True))
