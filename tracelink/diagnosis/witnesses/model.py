"""What other files than dumps and profiles show of a rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tracelink.model.findings import Finding
from tracelink.model.records import Frame
from tracelink.model.witnesses import CommunicatorReport, Report


class Wait(Struct, frozen=True):
    """When other ranks waited for a culprit."""

    start_ns: int | None
    """When the first of them began to wait."""
    end_ns: int
    """When the culprit joined, else the latest time in all dumps."""
    last_call_ns: int | None
    """When the culprit made its last call."""
    joined: bool
    has_dump: bool
    """Whether its process was there when dumps were written."""


class Compiling(Struct, frozen=True):
    """What torch.compile compiled in the process of a culprit while other ranks waited for it."""

    rank: int
    id: str
    """`3/2`; empty outside of a compilation."""
    function: str
    phases: tuple[str, ...]
    """Outermost first."""
    since_ns: int
    """By the rank's own clock."""
    duration_ns: int
    """Until its end, else until the latest time in the log and in all dumps."""
    open: bool
    """Whether the log ends within it."""
    cold: bool | None
    """Whether the function was not compiled before; None if the function is unknown."""
    sources: tuple[str, ...]
    guard: str = ""
    """Why it was compiled again: the guard that failed; empty if the log does not state it."""
    guard_frame: Frame | None = None
    """The line of the program that needs this guard."""


class Stack(Struct, frozen=True):
    """What the main thread of a process was doing when its stack was written to a file."""

    rank: int
    program: str
    """`py-spy` or `faulthandler`."""
    thread: str
    """As the file names it."""
    frames: tuple[Frame, ...]
    """Innermost first, with those of torch."""
    in_compiler: bool
    source: str


# What logs and monitors show without dumps, or next to them.


class Claim(Struct, frozen=True):
    """A problem that logs or a monitor show by themselves; the fields are those of a problem of a diagnosis."""

    kind: str
    group: str
    description: str
    sequence: int | None
    operation: str
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    message: str
    advice: str
    proven: bool
    waited_ns: int | None = None


class Position(Struct, frozen=True):
    """Ranks that are at the same collective of a group, by their logs or by a monitor."""

    group: str
    description: str
    sequence: int | None
    operation: str
    stage: str
    """As in the standings of a diagnosis."""
    ranks: tuple[int, ...]


class RankReport(Struct, frozen=True):
    """A line of a log, of a known rank if possible, and the file that contains it."""

    rank: int | None
    report: Report
    source: str


class Testimony(Struct, frozen=True):
    """What the files of one kind show."""

    claims: Sequence[Claim] = ()
    positions: Sequence[Position] = ()
    notes: Sequence[str] = ()
    findings: Sequence[Finding] = ()


class FoldedStack(Struct, frozen=True):
    """A stack of one or more main threads, all of which have the same frames."""

    ranks: tuple[int, ...]
    processes: tuple[str, ...]
    """Those of unknown rank: `pid 4711`."""
    program: str
    frames: tuple[Frame, ...]
    """Innermost first."""
    in_compiler: bool
    sources: tuple[str, ...]


class Conflict(Struct, frozen=True):
    """Two sources that do not fit together."""

    ranks: tuple[int, ...]
    message: str
    sources: tuple[str, ...]


class Use(Struct, frozen=True):
    """What files of one kind were used for."""

    what: str
    count: int
    purpose: str
    """Empty if they were not used."""
    example: str


class Witnesses(Struct, frozen=True):
    """What other files than dumps show of a job."""

    reports: Sequence[RankReport] = ()
    stacks: Sequence[FoldedStack] = ()
    """The least common ones first."""
    communicators: Sequence[CommunicatorReport] = ()
    conflicts: Sequence[Conflict] = ()
    used: Sequence[Use] = ()
