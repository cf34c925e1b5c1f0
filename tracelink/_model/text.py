"""Numbers, sizes, times, ranks, groups and tensors, as people read them in messages and on pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tracelink._model.columns import MICROSECOND, MILLISECOND, SECOND
from tracelink._model.errors import printable
from tracelink._model.operations import operation_of
from tracelink._model.selection import Numbers

if TYPE_CHECKING:
    from tracelink._model.trace import ProcessGroup

# Text of any length.


def clipped(text: str, most: int) -> str:
    """The text, or its start and how long it is: `abc… (10,000 characters)`."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def shortened(text: str, most: int) -> str:
    """The text, or its start in `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def both_ends(text: str, most: int) -> str:
    """The text, or its start and its end in `most` characters."""
    end = most // 2
    return text if len(text) <= most else f"{text[: most - 1 - end]}\N{HORIZONTAL ELLIPSIS}{text[-end:]}"


def lowered(sentence: str) -> str:
    """A sentence as it continues another one: its first letter in lower case."""
    return sentence[:1].lower() + sentence[1:]


def capitalized(words: str) -> str:
    """Words as they begin a sentence."""
    return words[:1].upper() + words[1:]


# Counts and sizes.


UNITS = ("B", "kB", "MB", "GB", "TB")
KILO = 1000


def number(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def counted(count: int, thing: str) -> str:
    """`1 rank`, `2,000 ranks`, `3 entries`."""
    if count != 1:
        thing = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{number(count)} {thing}"


SINGULAR = {"are": "is", "have": "has", "were": "was"}


def subject(count: int, thing: str, verb: str) -> str:
    """`1 event is`, `2,000 events are`; `verb` is in the plural."""
    return f"{counted(count, thing)} {SINGULAR[verb] if count == 1 else verb}"


def size(count: int) -> str:
    """`12.3 MB`."""
    value, unit = _in_unit(count)
    return f"{value:.1f} {UNITS[unit]}" if unit else f"{count} B"


def about(count: int) -> str:
    """A size in two digits: `310 MB`, `1.2 GB`."""
    value, unit = _in_unit(float(f"{count:.2g}"))
    return f"{value:.1f} {UNITS[unit]}" if unit and value < 10 else f"{value:.0f} {UNITS[unit]}"


def _in_unit(count: float) -> tuple[float, int]:
    value, unit = float(count), 0
    while value >= KILO and unit < len(UNITS) - 1:
        value, unit = value / KILO, unit + 1
    return value, unit


# Times.


MINUTE = 60
HOUR = 60 * MINUTE
EPOCH = datetime.fromtimestamp(0, UTC)
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""The first and the last second of the years 1 to 9999, which a date can have."""


def span(ns: int) -> str:
    """`1.234 s`, `12.345 ms`, `0.001 ms`."""
    return f"{ns / SECOND:,.3f} s" if ns >= SECOND else f"{ns / MILLISECOND:.3f} ms"


def fine_span(ns: int) -> str:
    """`1.234 s`, `12.345 ms`, `0.5 µs`."""
    return span(ns) if ns >= MILLISECOND else f"{ns / MICROSECOND:g} µs"


def duration(ns: int) -> str:
    """`58 µs`, `12.0 ms`, `4.0 s`, `3 min 20 s`, `10 min`, `2 h 5 min`."""
    seconds = ns / SECOND
    if seconds >= 2 * HOUR:
        return _in_two_units(seconds / MINUTE, "h", "min")
    if seconds >= 2 * MINUTE:
        return _in_two_units(seconds, "min", "s")
    if seconds >= 0.1:
        return f"{seconds:.1f} s"
    return f"{ns / MILLISECOND:.1f} ms" if ns >= 100 * MICROSECOND else f"{ns / MICROSECOND:.0f} µs"


def _in_two_units(count: float, large: str, small: str) -> str:
    quotient, rest = divmod(int(count), 60)
    return f"{quotient} {large} {rest} {small}" if rest else f"{quotient} {large}"


def moment(ns: int) -> str:
    """`2026-11-18 05:02:39.603435 UTC`."""
    text = date_and_time(ns)
    return text if text.endswith(" ns") else f"{text} UTC"


def date_and_time(ns: int, digits: int = 6) -> str:
    """A time in UTC with so many digits after the second: `2026-11-18 05:02:39.603435`."""
    seconds, rest = divmod(ns, SECOND)
    if not FIRST_SECOND <= seconds <= LAST_SECOND:
        return f"{ns} ns"
    return f"{EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}.{f'{rest:09}'[:digits]}"


def time_of_day(ns: int, digits: int = 6) -> str:
    """`05:02:39.603435`, next to a date."""
    text = date_and_time(ns, digits)
    return text if text.endswith(" ns") else text.rpartition(" ")[2]


# Ranks.


