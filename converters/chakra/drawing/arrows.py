"""Dependencies between what is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tracelink.converters.chakra.drawing.scene import Arrow, Box
from tracelink.converters.chakra.precedence import Precedence
from tracelink.events import Int64s
from tracelink.findings import Finding, Severity


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
    findings.append(Finding(Severity.WARNING, "arrows_not_drawn", message, len(arrows) - len(kept)))
    return kept
