"""One order for all that ranks do together, which each of them can follow."""

from __future__ import annotations

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME, Int64s
from tracelink.job import Job

ROUNDS = 64
"""How often what one rank's program says is told to the others."""


def turns_of_job(job: Job) -> Int64s:
    """The place of each collective, then of each message, in one order for all ranks.

    Nobody leaves a collective before the last has entered it. So by the entering of the last, what any rank does
    one after the other is in that order, and ranks that follow it never wait for each other in a circle.
    Where nothing has a time, the ranks' programs say what comes after what.
    """
    whole, messages = job.collectives, job.messages
    entered = np.where(whole.start == NO_TIME, NO_TIME, whole.start + np.maximum(whole.skew, 0))
    by_group = np.lexsort((whole.order, whole.group))
    begin = np.flatnonzero(np.append(True, np.diff(whole.group[by_group]) != 0)) if len(whole) else by_group
    for rows in np.split(by_group, begin[1:]) if len(whole) else []:
        entered[rows] = np.maximum.accumulate(entered[rows])
    time = np.concatenate([entered, messages.sent])
    group = np.concatenate([whole.group, messages.group])
    place = np.concatenate([whole.order, messages.order])
    if (time == NO_TIME).all():
        time = _places_in_programs(job)
    turn = np.empty(len(time), np.int64)
    turn[np.lexsort((place, group, time))] = np.arange(len(time))
    return turn


def _places_in_programs(job: Job) -> Int64s:
    """For each collective, then each message, a number greater than that of what any of its ranks did before."""
    rank, row, number = _calls(job)
    order = np.lexsort((number, row, rank))
    rank, number = rank[order], number[order]
    begins = np.searchsorted(rank, np.unique(rank)).tolist()
    place = np.zeros(len(job.collectives) + len(job.messages), np.int64)
    for _ in range(ROUNDS):
        pushed = place[number]
        for mine in np.split(np.arange(len(number)), begins[1:]) if len(number) else []:
            step = np.arange(len(mine))
            pushed[mine] = np.maximum.accumulate(pushed[mine] - step) + step
        before = place.copy()
        np.maximum.at(place, number, pushed)
        if np.array_equal(place, before):
            break
    return place


def _calls(job: Job) -> tuple[Int64s, Int64s, Int64s]:
    """Rank and node of each call, and which collective or message it is."""
    parts, messages = job.participations, job.messages
    numbers = len(job.collectives) + np.arange(len(messages))
    rank = np.concatenate([parts.rank, messages.source, messages.target]).astype(np.int64)
    row = np.concatenate([parts.node, messages.send_node, messages.receive_node])
    known = row != UNKNOWN
    return rank[known], row[known], np.concatenate([parts.collective, numbers, numbers])[known]
