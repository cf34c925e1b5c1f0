"""What the threads of a rank did: for each thread, the stretches of time that explain why it launched nothing."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink._model.events import ON_THREAD, TIMED, EventKind
from tracelink._model.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_OPERATOR
from tracelink._model.selection import Spans
from tracelink._order.host import RETURNS_EARLY, TO_PAGEABLE_MEMORY, WAITS
from tracelink._time.model.intervals import NOTHING
from tracelink._time.model.results import COMPILATION, Cause
from tracelink._time.rank.view import COPY, RankView, matching

ALLOCATIONS = re.compile(
    r"^(cuda|hip|cu)(Malloc|Free|HostAlloc|HostMalloc|Mem(Alloc|Free|Create|Map|Unmap|Release))"
)
"""Calls of the allocator of the device; `cudaFree` waits for all of its work."""
BLOCKING_COPY = re.compile(r"^(cuda|hip|cu)Memcpy")
DATA_LOADER = "DataLoader"
"""In names of operators and annotations of `torch.utils.data`."""
DATA_LOADER_FILES = ("torch/utils/data/", "torchdata/")
"""In names of Python functions."""

Claim = tuple[Cause, str, Spans]
"""A cause, what the host did, and when."""


class HostActivity(Struct, frozen=True):
    """What happened when on the threads of a rank; all of it is indexed by lane."""

    claims: dict[int, list[Claim]]
    """The most telling activity first; what several claim is of the first."""
    recorded: Spans
    """From the first to the last event of all threads."""
    waits: Int64s
    """Calls that wait for the device."""

    def of(self, lane: int) -> list[Claim]:
        """The activity of one thread."""
        return self.claims.get(lane, [])


def activity_of(view: RankView, lanes: Int64s, *, with_operators: bool = True) -> HostActivity:
    """The activity of these threads; the operators themselves are left out if their absence is explained."""
    events = view.events
    rows = view.rows(*ON_THREAD)
    kind = events.kind[rows]
    operators, annotations, python, runtime = (rows[kind == each] for each in ON_THREAD)
    calls = np.append(operators, annotations)
    loading = np.append(
        calls[view.named(calls, lambda text: DATA_LOADER in text)],
        python[view.named(python, lambda text: any(part in text for part in DATA_LOADER_FILES))],
    )
    waits = np.unique(np.append(runtime[view.named(runtime, _waits)], _copies_to_pageable_memory(view)))
    talking = np.append(
        operators[view.named(operators, matching(COLLECTIVE_OPERATOR))],
        annotations[view.named(annotations, matching(COLLECTIVE_ANNOTATION))],
    )
    kinds: list[tuple[Cause, str, Int64s]] = [
        (Cause.DATA_LOADING, "", loading),
        (Cause.SYNCHRONIZATION, "", waits),
        (Cause.HOST_BOUND, "memory allocation", runtime[view.named(runtime, matching(ALLOCATIONS))]),
        (Cause.HOST_BOUND, COMPILATION, compiling(view)),
        (Cause.HOST_BOUND, "communication calls", talking),
    ]
    if with_operators:
        top = events.kind[view.caller[operators]] != EventKind.OPERATOR
        top |= view.caller[operators] == UNKNOWN
        kinds.append((Cause.HOST_BOUND, "operators", operators[top]))
        kinds.append((Cause.HOST_BOUND, "runtime calls", runtime))
    inner = (view.caller[python] != UNKNOWN) & (events.kind[view.caller[python]] == EventKind.PYTHON)
    kinds.append((Cause.HOST_BOUND, "Python", python[~inner]))
    claims: dict[int, list[Claim]] = {}
    for number in lanes.tolist():
        claims[number] = [
            (cause, during, _spans(view, chosen[view.lane[events.track[chosen]] == number]))
            for cause, during, chosen in kinds
            if len(chosen)
        ]
    recorded = NOTHING
    if len(rows):
        recorded = Spans.between(int(events.start[rows].min()), int(events.end_of(rows).max()))
    return HostActivity(claims, recorded, waits)


def compiling(view: RankView) -> Int64s:
    """The phases of torch.compile: those of a compile log, and the operators that a profile has of them."""
    phases = view.rows(EventKind.COMPILATION)
    names = {view.graph.strings[code] for code in np.unique(view.events.name[phases]).tolist()}
    operators = view.rows(EventKind.OPERATOR)
    return np.append(
        phases, operators[view.named(operators, lambda name: name.endswith(TIMED) or name in names)]
    )


def _copies_to_pageable_memory(view: RankView) -> Int64s:
    """Calls of such copies, which return only when the copy is done."""
    work = view.work
    copies = np.flatnonzero((work.part == COPY) & (work.call != UNKNOWN))
    return work.call[copies[view.named(work.row[copies], matching(TO_PAGEABLE_MEMORY))]]


def _waits(name: str) -> bool:
    return bool(WAITS.search(name) or (BLOCKING_COPY.match(name) and not RETURNS_EARLY.search(name)))


def _spans(view: RankView, rows: Int64s) -> Spans:
    return Spans.of(view.events.start[rows], view.events.end_of(rows))
