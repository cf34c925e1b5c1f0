"""Who waits for whom in messages: in the first that is not finished of each queue in which a rank has some.

What a rank asks of one other is done in order, and so are its batches in a group. So whoever has not come to a
message, because it never asked for it or has others to finish first, keeps the other end waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracelink.analysis.channels import Matching
from tracelink.analysis.ends import Ends
from tracelink.analysis.parts import Outcome
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Bools, Int64s
from tracelink.journal import Journal
from tracelink.linking.coding import distinct

IN_BATCHES = UNKNOWN
"""Stands for the peer in the queue of a rank's batches, for they can be for several."""


@dataclass(frozen=True, slots=True)
class Silent:
    """The ranks whose dumps do not tell what they have not asked for."""

    unknown: frozenset[int]
    """They may have asked for more: no dump, or one that breaks off or is older than those of others."""
    kept_since: dict[int, int]
    """When the first entry was made that a rank has kept, of those that forgot some."""

    def forgot(self, rank: int, time: int) -> bool:
        """Whether a rank may have forgotten what it asked for at about this time."""
        return time == NO_TIME or time <= self.kept_since.get(rank, NO_TIME)


@dataclass(slots=True)
class _Heads:
    """The ends that are first in their queues, by the entry that tells of their outcome."""

    ends: dict[int, list[int]] = field(default_factory=dict)


def message_waits(journal: Journal, ends: Ends, matching: Matching, silent: Silent) -> list[Wait]:
    """One for each rank that the first of a queue waits for; where there is none, one with those it is under way with."""
    heads = _heads(ends, np.flatnonzero(_pending(ends, matching)))
    waits: list[Wait] = []
    shown: set[int] = set()
    for closing, members in heads.ends.items():
        found = list(_awaited(journal, ends, matching, silent, heads, members))
        waits += [_wait(journal, ends, [end], absent, unknown) for end, absent, unknown in found]
        if not found and closing not in shown:
            partners = [int(matching.partner[end]) for end in members if matching.partner[end] != UNKNOWN]
            waits.append(_wait(journal, ends, [members[0], *partners]))
            shown.update(ends.closing[partners].tolist())
    return waits


def _pending(ends: Ends, matching: Matching) -> Bools:
    """Ends that are not finished; where the other end is, this one is too as soon as it is looked at."""
    finished = np.append(ends.outcome, np.int8(Outcome.OPEN))[matching.partner] >= Outcome.RETIRED
    pending: Bools = (ends.outcome < Outcome.RETIRED) & ~finished
    return pending


def _heads(ends: Ends, pending: Int64s) -> _Heads:
    heads = _Heads()
    if not len(pending):
        return heads
    peer = np.where(ends.batched[pending], IN_BATCHES, ends.peer[pending])
    queue, first = distinct(ends.rank[pending], ends.group[pending], ends.batched[pending], peer)
    closing = ends.closing[pending]
    for end in pending[closing == closing[first][queue]].tolist():
        heads.ends.setdefault(int(ends.closing[end]), []).append(end)
    return heads


def _awaited(
    journal: Journal, ends: Ends, matching: Matching, silent: Silent, heads: _Heads, members: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """The ends whose peers have not come to them, with the peers: those that certainly have not, or may not have."""
    told = set()
    for end in members:
        peer, partner = int(ends.peer[end]), int(matching.partner[end])
        if peer in told or peer == UNKNOWN:
            continue
        if partner != UNKNOWN:
            if int(ends.closing[partner]) in heads.ends:
                continue
            told.add(peer)
            yield end, (peer,), ()
        elif matching.expected[end] >= 0:
            created = int(journal.records.created[ends.row[end]])
            if peer in silent.unknown:
                told.add(peer)
                yield end, (), (peer,)
            elif not silent.forgot(peer, created):
                told.add(peer)
                yield end, (peer,), ()


def _wait(
    journal: Journal,
    ends: Ends,
    members: Sequence[int],
    absent: tuple[int, ...] = (),
    unknown: tuple[int, ...] = (),
) -> Wait:
    row = int(ends.row[members[0]])
    return Wait(
        int(ends.group[members[0]]),
        int(journal.records.sequence[row]),
        journal.operation(row),
        {int(ends.rank[end]): int(ends.closing[end]) for end in members},
        absent,
        unknown,
        created=int(journal.records.created[row]),
        dropped=bool((ends.outcome[list(members)] == Outcome.DROPPED).any()),
        message=True,
    )
