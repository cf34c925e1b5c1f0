"""Texts and tables of Markdown, for comments on pull requests and issues."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelink.model.errors import printable

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@&$:-])")
"""What Markdown or HTML could take for markup, a mention or a link."""


def markdown_escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return SPECIAL.sub(r"\\\1", printable(text))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; its cells are Markdown."""
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(' --- ' for _ in header)}|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
