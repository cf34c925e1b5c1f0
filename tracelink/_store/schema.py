"""Stored tables and their columns, which are the same in SQLite, DuckDB and Parquet.

class RankRow(StoredRow, frozen=True):
    \"""Every rank that has a dump.\"""

    table = "ranks"
    rank: Annotated[int, KEY, Doc("The rank in the job.")]
    group_id: Annotated[int | None, Doc("Its group.")]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from functools import cache
from typing import Any, ClassVar, get_args, get_origin

import numpy as np
import numpy.typing as npt
from msgspec import Struct, to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from tracelink._model.columns import NO_TIME, UNKNOWN
from tracelink._model.errors import encodable
from tracelink._model.fields import SUFFIXES, Field, Row, Unit, elements_of, fields_of, words_of
from tracelink._model.results import ResultTable, values_of


class Type(StrEnum):
    """Types of columns, as DuckDB names them; every value may be null unless the column is `required`."""

    SMALL = "INTEGER"
    INTEGER = "BIGINT"
    REAL = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TEXT = "VARCHAR"
    """Values of any other type are JSON in it."""
    SHARED = "SHARED"
    """A text that many rows share: a dictionary in Arrow and Parquet."""
    INTEGERS = "BIGINT[]"
    TEXTS = "VARCHAR[]"
    COUNTS = "MAP(VARCHAR, BIGINT)"


KEY = "key"
"""Metadata of a column that identifies a row, alone or with others."""


class StoredRow(Row, frozen=True):
    """Base of the rows of stored tables, whose docstrings say what they are."""

    table: ClassVar[str]
    indexes: ClassVar[Sequence[Sequence[str]]] = ()
    elsewhere: ClassVar[Sequence[str]] = ()
    """Inherited fields that are columns of a table that these rows refer to."""


class Column(Struct, frozen=True):
    """One column."""

    name: str
    type: Type
    text: str = ""
    unit: str = ""
    references: str = ""
    key: bool = False
    words: tuple[str, ...] = ()
    """All values that a text can have; empty if it can be any."""
    required: bool = False
    """True if every row has a value."""
    source: str = ""
    """The field that it has the values of, if it has another name there."""
    derived: bool = False
    """True if it follows from other columns and tables, so that it is not read back."""

    @property
    def sql_type(self) -> str:
        """Its type in DuckDB."""
        if self.words:
            return f"ENUM ({', '.join(map(quoted, self.words))})"
        return (Type.TEXT if self.type is Type.SHARED else self.type).value

    @property
    def comment(self) -> str:
        """The meaning, with a unit that its name does not say."""
        said = not self.unit or (self.unit != Unit.TIME and self._name_says_the_unit)
        return self.text if said else f"{self.text} Unit: {self.unit}.".strip()

    @property
    def _name_says_the_unit(self) -> bool:
        return f"_{self.name}".endswith(SUFFIXES.get(Unit(self.unit), ""))


class Table(Struct, frozen=True):
    """One table."""

    name: str
    text: str
    columns: tuple[Column, ...]
    indexes: Sequence[Sequence[str]] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if none do."""
        return tuple(column.name for column in self.columns if column.key)


class Batch(Struct, frozen=True):
    """Some rows of one table: a list for each column, in which None is unknown."""

    table: str
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @classmethod
    def of(cls, kind: Any, rows: Sequence[Any] = (), /, **columns: Sequence[Any] | npt.NDArray[Any]) -> Batch:
        """Rows of a class of stored rows: columns that are not given are attributes of the rows.

        Where a value may be missing, UNKNOWN and NO_TIME in arrays are; texts in arrays can be encoded already.
        """
        cells = {}
        for one in _stored_columns(kind):
            values = columns[one.name] if one.name in columns else [getattr(row, one.name) for row in rows]
            made = _of_array(one, values) if isinstance(values, np.ndarray) else _cells(one.type, values)
            cells[one.name] = made
        return cls(kind.table, cells)


SCALARS = {bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.REAL}
LISTS = {int: Type.INTEGERS, str: Type.TEXTS}


