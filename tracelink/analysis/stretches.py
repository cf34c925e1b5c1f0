"""What the threads and streams of a rank did for most of a stretch of time."""

from __future__ import annotations

import numpy as np

from tracelink.analysis.profile_names import OF_TORCH, frame_of, starts_a_program
from tracelink.analysis.surroundings import Surroundings
from tracelink.diagnosis import Running, Stretch
from tracelink.events import GPU_WORK, ON_THREAD, Int64s

MOST_TRACKS = 3
PROFILER = "torch/profiler/"
"""What takes a profile stands at its end and tells nothing of the program."""


def stretches_of(
    around: Surroundings, first: int, last: int, track: int, without: Int64s
) -> tuple[Stretch, ...]:
    """What ran for more than half of the time, thread by thread and stream by stream; `track` comes first.

    Of events that overlap so long, and lie on one track, each is called by the one that begins before it.
    """
    events = around.graph.events
    shown = events.timed & events.of_kind(*ON_THREAD, *GPU_WORK)
    shown[without] = False
    rows = np.flatnonzero(shown)
    end = np.where(events.duration[rows] < 0, last, events.end[rows])
    overlap = np.minimum(end, last) - np.maximum(events.start[rows], first)
    long = overlap * 2 > last - first
    rows, overlap = rows[long], overlap[long]
    order = np.lexsort((-events.duration[rows], events.start[rows]))
    rows, overlap = rows[order], overlap[order]
    tracks = dict.fromkeys(events.track[rows].tolist())
    found = []
    for number in sorted(tracks, key=lambda number: number != track)[:MOST_TRACKS]:
        mine = events.track[rows] == number
        running = _running(around, rows[mine], overlap[mine])
        if running:
            found.append(Stretch(around.track_in_words(number), first, last - first, running))
    return tuple(found)


def _running(around: Surroundings, rows: Int64s, overlap: Int64s) -> tuple[Running, ...]:
    running: list[Running] = []
    for row, time in zip(rows.tolist(), overlap.tolist(), strict=True):
        name = around.graph.name(row)
        if name.startswith(PROFILER):
            break
        frame = frame_of(name)
        if not OF_TORCH.match(name) and (running or not frame or not starts_a_program(frame.filename)):
            running.append(Running(name, time))
    return tuple(running)
