"""Who waits for whom in messages: in the first that is not finished of each queue in which a rank has some.

What a rank asks of one other is done in order, and so are its batches in a group. So whoever has not come to a
message, because it never asked for it or has others to finish first, keeps the other end waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.channels import Matching
from tracelink.analysis.dump_times import DumpTimes
from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.ends import Ends
from tracelink.analysis.parts import Outcome
from tracelink.analysis.stuck import is_stuck
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN
from tracelink.events import Bools, Int64s
from tracelink.linking.coding import distinct

IN_BATCHES = UNKNOWN
"""Stands for the peer in the queue of a rank's batches, for they can be for several."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that tells who waits for a message."""

    elapsed: Elapsed
    ends: Ends
    matching: Matching
    times: DumpTimes
    silent: Collection[int]
    """Ranks of which there is no dump, or not all of it."""


def message_waits(scene: Scene) -> list[Wait]:
    """One for each rank that the first of a queue waits for; without any, one with those it is under way with."""
    ends, partner = scene.ends, scene.matching.partner
    heads = _heads(ends, np.flatnonzero(pending(scene)))
    waits: list[Wait] = []
    shown: set[int] = set()
    for closing, members in heads.items():
        found = list(_awaiting(scene, heads, members))
        waits += found
        if not found and closing not in shown:
            partners = [int(partner[end]) for end in members if partner[end] != UNKNOWN]
            waits.append(_wait(scene, [members[0], *partners]))
            shown.update(ends.closing[partners].tolist())
    return waits


def pending(scene: Scene) -> Bools:
    """Ends that are not finished; where the other end is, this one is too as soon as it is looked at.

    So is what stands before something that is not finished here but elsewhere.
    """
    ends, matching = scene.ends, scene.matching
    finished = np.append(ends.outcome, np.int8(Outcome.OPEN))[matching.partner] >= Outcome.RETIRED
    found: Bools = (ends.outcome < Outcome.RETIRED) & ~finished
    for rank, row in scene.times.finished_since.items():
        found &= (ends.rank != rank) | (ends.row > row)
    for rank in scene.silent:
        found &= ~_may_lack_its_closing(scene, rank)
    return found


def _may_lack_its_closing(scene: Scene, rank: int) -> Bools:
    """The last ends of a dump that breaks off: they may be of a batch."""
    ends = scene.ends
    own = np.flatnonzero((ends.rank == rank) & ~ends.batched)
    sequence = scene.elapsed.journal.records.sequence[ends.row[own]]
    last = np.append(ends.group[own][1:] != ends.group[own][:-1], True)[: len(own)]
    found = np.zeros(len(ends), np.bool_)
    for group, number in zip(ends.group[own][last].tolist(), sequence[last].tolist(), strict=True):
        found[own[(ends.group[own] == group) & (sequence == number)]] = True
    return found


def _heads(ends: Ends, pending: Int64s) -> dict[int, list[int]]:
    """The ends that are first in their queues, by the entry that tells of their outcome."""
    heads: dict[int, list[int]] = {}
    if not len(pending):
        return heads
    peer = np.where(ends.batched[pending], IN_BATCHES, ends.peer[pending])
    queue, first = distinct(
        ends.rank[pending], ends.group[pending], ends.batched[pending].astype(np.int8), peer
    )
    closing = ends.closing[pending]
    for end in pending[closing == closing[first][queue]].tolist():
        heads.setdefault(int(ends.closing[end]), []).append(end)
    return heads


def _awaiting(scene: Scene, heads: Mapping[int, list[int]], members: Sequence[int]) -> Iterator[Wait]:
    """A wait for each peer that has not come to the message."""
    told = set()
    for end in members:
        peer = int(scene.ends.peer[end])
        if peer in told:
            continue
        wait = (
            _with_partner(scene, heads, end) if scene.matching.partner[end] != UNKNOWN else _alone(scene, end)
        )
        if wait:
            told.add(peer)
            yield wait


def _with_partner(scene: Scene, heads: Mapping[int, list[int]], end: int) -> Wait | None:
    """Whether the peer has something else to finish first."""
    behind = int(scene.ends.closing[scene.matching.partner[end]]) not in heads
    return _wait(scene, [end], absent=(int(scene.ends.peer[end]),)) if behind else None


def _alone(scene: Scene, end: int) -> Wait | None:
    """Whether the peer has not asked for it; what dumps do not tell, because they are older, is told if it is stuck."""
    peer, times = int(scene.ends.peer[end]), scene.times
    if peer == UNKNOWN or scene.matching.expected[end] < 0:
        return None
    if peer in scene.silent:
        return _wait(scene, [end], unknown=(peer,))
    if times.forgot(peer, int(scene.elapsed.journal.records.created[scene.ends.row[end]])):
        return None
    if peer not in times.older:
        return _wait(scene, [end], absent=(peer,))
    uncertain = _wait(scene, [end], unknown=(peer,))
    return uncertain if is_stuck(scene.elapsed, uncertain) else None


def _wait(
    scene: Scene, members: Sequence[int], absent: tuple[int, ...] = (), unknown: tuple[int, ...] = ()
) -> Wait:
    ends, journal = scene.ends, scene.elapsed.journal
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
