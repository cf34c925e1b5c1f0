"""SVG charts for notebooks and pages: bars, lines, points, timelines and heat maps, in light and dark."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from tracelink._model.fields import Unit
from tracelink._model.text import both_ends, counted, number, shortened
from tracelink._show.cells import in_unit
from tracelink._show.markup import Child, Markup, element

Values = Sequence[float | None]
"""Numbers of a series; None is not drawn."""

WIDTH, HEIGHT = 760, 300
"""Of a chart, and of the area of lines and points."""
LEFT, RIGHT, TITLE, AXIS = 66, 18, 26, 40
"""Margins: of the vertical axis, at the right, of the title, and of the horizontal axis."""
LABEL, TOTAL, ROW, BAR = 230, 74, 22, 15
"""Of bars: their labels at the left, their totals at the right, a row, and the bar in it."""
LETTER = 7.2
"""The width of a letter, for the legend: fonts are not known."""
LONGEST_LABEL = 30
MOST_BARS, MOST_SERIES, MOST_POINTS, MOST_BOXES = 64, 16, 3000, 3000
"""What is drawn at most; a note says how much is not."""
MOST_DOTS = 60
"""Points of a line that are marked, so that each says its value."""
COLORS = 7
SHADES = 6
"""Of heat maps: the darker, the larger; the first is for 0."""
CELL, MOST_ROWS, MOST_COLUMNS, MOST_NAMES = 14, 30, 128, 16
"""Of heat maps: the width of a cell, and the rows, the columns and the names of columns that are drawn at most."""
_NAMESPACES = re.compile(r"^void |\(anonymous namespace\)::|\b\w+::")
LOGARITHMIC = 1000
"""The ratio of the largest to the smallest value from which an axis of sizes and times is logarithmic."""

STYLE = """
.tracelink-chart {
  --page: #fff; --text: #1b1d22; --soft: #565b66; --line: #d3d7de; --c0: #9498a0; --c1: #4269d0; --c2: #ff725c;
  --c3: #efb118; --c4: #3ca98f; --c5: #a463f2; --c6: #97bbf5; --c7: #9c6b4e;
  --h0: #eef1f5; --h1: #cfe0f7; --h2: #9fc2ef; --h3: #6a9fe4; --h4: #3b78cf; --h5: #1d4f9e; --dot: #b3261e;
  background: var(--page); max-width: 100%; height: auto;
  font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
@media screen and (prefers-color-scheme: dark) {
  .tracelink-chart {
    --page: #16181d; --text: #e7e9ee; --soft: #a6acb8; --line: #3b404a; --c0: #7b808a; --c1: #6f90ee; --c2: #f0705c;
    --c3: #e0a81f; --c4: #5cb8a2; --c5: #b685f5; --c6: #a9c6f8; --c7: #c49a80;
    --h0: #23272f; --h1: #1f3350; --h2: #264b7d; --h3: #3568ab; --h4: #5b92dc; --h5: #a8ccff; --dot: #ff8a80;
  }
}
.tracelink-chart text { fill: var(--text); }
.tracelink-chart .heading { font-weight: 600; font-size: 13px; }
.tracelink-chart .soft { fill: var(--soft); }
.tracelink-chart .grid { stroke: var(--line); }
.tracelink-chart a rect { stroke: var(--page); stroke-width: .6; }
""" + "".join(
    f".tracelink-chart .c{color} {{ fill: var(--c{color}); }}\n"
    f".tracelink-chart polyline.c{color} {{ fill: none; stroke: var(--c{color}); stroke-width: 1.6; }}\n"
    for color in range(COLORS + 1)
)
STYLE += "".join(f".tracelink-chart .h{shade} {{ fill: var(--h{shade}); }}\n" for shade in range(SHADES))
STYLE += ".tracelink-chart .dot { fill: var(--dot); }\n"
"""Of every chart: colors of the page that it is on, light or dark; `c0` is for idle time."""


class Plot(Struct, frozen=True):
    """A chart that notebooks draw; `plot.svg` is its text."""

    title: str
    svg: str

    def __repr__(self) -> str:
        return f"<Plot: {self.title}>"

    def __str__(self) -> str:
        return self.svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the chart to an SVG file."""
        Path(path).write_text(self.svg, "utf-8")


class Series(Struct, frozen=True):
    """Points of one color: equally many horizontal and vertical values."""

    name: str
    x: Values
    y: Values


def bars(title: str, labels: Sequence[str], parts: Mapping[str, Values], unit: str = "") -> Plot:
    """Draws a bar for each label, of parts that are stacked.

    Args:
        title: What is drawn.
        labels: The label of each bar.
        parts: For each part its length in each bar; negative ones go to the left.
        unit: The unit of the lengths: "ns", "bytes", "share" or any other word.
    """
    shown = labels[:MOST_BARS]
    lengths = {name: [value or 0 for value in values[:MOST_BARS]] for name, values in parts.items()}
    rows = list(zip(*lengths.values(), strict=True))
    low = min((sum(min(value, 0) for value in row) for row in rows), default=0)
    high = max((sum(max(value, 0) for value in row) for row in rows), default=0)
    axis = _Axis.of([low, high], unit, LABEL, WIDTH - TOTAL)
    colors = _colors(list(parts))
    top, legend = _legend(colors)
    drawn: list[Child] = [_vertical_grid(axis, top, top + len(shown) * ROW)]
    for row, (label, values) in enumerate(zip(shown, rows, strict=True)):
        y = top + row * ROW
        drawn.append(text_at(_short_name(label), LABEL - 8, y + 15, "end", tip=label))
        drawn.extend(_stack(label, y, dict(zip(parts, values, strict=True)), colors, axis))
        end = axis.at(max(sum(max(value, 0) for value in values), 0))
        drawn.append(text_at(axis.words(sum(values)), end + 6, y + 15, "start", class_="soft"))
    bottom = top + len(shown) * ROW + AXIS - 12
    drawn.append(text_at(axis.title, WIDTH - TOTAL, bottom, "end", class_="soft"))
    return drawing(
        title, bottom + 12, [legend, drawn], _hidden(len(labels) - len(shown), "bar") or _nothing(rows)
    )


def _stack(
    label: str, y: float, values: Mapping[str, float], colors: Mapping[str, str], axis: _Axis
) -> Iterator[Markup]:
    right = left = 0.0
    for name, value in values.items():
        before, after = (right, right + value) if value > 0 else (left + value, left)
        right, left = (after, left) if value > 0 else (right, before)
        if value:
            tip = element("title", f"{label}: {name} {axis.words(value)}")
            width = axis.at(after) - axis.at(before)
            yield element(
                "rect", tip, x=f"{axis.at(before):.2f}", y=y + (ROW - BAR) // 2,
                width=f"{max(width, 0.3):.2f}", height=BAR, class_=colors[name],
            )  # fmt: skip


class Box(NamedTuple):
    """A part of a row of a timeline."""

    row: int
    start_ns: int
    duration_ns: int
    kind: str
    """What has a color of its own."""
    tip: str
    anchor: str = ""
    """Where it leads to on the page."""


def timeline(title: str, rows: Sequence[str], boxes: Sequence[Box], colors: Mapping[str, str]) -> Plot:
    """Draws what happened when, in a row for each rank or thread; times are counted from the first one.

    Args:
        title: What is drawn.
        rows: The label of each row.
        boxes: What happened; of many, the longest are drawn.
        colors: The color of each kind of boxes, from `c0` to `c7`.
    """
    shown = sorted(boxes, key=lambda box: -box.duration_ns)[:MOST_BOXES]
    first = min((box.start_ns for box in boxes), default=0)
    last = max((box.start_ns + box.duration_ns for box in boxes), default=0)
    axis = _Axis.of([0, last - first], Unit.DURATION, LABEL, WIDTH - RIGHT)
    used = {box.kind for box in shown}
    top, legend = _legend({kind: color for kind, color in colors.items() if kind in used})
    height = len(rows[:MOST_BARS]) * ROW
    labels = (
        text_at(_short_name(label), LABEL - 8, top + row * ROW + 15, "end", tip=label)
        for row, label in enumerate(rows[:MOST_BARS])
    )
    drawn = (
        _box(box, axis.at(box.start_ns - first), axis.at(box.start_ns + box.duration_ns - first), top, colors)
        for box in sorted(shown, key=lambda box: box.start_ns)
        if box.row < MOST_BARS
    )
    bottom = top + height + AXIS - 12
    axes: list[Child] = [
        _vertical_grid(axis, top, top + height),
        text_at(axis.title, WIDTH - RIGHT, bottom, "end", class_="soft"),
    ]
    notes = _hidden(len(boxes) - len(shown), "shorter box"), _hidden(len(rows) - MOST_BARS, "row")
    return drawing(title, bottom + 12, [legend, axes, labels, drawn], " ".join(filter(None, notes)))


def _box(box: Box, left: float, right: float, top: float, colors: Mapping[str, str]) -> Markup:
    drawn = element(
        "rect", element("title", box.tip), x=left, y=top + box.row * ROW + (ROW - BAR) // 2,
        width=max(right - left, 1.5), height=BAR, class_=colors[box.kind],
    )  # fmt: skip
    return (
        element("a", drawn, href=f"#{box.anchor}", aria_label=box.tip, tabindex=-1) if box.anchor else drawn
    )


class Cell(NamedTuple):
    """A cell of a heat map."""

    value: float
    tip: str
    marked: bool = False
    """Whether a dot is drawn on it."""


def heat_map(title: str, columns: Sequence[str], rows: Mapping[str, Mapping[str, Cell]]) -> Plot:
    """Draws a row of cells for each name, the darker, the larger their values are in the row.

    Args:
        title: What is drawn.
        columns: The names of the columns.
        rows: For each row its cells by the names of their columns; columns without a cell are left out.
    """
    shown = list(rows.items())[:MOST_ROWS]
    x_of = {name: LABEL + index * CELL for index, name in enumerate(columns[:MOST_COLUMNS])}
    drawn: list[Child] = []
    for index, (name, cells) in enumerate(shown):
        y = TITLE + index * ROW
        drawn.append(text_at(both_ends(name, LONGEST_LABEL), LABEL - 8, y + 15, "end", tip=name))
        most = max((cell.value for cell in cells.values()), default=0)
        for column, cell in cells.items():
            if column in x_of:
                drawn += _heat(cell, x_of[column], y, most)
    bottom = TITLE + len(shown) * ROW
    for name in columns[: MOST_COLUMNS : max(-(-len(x_of) // MOST_NAMES), 1)]:
        drawn.append(text_at(name, x_of[name] + CELL / 2, bottom + 14, "middle", class_="soft"))
    notes = _hidden(len(rows) - len(shown), "row"), _hidden(len(columns) - len(x_of), "column")
    width = max(WIDTH, LABEL + len(x_of) * CELL + RIGHT)
    return drawing(title, bottom + 20, drawn, " ".join(filter(None, notes)) or _nothing(shown), width=width)


def _heat(cell: Cell, x: float, y: float, most: float) -> Iterator[Markup]:
    shade = 1 + min(int((SHADES - 1) * cell.value / most), SHADES - 2) if cell.value else 0
    tip = element("title", cell.tip)
    yield element("rect", tip, x=x, y=y + 1, width=CELL - 1, height=ROW - 2, class_=f"h{shade}")
    if cell.marked:
        yield element("circle", tip, cx=x + CELL / 2 - 0.5, cy=y + ROW / 2, r=2.5, class_="dot")


def lines(title: str, series: Sequence[Series], x: tuple[str, str], y: tuple[str, str]) -> Plot:
    """Draws a line for each series.

    Args:
        title: What is drawn.
        series: The lines; where a value is None, a line is interrupted.
        x: The title and the unit of the horizontal axis.
        y: The title and the unit of the vertical axis.
    """
    return _graph(title, series, x, y, joined=True)


def points(title: str, series: Sequence[Series], x: tuple[str, str], y: tuple[str, str]) -> Plot:
    """Draws a point for each pair of values; an axis of which the values differ a thousandfold is logarithmic.

    Args:
        title: What is drawn.
        series: The points, a color for each series.
        x: The title and the unit of the horizontal axis.
        y: The title and the unit of the vertical axis.
    """
    return _graph(title, series, x, y, joined=False)


def _graph(
    title: str, series: Sequence[Series], x: tuple[str, str], y: tuple[str, str], joined: bool
) -> Plot:
    shown = series[:MOST_SERIES]
    pairs: defaultdict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    for one in shown:
        pairs[one.name] += _known(one)
    most = max(MOST_POINTS // max(len(shown), 1), 2)
    colors = _colors(list(pairs))
    top, legend = _legend(colors)
    everything = [pair for some in pairs.values() for run in some for pair in run]
    across = _Axis.of([at for at, _ in everything], x[1], LEFT, WIDTH - RIGHT, not joined, x[0])
    upward = _Axis.of([at for _, at in everything], y[1], top + HEIGHT, top, not joined, y[0], zero=True)
    drawn: list[Child] = []
    hidden = 0
    for name, runs in pairs.items():
        for run in runs:
            kept = run[:: max(-(-len(run) // most), 1)]
            hidden += len(run) - len(kept)
            drawn.append(_marks(name, kept, colors[name], across, upward, joined))
    bottom = top + HEIGHT + AXIS
    axes: list[Child] = [
        _vertical_grid(across, top, top + HEIGHT),
        _horizontal_grid(upward),
        text_at(across.title, WIDTH - RIGHT, bottom - 6, "end", class_="soft"),
        text_at(upward.title, LEFT, top - 6, "start", class_="soft"),
    ]
    notes = [
        _nothing(everything),
        _hidden(len(series) - len(shown), "series", "series"),
        _hidden(hidden, "point"),
    ]
    return drawing(title, bottom, [legend, axes, drawn], " ".join(filter(None, notes)))


def _known(series: Series) -> list[list[tuple[float, float]]]:
    """The runs of pairs in which nothing is unknown."""
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(series.x, series.y, strict=True):
        if x is not None and y is not None:
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _marks(
    name: str, pairs: Sequence[tuple[float, float]], color: str, across: _Axis, upward: _Axis, joined: bool
) -> list[Markup]:
    at = [(f"{across.at(x):.1f}", f"{upward.at(y):.1f}") for x, y in pairs]
    line = element("polyline", points=" ".join(map(",".join, at)), class_=color)
    dots = (
        element(
            "circle",
            element("title", f"{name}: {across.words(x)}, {upward.words(y)}"),
            cx=left, cy=height, r=2 if joined else 3, class_=color,
        )
        for (x, y), (left, height) in zip(pairs, at, strict=True)
        if not joined or len(pairs) <= MOST_DOTS
    )  # fmt: skip
    return [*([line] if joined else ()), *dots]


# Axes


class _Axis(NamedTuple):
    """Where values are drawn: between `first` and `last`, in units of `divisor`."""

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool
    unit: str
    divisor: float
    title: str

    @classmethod
    def of(
        cls,
        values: Sequence[float],
        unit: str,
        first: float,
        last: float,
        may_be_logarithmic: bool = False,
        title: str = "",
        zero: bool = False,
    ) -> _Axis:
        """The axis of these values; `zero` includes zero unless it is logarithmic."""
        low, high = min(values, default=0), max(values, default=1)
        logarithmic = may_be_logarithmic and low > 0 and high > LOGARITHMIC * low
        if zero and not logarithmic:
            low, high = min(low, 0), max(high, 0)
        if low == high:
            high = low + (abs(low) or 1)
        divisor, words = in_unit(unit, high - low if unit == Unit.TIME else max(abs(low), abs(high)))
        name = " ".join(filter(None, (title, f"({words})" if words and title and not logarithmic else words)))
        return cls(low, high, first, last, logarithmic, unit, divisor, title if logarithmic else name)

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return self.first + (value - low) / (high - low) * (self.last - self.first)

    def words(self, value: float) -> str:
        """The value with its unit."""
        if self.unit == Unit.TIME:
            value -= self.low
        divisor, words = in_unit(self.unit, abs(value))
        return f"{_short(value / divisor)} {words}".strip()

    def ticks(self) -> list[tuple[float, str]]:
        """Values that are marked, with their labels."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(-(-(last - first) // 8), 1)
            return [(10.0**power, self.words(10.0**power)) for power in range(first, last + 1, step)]
        origin = self.low if self.unit == Unit.TIME else 0
        low, high = (self.low - origin) / self.divisor, (self.high - origin) / self.divisor
        width = _step((high - low) / 5)
        marked = range(math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9) + 1)
        return [(origin + at * width * self.divisor, _short(at * width)) for at in marked]


def _step(least: float) -> float:
    """The next number of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def _short(value: float) -> str:
    """`1,234`, `12.3`, `0.0123`."""
    if abs(value) >= 100 or value == round(value):
        return number(round(value))
    return f"{value:.3g}"


def _vertical_grid(axis: _Axis, top: float, bottom: float) -> Iterator[Markup]:
    for value, label in axis.ticks():
        x = f"{axis.at(value):.1f}"
        yield element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid")
        yield text_at(label, axis.at(value), bottom + 15, "middle", class_="soft")


def _horizontal_grid(axis: _Axis) -> Iterator[Markup]:
    for value, label in axis.ticks():
        y = f"{axis.at(value):.1f}"
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield text_at(label, LEFT - 6, axis.at(value) + 4, "end", class_="soft")


# Parts of every chart


def _colors(names: Sequence[str]) -> dict[str, str]:
    """The class of each series; idle time is gray."""
    colored = [name for name in names if not name.startswith("idle")]
    return {name: f"c{colored.index(name) % COLORS + 1 if name in colored else 0}" for name in names}


def _legend(colors: Mapping[str, str]) -> tuple[float, list[Markup]]:
    """The legend, if there are several series; and where the area below it begins."""
    if len(colors) < 2:
        return TITLE + 14, []
    x, y, keys = 8.0, float(TITLE), []
    for name, color in colors.items():
        label = _short_name(name)
        width = 24 + LETTER * len(label)
        if x + width > WIDTH and x > 8:
            x, y = 8.0, y + 18
        keys.append(element("rect", x=f"{x:.1f}", y=y, width=10, height=10, class_=color))
        keys.append(text_at(label, x + 15, y + 9.5, "start", tip=name))
        x += width
    return y + 38, keys


def text_at(text: str, x: float, y: float, side: str, *, tip: str = "", class_: str | None = None) -> Markup:
    """A line of text, whose `side` (start, middle, end) is at x; `tip` is its whole text."""
    more = element("title", tip) if tip and tip != text else None
    return element("text", text, more, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=side, class_=class_)


def _short_name(name: str) -> str:
    """A name for a label: of a function of C++ without namespaces and arguments; of a long one both ends."""
    if "::" in name and "(" in name:
        name = _NAMESPACES.sub("", name)
        name = name.partition("(")[0] or name
    return both_ends(name, LONGEST_LABEL)


def _hidden(count: int, thing: str, things: str = "") -> str:
    named = f"{number(count)} more {things}" if things and count > 1 else counted(count, f"more {thing}")
    return f"{named} not drawn." if count > 0 else ""


def _nothing(values: Sequence[object]) -> str:
    return "" if values else "No values to draw."


def drawing(title: str, height: float, parts: Iterable[Child], note: str, *, width: float = WIDTH) -> Plot:
    """A chart of these parts, below the title, and of this height without the note."""
    total = height + (18 if note else 0)
    drawn = element(
        "svg",
        element("title", title),
        element("style", Markup(STYLE)),
        text_at(shortened(title, 100), 8, 16, "start", class_="heading"),
        parts,
        text_at(note, 8, height + 12, "start", class_="soft") if note else None,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {total:.0f}",
        width=f"{width:.0f}",
        height=f"{total:.0f}",
        role="img",
        aria_label=title,
        class_="tracelink-chart",
    )
    return Plot(title, drawn.text)
