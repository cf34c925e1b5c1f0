"""Messages to or from the wrong rank: nobody is at the other end, and somebody else waits for the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracelink.analysis.alike import like_groups
from tracelink.analysis.message_waits import Scene, pending
from tracelink.analysis.reach import Reach
from tracelink.analysis.waits import Wait
from tracelink.analysis.wording import collective_in_words
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Kind, Problem
from tracelink.events import Bools, Int64s


@dataclass(frozen=True)
class Misdirected:
    """Finds them among what ranks wait for."""

    scene: Scene
    reach: Reach

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank that has to do with the wrong one; and the waits, in which it waits for nobody."""
        problems, waits = [], []
        for wait in self.reach.waits:
            problem = self._problem(wait) if wait.message and len(wait.absent) == 1 else None
            if problem:
                problems.append(problem)
            waits.append(replace(wait, absent=()) if problem else wait)
        return problems, waits

    def _problem(self, wait: Wait) -> Problem | None:
        """One, if the peer has never had to do with this rank in this way, and will not."""
        ends = self.scene.ends
        ((rank, closing),) = wait.rows.items()
        of_call = (ends.closing == closing) & (ends.peer == wait.absent[0])
        alone = np.flatnonzero(of_call & (self.scene.matching.partner == UNKNOWN))
        if not len(alone) or not self._strange(end := int(alone[0])):
            return None
        due = self._due(end)
        if not self.reach.comes_no_more(wait.absent[0], rank, closing, only_past=not due):
            return None
        return self._told(wait, end, due)

    def _strange(self, end: int) -> bool:
        """Whether no message ever went this way, nor between any other ranks as far apart in groups like this one."""
        ends, matching = self.scene.ends, self.scene.matching
        channel = int(matching.channel[end])
        own = matching.order[int(matching.channels.sends[channel]) : int(matching.channels.end[channel])]
        if (matching.partner[own] != UNKNOWN).any():
            return False
        alike = np.isin(ends.group, like_groups(self.scene.elapsed.journal.groups, int(ends.group[end])))
        same_distance = alike & (self._distance == self._distance[end])
        of_others = ends.rank[same_distance] != ends.rank[end]
        return not of_others.any() and not (matching.partner[same_distance] != UNKNOWN).any()

    @cached_property
    def _distance(self) -> Int64s:
        """From the sending to the receiving rank, within the group."""
        requests, request = self.scene.elapsed.journal.requests, self.scene.ends.request
        distance: Int64s = requests.target[request].astype(np.int64) - requests.source[request]
        return distance

    @cached_property
    def _pending(self) -> Bools:
        return pending(self.scene)

    def _due(self, end: int) -> list[int]:
        """What others have asked of this rank that it has not come to, while it was to do the same with them."""
        ends, partner = self.scene.ends, self.scene.matching.partner
        asked = self._pending & (ends.group == ends.group[end]) & (ends.peer == ends.rank[end])
        asked &= (ends.sends != ends.sends[end]) & (ends.rank != ends.peer[end])
        # A counterpart that comes later in the same queue was meant for the message after the one in question.
        held_up = np.append(ends.row, np.iinfo(np.int64).min)[partner] > ends.row[end]
        return [int(one) for one in np.flatnonzero(asked & ((partner == UNKNOWN) | held_up))]

    def _told(self, wait: Wait, end: int, due: Sequence[int]) -> Problem:
        ends, journal = self.scene.ends, self.scene.elapsed.journal
        group = journal.groups[wait.group]
        rank, peer = int(ends.rank[end]), int(ends.peer[end])
        what = collective_in_words(wait.operation, wait.sequence, group)
        doing, asked = ("sends to", "receives") if ends.sends[end] else ("receives from", "sends")
        waiting = f", while rank {int(ends.rank[due[0]])} waits for it" if due else ""
        answer = f"which {asked} nothing {'from' if ends.sends[end] else 'to'} it"
        rows = {int(ends.rank[one]): int(ends.closing[one]) for one in (*due[:1], end)}
        return Problem(
            Kind.PEER_MISMATCH,
            group.name,
            group.description,
            wait.sequence,
            wait.operation,
            (rank,),
            tuple(sorted({int(ends.rank[one]) for one in due})),
            f"Rank {rank} {doing} rank {peer} in {what}, {answer}{waiting}",
            rows=rows,
        )
