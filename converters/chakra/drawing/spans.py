"""Where in time each node lies: by what the trace says, or, where it says nothing, by what waits for what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from tracelink.converters.chakra.drawing.nesting import OUTSIDE, Nesting
from tracelink.converters.chakra.precedence import Precedence, earliest
from tracelink.converters.chakra.table import NodeTable
from tracelink.converters.chakra.times import MICROSECOND, durations_ns, inclusive_ns, starts_ns
from tracelink.events import Bools

UNIT_PER_DOUBLING = 0.25
"""Without times a node that takes twice as long is longer by so much of the length of one that takes none."""


@dataclass(frozen=True, slots=True)
class NodeSpans:
    """From where to where each node is drawn: nanoseconds if `timed`, else lengths that only follow the durations."""

    begin: list[float]
    end: list[float]
    timed: bool

    @classmethod
    def of(cls, nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
        """What encloses others reaches as far as they do, where it does not say how far it reaches."""
        starts, inclusive = starts_ns(nodes), inclusive_ns(nodes)
        said = _said(starts, inclusive)
        if not any(said):
            return _by_order(nodes, precedence, nesting, on_device)
        begin: list[float] = list(starts)
        end: list[float] = [start + duration for start, duration in zip(starts, inclusive, strict=True)]
        own = durations_ns(nodes)
        open_ended = [
            not device and own[row] == inclusive[row] for row, device in enumerate(on_device.tolist())
        ]
        _stretch(begin, end, said, open_ended, nesting)
        _fill(begin, end, said, nesting)
        return cls(begin, end, timed=True)


def _said(starts: Sequence[int], durations: Sequence[int]) -> list[bool]:
    """Which nodes say when they begin: a 0 says it where the others begin not long after, and else says nothing."""
    first = min(filter(None, starts), default=0)
    last = max(map(sum, zip(starts, durations, strict=True)), default=0)
    zero_is_time = 0 < first <= last - first
    return [bool(start) or zero_is_time for start in starts]


def _by_order(nodes: NodeTable, precedence: Precedence, nesting: Nesting, on_device: Bools) -> NodeSpans:
    """Every node as early as what it waits for lets it be, and a little longer the longer it takes."""
    lengths = [1 + UNIT_PER_DOUBLING * log2(1 + duration / MICROSECOND) for duration in durations_ns(nodes)]
    begin = list(earliest(precedence, lengths, through_cycles=True).begins)
    end = [start + length for start, length in zip(begin, lengths, strict=True)]
    _stretch(begin, end, [True] * len(begin), (~on_device).tolist(), nesting)
    return NodeSpans(begin, end, timed=False)


def _stretch(
    begin: list[float], end: list[float], said: list[bool], open_ended: Sequence[bool], nesting: Nesting
) -> None:
    """What encloses others gets their begin, if it has none, and their end, if it is open-ended."""
    without = [not known for known in said]
    for row in reversed(nesting.outermost_first()):
        around = nesting.parent[row]
        if around == OUTSIDE or not said[row]:
            continue
        if without[around]:
            begin[around] = min(begin[around], begin[row]) if said[around] else begin[row]
            said[around] = True
        if without[around] or open_ended[around]:
            end[around] = max(end[around], end[row])


def _fill(begin: list[float], end: list[float], said: Sequence[bool], nesting: Nesting) -> None:
    """What is still without a time begins with what encloses it, or with the first of all."""
    first = min(time for time, known in zip(begin, said, strict=True) if known)
    for row in nesting.outermost_first():
        if not said[row]:
            around = nesting.parent[row]
            begin[row] = first if around == OUTSIDE else begin[around]
            end[row] += begin[row]
