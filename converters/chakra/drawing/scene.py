"""What is drawn: cut, folded, bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.converters.chakra.census import Precedence, cycle, earliest
from tracelink.converters.chakra.drawing.sheet import Arrow, Box, Scene, Sheet, Subject
from tracelink.converters.chakra.table import unsigned
from tracelink.errors import Finding, Severity, UsageError
from tracelink.model.columns import UNKNOWN, Bools, Int64s
from tracelink.model.selection import View

# Dependencies between what is drawn.


def arrows_of(precedence: Precedence, drawn_as: Int64s, place: Mapping[int, int]) -> list[Arrow]:
    """The dependencies, from and to the rows that theirs are drawn as, each once; what lies within a box is none."""
    cause, effect = drawn_as[precedence.cause], drawn_as[precedence.effect]
    apart = (cause >= 0) & (effect >= 0) & (cause != effect)
    pair, first = np.unique(cause[apart] * precedence.count + effect[apart], return_inverse=True)
    data, control = np.zeros(len(pair), np.bool_), np.zeros(len(pair), np.bool_)
    np.logical_or.at(data, first, precedence.data[apart])
    np.logical_or.at(control, first, precedence.control[apart])
    causes, effects = np.divmod(pair, max(precedence.count, 1))
    columns = causes.tolist(), effects.tolist(), data.tolist(), control.tolist()
    return [
        Arrow(place[before], place[after], *kinds) for before, after, *kinds in zip(*columns, strict=True)
    ]


def fewest(arrows: list[Arrow], boxes: Sequence[Box], most: int, findings: list[Finding]) -> list[Arrow]:
    """No more arrows than the picture takes: of each box those from the causes that ended last."""
    if len(arrows) <= most:
        return arrows
    latest = sorted(range(len(arrows)), key=lambda place: -boxes[arrows[place].cause].end)
    seen = [0] * len(boxes)
    turn = [0] * len(arrows)
    for place in latest:
        turn[place] = seen[arrows[place].effect]
        seen[arrows[place].effect] += 1
    per_turn = np.cumsum(np.bincount(turn))
    turns = max(int(np.searchsorted(per_turn, most, side="right")), 1)
    kept = [arrow for arrow, number in zip(arrows, turn, strict=True) if number < turns]
    message = (
        f"only {len(kept):,} of {len(arrows):,} dependencies are drawn: of each node those on the"
        f" {turns:,} that ended last. --window and --depth narrow it; a .graphml has all of them."
    )
    findings.append(Finding(Severity.WARNING, "edges_not_drawn", message, len(arrows) - len(kept)))
    return kept


# From nodes to what is drawn of them: cut to a time, folded to a depth, and bounded.


Bounds = tuple[float | None, float | None]
"""Of a stretch of time; None where it has none."""

ARROWS_PER_NODE = 4
"""More arrows than this a picture does not take, where it is bounded at all."""

NARROW = "--depth, --window and --ranks draw less"


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is drawn of one rank: for each row the row that it is drawn as, or -1."""

    sheet: Sheet
    drawn_as: Int64s

    @property
    def rows(self) -> Int64s:
        return np.flatnonzero(self.drawn_as == np.arange(len(self.drawn_as)))


def compose(subjects: Sequence[Subject], view: View) -> Scene:
    """What is drawn of these ranks, and what is not."""
    findings = list[Finding]()
    sheets = _alike([Sheet.of(subject) for subject in subjects], findings)
    timed = all(sheet.spans.timed for sheet in sheets)
    origin = min((time for sheet in sheets for time in sheet.spans.begin), default=0)
    bounds = _bounds(view, origin, timed=timed)
    wanted = [sheet.within(*bounds) for sheet in sheets]
    if view.window and not any(some.any() for some in wanted):
        raise UsageError(
            "--window: no node lies in it", advice="Times count from the first node's beginning."
        )
    depth = view.depth or _depth(sheets, wanted, view, findings)
    chosen = [
        _Chosen(sheet, sheet.nesting.drawn_as(some, depth))
        for sheet, some in zip(sheets, wanted, strict=True)
    ]
    chosen, bounds = _earliest(chosen, bounds, view, findings)
    boxes, places = _boxes(chosen)
    arrows = [
        arrow
        for one, place in zip(chosen, places, strict=True)
        for arrow in arrows_of(one.sheet.precedence, one.drawn_as, place)
    ]
    if view.limit is not None:
        arrows = fewest(arrows, boxes, view.limit * ARROWS_PER_NODE, findings)
    findings += [finding for sheet in sheets for finding in _defects(sheet)]
    nodes = sum(len(subject.nodes) for subject in subjects)
    return Scene(boxes, arrows, timed, nodes, origin, *_reach(boxes, bounds), findings)


def _bounds(view: View, origin: float, *, timed: bool) -> Bounds:
    if view.window is None:
        return None, None
    if not timed:
        raise UsageError("--window: no node says when it begins", advice="Narrow it with --depth or --ranks.")
    return view.window.after(int(origin))


