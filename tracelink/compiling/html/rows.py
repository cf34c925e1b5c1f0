"""Tables of the page with at most so many rows, and links to compile ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from tracelink.show.markup import Child, Markup, element, table
from tracelink.show.page import left_out

MOST_ROWS = 500
"""Rows of a table."""
MOST_LINKS = 12
"""Compile ids that a cell links to."""


def rows_of(caption: str, header: Sequence[str], rows: Sequence[Sequence[Child]]) -> Child:
    """A table of at most so many rows; nothing without rows."""
    if not rows:
        return None
    return [table(caption, header, rows[:MOST_ROWS]), left_out(rows, MOST_ROWS, "more row")]


def anchor(rank: int, compile_id: str, number: int = 0) -> str:
    """`c-0-1/5`: the anchor of a compile id; later logs of a rank have a number."""
    return f"c-{rank}-{compile_id or 'process'}{f'~{number + 1}' if number else ''}"


def link(rank: int, compile_id: str) -> Markup:
    """A link to a compile id."""
    return element("a", f"[{compile_id}]", href=f"#{anchor(rank, compile_id)}")


def links(ids: Mapping[str, int]) -> Child:
    """Links to compile ids, each with a rank that has it."""
    more = f"and {len(ids) - MOST_LINKS:,} more" if len(ids) > MOST_LINKS else None
    return [[[link(rank, id_), " "] for id_, rank in islice(ids.items(), MOST_LINKS)], more]
