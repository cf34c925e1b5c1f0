"""Where in the programs of ranks a message stands for which others wait."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.siblings import Siblings
from tracelink.analysis.waits import Wait
from tracelink.communications import UNKNOWN
from tracelink.journal import Journal
from tracelink.operations import peers_of

NEVER = int(np.iinfo(np.int64).max)
"""Stands for the entry of what a rank did not come to."""


def rows_of_message(journal: Journal, wait: Wait) -> dict[int, int]:
    """The entry of the rank at the other end, and of those in its place in like groups, or NEVER.

    Without those that forgot what came before.
    """
    siblings = Siblings(journal)
    end = _end_of(journal, siblings, wait)
    rank = int(journal.rank[end]) if end != UNKNOWN else UNKNOWN
    if end == UNKNOWN or journal.recordings[rank].overwritten:
        return {}
    before = int(np.searchsorted(siblings.like(wait.group, rank, end), end))
    found = {}
    for group, other in _others(journal, siblings, wait.group, rank, end):
        if other in journal.recordings and not journal.recordings[other].overwritten:
            rows = siblings.answers(group, other, end)
            found[other] = int(rows[before]) if before < len(rows) else NEVER
    return found


def _end_of(journal: Journal, siblings: Siblings, wait: Wait) -> int:
    """The entry of one who waits that is an end of the message."""
    requests, records = journal.requests, journal.records
    between = peers_of(wait.operation)
    for rank, row in wait.rows.items():
        for end in siblings.call(wait.group, rank, int(records.sequence[row])).tolist():
            request = records.request[end]
            if between == (int(requests.source[request]), int(requests.target[request])):
                return int(end)
    return UNKNOWN


def _others(journal: Journal, siblings: Siblings, group: int, rank: int, end: int) -> list[tuple[int, int]]:
    """The rank at the other end, in this group and in those like it."""
    request = int(journal.records.request[end])
    peers = {int(journal.requests.source[request]), int(journal.requests.target[request])}
    place = list(journal.groups[group].ranks).index(rank)
    (other,) = peers - {place} or {place}
    groups = [group, *(where for where, _ in siblings.of(group, rank))]
    return [
        (where, journal.groups[where].ranks[other])
        for where in groups
        if other < len(journal.groups[where].ranks)
    ]
