"""HTML and SVG elements. Any text in them is shortened, made printable and escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable

from msgspec import Struct

from tracelink._model.errors import printable
from tracelink._model.text import clipped

LONGEST = 2000
"""Characters shown of one text."""
VOID = frozenset({"br", "col", "link", "meta"})
"""Elements without an end tag."""
BLOCKS = frozenset({"dd", "div", "li", "p", "section", "table", "tr", "ul", "ol", "h1", "h2", "h3", "svg"})
"""Elements that end a line of the file, for people who read its source."""


class Markup(Struct, frozen=True):
    """HTML or SVG; only from `element` and from files of this package."""

    text: str


Child = Markup | str | int | None | Iterable["Child"]
"""What an element can contain; None is nothing."""


def element(name: str, /, *children: Child, **attributes: str | int | float | None) -> Markup:
    """An element; `class_` is the attribute `class`, `aria_label` is `aria-label`, None leaves one out."""
    opening = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{opening}>")
    end = "\n" if name in BLOCKS else ""
    return Markup(f"<{name}{opening}>{inner(children)}</{name}>{end}")


def _attribute(value: str | float) -> str:
    """The value of an attribute; lengths to a hundredth of a pixel."""
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").removesuffix(".")
    return escaped(str(value))


def inner(child: Child) -> str:
    """The HTML of what is inside an element."""
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child.text
    if isinstance(child, str | int):
        return escaped(str(child))
    return "".join(inner(part) for part in child)


def escaped(text: str) -> str:
    """Any text as content or as an attribute's value: it is shown, and has no effect."""
    return html.escape(printable(clipped(text, LONGEST)), quote=True)


def framed(label: str, *wide: Child) -> Markup:
    """Content that may be wider than the page: it scrolls in its own frame, also by keyboard."""
    return element("div", wide, class_="frame", role="region", tabindex=0, aria_label=label)
