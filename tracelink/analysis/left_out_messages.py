"""Messages that a rank left out: it was to ask for them at a place of its program that it has gone past."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracelink.analysis.habits import Habits
from tracelink.analysis.message_waits import Scene
from tracelink.analysis.reach import Reach
from tracelink.analysis.siblings import Siblings
from tracelink.analysis.waits import Wait
from tracelink.analysis.wording import collective_in_words
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Kind, Problem
from tracelink.journal import Journal

FURTHEST = 256
"""So many entries after the last message between two ranks the next one is looked for."""


@dataclass(frozen=True)
class LeftOut:
    """Finds them among what ranks wait for."""

    scene: Scene
    reach: Reach
    explained: Collection[int]
    """Ranks that did something else instead, of which there is a problem already."""

    @property
    def journal(self) -> Journal:
        """All entries."""
        return self.scene.elapsed.journal

    def problems(self) -> tuple[list[Problem], list[Wait]]:
        """A problem for each rank and group; and the waits, in which nobody waits for what was left out any more."""
        problems: dict[tuple[int, int], Problem] = {}
        waits = []
        for wait in self.reach.waits:
            possible = wait.message and len(wait.absent) == 1 and wait.absent[0] not in self.explained
            problem = self._problem(wait) if possible else None
            if problem:
                key = wait.group, wait.absent[0]
                problems[key] = _together(problems[key], problem) if key in problems else problem
            waits.append(replace(wait, absent=()) if problem else wait)
        return list(problems.values()), waits

    def _problem(self, wait: Wait) -> Problem | None:
        ends = self.scene.ends
        ((rank, closing),) = wait.rows.items()
        of_call = (ends.closing == closing) & (ends.peer == wait.absent[0])
        alone = np.flatnonzero(of_call & (self.scene.matching.partner == UNKNOWN))
        if not len(alone) or not self.reach.comes_no_more(wait.absent[0], rank, closing):
            return None
        before = self._last_of(int(alone[0]))
        place = UNKNOWN if before == UNKNOWN else self._left_out_at(before)
        return None if place == UNKNOWN else self._told(wait, before, place)

    def _last_of(self, end: int) -> int:
        """The entry of the last end of the channel at the other side."""
        channels, channel = self.scene.matching.channels, int(self.scene.matching.channel[end])
        begin, middle, last = (
            int(column[channel]) for column in (channels.sends, channels.receives, channels.end)
        )
        begin, last = (middle, last) if self.scene.ends.sends[end] else (begin, middle)
        return int(self.scene.ends.row[self.scene.matching.order[last - 1]]) if last > begin else UNKNOWN

    @cached_property
    def _habits(self) -> Habits:
        return Habits(self.journal)

    @cached_property
    def _siblings(self) -> Siblings:
        return Siblings(self.journal)

    def _left_out_at(self, before: int) -> int:
        """Which entry stands where the next message like this one was due; UNKNOWN where none does."""
        end = int(self.journal.bounds[np.searchsorted(self.journal.bounds, before, side="right")])
        later = range(before + 1, min(end, before + FURTHEST))
        by_siblings = self._where_siblings_had_it(before)
        if by_siblings != UNKNOWN:
            return by_siblings
        usual = self._habits.code(before)
        return next((row for row in later if self._habits.usual(row) == usual), UNKNOWN)

    def _where_siblings_had_it(self, before: int) -> int:
        """What the rank did where all siblings asked for it."""
        records, siblings = self.journal.records, self._siblings
        group, rank = int(records.group[before]), int(self.journal.rank[before])
        (missing,) = siblings.codes(np.array([before]))
        for number in range(int(records.sequence[before]) + 1, int(records.sequence[before]) + FURTHEST):
            own, due = siblings.call(group, rank, number), siblings.due(group, rank, number)
            if siblings.codes(own) == due and due:
                continue
            if missing not in due or missing in siblings.codes(own):
                return UNKNOWN
            return int(own[0]) if len(own) else self._went_past(group, rank, number)
        return UNKNOWN

    def _went_past(self, group: int, rank: int, number: int) -> int:
        """The first entry after the last message, if the rank joined what all siblings did after this one."""
        siblings = self._siblings
        others = [(other, siblings.call(where, other, number)) for where, other in siblings.of(group, rank)]
        past = [self.reach.went_past(rank, other, int(rows[-1])) for other, rows in others if len(rows)]
        last = np.flatnonzero(np.isin(self.scene.ends.row, siblings.call(group, rank, number - 1)))
        return int(self.scene.ends.closing[last[-1]]) + 1 if past and all(past) and len(last) else UNKNOWN

    def _told(self, wait: Wait, before: int, place: int) -> Problem:
        group, records = self.journal.groups[wait.group], self.journal.records
        culprit, ((rank, _),) = wait.absent[0], wait.rows.items()
        ends, operation = self.scene.ends, self.journal.operation(before)
        earlier = (ends.rank == culprit) & (ends.group == wait.group) & (ends.row < place)
        sequence = int(records.sequence[ends.row[earlier]].max()) + 1
        instead = self.journal.groups[records.group[place]]
        went_on = collective_in_words(self.journal.operation(place), int(records.sequence[place]), instead)
        return Problem(
            Kind.SKIPPED,
            group.name,
            group.description,
            sequence,
            operation,
            (culprit,),
            (rank,),
            f"Rank {culprit} skipped {collective_in_words(operation, sequence, group)}, and went on with {went_on}",
            rows={**wait.rows, culprit: place},
        )


def _together(one: Problem, other: Problem) -> Problem:
    """Two messages that a rank left out at once."""
    waiting = tuple(sorted({*one.waiting, *other.waiting}))
    return replace(one, waiting=waiting, rows={**other.rows, **one.rows})
