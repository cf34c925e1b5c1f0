"""The scene of a drawing: nodes selected by time, folded to a depth and limited in number, with their arrows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tracelink._model.columns import UNKNOWN, Bools, Int64s
from tracelink._model.errors import UsageError
from tracelink._model.findings import Finding, Severity
from tracelink._model.selection import View
from tracelink.converters.chakra.census import Precedence, cycle, earliest
from tracelink.converters.chakra.drawing.rank_nodes import Arrow, Box, RankNodes, Scene, Subject
from tracelink.converters.chakra.table import unsigned

Bounds = tuple[float | None, float | None]
"""Start and end of a time window; None without a bound."""

_ARROWS_PER_NODE = 4
"""The limit of arrows, as a multiple of the limit of nodes."""

_DRAW_LESS = "--depth, --window and --ranks draw less"


class _Chosen(Struct, frozen=True):
    """The nodes of one rank that are drawn."""

    nodes: RankNodes
    drawn_as: Int64s
    """For each row the row of the box that it is part of, or UNKNOWN."""

    @property
    def rows(self) -> Int64s:
        return np.flatnonzero(self.drawn_as == np.arange(len(self.drawn_as)))


def compose(subjects: Sequence[Subject], view: View) -> Scene:
    """The scene of these ranks, with findings on what is not drawn."""
    findings = list[Finding]()
    ranks = _comparable([RankNodes.of(subject) for subject in subjects], findings)
    timed = all(rank.spans.timed for rank in ranks)
    origin = min((time for rank in ranks for time in rank.spans.begin), default=0)
    bounds = _bounds(view, origin, timed=timed)
    wanted = [rank.within(*bounds) for rank in ranks]
    if view.window and not any(rows.any() for rows in wanted):
        raise UsageError(
            "--window: no node is in this window", advice="Times count from the start of the first node."
        )
    depth = view.depth or _depth(ranks, wanted, view, findings)
    chosen = [
        _Chosen(rank, rank.nesting.drawn_as(rows, depth)) for rank, rows in zip(ranks, wanted, strict=True)
    ]
    chosen, bounds = _earliest(chosen, bounds, view, findings)
    boxes, box_of_row = _boxes(chosen)
    arrows = [
        arrow
        for rank, box in zip(chosen, box_of_row, strict=True)
        for arrow in arrows_of(rank.nodes.precedence, rank.drawn_as, box)
    ]
    if view.limit is not None:
        arrows = fewest(arrows, boxes, view.limit * _ARROWS_PER_NODE, findings)
    findings += [finding for rank in ranks for finding in _defects(rank)]
    nodes = sum(len(subject.nodes) for subject in subjects)
    return Scene(boxes, arrows, timed, nodes, origin, *_reach(boxes, bounds), findings)


def _bounds(view: View, origin: float, *, timed: bool) -> Bounds:
    if view.window is None:
        return None, None
    if not timed:
        raise UsageError(
            "--window: the nodes have no start times", advice="Draw less with --depth or --ranks."
        )
    return view.window.after(int(origin))


def _reach(boxes: Sequence[Box], bounds: Bounds) -> tuple[float, float]:
    """The time that the drawing shows."""
    first, last = bounds
    begin, end = min((box.begin for box in boxes), default=0), max((box.end for box in boxes), default=0)
    return begin if first is None else max(begin, first), end if last is None else min(end, last)


def _comparable(ranks: Sequence[RankNodes], findings: list[Finding]) -> list[RankNodes]:
    """The ranks with times; if no rank has times, all ranks."""
    timed = [rank for rank in ranks if rank.spans.timed]
    for rank in ranks:
        if timed and not rank.spans.timed and len(rank.subject.nodes):
            path = rank.subject.path
            message = (
                f"{path} is not drawn: its nodes have no times, unlike those of other files. Draw it alone."
            )
            findings.append(Finding(Severity.WARNING, "without_times", message, source=path))
    return timed or list(ranks)


def _depth(
    ranks: Sequence[RankNodes], wanted: Sequence[Bools], view: View, findings: list[Finding]
) -> int | None:
    """The greatest depth with few enough nodes; None if all depths fit or none."""
    if view.limit is None or not ranks:
        return None
    levels = np.concatenate(
        [np.array(rank.nesting.level, np.int64)[rows] for rank, rows in zip(ranks, wanted, strict=True)]
    )
    fitting = np.flatnonzero(np.cumsum(np.bincount(levels)) <= view.limit)
    if len(levels) <= view.limit or not len(fitting) or not fitting[-1]:
        return None
    depth = int(fitting[-1])
    message = (
        f"drawn to depth {depth} of {levels.max()}: {len(levels):,} nodes exceed the limit of {view.limit:,}."
        f" Deeper nodes are part of the box that encloses them; {_DRAW_LESS}, --limit {len(levels)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "folded", message))
    return depth


def _earliest(
    chosen: list[_Chosen], bounds: Bounds, view: View, findings: list[Finding]
) -> tuple[list[_Chosen], Bounds]:
    """The boxes that start first, up to the limit, and the time up to the first one that is not drawn."""
    begins = sorted(
        (rank.nodes.spans.begin[row], number, row)
        for number, rank in enumerate(chosen)
        for row in rank.rows.tolist()
    )
    if view.limit is None or len(begins) <= view.limit:
        return chosen, bounds
    kept = [set[int]() for _ in chosen]
    for _, number, row in begins[: view.limit]:
        kept[number].add(row)
    message = (
        f"only the first {view.limit:,} of {len(begins):,} nodes are drawn, because more are not readable:"
        f" {_DRAW_LESS}, --limit {len(begins)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "not_drawn", message, len(begins) - view.limit))
    end = begins[view.limit][0]
    if end > begins[view.limit - 1][0]:
        bounds = bounds[0], end
    fewer = [
        replace(rank, drawn_as=_only(rank.drawn_as, rows)) for rank, rows in zip(chosen, kept, strict=True)
    ]
    return fewer, bounds


def _only(drawn_as: Int64s, rows: set[int]) -> Int64s:
    keeps = np.isin(drawn_as, np.array(sorted(rows), np.int64))
    return np.where(keeps, drawn_as, UNKNOWN)


def _boxes(chosen: Sequence[_Chosen]) -> tuple[list[Box], list[dict[int, int]]]:
    """All boxes in order of time, and for each rank the index of the box of a row."""
    made = [rank.nodes.boxes(rank.drawn_as.tolist()) for rank in chosen]
    order = sorted(
        (box.begin, -box.end, number, row) for number, boxes in enumerate(made) for row, box in boxes.items()
    )
    box_of_row = [dict[int, int]() for _ in chosen]
    for index, (_, _, number, row) in enumerate(order):
        box_of_row[number][row] = index
    seen = dict[str, int]()
    boxes = []
    for _, _, number, row in order:
        box = made[number][row]
        seen[box.key] = seen.get(box.key, 0) + 1
        suffix = f"@{seen[box.key]}" if seen[box.key] > 1 else ""
        inside = _enclosing_box(chosen[number], row, box_of_row[number])
        boxes.append(replace(box, key=box.key + suffix, inside=inside))
    return boxes, box_of_row


def _enclosing_box(rank: _Chosen, row: int, box_of_row: dict[int, int]) -> int | None:
    parent = rank.nodes.nesting.parent[row]
    return None if parent == UNKNOWN else box_of_row.get(int(rank.drawn_as[parent]))


def _defects(rank: RankNodes) -> Iterator[Finding]:
    """Dependencies that cannot be drawn, and cycles."""
    precedence, path = rank.precedence, rank.subject.path
    if precedence.missing:
        message = "dependencies on nodes that do not exist are not drawn."
        yield Finding(Severity.WARNING, "missing_dependencies", message, precedence.missing, path)
    if precedence.itself:
        message = "dependencies of nodes on themselves are not drawn."
        yield Finding(Severity.WARNING, "own_dependencies", message, precedence.itself, path)
    if rows := cycle(precedence, earliest(precedence, [1] * precedence.count)):
        ids = " → ".join(str(unsigned(int(rank.subject.nodes.id[row]))) for row in [*rows[:8], rows[0]])
        message = "nodes depend on each other in a cycle: they and the nodes behind them never run."
        yield Finding(Severity.WARNING, "cycle", message, len(rows), path, ids)


# Arrows.


def arrows_of(precedence: Precedence, drawn_as: Int64s, box_of_row: Mapping[int, int]) -> list[Arrow]:
    """The dependencies between boxes, without duplicates; those within a box are left out."""
    cause, effect = drawn_as[precedence.cause], drawn_as[precedence.effect]
    between = (cause >= 0) & (effect >= 0) & (cause != effect)
    pair, first = np.unique(cause[between] * precedence.count + effect[between], return_inverse=True)
    data, control = np.zeros(len(pair), np.bool_), np.zeros(len(pair), np.bool_)
    np.logical_or.at(data, first, precedence.data[between])
    np.logical_or.at(control, first, precedence.control[between])
    causes, effects = np.divmod(pair, max(precedence.count, 1))
    columns = causes.tolist(), effects.tolist(), data.tolist(), control.tolist()
    return [
        Arrow(box_of_row[before], box_of_row[after], *kinds)
        for before, after, *kinds in zip(*columns, strict=True)
    ]


def fewest(arrows: list[Arrow], boxes: Sequence[Box], most: int, findings: list[Finding]) -> list[Arrow]:
    """At most this many arrows: for each box those from the causes that ended last."""
    if len(arrows) <= most:
        return arrows
    latest = sorted(range(len(arrows)), key=lambda index: -boxes[arrows[index].cause].end)
    seen = [0] * len(boxes)
    rank = [0] * len(arrows)
    for index in latest:
        rank[index] = seen[arrows[index].effect]
        seen[arrows[index].effect] += 1
    totals = np.cumsum(np.bincount(rank))
    per_box = max(int(np.searchsorted(totals, most, side="right")), 1)
    kept = [arrow for arrow, number in zip(arrows, rank, strict=True) if number < per_box]
    message = (
        f"only {len(kept):,} of {len(arrows):,} dependencies are drawn: for each node those on the"
        f" {per_box:,} that ended last. --window and --depth draw less; a .graphml has all of them."
    )
    findings.append(Finding(Severity.WARNING, "edges_not_drawn", message, len(arrows) - len(kept)))
    return kept
