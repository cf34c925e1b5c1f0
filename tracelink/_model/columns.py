"""Tables of columns: array types, sentinels of unknown values, Table, StringTable, grouping and searching of rows.

Imports nothing of tracelink but errors and fields, so that every module can build on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, Self, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tracelink._model.errors import UsageError
from tracelink._model.fields import Unit

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

UNKNOWN = -1
"""In every column: the value is not known, or there is no such row. The only sentinel of the value -1."""

NO_TIME = int(np.iinfo(np.int64).min)
"""In every column of times: the time is not known (nodes of execution traces before they are linked)."""

SECOND = 10**9
MILLISECOND = 10**6
MICROSECOND = 10**3
"""In nanoseconds, the unit of every time and duration."""

Int8s = npt.NDArray[np.int8]
UInt8s = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.integer]

Value = TypeVar("Value", bound=np.generic)


# Tables: structs of columns of equal length. What a column means is in its type.


class Unknown(Struct, frozen=True):
    """Metadata of a column: this value is the unknown one, in place of UNKNOWN, False or NaN."""

    value: int


class Text(Struct, frozen=True):
    """Metadata of a column: it holds codes of a string table, or UNKNOWN."""


class EventRow(Struct, frozen=True):
    """Metadata of a column: it holds rows of events, or UNKNOWN."""

    rank: str = ""
    """The column with the rank of the event; empty if the events of all rows are of one table."""


class Known(Struct, frozen=True):
    """Metadata of a column of integers: every value is known, so UNKNOWN is a value like any other."""


Codes = Annotated[Int32s, Text()]
Times = Annotated[Int64s, Unknown(NO_TIME), Unit.TIME]
KnownTimes = Annotated[Int64s, Known(), Unit.TIME]
Durations = Annotated[Int64s, Unit.DURATION]
Rows = Annotated[Int64s, EventRow()]
KnownRows = Annotated[Int64s, EventRow(), Known()]
KnownInt32s = Annotated[Int32s, Known()]
KnownInt64s = Annotated[Int64s, Known()]


class _Column(NamedTuple):
    """What a table declares about one of its columns."""

    name: str
    dtype: Any
    unknown: Any
    text: bool
    event: EventRow | None
    known: bool


class Table(Struct, frozen=True):
    """Base of all tables: a struct whose fields are columns of equal length."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    @classmethod
    def of(cls, count: int | None = None, /, **columns: Any) -> Self:
        """A table with `count` rows, else as many as the columns have.

        A column that is not given is unknown; a number in place of one is the value of all rows.
        """
        declared = _COLUMNS[cls]
        if unexpected := columns.keys() - {column.name for column in declared}:
            raise TypeError(f"{cls.__name__} has no columns {', '.join(sorted(unexpected))}")
        single = {
            name: value for name, value in columns.items() if isinstance(value, int | float | np.generic)
        }
        if count is None:
            count = len(next((values for name, values in columns.items() if name not in single), ()))
        return cls(
            *(
                np.asarray(columns[column.name], column.dtype)
                if column.name in columns.keys() - single.keys()
                else np.full(count, single.get(column.name, column.unknown), column.dtype)
                for column in declared
            )
        )

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls.of(0)

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """All rows of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__struct_fields__)
        )

    @classmethod
    def text_columns(cls) -> Sequence[str]:
        """The names of the columns that hold codes of strings."""
        return [column.name for column in _COLUMNS[cls] if column.text]

    @classmethod
    def event_columns(cls) -> Mapping[str, str]:
        """The names of the columns that hold rows of events, each with the name of the column of their ranks."""
        return {column.name: column.event.rank for column in _COLUMNS[cls] if column.event}

    @classmethod
    def unknown(cls, name: str) -> Any:
        """The unknown value of a column."""
        return next(column.unknown for column in _COLUMNS[cls] if column.name == name)

    def take(self, rows: npt.NDArray[Any] | slice) -> Self:
        """Some of the rows, by number or by a mask."""
        return type(self)(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def recoded(self, codes: Int32s) -> Self:
        """The same with texts by other codes: `codes[old]` is the new one."""
        codes = np.append(codes, np.int32(UNKNOWN))
        return self._replaced({name: codes[getattr(self, name)] for name in self.text_columns()})

    def shifted(self, offset: int) -> Self:
        """The same where the events of all rows have moved down by `offset` rows."""
        columns = {}
        for name in self.event_columns():
            rows = getattr(self, name)
            columns[name] = rows + offset
            columns[name][rows == UNKNOWN] = UNKNOWN
        return self._replaced(columns)

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}

    def masked(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, with unknown values masked: sums leave them out, and they are missing in frames."""
        columns = self.columns()
        for column in _COLUMNS[type(self)]:
            if not column.known:
                values = columns[column.name]
                columns[column.name] = np.ma.masked_array(values, values == column.unknown)
        return columns

    def to_pandas(self) -> pandas.DataFrame:
        """The columns as a pandas frame, in which unknown values are missing (needs the extra `pandas`)."""
        return frame(self.masked())

    def to_arrow(self) -> pyarrow.Table:
        """The columns as an Arrow table, in which unknown values are null (needs the extra `arrow`)."""
        return arrow_table(self.masked())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} rows of {', '.join(self.__struct_fields__)}>"

    def _replaced(self, columns: Mapping[str, Any]) -> Self:
        return type(self)(**{**self.columns(), **columns})


