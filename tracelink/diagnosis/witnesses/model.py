"""What other files than dumps and profiles show of a rank."""

from __future__ import annotations

from dataclasses import dataclass

from tracelink.model.records import Frame


@dataclass(frozen=True, slots=True)
class Wait:
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


@dataclass(frozen=True, slots=True)
class Compiling:
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


@dataclass(frozen=True, slots=True)
class Stack:
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
