"""What each step of a rank was spent on, in pieces that add up to its parts: operators with their kernels, copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import EventKind
from tracelink._model.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_OPERATOR
from tracelink._model.selection import Spans
from tracelink._time.model.intervals import covered, intersection, union, without_overlaps
from tracelink._time.model.results import WorkIn
from tracelink._time.rank.breakdown import Breakdown
from tracelink._time.rank.idle import Reason
from tracelink._time.rank.steps import Windows
from tracelink._time.rank.view import COMMUNICATION, COMPUTE, COPY, RankView, matching

DEEPEST = 256
"""Callers above the launch of a kernel that are searched for its operator."""


Causes = Mapping[str, Sequence[tuple[Reason, Spans]]]
"""The reasons of each part of a step, by the names of the fields of `Step`."""


class StepPart(StrEnum):
    """The part of a step that a cost is in."""

    COMPUTE = "compute"
    EXPOSED_COMMUNICATION = "exposed_communication"
    EXPOSED_COPY = "exposed_copy"
    IDLE = "idle"


class Cost(Struct, frozen=True):
    """What took the time: work of one name, launched by one operator, for one reason."""

    part: StepPart
    operator: str
    """The operator that launched it; empty if unknown."""
    name: str
    """The kernel or the copy; empty for idle time."""
    reason: str
    """What it waited for, or why nothing ran; empty for compute and copies."""
    count: Sequence[int]
    """How many began in each step; 0 where there is a reason, of which a call can have several."""
    ns: Sequence[int]
    """Its time in each step, without what is counted elsewhere."""


def costs_of(view: RankView, breakdown: Breakdown, windows: Windows, causes: Causes) -> list[Cost]:
    """The costs of a rank in each window; those of a part add up to it.

    Where several kernels run at once, the time is that of the first to start.
    """
    if breakdown.work is WorkIn.NOTHING or not len(windows):
        return []
    found = []
    for part, of, reasons in (
        (COMPUTE, StepPart.COMPUTE, [("", breakdown.compute)]),
        (COMMUNICATION, StepPart.EXPOSED_COMMUNICATION, _in_words(causes["exposed_communication"])),
        (COPY, StepPart.EXPOSED_COPY, [("", breakdown.exposed_copies)]),
    ):
        if breakdown.work is WorkIn.KERNELS:
            pieces = _device_pieces(view, part)
        else:
            pieces = _thread_pieces(view, part, union(*(spans for _, spans in reasons)))
        for reason, spans in reasons:
            found += _costs(view, of, reason, pieces, spans, windows)
    for reason, spans in _in_words(causes["idle"]):
        ns = covered(spans, windows.start, windows.end)
        found.append(Cost(StepPart.IDLE, "", "", reason, [0] * len(windows), ns.tolist()))
    return found


def _in_words(reasons: Sequence[tuple[Reason, Spans]]) -> list[tuple[str, Spans]]:
    """The time of each reason in words, without the numbers of ranks."""
    found: dict[str, list[Spans]] = {}
    for (cause, _, during), spans in reasons:
        words = cause.value.replace("_", " ")
        found.setdefault(f"{words} ({during})" if during else words, []).append(spans)
    return [(words, union(*parts)) for words, parts in found.items()]


class _Pieces(Struct, frozen=True):
    """Stretches with a name and an operator, as codes of strings, in the order of their starts."""

    start: Int64s
    end: Int64s
    name: Int64s
    operator: Int64s


def _device_pieces(view: RankView, part: int) -> _Pieces:
    work = view.work
    mine = np.flatnonzero(work.part == part)
    operator = _operators(view, work.call[mine])
    names = view.events.name
    return _Pieces(
        work.start[mine],
        work.end[mine],
        names[work.row[mine]].astype(np.int64),
        np.where(operator == UNKNOWN, UNKNOWN, names[operator]).astype(np.int64),
    )


def _operators(view: RankView, calls: Int64s) -> Int64s:
    """The innermost operator around each call, or UNKNOWN."""
    current = calls.copy()
    for _ in range(DEEPEST):
        climbing = np.flatnonzero(current != UNKNOWN)
        climbing = climbing[view.events.kind[current[climbing]] != EventKind.OPERATOR]
        if not len(climbing):
            return current
        current[climbing] = view.caller[current[climbing]]
    current[climbing] = UNKNOWN
    return current


def _thread_pieces(view: RankView, part: int, spans: Spans) -> _Pieces:
    """Operators on threads, the outer ones first; for communication also the annotations of backends."""
    events = view.events
    operators, annotations = view.rows(EventKind.OPERATOR), view.rows(EventKind.ANNOTATION)
    communicates = view.named(operators, matching(COLLECTIVE_OPERATOR))
    rows = operators[~communicates]
    if part == COMMUNICATION:
        talking = annotations[view.named(annotations, matching(COLLECTIVE_ANNOTATION))]
        rows = np.append(operators[communicates], talking)
    start, end = events.start[rows], events.end_of(rows)
    overlaps = np.searchsorted(spans.ends, start, side="right") < np.searchsorted(spans.starts, end)
    order = np.lexsort((-end, start))
    chosen = rows[order[overlaps[order]]]
    unknown = np.full(len(chosen), UNKNOWN, np.int64)
    return _Pieces(events.start[chosen], events.end_of(chosen), events.name[chosen].astype(np.int64), unknown)


def _costs(
    view: RankView, part: StepPart, reason: str, pieces: _Pieces, spans: Spans, windows: Windows
) -> list[Cost]:
    """These stretches by the name and the operator of the pieces that cover them, and what no piece covers."""
    width = len(windows)
    keys, label = np.unique(np.stack([pieces.operator, pieces.name]), axis=1, return_inverse=True)
    label = label.reshape(-1)
    count = np.zeros((keys.shape[1] + 1, width), np.int64)
    ns = np.zeros_like(count)
    if not reason:
        window = _window_at(windows, pieces.start)
        inside = window != UNKNOWN
        np.add.at(count, (label[inside], window[inside]), 1)
    start, end = without_overlaps(pieces.start, pieces.end)
    kept = np.flatnonzero(end > start)
    claimed = Spans(start[kept], end[kept])
    within = Spans(windows.start, windows.end)
    used = intersection(intersection(claimed, spans), within)
    owner = label[kept[np.searchsorted(claimed.starts, used.starts, side="right") - 1]]
    np.add.at(ns, (owner, _window_at(windows, used.starts)), used.ends - used.starts)
    ns[-1] = covered(spans, windows.start, windows.end) - ns[:-1].sum(axis=0)
    strings = view.graph.strings
    named = [
        ("" if operator == UNKNOWN else strings[operator], strings[name])
        for operator, name in zip(*keys.tolist(), strict=True)
    ]
    rows = zip([*named, ("", "")], count.tolist(), ns.tolist(), strict=True)
    return [
        Cost(part, operator, name, reason, counts, times)
        for (operator, name), counts, times in rows
        if any(counts) or any(times)
    ]


def _window_at(windows: Windows, times: Int64s) -> Int64s:
    """The window that each time is in, or UNKNOWN."""
    window = np.searchsorted(windows.start, times, side="right") - 1
    return np.where((window >= 0) & (times < np.append(windows.end, 0)[window]), window, UNKNOWN)
