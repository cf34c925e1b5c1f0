"""Groups that do the same, each for itself: the tensor-parallel ones, for example."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.trace import ProcessGroup


def like_groups(groups: Sequence[ProcessGroup], row: int) -> list[int]:
    """The group itself and those of the same description and size."""
    own = groups[row]
    return [
        number
        for number, other in enumerate(groups)
        if number == row or (other.description == own.description and len(other.ranks) == len(own.ranks))
    ]
