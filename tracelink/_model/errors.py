"""TraceError and its kinds; text of a trace in a message."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

# Errors that a user can act on.


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


class NoInputError(UnreadableError):
    """There is no input, or none of the kind in question."""


class ChangedError(UnreadableError):
    """An input changed since it was first read: what was made of it does not fit to it any more."""


class CrashError(TraceError):
    """Code of a plugin, or of a format of our own, raised by mistake: a bug of it that costs one file or output."""


class ReaderCrashError(CrashError, UnreadableError):
    """A reader, or the recognition of a format, raised by mistake."""


class RankConflictError(TraceError):
    """Two statements about the rank of a file contradict each other."""


class UsageError(TraceError):
    """The request itself makes no sense."""


def similar_to(word: str, known: Iterable[str]) -> str:
    """The known word that is most similar to an unknown one; empty if none is."""
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(by_lower), n=1)
    return by_lower[close[0]] if close else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`Did you mean events?`, or nothing if no known word is similar."""
    similar = similar_to(word, known)
    return f"Did you mean {similar}?" if similar else ""


def choices(word: str, known: Collection[str]) -> str:
    """Advice after an unknown word: the similar word, and all words that there are."""
    return f"{did_you_mean(word, known)} There are: {', '.join(known) or 'none'}.".strip()


# Text of a trace in a message.


def printable(text: str) -> str:
    """The text with invisible and control characters escaped: it cannot control a terminal or reorder a page."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


class PageText(str):
    """The text of a page: several lines, with styles if it is for a terminal."""

    __slots__ = ()


def encodable(value: Any) -> Any:
    """A copy with a question mark for each lone surrogate, which escapes in JSON can make and UTF-8 cannot hold."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [encodable(item) for item in value]
        case dict():
            return {encodable(key): encodable(item) for key, item in value.items()}
        case _:
            return value