def declared(kind: Any, references: Mapping[str, str]) -> Table:
    """The table of a class of stored rows. `references` are `table.column` by the names of columns, or their ends."""
    columns = [
        replace(one, references=_referred(kind.table, one.name, references)) for one in _stored_columns(kind)
    ]
    return Table(kind.table, kind.__doc__ or "", tuple(columns), kind.indexes)


@cache
def _stored_columns(kind: Any) -> list[Column]:
    """The columns of stored rows, those of the key first; lists are tables of their own."""
    columns = [
        column_of(field)
        for name, field in fields_of(kind).items()
        if field.is_column and name not in kind.elsewhere
    ]
    return sorted((one for one in columns if one.type not in LISTS.values()), key=lambda one: not one.key)


def _referred(table: str, column: str, references: Mapping[str, str]) -> str:
    found = (place for name, place in references.items() if f"_{column}".endswith(f"_{name}"))
    return next((place for place in found if place != f"{table}.{column}"), "")


def columns_of(kind: Any) -> tuple[Column, ...]:
    """The columns of a class of rows, or of a table of the model."""
    return tuple(map(column_of, fields_of(kind).values()))


def column_of(field: Field) -> Column:
    """The column of a field that is declared as `model.fields` says."""
    return Column(
        field.name,
        next((item for item in field.metadata if isinstance(item, Type)), None) or _type_of(field.kind),
        field.text,
        "" if field.unit in (None, Unit.NAME, Unit.RANKS) else str(field.unit),
        key=KEY in field.metadata,
        words=_words(field),
        required=not field.optional,
    )


def _type_of(kind: Any) -> Type:
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return Type.TEXT
    if issubclass(origin, np.ndarray):
        dtype = np.dtype(get_args(get_args(kind)[1])[0])
        return Type.REAL if dtype.kind == "f" else Type.INTEGER if dtype.itemsize > 4 else Type.SMALL
    if issubclass(origin, Sequence):
        return next((LISTS[one] for one in elements_of(kind) if one in LISTS), Type.TEXT)
    return next((found for base, found in SCALARS.items() if issubclass(origin, base)), Type.TEXT)


def _words(field: Field) -> tuple[str, ...]:
    """All words of a field: of its type, or of an enumeration that is metadata of a column of numbers."""
    for item in field.metadata:
        if isinstance(item, type) and issubclass(item, Enum):
            return tuple(each.name.lower() for each in item)
    return tuple(word for word in words_of(field.kind) if isinstance(word, str))


# Results.


def stored(name: str, result: ResultTable[Any]) -> tuple[Table, Batch]:
    """The table in which the rows of a result are stored, and all of these."""
    fields = fields_of(result.row_type)
    columns = [_in_result(column_of(fields[name]), result) for name in result.flat]
    cells = {column.name: _cells(column.type, values_of(result.columns[column.name])) for column in columns}
    return Table(name, result.title, tuple(columns)), Batch(name, cells)


def _in_result(column: Column, result: ResultTable[Any]) -> Column:
    """The column; sums of sizes that a damaged file states can be integers of more than 64 bits."""
    huge = column.type is Type.INTEGER and result.columns[column.name].dtype == object
    return replace(column, type=Type.REAL if huge else column.type, required=False)


def _cells(kind: Type, values: Sequence[Any]) -> Sequence[Any]:
    if kind is Type.REAL:
        return [None if value is None else float(value) for value in values]
    if kind in (Type.INTEGER, Type.BOOLEAN):
        return values
    if kind is Type.TEXT:
        return as_texts(encodable(to_builtins(values, enc_hook=list)))
    return [None if value is None else encodable(list(value)) for value in values]


def _of_array(column: Column, values: npt.NDArray[Any]) -> list[Any]:
    cells: list[Any] = values.tolist()
    if column.required or values.dtype == object:
        return cells
    for row in np.flatnonzero(values == (NO_TIME if column.unit == Unit.TIME else UNKNOWN)).tolist():
        cells[row] = None
    return [cell if cell is None else bool(cell) for cell in cells] if column.type is Type.BOOLEAN else cells


def as_texts(values: Iterable[Any]) -> list[str | None]:
    """Texts, and all other values as JSON."""
    return [value if value is None or isinstance(value, str) else encode(value).decode() for value in values]


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def named(text: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + text.replace('"', '""') + '"'
