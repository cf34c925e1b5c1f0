"""What ranks send to each other: who waits for whose message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tracelink.analysis.channels import Matching, match
from tracelink.analysis.ends import Ends, ends_of
from tracelink.analysis.message_waits import Silent, message_waits
from tracelink.analysis.parts import Outcome, Parts, outcomes
from tracelink.analysis.waits import Wait
from tracelink.analysis.whereabouts import Whereabouts
from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME
from tracelink.journal import Journal


@dataclass(frozen=True, slots=True)
class Messages:
    """All messages of a job."""

    count: int
    """How many have two ends."""
    waits: Sequence[Wait]


def messages_of(journal: Journal, parts: Parts, where: Whereabouts, broken_off: Collection[int]) -> Messages:
    """The messages between ranks, and who waits in them."""
    ends = ends_of(journal, outcomes(journal))
    matching = match(journal, ends)
    older = {*_left_behind(journal, parts, where), *_received_from(ends, matching)}
    silent = _silent(journal, {*broken_off, *older})
    return Messages(matching.messages, message_waits(journal, ends, matching, silent))


def _silent(journal: Journal, incomplete: Collection[int]) -> Silent:
    present = journal.ranks.tolist()
    members = {rank for group in journal.groups for rank in group.ranks}
    since = {
        rank: int(journal.records.created[journal.bounds[place]])
        for place, rank in enumerate(present)
        if journal.recordings[rank].overwritten and journal.bounds[place] < journal.bounds[place + 1]
    }
    return Silent(
        frozenset({*(members - set(present)), *incomplete}),
        {rank: time for rank, time in since.items() if time != NO_TIME},
    )


def _left_behind(journal: Journal, parts: Parts, where: Whereabouts) -> list[int]:
    """Ranks whose dumps lack a collective that they joined, for others have finished it: they are older."""
    if not len(parts):
        return []
    forgetful = [rank for rank, one in journal.recordings.items() if one.overwritten]
    own = np.where(where.part == UNKNOWN, UNKNOWN, parts.sequence[where.part])
    older = (where.last > own) & ~((where.part == UNKNOWN) & np.isin(where.rank, forgetful))
    return [int(rank) for rank in np.unique(where.rank[older])]


def _received_from(ends: Ends, matching: Matching) -> list[int]:
    """Ranks whose dumps lack a message that has been received from them."""
    lacking = (matching.partner == UNKNOWN) & (matching.expected >= 0) & (ends.peer != UNKNOWN)
    received = lacking & ~ends.sends & (ends.outcome == Outcome.FINISHED)
    return [int(rank) for rank in np.unique(ends.peer[received])]
