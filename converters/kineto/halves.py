"""Slices recorded in two halves: begin and end on a thread, begin and end of something asynchronous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracelink.converters.kineto.columns import Half
from tracelink.converters.kineto.schema import ASYNC_BEGIN, ASYNC_INSTANT, BEGIN, END
from tracelink.events import UNFINISHED


@dataclass(frozen=True, slots=True)
class Whole:
    """A slice put together: the arguments are those of the begin."""

    cat: str
    name: str
    pid: int
    tid: int
    start: int
    duration: int
    place: int
    asynchronous: bool


@dataclass(slots=True)
class Paired:
    """Slices put together, and ends that no begin belongs to."""

    slices: list[Whole] = field(default_factory=list)
    ends_alone: int = 0


def pair(halves: Sequence[Half]) -> Paired:
    """Joins begins and ends in the order of time; a begin without an end is an unfinished slice."""
    paired = Paired()
    open_slices: dict[tuple[object, ...], list[Half]] = {}
    for half in sorted(halves, key=lambda half: half.time):
        lane = _lane(half)
        if half.ph in (BEGIN, ASYNC_BEGIN):
            open_slices.setdefault(lane, []).append(half)
        elif half.ph == ASYNC_INSTANT:
            paired.slices.append(_whole(half, 0))
        else:
            stack = open_slices.get(lane, [])
            begin = _matching(stack, half)
            if begin is None:
                paired.ends_alone += 1
            else:
                stack.remove(begin)
                paired.slices.append(_whole(begin, half.time - begin.time))
    paired.slices += [_whole(begin, UNFINISHED) for stack in open_slices.values() for begin in stack]
    return paired


def _lane(half: Half) -> tuple[object, ...]:
    if half.ph in (BEGIN, END):
        return (half.pid, half.tid)
    return (half.cat, half.identity, half.pid)


def _matching(stack: Sequence[Half], end: Half) -> Half | None:
    """The innermost open slice that this end can close: of the same name, where the end has one."""
    return next((begin for begin in reversed(stack) if not end.name or begin.name == end.name), None)


def _whole(begin: Half, duration: int) -> Whole:
    return Whole(
        begin.cat,
        begin.name,
        begin.pid,
        begin.tid,
        begin.time,
        duration,
        begin.place,
        begin.ph not in (BEGIN, END),
    )
