"""Ranks whose kernels communicate, one kernel for each communication or one for several.

job = CommunicatingRanks(0, 1)
rows = [job.kernel(rank, "ncclDevKernel_AllReduce") for rank in (0, 1)]
job.collective(job.builder.group(0, 1), *rows)
"""

from __future__ import annotations

from typing import Any

from builders.graph import GraphBuilder
from tracelink.model.events import EventKind, TrackKind

US = 1000


class CommunicatingRanks:
    """Builds a graph in which every rank has a stream."""

    def __init__(self, *ranks: int) -> None:
        self.builder = GraphBuilder()
        self.streams = {
            rank: self.builder.track(TrackKind.STREAM, rank, "0", str(20 + rank)) for rank in ranks
        }

    def kernel(self, rank: int, name: str, start: int = 0, duration: int = 5) -> int:
        """Work of a rank; that of one rank must be given before that of the next. Times are microseconds."""
        return self.builder.add(self.streams[rank], name, start * US, duration * US, EventKind.KERNEL)

    def collective(
        self, group: int, *rows: int, given: int = 64, gotten: int = 64, as_what: str = "kernel", **said: Any
    ) -> None:
        self.builder.together(group, *rows, as_what=as_what, **said)
        for part in self.builder.participations[-len(rows) :]:
            part |= {"bytes_in": given, "bytes_out": gotten}

    def build(self) -> Any:
        return self.builder.build()
