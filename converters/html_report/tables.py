"""Tables of the page: with a caption and headers, and in a frame that scrolls where they are too wide."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.converters.html_report.markup import Child, Markup, element


def table(caption: str, header: Sequence[Child], rows: Sequence[Sequence[Child]]) -> Markup:
    """A table whose first column names what a row is of."""
    head = element("tr", (element("th", name, scope="col") for name in header))
    body = (
        element("tr", element("th", first, scope="row"), (element("td", cell) for cell in others))
        for first, *others in rows
    )
    parts = element("caption", caption), element("thead", head), element("tbody", body)
    return framed(caption, element("table", parts))


def framed(label: str, *wide: Child) -> Markup:
    """What may be wider than the page: it scrolls for itself, by keyboard too."""
    return element("div", wide, class_="frame", role="region", tabindex=0, aria_label=label)
