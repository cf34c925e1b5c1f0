"""What other files than dumps and profiles show of a rank."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tracelink.diagnosis.model import Problem, Standing
from tracelink.model.findings import Finding


class Delay(Struct, frozen=True):
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


class Testimony(Struct, frozen=True):
    """What the files of one kind show."""

    problems: Sequence[Problem] = ()
    standings: Sequence[Standing] = ()
    notes: Sequence[str] = ()
    findings: Sequence[Finding] = ()
