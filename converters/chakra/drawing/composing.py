"""From nodes to what is drawn of them: cut to a time, folded to a depth, and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tracelink.converters.chakra.drawing.arrows import arrows_of, fewer
from tracelink.converters.chakra.drawing.nesting import OUTSIDE
from tracelink.converters.chakra.drawing.scene import Box, Scene, Subject
from tracelink.converters.chakra.drawing.sheet import Sheet
from tracelink.converters.chakra.drawing.view import ARROWS_PER_NODE, View
from tracelink.converters.chakra.precedence import cycle, earliest
from tracelink.converters.chakra.table import unsigned
from tracelink.errors import UsageError
from tracelink.events import Bools, Int64s
from tracelink.findings import Finding, Severity

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
    wanted = _wanted(sheets, view, origin, timed=timed)
    depth = view.depth or _depth(sheets, wanted, view, findings)
    chosen = [
        _Chosen(sheet, sheet.nesting.drawn_as(some, depth))
        for sheet, some in zip(sheets, wanted, strict=True)
    ]
    chosen = _earliest(chosen, view, findings)
    boxes, places = _boxes(chosen)
    arrows = [
        arrow
        for one, place in zip(chosen, places, strict=True)
        for arrow in arrows_of(one.sheet.precedence, one.drawn_as, place)
    ]
    if view.most is not None:
        arrows = fewer(arrows, boxes, view.most * ARROWS_PER_NODE, findings)
    findings += [finding for sheet in sheets for finding in _defects(sheet)]
    nodes = sum(len(subject.nodes) for subject in subjects)
    return Scene(boxes, arrows, timed, nodes, origin, findings)


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


def _wanted(sheets: Sequence[Sheet], view: View, origin: float, *, timed: bool) -> list[Bools]:
    """Which nodes of each rank lie in the window."""
    if view.window is None:
        return [np.ones(len(sheet.subject.nodes), np.bool_) for sheet in sheets]
    if not timed:
        raise UsageError("--window: no node says when it begins", advice="Narrow it with --depth or --ranks.")
    wanted = [sheet.within(*view.window.after(int(origin))) for sheet in sheets]
    if not any(some.any() for some in wanted):
        raise UsageError(
            "--window: no node lies in it", advice="Times count from the first node's beginning."
        )
    return wanted


def _depth(
    sheets: Sequence[Sheet], wanted: Sequence[Bools], view: View, findings: list[Finding]
) -> int | None:
    """The greatest depth down to which not too many nodes lie; None where all depths or none will do."""
    if view.most is None or not sheets:
        return None
    levels = np.concatenate(
        [np.array(sheet.nesting.level, np.int64)[some] for sheet, some in zip(sheets, wanted, strict=True)]
    )
    fitting = np.flatnonzero(np.cumsum(np.bincount(levels)) <= view.most)
    if len(levels) <= view.most or not len(fitting) or not fitting[-1]:
        return None
    depth = int(fitting[-1])
    message = (
        f"drawn down to depth {depth} of {levels.max()}: {len(levels):,} nodes are more than {view.most:,}."
        f" What lies deeper is part of the box around it; {NARROW}, --limit {len(levels)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "folded", message))
    return depth


def _earliest(chosen: list[_Chosen], view: View, findings: list[Finding]) -> list[_Chosen]:
    """No more boxes than the picture takes: those that begin first."""
    begins = [
        (one.sheet.spans.begin[row], number, row)
        for number, one in enumerate(chosen)
        for row in one.rows.tolist()
    ]
    if view.most is None or len(begins) <= view.most:
        return chosen
    begins.sort()
    kept = [set[int]() for _ in chosen]
    for _, number, row in begins[: view.most]:
        kept[number].add(row)
    message = (
        f"only the first {view.most:,} of {len(begins):,} nodes are drawn, more would not be readable:"
        f" {NARROW}, --limit {len(begins)} draws all."
    )
    findings.append(Finding(Severity.WARNING, "not_drawn", message, len(begins) - view.most))
    return [replace(one, drawn_as=_only(one.drawn_as, rows)) for one, rows in zip(chosen, kept, strict=True)]


def _only(drawn_as: Int64s, rows: set[int]) -> Int64s:
    keeps = np.isin(drawn_as, np.array(sorted(rows), np.int64))
    return np.where(keeps, drawn_as, OUTSIDE)


def _boxes(chosen: Sequence[_Chosen]) -> tuple[list[Box], list[dict[int, int]]]:
    """All boxes in order of time, and for each rank the place of the box of a row."""
    made = [one.sheet.boxes(one.drawn_as.tolist()) for one in chosen]
    order = sorted(
        (box.begin, -box.end, number, row) for number, boxes in enumerate(made) for row, box in boxes.items()
    )
    places = [dict[int, int]() for _ in chosen]
    for place, (_, _, number, row) in enumerate(order):
        places[number][row] = place
    boxes = [
        replace(made[number][row], inside=_around(chosen[number], row, places[number]))
        for _, _, number, row in order
    ]
    return boxes, places


def _around(one: _Chosen, row: int, places: dict[int, int]) -> int | None:
    parent = one.sheet.nesting.parent[row]
    return None if parent == OUTSIDE else places.get(int(one.drawn_as[parent]))


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
