"""What ranks send to each other: who waits for whose message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.analysis.attended import Attended
from tracelink.analysis.channels import Matching, match
from tracelink.analysis.dump_times import dump_times_of
from tracelink.analysis.elapsed import Elapsed
from tracelink.analysis.ends import Ends, ends_of
from tracelink.analysis.left_out_messages import LeftOut
from tracelink.analysis.message_mismatch import message_mismatches
from tracelink.analysis.message_waits import Scene, message_waits
from tracelink.analysis.misdirected import Misdirected
from tracelink.analysis.parts import Outcome, Parts, outcomes
from tracelink.analysis.reach import Reach
from tracelink.analysis.waits import Wait
from tracelink.analysis.whereabouts import Whereabouts
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Problem
from tracelink.journal import Journal


@dataclass(frozen=True, slots=True)
class Messages:
    """All messages of a job."""

    count: int
    """How many have two ends."""
    waits: Sequence[Wait]
    """Those in collectives, too."""
    mismatches: Sequence[Problem]


def messages_of(
    journal: Journal, parts: Parts, where: Whereabouts, broken_off: Collection[int], waits: Sequence[Wait]
) -> Messages:
    """The messages between ranks, who waits in them, and which ends of them do not agree."""
    ends, attended = ends_of(journal, outcomes(journal)), Attended(parts)
    matching = match(journal, parts, ends)
    times = dump_times_of(journal, parts, where)
    times = replace(times, older=times.older | _received_from(ends, matching))
    members = {rank for group in journal.groups for rank in group.ranks}
    silent = frozenset({*(members - set(journal.ranks.tolist())), *broken_off})
    scene = Scene(Elapsed(journal), ends, matching, times, silent)
    misdirected, waits = Misdirected(scene, Reach(attended, [*waits, *message_waits(scene)])).problems()
    left_out, waits = LeftOut(scene, Reach(attended, waits), _begins_of(misdirected)).problems()
    unlike = message_mismatches(journal, ends, matching, _begins_of([*misdirected, *left_out]))
    return Messages(matching.messages, waits, [*unlike, *misdirected, *left_out])


def _begins_of(problems: Sequence[Problem]) -> dict[int, int]:
    """From where on the messages of a rank are paired wrongly, for it left one out or did another instead."""
    return {rank: one.rows[rank] for one in problems for rank in one.culprits}


def _received_from(ends: Ends, matching: Matching) -> frozenset[int]:
    """Ranks whose dumps lack a message that has been received from them."""
    lacking = (matching.partner == UNKNOWN) & (matching.expected >= 0) & (ends.peer != UNKNOWN)
    received = lacking & ~ends.sends & (ends.outcome == Outcome.FINISHED)
    return frozenset(np.unique(ends.peer[received]).tolist())
