"""What is written of a job, as its reader chooses: the same choices in both formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tracelink.events import EventKind


class Wanted(StrEnum):
    """How many arguments are written: they are most of what the UI has to load."""

    ALL = "all"
    LINK = "link"
    """Only what tracelink found out."""
    NONE = "none"


YES, NO = "yes", "no"

OPTIONS: Mapping[str, Sequence[str]] = {"args": tuple(Wanted), "python": (YES, NO), "compress": (NO, YES)}
"""What can be chosen, and the words for it; the first is the usual one."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What was chosen."""

    args: Wanted = Wanted.ALL
    python: bool = True
    """Whether the calls of Python functions are drawn."""
    compressed: bool = False
    """Whether the file is gzip under any name."""

    def changed(self, options: Mapping[str, str]) -> Choices:
        """The same but for these options."""
        return Choices(
            Wanted(options.get("args", self.args)),
            options["python"] == YES if "python" in options else self.python,
            options["compress"] == YES if "compress" in options else self.compressed,
        )

    @property
    def left_out(self) -> frozenset[EventKind]:
        """The kinds of events that are not drawn."""
        return frozenset() if self.python else frozenset({EventKind.PYTHON})
