"""How far each rank is in each of its groups, and how much of that its dump can tell."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tracelink.analysis.parts import Outcome, Parts
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Columns, Int32s, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct
from tracelink.operations import SYNCHRONIZING, operation_of
from tracelink.records import Int8s


class Knowledge(IntEnum):
    """What is known of a rank in a group after the last collective that it is known to have joined."""

    ABSENT = 0
    """There is no dump of it."""
    UNTIL = 1
    """It joined at least so many: its dump breaks off, was taken earlier than others, or was overwritten."""
    EXACT = 2
    """It joined these and no more."""


@dataclass(frozen=True, slots=True)
class Whereabouts(Columns):
    """One row for each member of each group, by group and rank. Numbers are UNKNOWN where there are none."""

    group: Int32s
    rank: Int32s
    last: Int64s
    """The last collective that it is known to have joined."""
    part: Int64s
    """Its last part."""
    knowledge: Int8s

    def __len__(self) -> int:
        return len(self.group)

    def of_group(self, group: int) -> slice:
        """The rows of a group."""
        begin, end = np.searchsorted(self.group, [group, group + 1]).tolist()
        return slice(begin, end)


def whereabouts_of(journal: Journal, parts: Parts, broken_off: Collection[int]) -> Whereabouts:
    """Where all members of all groups are."""
    group, rank = _members(journal, parts)
    part = _last_parts(journal, parts, group, rank)
    last = np.where(part == UNKNOWN, UNKNOWN, parts.sequence[part] if len(parts) else UNKNOWN)
    forgotten = (part == UNKNOWN) & _overwritten(journal, group, rank)
    knowledge = np.full(len(group), Knowledge.EXACT, np.int8)
    knowledge[np.isin(rank, list(broken_off)) | forgotten] = Knowledge.UNTIL
    knowledge[~np.isin(rank, journal.ranks)] = Knowledge.ABSENT
    passed = _passed(journal, parts)[group] if len(group) else last
    earlier = passed > last
    knowledge[earlier & (knowledge == Knowledge.EXACT)] = Knowledge.UNTIL
    return Whereabouts(group, rank, np.maximum(last, passed), part, knowledge)


def _members(journal: Journal, parts: Parts) -> tuple[Int32s, Int32s]:
    """The members of all groups: as described, and those that took part."""
    described = [(row, rank) for row, group in enumerate(journal.groups) for rank in group.ranks]
    group = np.concatenate([np.array([row for row, _ in described], np.int32), parts.group])
    rank = np.concatenate([np.array([rank for _, rank in described], np.int32), parts.rank])
    if not len(group):
        return group, rank
    _, first = distinct(group, rank)
    return group[first], rank[first]


def _last_parts(journal: Journal, parts: Parts, group: Int32s, rank: Int32s) -> Int64s:
    """The part with the highest number of each member, or UNKNOWN."""
    span = max(int(rank.max(initial=0)), int(parts.rank.max(initial=0))) + 1
    keys = group.astype(np.int64) * span + rank
    own = np.searchsorted(keys, parts.group.astype(np.int64) * span + parts.rank)
    last = np.full(len(group), UNKNOWN, np.int64)
    last[own] = np.arange(len(parts))
    return last


def _overwritten(journal: Journal, group: Int32s, rank: Int32s) -> Bools:
    """Whether a rank may have used a group and forgotten it: it forgot something, and does not say that it has not."""
    found = np.isin(rank, [number for number, one in journal.recordings.items() if one.overwritten])
    for place in np.flatnonzero(found).tolist():
        progress = journal.recordings[int(rank[place])].progress.get(journal.groups[group[place]].name)
        found[place] = progress is None or progress.enqueued >= 0
    return found


def _passed(journal: Journal, parts: Parts) -> Int64s:
    """For each group the last collective that somebody has left, which nobody can before all have joined."""
    synchronizing = _synchronizing(journal)
    request = journal.records.request[parts.row]
    left = (parts.outcome == Outcome.FINISHED) & synchronizing[request]
    passed = np.full(len(journal.groups), UNKNOWN, np.int64)
    np.maximum.at(passed, parts.group[left], parts.sequence[left])
    return passed


def _synchronizing(journal: Journal) -> Bools:
    names = [operation_of(journal.texts[code]) for code in journal.requests.operation.tolist()]
    return np.array([name in SYNCHRONIZING for name in names], np.bool_)
