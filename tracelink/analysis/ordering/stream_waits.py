"""A stream waits for what another one had been given: `cudaStreamWaitEvent` and its kin."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tracelink.analysis.ordering.inferred_waits import Wait, WaitKind, inferred_waits
from tracelink.analysis.ordering.launched import Launched
from tracelink.analysis.ordering.order import Order, can_follow
from tracelink.analysis.ordering.recorded_waits import recorded_waits
from tracelink.analysis.ordering.runtime_calls import calls_named
from tracelink.analysis.ordering.synchronizations import Awaited, Synchronizations
from tracelink.events import Int64s
from tracelink.excerpt import NONE, Excerpt

STREAM_WAITS = re.compile(r"StreamWaitEvent")


def stream_waits(part: Excerpt, launched: Launched, recorded: Synchronizations) -> Order:
    """The first work of a stream after its wait, after the last work that the wait is for.

    Exact where the profiler recorded waits. Else the call says neither stream nor event: both are inferred, and only
    what the times allow is kept.
    """
    exact = recorded_waits(part, launched, recorded.where(Awaited.EVENT_BY_STREAM))
    calls = np.setdiff1d(calls_named(part, STREAM_WAITS), exact.calls)
    told = np.isin(part.events.source[calls], part.events.source[recorded.row])
    inferred = inferred_waits(part, launched, _by_time(part, calls[~told]))
    before, after = _pairs(launched, inferred)
    allowed = can_follow(part.events, before, after)
    exact_allowed = can_follow(part.events, exact.before, exact.after)
    found = np.unique(exact.wait[exact_allowed])
    contradicted = np.setdiff1d(exact.wait[~exact_allowed], found)
    explained = int(np.count_nonzero(allowed))
    within = sum(wait.kind == WaitKind.WITHIN_CALL for wait in inferred)
    counts = {
        "waits": len(exact.calls) + len(calls),
        "recorded": len(found),
        "inferred": explained,
        "within_a_communication": within,
        "nothing_to_wait_for": len(exact.calls) - len(found) - len(contradicted),
        "contradicted_by_times": len(contradicted),
        "unexplained": len(calls) - explained - within,
    }
    return Order.of(
        np.concatenate([exact.before[exact_allowed], before[allowed]]),
        np.concatenate([exact.after[exact_allowed], after[allowed]]),
        counts,
    )


def _by_time(part: Excerpt, calls: Int64s) -> Int64s:
    ordered: Int64s = calls[np.argsort(part.events.start[calls], kind="stable")]
    return ordered


def _pairs(launched: Launched, waits: Sequence[Wait]) -> tuple[Int64s, Int64s]:
    found = [(wait.before, wait.after) for wait in waits if NONE not in (wait.before, wait.after)]
    places = np.array(found, np.int64).reshape(-1, 2)
    return launched.row[places[:, 0]], launched.row[places[:, 1]]
