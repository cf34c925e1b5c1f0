"""What comes first in the program that all ranks run, by what each has done first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.parts import Parts
from tracelink.analysis.waits import Wait
from tracelink.journal import Journal
from tracelink.trace import ProcessGroup


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which ranks take part in collectives of different groups.

    Ranks of like groups, tensor-parallel ones for example, run the same program, each with its own group.
    """

    journal: Journal
    parts: Parts
    _found: dict[tuple[str, int, int], dict[int, int]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def first_for(self, one: Wait, other: Wait) -> tuple[set[int], set[int]]:
        """The ranks that do the one first, and those that do the other first; each in its own like groups."""
        ones, others = self._rows(one), self._rows(other)
        one_first = {rank for rank, row in ones.items() if row < others.get(rank, row + 1)}
        other_first = {rank for rank, row in others.items() if row < ones.get(rank, row + 1)}
        return one_first, other_first

    def earliest(self, waits: Sequence[Wait], without: Iterable[int] = ()) -> int:
        """Which of these comes first for most ranks; where that is not clear, in which ranks began to wait first."""
        left_out = set(without)
        best = min(range(len(waits)), key=lambda number: waits[number].created)
        for number, wait in enumerate(waits):
            if number != best and not (wait.message or waits[best].message):
                sooner, later = self.first_for(wait, waits[best])
                if len(sooner - left_out) > len(later - left_out):
                    best = number
        return best

    def _rows(self, wait: Wait) -> dict[int, int]:
        group = self.journal.groups[wait.group]
        kind = (group.description, len(group.ranks), wait.sequence)
        if kind not in self._found:  # rings of hundreds of groups ask for each of them again and again
            self._found[kind] = self._searched(wait)
        return self._found[kind]

    def _searched(self, wait: Wait) -> dict[int, int]:
        alike = like_groups(self.journal.groups, wait.group)
        chosen = np.flatnonzero((self.parts.sequence == wait.sequence) & np.isin(self.parts.group, alike))
        return dict(zip(self.parts.rank[chosen].tolist(), self.parts.row[chosen].tolist(), strict=True))


def like_groups(groups: Sequence[ProcessGroup], row: int) -> list[int]:
    """The group itself and those of the same description and size."""
    own = groups[row]
    return [
        number
        for number, other in enumerate(groups)
        if number == row or (other.description == own.description and len(other.ranks) == len(own.ranks))
    ]
