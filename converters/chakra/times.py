"""When nodes begin and how long they take, to the nanosecond where they say it."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.converters.chakra.schema import Name
from tracelink.converters.chakra.table import UNSIGNED, NodeTable
from tracelink.events import Int64s

MICROSECOND = 1000
UNSAID = -1


def starts_ns(nodes: NodeTable) -> list[int]:
    """When each node begins; 0 where it does not say it."""
    return _exact(nodes, nodes.start, Name.START)


def durations_ns(nodes: NodeTable) -> list[int]:
    """How long each node takes."""
    return _exact(nodes, nodes.duration, Name.DURATION)


def inclusive_ns(nodes: NodeTable) -> list[int]:
    """How long each node takes with all that it encloses; its own duration where it does not say it."""
    said = nodes.attribute(Name.INCLUSIVE).whole_numbers(len(nodes), UNSAID).tolist()
    return [max(pair) for pair in zip(said, durations_ns(nodes), strict=True)]


def _exact(nodes: NodeTable, micros: Int64s, name: Name) -> list[int]:
    """The attribute `name` where it says the same as the field, only finer; simulators go by the field."""
    exact: Sequence[int] = nodes.attribute(name).whole_numbers(len(nodes), UNSAID).tolist()
    coarse = [(number & UNSIGNED) * MICROSECOND for number in micros.tolist()]
    return [
        fine if fine >= 0 and abs(fine - rough) <= MICROSECOND else rough
        for fine, rough in zip(exact, coarse, strict=True)
    ]
