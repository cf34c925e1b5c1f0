"""Errors that a user can act on."""

from __future__ import annotations


class TraceError(Exception):
    """Something about an input or an output that the user can put right.

    Says where (`source`, `position`), what is wrong (`problem`) and what to do (`advice`).
    """

    def __init__(self, problem: str, *, source: str = "", position: str = "", advice: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.source = source
        self.position = position
        self.advice = advice

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.source, self.position) if part)
        sentence = f"{where}: {self.problem}" if where else self.problem
        if not sentence.endswith((".", "?", "!")):
            sentence += "."
        return f"{sentence} {self.advice}".strip()


class UnreadableError(TraceError):
    """One input cannot be read at all; the others still can."""


class RankConflictError(TraceError):
    """Two statements about the rank of a file contradict each other."""


class UsageError(TraceError):
    """The request itself makes no sense."""