MOST_RANKS = 8
"""Ranges of ranks that a sentence lists."""

MOST_RANGES = 24
"""Ranges of ranks that a page lists."""


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


def count_of_ranks(ranks: Sequence[int], verb: str) -> str:
    """`rank 2 waits`, `7 ranks wait`; `verb` is in the plural."""
    return f"rank {ranks[0]} {verb}s" if len(ranks) == 1 else f"{len(ranks)} ranks {verb}"


def rank_list(ranks: Sequence[int]) -> str:
    """`0-5, 7`; of many ranges the first, and the number of ranks."""
    listed = Numbers.of(ranks)
    if len(listed.ranges) <= MOST_RANGES:
        return str(listed)
    return f"{Numbers(listed.ranges[:MOST_RANGES])}, … ({counted(len(ranks), 'rank')})"


LONGEST_LIST = 28
"""Characters of a list of ranks in a cell."""


def ranks_cell(ranks: Sequence[int]) -> str:
    """`0-2, 4-7`; a long list is counted and shortened: `256: 0, 2, 4, 6, 8, …`."""
    listed = str(Numbers.of(ranks))
    if len(listed) <= LONGEST_LIST:
        return listed
    head = f"{number(len(ranks))}: "
    return f"{head}{listed[: LONGEST_LIST - len(head)].rpartition(', ')[0]}, …"


# Groups and operations.


LONGEST_NAME = 80
"""Characters of a name in a sentence or a cell."""


def collective_in_words(operation: str, sequence: int, group: ProcessGroup) -> str:
    """`all_reduce #9 of group 0 (default_pg)`."""
    return f"{operation_in_words(operation)} #{sequence} of {group_in_words(group.name, group.description)}"


def operation_in_words(operation: str) -> str:
    """The operation without its backend."""
    return operation.partition(":")[2] or operation_of(operation)


def group_in_words(name: str, description: str) -> str:
    """`group 0 (default_pg)`."""
    return f"group {name} ({description})" if description not in ("", name) else f"group {name}"


LONGEST_GROUP = 24
"""Characters of a group in a cell."""


def group_cell(name: str, description: str) -> str:
    """`0 (default_pg)`, shortened."""
    return shortened(group_label(name, description), LONGEST_GROUP)


def group_label(name: str, description: str) -> str:
    """`5 (tp)`; one of both if the other one is empty or the same."""
    name, description = printable(name), printable(description)
    return f"{name} ({description})" if name and description not in ("", name) else name or description


def name_in_words(text: str) -> str:
    """A name from a trace: printable, and clipped to what a sentence or a cell can hold."""
    return clipped(printable(text), LONGEST_NAME)


def group_name(name: str, description: str) -> str:
    """`group 0 (default_pg)`, clipped."""
    return group_in_words(name_in_words(name), name_in_words(description))


def numbered(operation: str, sequence: int | None) -> str:
    """`all_reduce #9`, clipped."""
    name = name_in_words(operation_in_words(operation))
    return name if sequence is None else f"{name} #{sequence}"


# Tensors.


MOST_SHAPES = 4


def sizes(shapes: Sequence[Sequence[int]], types: Sequence[str]) -> str:
    """`64 x 16 Float`; of many tensors the first, and how many there are."""
    if not shapes:
        return "no tensors"
    shown = ", ".join(
        "\N{MULTIPLICATION SIGN}".join(map(str, shape)) or "scalar" for shape in shapes[:MOST_SHAPES]
    )
    more = f", … ({len(shapes):,} tensors)" if len(shapes) > MOST_SHAPES else ""
    kinds = ", ".join(dict.fromkeys(map(name_in_words, types[:MOST_SHAPES])))
    return f"{clipped(shown, LONGEST_NAME)}{more} {kinds}".strip()


# Summaries.


FUNCTOR = re.compile(r"\b(\w*[Ff]unctor\w*)")
"""What a generic kernel of PyTorch computes, among the arguments of its template."""
NOISE = re.compile(r"\(anonymous namespace\)::|^void ")
LONGEST_KERNEL = 72


def percent(part: int, whole: int) -> str:
    """`12 %`; with a decimal below 10 %."""
    share = 100 * part / whole if whole else 0
    return f"{share:.0f} %" if share >= 9.95 or not part else f"{share:.1f} %"


def kernel_in_words(name: str) -> str:
    """`at::native::vectorized_elementwise_kernel<AddFunctor>` for a kernel with the arguments of its template."""
    plain = NOISE.sub("", name_in_words(name) if len(name) < LONGEST_KERNEL else name)
    base = re.split(r"[<(]", plain, maxsplit=1)[0] or plain
    functor = FUNCTOR.search(plain[len(base) :])
    return shortened(name_in_words(f"{base}<{functor[1]}>" if functor else base), LONGEST_KERNEL)
