"""What other files than dumps and profiles show of a rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tracelink.model.findings import Finding


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


class Testimony(Struct, frozen=True):
    """What the files of one kind show."""

    claims: Sequence[Claim] = ()
    positions: Sequence[Position] = ()
    notes: Sequence[str] = ()
    findings: Sequence[Finding] = ()