def _reach(boxes: Sequence[Box], bounds: Bounds) -> tuple[float, float]:
    """What the picture shows of the time of these boxes."""
    first, last = bounds
    begin, end = min((box.begin for box in boxes), default=0), max((box.end for box in boxes), default=0)
    return begin if first is None else max(begin, first), end if last is None else min(end, last)


def _alike(sheets: Sequence[Sheet], findings: list[Finding]) -> list[Sheet]:
    """Where some ranks have times, those without have no place beside them."""
    timed = [sheet for sheet in sheets if sheet.spans.timed]
    for sheet in sheets:
        if timed and not sheet.spans.timed and len(sheet.subject.nodes):
            path = sheet.subject.path
            message = (
                f"{path} is not drawn: its nodes have no times, and those of others have. Draw it alone."
            )
            findings.append(Finding(Severity.WARNING, "without_times", message, source=path))
    return timed or list(sheets)


def _depth(
    sheets: Sequence[Sheet], wanted: Sequence[Bools], view: View, findings: list[Finding]
) -> int | None:
    """The greatest depth down to which not too many nodes lie; None where all depths or none will do."""
    if view.limit is None or not sheets:
        return None
    levels = np.concatenate(
        [np.array(sheet.nesting.level, np.int64)[some] for sheet, some in zip(sheets, wanted, strict=True)]
    )
    fitting = np.flatnonzero(np.cumsum(np.bincount(levels)) <= view.limit)
    if len(levels) <= view.limit or not len(fitting) or not fitting[-1]:
        return None
    depth = int(fitting[-1])
    message = (
        f"drawn down to depth {depth} of {levels.max()}: {len(levels):,} nodes are more than {view.limit:,}."
        f" What lies deeper is part of the box around it; {NARROW}, --limit {len(levels)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "folded", message))
    return depth


def _earliest(
    chosen: list[_Chosen], bounds: Bounds, view: View, findings: list[Finding]
) -> tuple[list[_Chosen], Bounds]:
    """No more boxes than the picture takes: those that begin first, up to where the next one would."""
    begins = sorted(
        (one.sheet.spans.begin[row], number, row)
        for number, one in enumerate(chosen)
        for row in one.rows.tolist()
    )
    if view.limit is None or len(begins) <= view.limit:
        return chosen, bounds
    kept = [set[int]() for _ in chosen]
    for _, number, row in begins[: view.limit]:
        kept[number].add(row)
    message = (
        f"only the first {view.limit:,} of {len(begins):,} nodes are drawn, more would not be readable:"
        f" {NARROW}, --limit {len(begins)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "not_drawn", message, len(begins) - view.limit))
    end = begins[view.limit][0]
    if end > begins[view.limit - 1][0]:
        bounds = bounds[0], end
    fewer = [replace(one, drawn_as=_only(one.drawn_as, rows)) for one, rows in zip(chosen, kept, strict=True)]
    return fewer, bounds


def _only(drawn_as: Int64s, rows: set[int]) -> Int64s:
    keeps = np.isin(drawn_as, np.array(sorted(rows), np.int64))
    return np.where(keeps, drawn_as, UNKNOWN)


def _boxes(chosen: Sequence[_Chosen]) -> tuple[list[Box], list[dict[int, int]]]:
    """All boxes in order of time, and for each rank the place of the box of a row."""
    made = [one.sheet.boxes(one.drawn_as.tolist()) for one in chosen]
    order = sorted(
        (box.begin, -box.end, number, row) for number, boxes in enumerate(made) for row, box in boxes.items()
    )
    places = [dict[int, int]() for _ in chosen]
    for place, (_, _, number, row) in enumerate(order):
        places[number][row] = place
    seen = dict[str, int]()
    boxes = []
    for _, _, number, row in order:
        box = made[number][row]
        seen[box.key] = seen.get(box.key, 0) + 1
        again = f"@{seen[box.key]}" if seen[box.key] > 1 else ""
        inside = _around(chosen[number], row, places[number])
        boxes.append(replace(box, key=box.key + again, inside=inside))
    return boxes, places


def _around(one: _Chosen, row: int, places: dict[int, int]) -> int | None:
    parent = one.sheet.nesting.parent[row]
    return None if parent == UNKNOWN else places.get(int(one.drawn_as[parent]))


def _defects(sheet: Sheet) -> Iterator[Finding]:
    """What of the dependencies cannot be drawn, or makes no sense."""
    precedence, path = sheet.precedence, sheet.subject.path
    if precedence.missing:
        message = "dependencies on nodes that do not exist are not drawn."
        yield Finding(Severity.WARNING, "missing_dependencies", message, precedence.missing, path)
    if precedence.itself:
        message = "dependencies of nodes on themselves are not drawn."
        yield Finding(Severity.WARNING, "own_dependencies", message, precedence.itself, path)
    if rows := cycle(precedence, earliest(precedence, [1] * precedence.count)):
        ids = " → ".join(str(unsigned(int(sheet.subject.nodes.id[row]))) for row in [*rows[:8], rows[0]])
        message = "nodes wait for each other in a circle: whatever waits for them never runs."
        yield Finding(Severity.WARNING, "cycle", message, len(rows), path, ids)
