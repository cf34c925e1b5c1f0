"""The lines of arrows: they leave a box where the next one can begin, and enter that at its beginning."""

from __future__ import annotations

from enum import StrEnum

from tracelink.converters.chakra.drawing.layout import BOX, Place
from tracelink.converters.chakra.drawing.scene import Arrow
from tracelink.converters.chakra.drawing.xml import number

STEEP = 8.0
"""Boxes that are nearer to each other than this, in pixels, are joined by a straight line."""
SLACK = 0.5


class Look(StrEnum):
    """How an arrow is drawn."""

    DATA = "data"
    CONTROL = "control"
    BACKWARDS = "backwards"
    """It leads to something that begins before its cause does."""


def look_of(arrow: Arrow, cause: Place, effect: Place, *, folded: bool) -> Look:
    """Where it is both, data counts; a box that stands for others can begin before what one of them waits for."""
    if effect.left < cause.left - SLACK and not folded:
        return Look.BACKWARDS
    return Look.DATA if arrow.data else Look.CONTROL


def curve(cause: Place, effect: Place, *, folded: bool) -> str:
    """The line, as the attribute `d` of a path; it enters a box that stands for others where the cause ends."""
    if folded and effect.left < cause.left <= effect.right and effect.top != cause.top:
        across = min(cause.right, effect.right)
        return _upright(across, across, cause, effect)
    leaves = min(max(effect.left, cause.left), cause.right)
    apart = effect.left - leaves
    if effect.top == cause.top:
        return _path("M", leaves, cause.middle, "L", effect.left, effect.middle)
    if 0 <= apart < STEEP:
        enters = min(effect.left + 3, effect.right)
        return _upright(min(enters, cause.right), enters, cause, effect)
    reach = max(STEEP, min(abs(apart) / 2, 60.0))
    points = (leaves + reach, cause.middle, effect.left - reach, effect.middle, effect.left, effect.middle)
    return _path("M", leaves, cause.middle, "C", *points)


def _upright(leaves: float, enters: float, cause: Place, effect: Place) -> str:
    """From the one edge of a box to the facing one of another."""
    down = effect.top > cause.top
    start = cause.top + BOX if down else cause.top
    return _path("M", leaves, start, "L", enters, effect.top if down else effect.top + BOX)


def _path(*parts: str | float) -> str:
    return " ".join(part if isinstance(part, str) else number(part) for part in parts)
