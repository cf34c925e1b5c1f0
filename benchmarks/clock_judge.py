"""How near the clocks that tracelink reports come to those that a job truly had."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from generators.job import HostClock
from tracelink._model.clock import Clock
from tracelink._model.columns import NO_TIME


@dataclass(frozen=True, slots=True)
class Judgement:
    """One rank's clock beside the truth, in nanoseconds."""

    rank: int
    error: int
    """Of the offset at the clock's own reference time."""
    worst: int
    """Of a corrected time, at the beginning, in the middle or at the end of the job."""
    inside: bool
    """Whether the interval that is reported for the offset contains the true one."""
    width: int | None
    """Of that interval."""


def judged(graph: Any, truth: str) -> dict[str, Any]:
    """Every rank's clock against the truth, both relative to the first rank; and messages against causality."""
    known = json.loads(Path(truth).read_text())
    clocks = {rank["rank"]: true_clock(rank) for rank in known["ranks"]}
    found = {rank.rank: rank for rank in graph.ranks}
    first = min(found)
    span = [known["begin_ns"], (known["begin_ns"] + known["end_ns"]) // 2, known["end_ns"]]
    judgements = [
        judgement(found[rank], found[first], clocks, span) for rank in sorted(found) if rank != first
    ]
    sent, received = graph.messages.sent, graph.messages.received
    timed = (sent != NO_TIME) & (received != NO_TIME)
    errors = [abs(one.error) for one in judgements]
    return {
        "median_error_us": statistics.median(errors) / 1000,
        "max_error_us": max(errors) / 1000,
        "worst_error_us": max(abs(one.worst) for one in judgements) / 1000,
        "median_width_us": statistics.median(one.width or 0 for one in judgements) / 1000,
        "unbounded": sum(one.width is None for one in judgements),
        "outside": [one.rank for one in judgements if not one.inside],
        "timed_messages": int(np.count_nonzero(timed)),
        "early_messages": int(np.count_nonzero(received[timed] < sent[timed])),
    }


def true_clock(rank: dict[str, Any]) -> HostClock:
    """The clock as the truth tells it."""
    return HostClock(rank["clock_offset_ns"], rank["clock_drift_ppm"], rank["clock_reference_ns"])


def judgement(rank: Any, first: Any, clocks: dict[int, HostClock], span: list[int]) -> Judgement:
    """One rank against the first one."""
    moment = rank.clock_reference_ns
    true = clocks[rank.rank].offset_at(moment) - clocks[first.rank].offset_at(moment)
    reference = first.clock_offset_ns
    low, high = rank.clock_low_ns, rank.clock_high_ns
    bounded = low is not None and high is not None
    shifts = [
        corrected(rank, clocks[rank.rank].shown(time)) - corrected(first, clocks[first.rank].shown(time))
        for time in span
    ]
    return Judgement(
        rank.rank,
        rank.clock_offset_ns - reference - true,
        max(shifts, key=abs),
        (low is None or low - reference <= true) and (high is None or true <= high - reference),
        high - low if bounded else None,
    )


def corrected(rank: Any, time: int) -> int:
    """A time of a rank's clock on the reference clock, as tracelink corrects it."""
    clock = Clock(
        rank.rank,
        offset_ns=rank.clock_offset_ns,
        drift_ppm=rank.clock_drift_ppm,
        reference_ns=rank.clock_reference_ns,
    )
    return int(clock.corrected(np.array([time], np.int64))[0])
