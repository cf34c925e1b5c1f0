"""Ranks within a group and ranks of the job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int32s, Int64s
from tracelink.linking.coding import ranges
from tracelink.linking.groups import Groups


@dataclass(frozen=True, slots=True)
class Members:
    """The members of all groups, one group after the other."""

    begin: Int64s
    length: Int64s
    rank: Int64s

    @classmethod
    def of(cls, groups: Groups) -> Members:
        """The members of all rows of the groups."""
        length = np.array([len(row.ranks) for row in groups.rows], np.int64)
        ranks = np.array([rank for row in groups.rows for rank in row.ranks], np.int64)
        return cls(np.cumsum(length) - length, length, ranks)

    def all(self, group: Int32s) -> tuple[Int64s, Int64s]:
        """Every member of each of these groups: which of them, and the rank."""
        length = self.length[group]
        return np.repeat(np.arange(len(group)), length), self.rank[ranges(self.begin[group], length)]

    def rank_of(self, group: Int32s, within: Int32s, of_job: Bools) -> Int64s:
        """The rank of the job for ranks within groups, where they are not of the job already; or UNKNOWN."""
        if not len(self.rank):
            return np.where(of_job, within, UNKNOWN).astype(np.int64)
        named = np.maximum(group, 0)
        known = (within >= 0) & (group != UNKNOWN) & (within < self.length[named])
        rank = self.rank[np.where(known, self.begin[named] + within, 0)]
        return np.where(of_job, within, np.where(known, rank, UNKNOWN)).astype(np.int64)
