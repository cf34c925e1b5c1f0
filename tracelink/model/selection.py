"""What of a job a user selects: ranks, a time window, steps and kinds of events; and what of it a drawing shows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from tracelink.model.errors import UsageError
from tracelink.model.events import EventKind
from tracelink.model.ranges import Numbers

UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
}
MOMENT = re.compile(rf"(\d{{1,15}}(?:\.\d+)?)\s*({'|'.join(UNITS)})|0", re.ASCII)

COLLECTIVES = "collectives"
COUNTERS = "counters"

KINDS: Mapping[str, Sequence[EventKind]] = {
    "operators": (EventKind.OPERATOR,),
    "annotations": (EventKind.ANNOTATION, EventKind.GPU_ANNOTATION),
    "python": (EventKind.PYTHON,),
    "runtime": (EventKind.RUNTIME, EventKind.SYNCHRONIZATION),
    "kernels": (EventKind.KERNEL,),
    "copies": (EventKind.MEMCPY, EventKind.MEMSET),
    "gpu": (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.GPU_ANNOTATION),
    COLLECTIVES: (),
    "memory": (EventKind.MEMORY,),
    COUNTERS: (),
    "nodes": (EventKind.NODE,),
    "records": (EventKind.RECORD,),
    "other": (EventKind.OVERHEAD, EventKind.SPAN, EventKind.INSTANT, EventKind.OTHER),
}
"""The words that choose events by their kind. Collectives are whatever takes part in one, of any kind."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of time, in ns after the first event of the job; None where it has no bound."""

    first_ns: int | None = None
    last_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> Window:
        """A window such as `2.5s..3.1s`, `2.5s..` or `..800ms`."""
        first, separator, last = (part.strip() for part in text.partition(".."))
        if not separator or not (first or last):
            raise UsageError(
                f"--window: {text!r} is not a stretch of time",
                advice="Write, for example, --window 2.5s..3.1s, 2.5s.. or ..3.1s",
            )
        window = cls(_moment(first), _moment(last))
        if window.first_ns is not None and window.last_ns is not None and window.first_ns >= window.last_ns:
            raise UsageError(
                f"--window: {text!r} ends before it begins", advice="Give the earlier time first."
            )
        return window

    def after(self, origin_ns: int) -> tuple[int | None, int | None]:
        """Its bounds as times, where the job begins at `origin_ns`."""
        first = None if self.first_ns is None else origin_ns + self.first_ns
        return first, None if self.last_ns is None else origin_ns + self.last_ns


def _moment(text: str) -> int | None:
    if not text:
        return None
    match = MOMENT.fullmatch(text)
    if not match:
        raise UsageError(
            f"--window: {text!r} is not a time after the job's beginning",
            advice=f"Write a number and a unit: {', '.join(UNITS)}.",
        )
    return int(Decimal(match[1]) * UNITS[match[2]]) if match[1] else 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected part of a job; None selects everything."""

    ranks: Numbers | None = None
    window: Window | None = None
    steps: Numbers | None = None
    only: frozenset[str] | None = None
    """Words of `KINDS`."""

    @classmethod
    def parse(
        cls,
        *,
        ranks: str | None = None,
        window: str | None = None,
        steps: str | None = None,
        only: str | None = None,
    ) -> Selection:
        """Parses a selection, in the syntax of the command line.

        Args:
            ranks: Ranks to keep, such as "0-7,64".
            window: A time window after the first event of the job, such as "2.5s..3.1s", "800ms.." or "..2min".
            steps: Training steps to keep, such as "3-5,7".
            only: Kinds of events to keep, such as "kernels,collectives"; the keys of `KINDS`.

        Returns:
            The selection. An argument that is None keeps everything.

        Raises:
            UsageError: An argument is malformed.
        """
        return cls(
            None if ranks is None else Numbers.parse(ranks, "--ranks"),
            None if window is None else Window.parse(window),
            None if steps is None else Numbers.parse(steps, "--steps"),
            None if only is None else _words(only),
        )

    @property
    def cuts(self) -> bool:
        """Whether it leaves out events of the ranks that it keeps."""
        return not (self.window is None and self.steps is None and self.only is None)

    def keeps(self, word: str) -> bool:
        """Whether what `word` stands for is wanted."""
        return self.only is None or word in self.only


def _words(text: str) -> frozenset[str]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in KINDS:
            raise UsageError(
                f"--only: there is no kind of events {word!r}", advice=f"There are: {', '.join(KINDS)}."
            )
    return frozenset(words)


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
