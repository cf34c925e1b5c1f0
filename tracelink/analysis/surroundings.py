"""What stands around an event of one rank: who called it, from where in the program, and what carries it out."""

from __future__ import annotations

import re

import numpy as np

from tracelink.analysis.profile_names import frame_of, is_code, of_program
from tracelink.communications import UNKNOWN
from tracelink.diagnosis import Frame, WorkSeen
from tracelink.events import GPU_WORK, EventKind, Relation, TrackKind
from tracelink.graph import EventGraph
from tracelink.operations import COLLECTIVE_OPERATOR

ROOT = re.compile(r"^\[pytorch\|")
"""Nodes that stand for a thread or a process."""
LAUNCH = re.compile(r"launch", re.IGNORECASE)


class Surroundings:
    """Of the events of one rank."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        calls = graph.edges.where(Relation.CALLS)
        self._caller = np.full(len(graph), UNKNOWN, np.int64)
        self._caller[calls.target] = calls.source
        self._has_device = bool(graph.events.of_kind(*GPU_WORK).any())

    def above(self, row: int) -> list[int]:
        """The events that it was called in, innermost first."""
        found: list[int] = []
        while (row := int(self._caller[row])) != UNKNOWN and row not in found:
            found.append(row)
        return found

    def whole(self, operator: int) -> int:
        """The outermost of the operators that only pass a call on."""
        chain = [operator, *self.above(operator)]
        return [row for row in chain if row == operator or COLLECTIVE_OPERATOR.match(self.graph.name(row))][
            -1
        ]

    def operators_above(self, row: int) -> tuple[str, ...]:
        """Names of operators, modules and annotations that it was called in, outermost first."""
        names = [self.graph.name(above) for above in reversed(self.above(row)) if not self._is_code(above)]
        return tuple(name for name in names if not ROOT.match(name))

    def frames(self, row: int) -> tuple[Frame, ...]:
        """The Python stack, innermost first, without torch and without what starts a program."""
        frames = [frame_of(self.graph.name(above)) for above in self.above(row) if self._is_code(above)]
        return of_program([frame for frame in frames if frame])

    def where(self, row: int) -> str:
        """The thread or stream of an event."""
        return self.track_in_words(int(self.graph.events.track[row]))

    def track_in_words(self, number: int) -> str:
        """`stream 7`, `thread 1854 (pt_gloo_runloop)`."""
        track = self.graph.tracks[number]
        if track.label:
            return track.label
        return f"{'stream' if track.kind is TrackKind.STREAM else 'thread'} {track.identity}"

    def work(self, operator: int, annotation: int, kernel: int) -> WorkSeen | None:
        """The kernel of a call, else what another thread than its own does for it."""
        track = self.graph.events.track
        if kernel != UNKNOWN:
            return self._work(kernel)
        if annotation == UNKNOWN or (operator != UNKNOWN and track[annotation] == track[operator]):
            return None
        return self._work(annotation)

    def launched(self, operator: int, work: WorkSeen | None, kernel: int) -> bool | None:
        """Whether a call launched anything on a device, also what did not end while the profile was taken."""
        if kernel != UNKNOWN:
            return True
        if work or operator == UNKNOWN or not self._has_device:
            return None
        events = self.graph.events
        start, end = events.start[operator], events.end[operator]
        inside = events.of_kind(EventKind.RUNTIME) & (events.track == events.track[operator])
        inside &= (events.start >= start) & (events.start <= end)
        return any(LAUNCH.search(self.graph.name(row)) for row in np.flatnonzero(inside).tolist())

    def _work(self, row: int) -> WorkSeen:
        events = self.graph.events
        length = int(events.duration[row])
        return WorkSeen(
            self.graph.name(row), self.where(row), int(events.start[row]), length if length >= 0 else None
        )

    def _is_code(self, row: int) -> bool:
        """Whether it is a line of Python, or a function without one."""
        return bool(self.graph.events.kind[row] == EventKind.PYTHON) and is_code(self.graph.name(row))
