"""What other files than dumps and profiles show of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Struct

from tracelink.model.fields import (
    Count,
    Doc,
    FrozenRanks,
    Nanoseconds,
    RankNumber,
    Row,
    Shown,
    UnixNanoseconds,
)
from tracelink.model.findings import Finding
from tracelink.model.records import Frame, Frames
from tracelink.model.witnesses import MonitorAnswer, Report

Program = Literal["py-spy", "faulthandler"]
Sources = Annotated[tuple[str, ...], Doc("Paths of files.")]
MOST_REPORTS = 2000
"""Watchdog lines in a result."""


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


class Compiling(Row, frozen=True):
    """What torch.compile compiled in the process of a culprit while other ranks waited for it, by its compile log."""

    rank: RankNumber
    id: Annotated[str, Doc("The compile id, such as `3/2`; empty outside of a compilation.")]
    function: Annotated[str, Doc("The name of the function; empty if unknown.")]
    phases: Annotated[tuple[str, ...], Doc("Phases of the compiler, outermost first.", min_length=1)]
    since_ns: Annotated[UnixNanoseconds, Doc("In ns since 1970 on the rank's own clock.")]
    duration_ns: Annotated[
        Nanoseconds, Doc("Until its end, else until the latest time in the log and in all dumps.")
    ]
    open: Annotated[bool, Doc("True if the log ends within it.")]
    cold: Annotated[
        bool | None,
        Doc("True if the function was compiled for the first time, false if again (warm); null if unknown."),
    ]
    sources: Annotated[tuple[str, ...], Doc("Paths of the compile logs.", min_length=1)]
    guard: Annotated[
        str, Doc("Why it was compiled again: the guard that failed; empty if the log does not state it.")
    ] = ""
    guard_frame: Annotated[
        Frame | None, Doc("The line of the program that needs this guard; null if unknown.")
    ] = None


class Stack(Row, frozen=True):
    """The stack of a culprit's main thread, from a file of py-spy dump or faulthandler."""

    rank: RankNumber
    program: Program
    thread: Annotated[str, Doc("As the file names it.")]
    frames: Annotated[Frames, Doc("Innermost first, with those of torch.", min_length=1)]
    in_compiler: Annotated[bool, Doc("True if it is in torch's compiler.")]
    source: Annotated[str, Doc("Path of the file.")]


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


class RankReport(Report, frozen=True):
    """One line of a log, of a known rank if possible, and the file that contains it."""

    source: Annotated[str, Shown(drop=1)] = ""


class Testimony(Struct, frozen=True):
    """What the files of one kind show."""

    claims: Sequence[Claim] = ()
    positions: Sequence[Position] = ()
    notes: Sequence[str] = ()
    findings: Sequence[Finding] = ()


class FoldedStack(Row, frozen=True):
    """The main threads with one stack."""

    ranks: FrozenRanks
    processes: Annotated[tuple[str, ...], Doc("Those whose rank is not known: `pid 4711`.")]
    program: Program
    frames: Annotated[Frames, Doc("Innermost first, with those of torch.", min_length=1)]
    in_compiler: bool
    sources: Sources


class Conflict(Row, frozen=True):
    """Sources that contradict each other."""

    ranks: FrozenRanks
    message: str
    sources: Sources


class Use(Row, frozen=True):
    """What files of one kind were used for."""

    what: Annotated[str, Shown("files")]
    count: Count
    purpose: Annotated[str, Doc("Empty if they were not used."), Shown("used for")]
    example: Annotated[str, Doc("The path of one of them."), Shown("such as", drop=1)]


class Witnesses(Row, frozen=True):
    """What other files than dumps and profiles show."""

    reports: Annotated[Sequence[RankReport], Doc(f"The first {MOST_REPORTS:,} watchdog lines.")] = ()
    stacks: Annotated[Sequence[FoldedStack], Doc("Equal stacks once, the least common first.")] = ()
    answers: Annotated[Sequence[MonitorAnswer], Doc("What `ncclras` printed.")] = ()
    conflicts: Sequence[Conflict] = ()
    used: Annotated[Sequence[Use], Doc("All files, by what they are.")] = ()
