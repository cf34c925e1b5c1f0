"""What of traces a drawing shows."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.errors import UsageError
from tracelink.ranges import Numbers
from tracelink.selection import Window


@dataclass(frozen=True, slots=True)
class View:
    """Nesting down to a depth, a stretch of time, some ranks, no more than so many nodes.

    None stands for all there is; for `limit` it stands for what the drawing can show.
    """

    depth: int | None = None
    window: Window | None = None
    ranks: Numbers | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth < 1:
            raise UsageError(f"--depth: {self.depth} levels", advice="Give at least 1.")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit: {self.limit} nodes", advice="Give at least 1.")

    @classmethod
    def parse(
        cls,
        *,
        depth: int | None = None,
        window: str | None = None,
        ranks: str | None = None,
        limit: int | None = None,
    ) -> View:
        """A view as the options of `tracelink convert` spell it."""
        return cls(
            depth,
            None if window is None else Window.parse(window),
            None if ranks is None else Numbers.parse(ranks, "--ranks"),
            limit,
        )
