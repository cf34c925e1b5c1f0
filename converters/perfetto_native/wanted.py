"""Which arguments events have."""

from __future__ import annotations

from enum import StrEnum


class Wanted(StrEnum):
    """How many arguments are written: they are most of what the UI has to load."""

    ALL = "all"
    LINK = "link"
    """Only what tracelink found out."""
    NONE = "none"
