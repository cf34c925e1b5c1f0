"""What of the traces is to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.errors import UsageError
from tracelink.selection import Window

MOST_NODES = 2000
"""More than this a picture does not take, unless the user says so."""

ARROWS_PER_NODE = 4


@dataclass(frozen=True, slots=True)
class View:
    """Nesting down to a depth, a stretch of time, and no more than so many nodes; None stands for all there is."""

    depth: int | None = None
    window: Window | None = None
    most: int | None = MOST_NODES

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise UsageError(f"--depth: {self.depth} levels", advice="Give at least 1.")
        if self.most is not None and self.most < 1:
            raise UsageError(f"--limit: {self.most} nodes", advice="Give at least 1.")
