"""Elements: bounded, visible, escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracelink.errors import printable
from tracelink.text import clipped

# Elements of a page. Any text that becomes part of one is bounded, made visible and escaped on the way.


LONGEST = 2000
"""Characters of one text; more are counted and not shown."""

VOID = frozenset({"br", "col", "link", "meta"})
"""Elements that have no end."""

BLOCKS = frozenset({"dd", "div", "li", "p", "section", "table", "tr", "ul", "ol", "h1", "h2", "h3", "svg"})
"""Elements that end a line of the file, for whoever reads it as text."""


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML or SVG; only `element` and what the program itself brings along become one."""

    text: str


Child = Markup | str | int | None | Iterable["Child"]
"""What can stand inside an element; None is nothing."""


def element(name: str, /, *children: Child, **attributes: str | int | float | None) -> Markup:
    """An element; `class_` is the attribute `class`, `aria_label` is `aria-label`, None leaves one out."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{opening}>")
    end = "\n" if name in BLOCKS else ""
    return Markup(f"<{name}{opening}>{inner(children)}</{name}>{end}")


def inner(child: Child) -> str:
    """The HTML text of what stands inside an element."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child.text
    if isinstance(child, str | int):
        return escaped(str(child))
    return "".join(inner(one) for one in child)


def escaped(text: str) -> str:
    """Any text as content or as the value of an attribute: it shows what it holds and does nothing."""
    return html.escape(printable(clipped(text, LONGEST)), quote=True)


# Tables of the page: with a caption and headers, and in a frame that scrolls where they are too wide.


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
