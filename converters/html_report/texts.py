"""What the page says in words: ranks, times, sizes, names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tracelink.analysis.wording import group_in_words, operation_in_words
from tracelink.converters.html_report.markup import clipped, visible
from tracelink.ranges import Numbers

SECOND = 1_000_000_000
LONGEST_NAME = 80
"""Characters of a name in a sentence or a cell."""

MOST_RANGES = 24
MOST_SHAPES = 4
LAST_SECOND = 253_402_300_799
"""Of the year 9999, behind which there is no calendar."""


def name_in_words(text: str) -> str:
    """A name of any length, cut to what fits."""
    return clipped(visible(text), LONGEST_NAME)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def group_name(name: str, description: str) -> str:
    """`group 0 (default_pg)`."""
    return group_in_words(name_in_words(name), name_in_words(description))


def operation_name(operation: str) -> str:
    """`all_reduce`."""
    return name_in_words(operation_in_words(operation))


def numbered(operation: str, sequence: int | None) -> str:
    """`all_reduce #9`."""
    name = operation_name(operation)
    return name if sequence is None else f"{name} #{sequence}"


def rank_list(ranks: Sequence[int]) -> str:
    """`0-5, 7`; of many ranges some, and how many ranks there are."""
    listed = Numbers.of(ranks)
    if len(listed.ranges) <= MOST_RANGES:
        return str(listed)
    return f"{Numbers(listed.ranges[:MOST_RANGES])}, … ({counted(len(ranks), 'rank')})"


def counted(count: int, thing: str) -> str:
    """`1 rank`, `2,000 ranks`, `3 entries`."""
    if count != 1:
        thing = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{count:,} {thing}"


def moment(nanoseconds: int) -> str:
    """`2026-11-18 05:02:39.603435 UTC`."""
    seconds, rest = divmod(nanoseconds, SECOND)
    if not 0 <= seconds <= LAST_SECOND:
        return f"{nanoseconds} ns"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest // 1000:06} UTC"


def time_of_day(nanoseconds: int) -> str:
    """`05:02:39.603435`; the date stands above."""
    return moment(nanoseconds).removesuffix(" UTC").rpartition(" ")[2]


def sizes(shapes: Sequence[Sequence[int]], types: Sequence[str]) -> str:
    """`64 x 16 Float`; of many tensors the first few, and how many there are."""
    if not shapes:
        return "none"
    shown = ", ".join(
        "\N{MULTIPLICATION SIGN}".join(map(str, shape)) or "scalar" for shape in shapes[:MOST_SHAPES]
    )
    more = f", … ({len(shapes):,} tensors)" if len(shapes) > MOST_SHAPES else ""
    kinds = ", ".join(dict.fromkeys(map(name_in_words, types[:MOST_SHAPES])))
    return f"{clipped(shown, LONGEST_NAME)}{more} {kinds}".strip()