AnyTable = TypeVar("AnyTable", bound=Table)


class Lean(Struct, Generic[AnyTable], frozen=True):
    """A table to be stored: of columns with only one value there is only that."""

    kind: type[AnyTable]
    count: int
    columns: Mapping[str, npt.NDArray[Any]]
    constants: Mapping[str, np.generic]

    @classmethod
    def of(cls, table: AnyTable) -> Lean[AnyTable]:
        """The table without repetitions."""
        columns, constants = table.columns(), {}
        for name, column in list(columns.items()) if len(table) else []:
            if (column == column[0]).all():
                constants[name] = columns.pop(name)[0]
        return cls(type(table), len(table), columns, constants)

    def whole(self) -> AnyTable:
        """The table."""
        constants = {name: np.full(self.count, value) for name, value in self.constants.items()}
        return self.kind(**self.columns, **constants)


class _ColumnsOfTables(dict[type[Table], tuple[_Column, ...]]):
    """What each table declares about its columns."""

    def __missing__(self, table: type[Table]) -> tuple[_Column, ...]:
        types = get_type_hints(table, include_extras=True)
        self[table] = tuple(_declared_column(name, types[name]) for name in table.__struct_fields__)
        return self[table]


_COLUMNS = _ColumnsOfTables()


def _declared_column(name: str, annotation: Any) -> _Column:
    metadata = getattr(annotation, "__metadata__", ())
    array = get_args(annotation)[0] if metadata else annotation
    (dtype,) = get_args(get_args(array)[1])
    unknown: Any = {"b": False, "f": np.nan, "u": 0}.get(np.dtype(dtype).kind, UNKNOWN)
    return _Column(
        name,
        dtype,
        next((item.value for item in metadata if isinstance(item, Unknown)), unknown),
        any(isinstance(item, Text) for item in metadata),
        next((item for item in metadata if isinstance(item, EventRow)), None),
        np.dtype(dtype).kind != "i" or any(isinstance(item, Known) for item in metadata),
    )


def int64s(numbers: Sequence[int]) -> Int64s:
    """A column of ids; ids of 64 unsigned bits wrap, so that they stay distinct."""
    try:
        return np.fromiter(numbers, np.int64, len(numbers))
    except OverflowError:
        return np.array([number & (1 << 64) - 1 for number in numbers], np.uint64).view(np.int64)


def own_ancestors(parent: Int64s) -> Int64s:
    """The indexes that are their own ancestors, by the index of each one's parent, or UNKNOWN."""
    top = len(parent)
    ancestor = np.append(np.where(parent == UNKNOWN, top, parent), top)
    for _ in range(top.bit_length()):
        ancestor = ancestor[ancestor]
    return np.unique(ancestor[ancestor != top])


# Columns as pandas frames and Arrow tables, if those are installed


def frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """A pandas frame of these columns; masked values are missing."""
    try:
        import pandas
    except ImportError:
        raise not_installed("pandas", "pandas") from None

    def nullable(column: Any) -> Any:
        if isinstance(column, np.ma.MaskedArray):
            return pandas.arrays.IntegerArray(column.data, np.ma.getmaskarray(column))
        return np.fromiter(column, object, len(column)) if isinstance(column, list) else column

    return pandas.DataFrame({name: nullable(column) for name, column in columns.items()})


