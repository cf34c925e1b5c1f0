"""Problems in words."""

from __future__ import annotations

from collections.abc import Sequence

from tracelink.operations import operation_of
from tracelink.ranges import Numbers
from tracelink.trace import ProcessGroup

SECOND = 1_000_000_000
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
