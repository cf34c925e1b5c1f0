"""Sizes, times, counts, rank lists, names: for people, once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tracelink.diagnosis.html.markup import clipped, visible
from tracelink.model.columns import MILLISECOND, SECOND
from tracelink.model.operations import operation_of
from tracelink.model.trace import ProcessGroup
from tracelink.ranges import Numbers

# Shared definitions


def span(ns: int) -> str:
    """1.234 s, 12.345 ms."""
    return f"{ns / SECOND:,.3f} s" if ns >= SECOND else f"{ns / MILLISECOND:.3f} ms"


# Sizes as people read them.


UNITS = ("B", "kB", "MB", "GB", "TB")
KILO = 1000


def about(count: int) -> str:
    """A size in two digits: 310 MB, 1.2 GB."""
    value, unit = float(f"{count:.2g}"), 0
    while value >= KILO and unit < len(UNITS) - 1:
        value, unit = value / KILO, unit + 1
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {UNITS[unit]}"


# Problems in words.


MINUTE = 60
HOUR = 60 * MINUTE
MOST_RANKS = 8
"""More are counted and not listed."""


def ranks_in_words(ranks: Sequence[int]) -> str:
    """`Rank 3`, `Ranks 1 and 6`, `Ranks 0-7`, `64 ranks (0, 2, 4, …)`."""
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    if len(ranks) == 2:
        return f"Ranks {ranks[0]} and {ranks[1]}"
    listed = Numbers.of(ranks)
    if len(listed.ranges) <= MOST_RANKS:
        return f"Ranks {listed}"
    some = ", ".join(str(listed).split(", ")[:MOST_RANKS])
    return f"{len(ranks)} ranks ({some}, …)"


def lowered(words: str) -> str:
    """The same inside a sentence."""
    return words[:1].lower() + words[1:]


def collective_in_words(operation: str, sequence: int, group: ProcessGroup) -> str:
    """`all_reduce #9 of group 0 (default_pg)`."""
    return f"{operation_in_words(operation)} #{sequence} of {group_in_words(group.name, group.description)}"


def operation_in_words(operation: str) -> str:
    """The operation without its backend."""
    return operation.partition(":")[2] or operation_of(operation)


def group_in_words(name: str, description: str) -> str:
    """`group 0 (default_pg)`."""
    return f"group {name} ({description})" if description not in ("", name) else f"group {name}"


def count_of_ranks(ranks: Sequence[int], verb: str) -> str:
    """`rank 2 waits`, `7 ranks wait`: the verb is that of several."""
    return f"rank {ranks[0]} {verb}s" if len(ranks) == 1 else f"{len(ranks)} ranks {verb}"


def duration(nanoseconds: int) -> str:
    """`4.0 s`, `12.0 ms`, `3 min 20 s`, `10 min`, `2 h 5 min`."""
    seconds = nanoseconds / SECOND
    if seconds >= 2 * HOUR:
        return _of_two(seconds / 60, "h", "min")
    if seconds >= 2 * MINUTE:
        return _of_two(seconds, "min", "s")
    if seconds >= 0.1:
        return f"{seconds:.1f} s"
    return f"{nanoseconds / 1e6:.1f} ms" if nanoseconds >= 100_000 else f"{nanoseconds / 1e3:.0f} us"


def _of_two(count: float, large: str, small: str) -> str:
    whole, rest = divmod(int(count), 60)
    return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"


# What the page says in words: ranks, times, sizes, names.


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
