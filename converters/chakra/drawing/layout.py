"""Where boxes lie on the picture: a lane for each thread and stream, rows in it for what overlaps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracelink.converters.chakra.drawing.scene import Box, Scene

GUTTER = 150.0
"""Room for the names of lanes."""
MARGIN = 24.0
NARROWEST, WIDEST = 1100.0, 16_000.0
SMALLEST = 2.0
"""Width of what takes no time."""
READABLE = 14.0
"""So wide, in pixels, are three of four boxes, where the picture is not too wide then."""
PER_UNIT = (8.0, 60.0)
"""Widths of a box that takes no time, in a picture without times."""
ROW, BOX = 24.0, 20.0
LANE_GAP, RANK_GAP = 12.0, 26.0
TOP = 92.0
TOUCHING = 1e-6
NUMBERS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box is drawn."""

    left: float
    right: float
    top: float

    @property
    def middle(self) -> float:
        """Its middle line."""
        return self.top + BOX / 2


@dataclass(frozen=True, slots=True)
class Lane:
    """A stripe of the picture."""

    name: str
    rank: int | None
    top: float
    height: float
    first_of_rank: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """From times to the picture."""

    origin: float
    per_pixel: float
    width: float
    """Of all that happens."""

    def __call__(self, time: float) -> float:
        """Pixels from the left."""
        return GUTTER + (time - self.origin) / self.per_pixel


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole picture, without what is written around it."""

    places: Sequence[Place]
    lanes: Sequence[Lane]
    scale: Scale
    bottom: float


def layout(scene: Scene) -> Layout:
    """A place for each box."""
    scale = _scale(scene)
    lanes: dict[tuple[int, int, str], list[int]] = {}
    for number, box in enumerate(scene.boxes):
        lanes.setdefault((-1 if box.rank is None else box.rank, _order(box), box.lane), []).append(number)
    places: dict[int, Place] = {}
    drawn: list[Lane] = []
    top, last_rank = TOP, None
    for (rank, _, name), numbers in sorted(
        lanes.items(), key=lambda lane: (*lane[0][:2], _natural(lane[0][2]))
    ):
        first = rank != last_rank
        top += RANK_GAP if first and rank >= 0 else 0
        rows = _rows(scene.boxes, numbers, scale)
        places |= {
            number: Place(*_extent(scene.boxes[number], scale), top + row * ROW + (ROW - BOX) / 2)
            for number, row in rows.items()
        }
        height = (max(rows.values()) + 1) * ROW
        drawn.append(Lane(name, None if rank < 0 else rank, top, height, first))
        top, last_rank = top + height + LANE_GAP, rank
    return Layout([places[number] for number in range(len(scene.boxes))], drawn, scale, top)


def _scale(scene: Scene) -> Scale:
    span = max(scene.last - scene.first, 1)
    if scene.timed:
        seen = (min(box.end, scene.last) - max(box.begin, scene.first) for box in scene.boxes)
        durations = sorted(filter(lambda duration: duration > 0, seen)) or [span]
        width = min(max(READABLE * span / durations[len(durations) // 4], NARROWEST), WIDEST)
    else:
        least, most = PER_UNIT
        width = span * max(min(WIDEST / span, most), least)
    return Scale(scene.first, span / width, width)


def _extent(box: Box, scale: Scale) -> tuple[float, float]:
    """From where to where the box is seen."""
    left = max(scale(box.begin), GUTTER)
    return left, max(min(scale(box.end), GUTTER + scale.width), left + SMALLEST)


def _rows(boxes: Sequence[Box], numbers: Sequence[int], scale: Scale) -> Mapping[int, int]:
    """The row of each box in its lane: the topmost that is free where it begins, and below what encloses it."""
    rows: dict[int, int] = {}
    taken_until: list[float] = []
    for number in numbers:
        box = boxes[number]
        left, right = _extent(box, scale)
        row = 0 if box.inside is None else rows.get(box.inside, -1) + 1
        while row < len(taken_until) and taken_until[row] > left + TOUCHING:
            row += 1
        taken_until += [left] * (row + 1 - len(taken_until))
        rows[number], taken_until[row] = row, right
    return rows


def _order(box: Box) -> int:
    """Threads above streams."""
    return 0 if box.lane == "host" or box.lane.startswith("thread ") else 1


def _natural(name: str) -> list[tuple[int, str]]:
    """`stream 7` before `stream 20`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]
