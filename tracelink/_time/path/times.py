"""Whether the times of ranks can be those of one job, so that a path and a replay through them say something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from tracelink._model.columns import SECOND
from tracelink._model.job import LinkedJob
from tracelink._model.text import date_and_time, number, ranks_in_words
from tracelink._time.path.nodes import PieceKind
from tracelink._time.path.rank import RankPieces

DAY_NS = 86_400 * SECOND
LEAST_WORK = 0.001
"""The times of a rank are damaged if its steps last for days and have less work than this."""
YEAR_NS = 365 * DAY_NS
WORK = (PieceKind.COMPUTE, PieceKind.COMMUNICATION, PieceKind.COPY, PieceKind.HOST, PieceKind.DATA_LOADING)


def unusable_times(parts: Sequence[RankPieces], job: LinkedJob) -> str:
    """Why times of ranks cannot be compared, and what to do; empty if they can be.

    Args:
        parts: The contracted graph of each rank.
        job: The job, with the clocks of the ranks.
    """
    recorded = [part for part in parts if len(part.steps)]
    for part in recorded:
        if reason := _damaged(part):
            return reason
    offsets = {rank.rank: rank.clock_offset_ns for rank in job.ranks}
    return _apart(recorded, offsets)


def _damaged(part: RankPieces) -> str:
    """What is wrong if the steps of a rank last for days, and almost nothing is in them."""
    begin, end = int(part.step_start.min()), int(part.step_end.max())
    work = part.pieces.take(np.isin(part.pieces.kind, WORK))
    if end - begin <= DAY_NS or int((work.end - work.start).sum()) >= LEAST_WORK * (end - begin):
        return ""
    around = f", around {_moment(int(np.sort(work.start)[len(work) // 2]))}" if len(work) else ""
    return (
        f"Times of rank {part.rank} are wrong: its recording lasts from {_moment(begin)} to {_moment(end)}, with work "
        f"in less than {100 * LEAST_WORK:g} % of it{around}. Remove the events with times far from the others, or "
        "record again."
    )


def _apart(parts: Sequence[RankPieces], offsets: Mapping[int, int]) -> str:
    """What is wrong if more than a day is between the recordings of some ranks and of others, by their own clocks.

    Clocks differ by less; the collectives of two runs of one program fit to each other, and so would their clocks.
    """
    spans = sorted(
        (int(part.step_start.min()) + offset, int(part.step_end.max()) + offset, part.rank)
        for part in parts
        for offset in [offsets.get(part.rank, 0)]
    )
    groups: list[list[int]] = []
    begins: list[int] = []
    until = 0
    for start, end, rank in spans:
        if not groups or start - until > DAY_NS:
            groups.append([])
            begins.append(start)
        groups[-1].append(rank)
        until = end if len(groups[-1]) == 1 else max(until, end)
    if len(groups) < 2:
        return ""
    days = max(after - before for before, after in pairwise(begins)) // DAY_NS
    first, second = groups[0], groups[1]
    others = ranks_in_words(sorted(second))
    what = (
        f"{ranks_in_words(sorted(first))} and {others[0].lower()}{others[1:]} were recorded "
        f"{number(days)} {'day' if days == 1 else 'days'} apart ({_moment(begins[0])} and {_moment(begins[1])})"
    )
    why = (
        "the base time of a truncated profile is missing"
        if begins[0] < YEAR_NS < begins[1]
        else "they are of different jobs, or the times of some are wrong"
    )
    return f"{what}: {why}. Name the ranks of one recording, such as --ranks {','.join(map(str, sorted(second)[:4]))}."


def _moment(ns: int) -> str:
    return date_and_time(ns, 3)
