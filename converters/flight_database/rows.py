"""Rows of a table as lists, one for each column, with None for what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelink.communications import UNKNOWN
from tracelink.events import NO_TIME

LARGEST = (1 << 63) - 1
"""What a column of whole numbers can hold."""

Lists = Mapping[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows of one table."""

    table: str
    columns: Lists

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def listed(column: Any, missing: int = UNKNOWN) -> list[Any]:
    """The values of a column of numbers; None where it holds `missing`."""
    values: list[Any] = column.tolist()
    for row in np.flatnonzero(column == missing).tolist():
        values[row] = None
    return values


def times(column: Any) -> list[Any]:
    """The values of a column of times."""
    return listed(column, NO_TIME)


def flags(column: Any) -> list[Any]:
    """True, False, or None where it is not known."""
    return [None if value == UNKNOWN else bool(value) for value in column.tolist()]


def whole(value: object) -> int | None:
    """A number that a column can hold."""
    return value if type(value) is int and -LARGEST <= value <= LARGEST else None


def clean(text: str) -> str:
    """The same with a question mark for halves of characters, which no database holds."""
    return text.encode("utf-8", "replace").decode("utf-8")