def arrow_table(columns: Mapping[str, Any]) -> pyarrow.Table:
    """An Arrow table of these columns; masked values and NaN are null."""
    try:
        import pyarrow
    except ImportError:
        raise not_installed("pyarrow", "arrow") from None

    def nullable(column: Any) -> Any:
        if isinstance(column, np.ma.MaskedArray):
            return pyarrow.array(column.data, mask=np.ma.getmaskarray(column))
        return pyarrow.array(column, from_pandas=isinstance(column, np.ndarray))

    return pyarrow.table({name: nullable(column) for name, column in columns.items()})


def polars_frame(table: pyarrow.Table) -> polars.DataFrame:
    """A polars frame of an Arrow table, without a copy of numbers."""
    try:
        import polars
    except ImportError:
        raise UsageError("polars is not installed", advice="Run: pip install polars") from None
    found = polars.from_arrow(table)
    assert isinstance(found, polars.DataFrame)
    return found


def frame_of_arrow(table: pyarrow.Table) -> pandas.DataFrame:
    """A pandas frame of the columns of an Arrow table, which share its memory."""
    try:
        import pandas
    except ImportError:
        raise not_installed("pandas", "pandas") from None
    return table.to_pandas(types_mapper=pandas.ArrowDtype)


def not_installed(package: str, extra: str) -> UsageError:
    """The error for a missing package, which an extra of the distribution installs."""
    return UsageError(f"{package} is not installed", advice=f"Run: pip install 'torch-tracelink[{extra}]'")


# Interned strings: a column holds small numbers, the table holds each string once


class StringTable(dict[str, int]):
    """String to code, in order of first appearance; `table[text]` adds what is new."""

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
        """Every string, so that `texts()[code]` is the string of `code`."""
        return list(self)

    def encode(self, texts: Iterable[str]) -> Int32s:
        """The codes of many strings."""
        return np.array(list(map(self.__getitem__, texts)), dtype=np.int32)

    def absorb(self, texts: Sequence[str]) -> Int32s:
        """Adds another table's strings; returns, for each of its codes, the code here."""
        return self.encode(texts)

    def find(self, text: str) -> int:
        """The code of `text`, or UNKNOWN if the table does not hold it."""
        return self.get(text, UNKNOWN)


def for_each_text(
    texts: Sequence[str], codes: npt.NDArray[Any], function: Callable[[str], Any], dtype: Any, unknown: Any
) -> npt.NDArray[Any]:
    """`function(text)` for each code, `unknown` for UNKNOWN; called once for each text that occurs."""
    occurs = np.zeros(len(texts) + 1, np.bool_)
    occurs[codes] = True
    values = np.full(len(texts) + 1, unknown, dtype)
    for code in np.flatnonzero(occurs[:-1]).tolist():
        values[code] = function(texts[code])
    return values[codes]


# Numbering rows by what their columns hold, and sorting by such numbers, for millions of rows at once


_RADIX = 16
_MASK = (1 << _RADIX) - 1


def distinct(*columns: Integers | Bools) -> tuple[Int64s, Int64s]:
    """Numbers for rows, equal where all columns are and in the order of the columns; the first row of each."""
    length = len(columns[0])
    numbers, count = np.zeros(length, np.int64), 1
    for column in columns if length else ():
        codes, span = _small_codes(column, count)
        numbers, count = _without_gaps(numbers * span + codes, count * span)
    first = np.empty(count if length else 0, np.int64)
    first[numbers[::-1]] = np.arange(length - 1, -1, -1)
    return numbers, first


def stable_order(numbers: Integers) -> Int64s:
    """The rows in the order of their numbers, which are not negative; rows of one number keep their order."""
    high = int(numbers.max()) if len(numbers) else 0
    order = np.argsort((numbers & _MASK).astype(np.uint16), kind="stable")
    shift = _RADIX
    while high >> shift:
        digit = ((numbers >> shift) & _MASK).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += _RADIX
    return order


def lexical_order(first: Int64s, second: Int64s) -> Int64s:
    """The rows by one column and then by another one; fast if the first one is nearly in order."""
    order = np.argsort(first, kind="stable")
    same = first[order[1:]] == first[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    together = order[tied]
    order[tied] = together[np.lexsort((second[together], first[together]))]
    return order


def starts_of(sorted_numbers: Integers) -> Int64s:
    """The first row of each run of equal numbers."""
    if not len(sorted_numbers):
        return np.empty(0, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(sorted_numbers)) + 1])


