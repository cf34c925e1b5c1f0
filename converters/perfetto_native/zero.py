"""Where time 0 of a timeline stands."""

from __future__ import annotations


def zero_of(base: int | None) -> int:
    """The base, in ns since the Unix epoch; engines leave out what is before that, so all is drawn later then."""
    return max(base or 0, 0)
