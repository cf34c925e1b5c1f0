"""Drawings of the page: charts without their own styles, and the heat map of ranks and collectives."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.answers.model.communication import CollectiveRow, RankWaits
from tracelink.model.text import counted, fine_span, name_in_words, shortened, size
from tracelink.show import charts
from tracelink.show.markup import Child, Markup, element, framed

LABEL, CELL, ROW = 250, 14, 18
"""Of the heat map: the names at the left, a cell, and a row."""
MOST_ROWS, MOST_RANKS = 30, 128
LONGEST_LABEL = 34
SHADES = 6
"""The darker, the longer a rank waited; the first is for none."""
STYLE = charts.STYLE
"""Of all charts of a page."""


def figure(plot: charts.Plot, note: str = "") -> Markup:
    """A chart in its own frame; the page has the style of all charts."""
    drawn = Markup(plot.svg.replace(f"<style>{STYLE}</style>", ""))
    caption = element("figcaption", note) if note else None
    return element("figure", framed(plot.title, drawn), caption)


def heat_map(rows: Sequence[CollectiveRow]) -> Child:
    """How long each rank waited in each class of collectives; a dot marks the rank that is last most often."""
    timed = [row for row in rows if row.measured and any(rank.wait_ns for rank in row.by_rank)]
    shown = timed[:MOST_ROWS]
    ranks = sorted({rank.rank for row in shown for rank in row.by_rank})[:MOST_RANKS]
    if len(ranks) < 2:
        return None
    place = {rank: column for column, rank in enumerate(ranks)}
    parts: list[Child] = []
    for number, row in enumerate(shown):
        y = number * ROW
        name = _name(row)
        label = shortened(name, LONGEST_LABEL)
        parts.append(element("text", label, element("title", name), x=LABEL - 8, y=y + 13, text_anchor="end"))
        most = max(rank.wait_ns for rank in row.by_rank) or 1
        latest = max(row.by_rank, key=lambda rank: rank.last)
        for waits in row.by_rank:
            if waits.rank in place:
                parts += _waits(waits, name, LABEL + place[waits.rank] * CELL, y, most, last=waits is latest)
    height = len(shown) * ROW
    every = max(1, len(ranks) // 16)
    for rank in ranks[::every]:
        x = LABEL + place[rank] * CELL + CELL // 2
        parts.append(element("text", rank, x=x, y=height + 14, text_anchor="middle", class_="soft"))
    width = LABEL + len(ranks) * CELL + 16
    title = "Waits of each rank in each class of collectives"
    drawn = element(
        "svg",
        element("title", title),
        parts,
        viewBox=f"0 0 {width} {height + 20}",
        width=width,
        height=height + 20,
        role="img",
        aria_label=title,
        class_="heat",
    )
    words = "The darker, the longer the rank waited for the last one, by row. A dot: the rank that is last most often."
    hidden = len(timed) - len(shown)
    if hidden:
        words += f" {counted(hidden, 'more row')} not drawn."
    return element("figure", framed(title, drawn), element("figcaption", words))


def _name(row: CollectiveRow) -> str:
    amount = f" {size(row.bytes)}" if row.bytes is not None else ""
    return f"{name_in_words(row.operation)}{amount}, group {name_in_words(row.group_name)}"


def _waits(waits: RankWaits, name: str, x: int, y: int, most: int, *, last: bool) -> list[Markup]:
    shade = 0 if not waits.wait_ns else 1 + min(int((SHADES - 1) * waits.wait_ns / most), SHADES - 2)
    words = (
        f"rank {waits.rank}, {name}: waited {fine_span(waits.wait_ns)}, last {counted(waits.last, 'time')}"
    )
    cell = element(
        "rect", element("title", words), x=x, y=y + 1, width=CELL - 1, height=ROW - 2, class_=f"h{shade}"
    )
    if not (last and waits.last):
        return [cell]
    dot = element(
        "circle", element("title", words), cx=x + CELL / 2 - 0.5, cy=y + ROW / 2, r=2.5, class_="last"
    )
    return [cell, dot]
