"""Ranks in the same place of like groups, stages of other pipelines for example: they run the same program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tracelink.analysis.alike import like_groups
from tracelink.analysis.asked import answers_of_requests, ask_for_messages, codes_of_requests
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

    def like(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of messages of a rank that are like this one, of whatever group."""
        return self._with_code(group, rank, self._codes[self.journal.records.request[end]])

    def answers(self, group: int, rank: int, end: int) -> Int64s:
        """The ends of a rank that can be the other ends of messages like this one."""
        return self._with_code(group, rank, self._answers[self.journal.records.request[end]])

    def call(self, group: int, rank: int, number: int) -> Int64s:
        """The sends and receives of a rank under a number: one, or those of a batch."""
        records, own = self.journal.records, self._entries(rank)
        rows: Int64s = own.start + np.flatnonzero(
            (records.group[own] == group)
            & (records.sequence[own] == number)
            & self._messages[records.request[own]]
        )
        return rows

    def codes(self, rows: Int64s) -> tuple[int, ...]:
        """What entries ask for, in any order, for in a batch there is none."""
        return tuple(sorted(self._codes[self.journal.records.request[rows]].tolist()))

    def _with_code(self, group: int, rank: int, code: int) -> Int64s:
        records, own = self.journal.records, self._entries(rank)
        rows: Int64s = own.start + np.flatnonzero(
            (records.group[own] == group) & (self._codes[records.request[own]] == code)
        )
        return rows

    def _entries(self, rank: int) -> slice:
        place = int(np.searchsorted(self.journal.ranks, rank))
        there = place < len(self.journal.ranks) and self.journal.ranks[place] == rank
        begin, end = self.journal.bounds[place : place + 2].tolist() if there else (0, 0)
        return slice(begin, end)

    @cached_property
    def _answers(self) -> Int64s:
        """For each request the code of those at the other end of the message; UNKNOWN where nobody asks for it."""
        return answers_of_requests(self.journal)

    @cached_property
    def _messages(self) -> Bools:
        return ask_for_messages(self.journal)

    @cached_property
    def _codes(self) -> Int64s:
        return codes_of_requests(self.journal)
