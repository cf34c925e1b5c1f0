"""Array types, Table, StringTable, grouping rows, frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from tracelink.errors import UsageError

if TYPE_CHECKING:
    import pandas
    import pyarrow


# Shared definitions


Float64s = npt.NDArray[np.float64]


# Shared definitions


UNKNOWN = -1
"""In every column: the value is not known, or there is no such row. The only sentinel of the value -1."""

SECOND = 10**9
MILLISECOND = 10**6
MICROSECOND = 10**3
"""In nanoseconds, the unit of every time and duration."""


# Columns as pandas frames and Arrow tables, where those are installed.


def frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """A pandas frame of these columns."""
    try:
        import pandas
    except ImportError:
        raise _not_installed("pandas", "pandas") from None

    def nullable(column: Any) -> Any:
        masked = isinstance(column, np.ma.MaskedArray)
        return pandas.arrays.IntegerArray(column.data, np.ma.getmaskarray(column)) if masked else column

    return pandas.DataFrame({name: nullable(column) for name, column in columns.items()})


def arrow_table(columns: Mapping[str, Any]) -> pyarrow.Table:
    """An Arrow table of these columns."""
    try:
        import pyarrow
    except ImportError:
        raise _not_installed("pyarrow", "arrow") from None

    def nullable(column: Any) -> Any:
        masked = isinstance(column, np.ma.MaskedArray)
        return pyarrow.array(column.data, mask=np.ma.getmaskarray(column)) if masked else column

    return pyarrow.table({name: nullable(column) for name, column in columns.items()})


def _not_installed(package: str, extra: str) -> UsageError:
    return UsageError(f"{package} is not installed", advice=f"Run: pip install 'torch-tracelink[{extra}]'")


# Shared definitions


Int8s = npt.NDArray[np.int8]


Int32s = npt.NDArray[np.int32]


Int64s = npt.NDArray[np.int64]


Bools = npt.NDArray[np.bool_]


NO_TIME = int(np.iinfo(np.int64).min)
"""`start` of an event whose source records no time (execution-trace nodes before linking)."""


class Columns:
    """What every table of columns can do."""

    __slots__ = ()

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a pandas frame (needs the extra `pandas`)."""
        return frame(self.columns())

    def to_arrow(self) -> pyarrow.Table:
        """The columns as an Arrow table (needs the extra `arrow`)."""
        return arrow_table(self.columns())


# Interned text: a column holds small numbers, the table holds each text once.


class StringTable(dict[str, int]):
    """Text to number, in order of first appearance; `table[text]` adds what is new."""

    def __missing__(self, text: str) -> int:
        code = self[text] = len(self)
        return code

    @classmethod
    def of(cls, texts: Iterable[str]) -> StringTable:
        """A table that holds `texts`."""
        table = cls()
        for text in texts:
            table[text]
        return table

    def texts(self) -> list[str]:
        """Every text, so that `texts()[code]` is the text of `code`."""
        return list(self)

    def encode(self, texts: Iterable[str]) -> npt.NDArray[np.int32]:
        """The codes of many texts."""
        return np.array(list(map(self.__getitem__, texts)), dtype=np.int32)

    def absorb(self, texts: Sequence[str]) -> npt.NDArray[np.int32]:
        """Adds another table's texts; returns, for each of its codes, the code here."""
        return self.encode(texts)

    def find(self, text: str) -> int:
        """The code of `text`, or -1 where the table does not hold it."""
        return self.get(text, -1)


# Numbering rows by what their columns hold, and sorting by such numbers, for millions of rows at once.


Whole = npt.NDArray[np.integer]

RADIX = 16
MASK = (1 << RADIX) - 1


def distinct(*columns: Whole) -> tuple[Int64s, Int64s]:
    """Numbers for rows, equal where all columns are and in the order of the columns; the first row of each."""
    length = len(columns[0])
    numbers, count = np.zeros(length, np.int64), 1
    for column in columns if length else ():
        codes, span = _codes(column, count)
        numbers, count = _dense(numbers * span + codes, count * span)
    first = np.empty(count if length else 0, np.int64)
    first[numbers[::-1]] = np.arange(length - 1, -1, -1)
    return numbers, first


def stable_order(numbers: Whole) -> Int64s:
    """The rows in the order of their numbers, which are not negative; rows of one number keep their order."""
    high = int(numbers.max()) if len(numbers) else 0
    order = np.argsort((numbers & MASK).astype(np.uint16), kind="stable")
    shift = RADIX
    while high >> shift:
        digit = ((numbers >> shift) & MASK).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += RADIX
    return order


def starts_of(sorted_numbers: Whole) -> Int64s:
    """Where each run of equal numbers begins."""
    if not len(sorted_numbers):
        return np.empty(0, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(sorted_numbers)) + 1])


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """All numbers of all ranges that begin at `starts`, one range after the other."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    numbers: Int64s = np.arange(total) + np.repeat(starts - before, lengths)
    return numbers


def _codes(column: Whole, times: int) -> tuple[Int64s, int]:
    """Small numbers for the values of a column, and how many there can be."""
    low, high = int(column.min()), int(column.max())
    span = high - low + 1
    if span * times <= _room(len(column)):
        return column.astype(np.int64) - low, span
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _dense(codes: Int64s, span: int) -> tuple[Int64s, int]:
    """The codes without gaps, and how many there are."""
    if span > _room(len(codes)):
        values, numbers = np.unique(codes, return_inverse=True)
        return numbers.astype(np.int64), len(values)
    seen = np.zeros(span, np.bool_)
    seen[codes] = True
    number = np.cumsum(seen) - 1
    dense: Int64s = number[codes]
    return dense, int(number[-1]) + 1


def _room(length: int) -> int:
    return 4 * length + (1 << 20)


# Joining rows on equal values.


Value = TypeVar("Value", bound=np.generic)


def lookup(values: Int64s, wanted: Int64s) -> Int64s:
    """For each wanted value its row in `values` (the last one of duplicates), or UNKNOWN."""
    if not len(values) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, np.int64)
    low, high = int(values.min()), int(values.max())
    inside = (wanted >= low) & (wanted <= high)
    if high - low <= 8 * (len(values) + len(wanted)) + (1 << 16):
        table = np.full(high - low + 1, UNKNOWN, np.int64)
        table[values - low] = np.arange(len(values))
        return np.where(inside, table[np.where(inside, wanted - low, 0)], UNKNOWN)
    order = np.argsort(values, kind="stable")
    row = np.searchsorted(values[order], wanted, side="right") - 1
    found = order[np.maximum(row, 0)]
    return np.where((row >= 0) & (values[found] == wanted), found, UNKNOWN)


def values_at(column: npt.NDArray[Value], rows: Int64s, otherwise: int = UNKNOWN) -> npt.NDArray[Value]:
    """The column's value at each row; `otherwise` where the row is UNKNOWN."""
    if not len(column):
        return np.full(len(rows), otherwise, column.dtype)
    values = column[rows]
    missing = rows == UNKNOWN
    if missing.any():
        values[missing] = otherwise
    return values


def repeated(values: Int64s) -> int:
    """How many values are duplicates of an earlier one."""
    if not len(values):
        return 0
    low, high = int(values.min()), int(values.max())
    if high - low > 8 * len(values) + (1 << 16):
        return len(values) - len(np.unique(values))
    seen = np.zeros(high - low + 1, np.bool_)
    seen[values - low] = True
    return len(values) - int(np.count_nonzero(seen))
