"""Reports as HTML: one file that loads and sends nothing, whose tables sort and filter where scripts run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from msgspec.structs import replace

from tracelink._model.findings import Finding, in_order
from tracelink._model.text import counted
from tracelink._show.cells import EMPTY, Column
from tracelink._show.charts import STYLE as CHARTS
from tracelink._show.document import (
    Block,
    Chart,
    Code,
    Details,
    Element,
    Facts,
    Frames,
    Heading,
    Items,
    Medium,
    Only,
    Paragraph,
    Report,
    Section,
    Table,
)
from tracelink._show.markup import Child, Markup, element, escaped, framed
from tracelink._show.page import Assets, closing, left_out, opening, page_header
from tracelink._show.terminal import paragraph

MOST_FINDINGS = 200
MOST_ITEMS = 200
CHART = "tracelink-chart"
"""The class of charts."""
WORTH_FILTERING = 12
"""Rows from which a table can be filtered."""


def draw(report: Report) -> str:
    """Returns a report as a page."""
    return "".join(parts(report))


def parts(report: Report) -> Iterator[str]:
    """Yields a report as a page, in parts."""
    assets = Assets.of(report.assets)
    every = [(anchor_of(one), one.title, _blocks(one.blocks)) for one in report.sections]
    every.append(("findings", "Findings", _findings(report.findings)))
    firsts = [next(content, None) for _, _, content in every]
    present = [
        (anchor, title, chain([first], rest))
        for (anchor, title, rest), first in zip(every, firsts, strict=True)
        if first is not None
    ]
    yield opening(report.headline, assets)
    yield page_header(
        report.headline,
        element("div", _blocks(report.summary), class_="facts") if report.summary else None,
        sections=[(anchor, title) for anchor, title, _ in present],
        class_=report.tone.value or "ok",
    ).text
    yield "<main>"
    for anchor, title, content in present:
        yield f'<section aria-labelledby="{escaped(anchor)}">{element("h2", title, id=anchor).text}'
        yield from (part.text for part in content)
        yield "</section>\n"
    yield f"{_place_of_command().text}</main>"
    yield closing(report.command, assets)


def fragment(report: Report) -> str:
    """Returns a report as a part of a page, such as the output of a cell of a notebook."""
    children: list[Child] = [
        element("p", element("strong", report.headline)),
        _blocks(report.summary, live=False),
        *(
            element("div", element("h4", one.title), content)
            for one in report.sections
            if (content := list(_blocks(one.blocks, live=False)))
        ),
    ]
    drawn = element("div", children).text
    return f"<style>{CHARTS}</style>{drawn}" if CHART in drawn else drawn


def anchor_of(one: Section) -> str:
    """The anchor of a section: its own, or made of its title."""
    return one.anchor or re.sub(r"[^a-z0-9]+", "-", one.title.lower()).strip("-")


def _blocks(blocks: Iterable[Block], *, live: bool = True) -> Iterator[Markup]:
    return (markup for block in blocks for markup in _drawn(block, live))


def _drawn(block: Block, live: bool) -> Iterator[Markup]:
    match block:
        case Paragraph():
            yield element("p", block.text, class_=block.tone.value or None)
        case Heading():
            yield element("h3", block.text)
        case Items() if block.texts:
            yield element("ul", (element("li", text) for text in block.texts[:MOST_ITEMS]))
            yield from _present(left_out(block.texts, MOST_ITEMS, block.thing))
        case Facts() if block.values:
            pairs = ((element("dt", name), element("dd", value)) for name, value in block.values.items())
            yield element("dl", pairs)
        case Table():
            yield from table(block, live=live)
        case Frames() if block.frames:
            yield _stack(block)
        case Code():
            caption = element("figcaption", block.title) if block.title else None
            yield element("figure", caption, framed(block.title or "Code", element("pre", block.text)))
        case Chart():
            yield figure(block)
        case Details():
            yield element(
                "details",
                element("summary", block.summary),
                _blocks(block.blocks, live=live),
                open="" if block.open else None,
            )
        case Only() if Medium.HTML in block.media:
            yield from _blocks(block.made(), live=live)
        case Element():
            yield block.child if isinstance(block.child, Markup) else element("div", block.child)


def _present(child: Child) -> Iterator[Markup]:
    if isinstance(child, Markup):
        yield child


def _stack(stack: Frames) -> Markup:
    frames = (element("li", element("code", place), " ", function) for place, function in stack.frames)
    return element("ol", frames, class_="stack")


def figure(chart: Chart) -> Markup:
    """A chart in its own frame; the page has the style of all charts."""
    caption = element("figcaption", chart.note) if chart.note else None
    svg = chart.svg if isinstance(chart.svg, str) else chart.svg()
    drawn = svg.replace(f"<style>{CHARTS}</style>", "")
    return element("figure", framed(chart.title, Markup(drawn)), caption)


# Tables


def table(block: Table, *, live: bool = True) -> Iterator[Markup]:
    """A table without columns that are empty in every row; if it is live, it sorts by each column and filters.

    A table that is not live has no commands and links either: what they need is not there.
    """
    if not live:
        block = replace(block, place=None, drawn={})
    shown = block.rows[: block.most]
    columns = block.columns_of(shown, page=live)
    if not columns:
        return
    header = [
        element("th", element("button", one.heading, type="button") if live else one.heading, scope="col")
        for one in columns
    ]
    if block.place is not None:
        header.append(element("th", "timeline", scope="col"))
    whole = element(
        "table",
        element("caption", block.title) if block.title else None,
        element("thead", element("tr", header)),
        element("tbody", (_row(block, columns, row, index) for index, row in enumerate(shown))),
        class_="sortable" if live else None,
    )
    label = block.title or counted(len(block.rows), block.thing)
    if live and len(shown) >= WORTH_FILTERING:
        yield _filter(label)
    yield framed(label, whole)
    yield from _present(left_out(block.rows, block.most, f"more {block.thing}"))


def _row(block: Table, columns: Sequence[Column], row: Any, index: int) -> Markup:
    cells = [_cell(column, index, row, block) for column in columns]
    if block.place is not None:
        cells.append(element("td", _place(block.place(row))))
    return element("tr", cells)


def _cell(column: Column, index: int, row: Any, block: Table) -> Markup:
    text, name = column.cells[index], column.field.name
    value = getattr(row, name)
    number = value if isinstance(value, int | float | np.number) and not isinstance(value, bool) else None
    classes = [
        *(["number"] if column.right else []),
        *([tone.value] if (tone := block.tones.get(text)) else []),
    ]
    return element(
        "td",
        block.drawn[name](row) if name in block.drawn else "" if text == EMPTY else text,
        class_=" ".join(classes) or None,
        data_value=None if number is None else f"{number}",
    )


def _place(command: str) -> Child:
    return element("button", "show", type="button", class_="place", data_command=command) if command else None


def _filter(label: str) -> Markup:
    """A field that a script shows and that hides rows without its words."""
    field = element("input", type="search", class_="filter", aria_label=f"Filter: {label}")
    return element("label", "Filter ", field, class_="filtering", hidden="")


def _place_of_command() -> Markup:
    """Where a script shows the command for the place of a row."""
    parts = "In the timeline: ", element("code", ""), " ", element("small", "")
    return element("p", parts, id="place", role="status", hidden="")


def _findings(findings: Sequence[Finding]) -> Iterator[Markup]:
    if not findings:
        return
    listed = in_order(findings)
    items = (element("li", paragraph(one), class_=one.severity.value) for one in listed[:MOST_FINDINGS])
    yield element("ul", items, class_="findings")
    yield from _present(left_out(listed, MOST_FINDINGS, "more finding"))
