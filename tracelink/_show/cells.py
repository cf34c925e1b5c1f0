"""Columns as people see them: one unit in a column, numbers aligned on the point, percent written one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from tracelink._model.columns import MICROSECOND, MILLISECOND, SECOND
from tracelink._model.errors import printable
from tracelink._model.fields import Field, Unit
from tracelink._model.text import date_and_time, number, ranks_cell, shortened

EMPTY = "-"
"""A cell without a value."""

_SCALES: Mapping[Unit, Sequence[tuple[float, tuple[float, str]]]] = {
    Unit.DURATION: (
        (10 * SECOND, (SECOND, "s")),
        (MILLISECOND, (MILLISECOND, "ms")),
        (0, (MICROSECOND, "\N{MICRO SIGN}s")),
    ),
    Unit.BYTES: ((10**9, (10**9, "GB")), (10**6, (10**6, "MB")), (10**3, (10**3, "kB")), (0, (1, "B"))),
    Unit.SHARE: ((0, (0.01, "%")),),
    Unit.PERCENT: ((0, (1, "%")),),
    Unit.PPM: ((0, (1, "ppm")),),
    Unit.RATE: ((0, (1, "GB/s")),),
}
"""For each unit that is shown in others: from which size on in which one, and how much of the unit that is."""

_DIGITS = {"s": 3, "ms": 3, "\N{MICRO SIGN}s": 1, "GB": 1, "MB": 1, "kB": 1, "B": 0, "%": 1, "ppm": 2}
"""Digits after the point."""

BLOCKS = "\N{FULL BLOCK}\N{DARK SHADE}\N{LIGHT SHADE}\N{MIDDLE DOT}"
"""What bars consist of: a character for each part."""
BAR = 32
"""Characters of a bar."""

SIGNIFICANT = 3
"""Digits of the largest number of a column without a unit or in GB/s."""


class Column(NamedTuple):
    """A column as people see it."""

    heading: str
    """With the unit of its numbers."""
    cells: Sequence[str]
    right: bool
    """Whether cells are aligned at the right, as numbers are."""
    field: Field

    @property
    def empty(self) -> bool:
        """Whether no row has a value."""
        return all(cell == EMPTY for cell in self.cells)


def in_unit(unit: str, most: float) -> tuple[float, str]:
    """The unit in which values up to `most` are shown: how much of `unit` that is, and its name."""
    scales = _SCALES.get(Unit.DURATION if unit == Unit.TIME else unit, ((0, (1, unit)),))  # type: ignore[call-overload]
    return next(shown for least, shown in scales if most >= least)


def column_of(
    field: Field, values: Sequence[Any], *, heading: str = "", most: float = 0, zero_ns: int | None = None
) -> Column:
    """A column of values; None, UNSET and empty texts are EMPTY.

    Args:
        field: The declaration of the values.
        values: One for each row.
        heading: Its heading, if not that of the declaration.
        most: The largest number of columns that share its unit, if larger than its own.
        zero_ns: The instant from which times are counted; None: times are dates.
    """
    if field.unit is Unit.TIME and zero_ns is not None:
        values = [value - zero_ns if _is_number(value) else value for value in values]
        field = replace(field, unit=Unit.DURATION)
    title = heading or field.heading
    known = [value for value in values if _is_number(value)]
    if field.unit is Unit.PARTS:
        return Column(title, [_bar(value) for value in values], False, field)
    if field.unit is Unit.RANKS:
        return Column(title, [ranks_cell(value) if value else EMPTY for value in values], False, field)
    if not known or len(known) < sum(not _is_missing(value) for value in values):
        longest, text = field.shown.longest, field.shown.text
        numeric = field.kind in (int, float) or field.shown.right
        return Column(title, [text_cell(value, longest, text) for value in values], numeric, field)
    if field.unit is Unit.TIME:
        return Column(f"{title} (UTC)", [_written(value, date_and_time) for value in values], True, field)
    words, write = _writer(field, known, most)
    head = f"{title} ({words})" if words and words not in title else title
    return Column(head, [_written(value, write) for value in values], True, field)


def _is_missing(value: object) -> bool:
    return value is None or value is UNSET or value != value


def _bar(parts: Sequence[float]) -> str:
    ends = [round(BAR * sum(parts[: index + 1])) for index in range(len(parts))]
    widths = (end - begin for begin, end in zip([0, *ends], ends, strict=False))
    return "".join(block * width for block, width in zip(BLOCKS, widths, strict=False))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and value == value


def _written(value: Any, write: Callable[[Any], str]) -> str:
    return write(value) if _is_number(value) else EMPTY


def _writer(field: Field, values: Sequence[float], most: float) -> tuple[str, Callable[[Any], str]]:
    """The name of the unit of these numbers, and what writes one of them."""
    sign = "+" if field.shown.signed else ""
    if field.unit is Unit.NAME:
        return "", str
    if field.unit is None and all(float(value).is_integer() for value in values) and field.kind is not float:
        return "", lambda value: f"{value:{sign},}"
    sizes = [abs(value) for value in values]
    largest = max([most, *sizes])
    # Sizes differ more than durations: a smaller unit keeps digits of the small ones.
    divisor, words = in_unit(field.unit or "", largest / 10 if field.unit is Unit.BYTES else largest)
    if words == "B":
        return words, number
    digits = _DIGITS.get(words)
    if digits is None:
        digits = max(SIGNIFICANT - len(str(int(max(sizes) / divisor))), 0)
    return words, lambda value: _with_digits(value / divisor, digits, sign if value else "")


def _with_digits(value: float, digits: int, sign: str) -> str:
    """`1,234.500`; `<0.001` for what the digits do not show."""
    if 0 < abs(value) < 0.5 * 10**-digits:
        return f"{'<' if value > 0 else '>-'}{10**-digits:.{digits}f}"
    return f"{value:{sign},.{digits}f}"


def text_cell(value: Any, longest: int, text_of: Callable[[str], str] = str) -> str:
    """A value as a short line: `text_of` makes what people see of a text."""
    if _is_missing(value) or value == "" or (isinstance(value, tuple | list) and not value):
        return EMPTY
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        value = str(value.value).replace("_", " ")
    text = ", ".join(map(str, value)) if isinstance(value, tuple | list) else text_of(str(value))
    return shortened(printable(text), longest)
