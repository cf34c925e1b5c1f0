"""Ranks in the same place of like groups, stages of other pipelines for example: they run the same program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.asked import ask_for_messages, codes_of_requests
from tracelink.analysis.order import like_groups
from tracelink.events import Bools, Int64s
from tracelink.journal import Journal


@dataclass(frozen=True)
class Siblings:
    """What ranks and their siblings ask for under the same number."""

    journal: Journal

    def due(self, group: int, rank: int, number: int) -> tuple[int, ...]:
        """What all siblings of a rank ask for in the message of this number; nothing where they do not agree."""
        calls = {self.codes(self.call(*other, number)) for other in self.of(group, rank)} - {()}
        return calls.pop() if len(calls) == 1 else ()

    def of(self, group: int, rank: int) -> list[tuple[int, int]]:
        """The siblings of a member of a group, with their groups."""
        groups = self.journal.groups
        if rank not in groups[group].ranks:
            return []
        place = list(groups[group].ranks).index(rank)
        return [(other, groups[other].ranks[place]) for other in like_groups(groups, group) if other != group]

    def call(self, group: int, rank: int, number: int) -> Int64s:
        """The sends and receives of a rank under a number: one, or those of a batch."""
        records = self.journal.records
        place = int(np.searchsorted(self.journal.ranks, rank))
        if place == len(self.journal.ranks) or self.journal.ranks[place] != rank:
            return np.empty(0, np.int64)
        begin, end = self.journal.bounds[place : place + 2].tolist()
        own = (records.group[begin:end] == group) & (records.sequence[begin:end] == number)
        rows: Int64s = begin + np.flatnonzero(own & self._messages[records.request[begin:end]])
        return rows

    def codes(self, rows: Int64s) -> tuple[int, ...]:
        """What entries ask for, in any order, for in a batch there is none."""
        return tuple(sorted(self._codes[self.journal.records.request[rows]].tolist()))

    @cached_property
    def _messages(self) -> Bools:
        return ask_for_messages(self.journal)

    @cached_property
    def _codes(self) -> Int64s:
        return codes_of_requests(self.journal)
