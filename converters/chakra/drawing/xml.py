"""Elements of XML; any text that becomes part of one is escaped on the way."""

from __future__ import annotations

from xml.sax.saxutils import escape

QUOTES = {'"': "&quot;", "'": "&#39;"}


def text(content: str) -> str:
    """What may stand in an element or an attribute; the content is visible text already."""
    return escape(content, QUOTES)


def element(name: str, content: str = "", /, **attributes: str | float | None) -> str:
    """An element around content that is XML; `class_` is the attribute `class`, `stroke_width` is `stroke-width`."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def _value(value: str | float) -> str:
    return text(value) if isinstance(value, str) else number(value)


def number(value: float) -> str:
    """A length to a tenth of a pixel, without a tail of zeros."""
    return f"{value:.1f}".removesuffix(".0")