def ranges(starts: Int64s, lengths: Int64s) -> Int64s:
    """All numbers of all ranges that begin at `starts`, one range after the other."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    return np.arange(total) + np.repeat(starts - before, lengths)


def _small_codes(column: Integers | Bools, times: int) -> tuple[Int64s, int]:
    """Small numbers for the values of a column, and how many there can be."""
    low, high = int(column.min()), int(column.max())
    span = high - low + 1
    if span * times <= _most_codes(len(column)):
        return column.astype(np.int64) - low, span
    values, codes = np.unique(column, return_inverse=True)
    return codes.astype(np.int64), len(values)


def _without_gaps(codes: Int64s, span: int) -> tuple[Int64s, int]:
    """The codes without gaps, and how many there are."""
    if span > _most_codes(len(codes)):
        values, numbers = np.unique(codes, return_inverse=True)
        return numbers.astype(np.int64), len(values)
    seen = np.zeros(span, np.bool_)
    seen[codes] = True
    number = np.cumsum(seen) - 1
    return number[codes], int(number[-1]) + 1


def _most_codes(length: int) -> int:
    return 4 * length + (1 << 20)


# Joining rows on equal values


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


def scatter(length: int, rows: Int64s | Bools, values: Integers | None = None) -> Int64s:
    """A column with `values` at `rows`, by default the place of each row among them; UNKNOWN at all others."""
    column = np.full(length, UNKNOWN, np.int64)
    column[rows] = np.arange(len(rows)) if values is None else values
    return column


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


# Searching back in a column


LOWEST = int(np.iinfo(np.int64).min)


def previous_at_least(values: Int64s, bounds: Int64s) -> tuple[Int64s, Int64s]:
    """For each i the largest j < i with values[j] >= bounds[i], or UNKNOWN; and the largest value between the two.

    All i at once, by climbing a tree of maxima: most answers are near, so few climb high.
    """
    size = len(values)
    answer = np.full(size, UNKNOWN, np.int64)
    between = np.full(size, LOWEST, np.int64)
    near = values[:-1] >= bounds[1:]
    answer[1:][near] = np.flatnonzero(near)
    highest = np.maximum.accumulate(values[:-1])
    without = highest < bounds[1:]
    between[1:][without] = highest[without]
    seeker = np.flatnonzero(~(near | without)) + 1
    _climb(values, seeker, seeker, bounds, answer, between)
    return answer, between


def last_at_least(values: Int64s, before: Int64s, bounds: Int64s) -> Int64s:
    """For each pair of `before` and `bounds` the last index below `before` of a value at least `bounds`, or UNKNOWN."""
    answer = np.full(len(before), UNKNOWN, np.int64)
    between = np.full(len(before), LOWEST, np.int64)
    _climb(values, np.arange(len(before)), before, bounds, answer, between)
    return answer


def _climb(
    values: Int64s, seeker: Int64s, node: Int64s, bounds: Int64s, answer: Int64s, between: Int64s
) -> None:
    """Sets the answer of each seeker, which looks for its bound before its node."""
    levels = [values]
    found: list[tuple[Int64s, Int64s]] = []
    while len(seeker):
        level = levels[-1]
        left = np.flatnonzero(node & 1)
        neighbour = level[node[left] - 1]
        enough = neighbour >= bounds[seeker[left]]
        passed = seeker[left[~enough]]
        between[passed] = np.maximum(between[passed], neighbour[~enough])
        found.append((seeker[left[enough]], node[left[enough]] - 1))
        keep = node > 0
        keep[left[enough]] = False
        seeker, node = seeker[keep], node[keep] >> 1
        levels.append(_pairwise_max(level))
    _descend(levels, found, bounds, answer, between)


def _pairwise_max(level: Int64s) -> Int64s:
    if len(level) % 2:
        level = np.append(level, LOWEST)
    return np.maximum(level[0::2], level[1::2])


def _descend(
    levels: list[Int64s],
    found: list[tuple[Int64s, Int64s]],
    bounds: Int64s,
    answer: Int64s,
    between: Int64s,
) -> None:
    """Goes down from the subtree that contains the answer to the answer, right half first."""
    seeker, node = np.empty(0, np.int64), np.empty(0, np.int64)
    for height in range(len(found) - 1, -1, -1):
        seeker = np.concatenate([seeker, found[height][0]])
        node = np.concatenate([node, found[height][1]])
        if height == 0:
            break
        below = levels[height - 1]
        right = np.minimum(2 * node + 1, len(below) - 1)
        value = below[right]
        in_right = value >= bounds[seeker]
        passed = seeker[~in_right]
        between[passed] = np.maximum(between[passed], np.where(right == 2 * node, LOWEST, value)[~in_right])
        node = np.where(in_right, right, 2 * node)
    answer[seeker] = node
