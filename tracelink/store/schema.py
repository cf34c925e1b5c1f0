"""What is stored: tables and their columns, which are the same in SQLite, DuckDB and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, get_origin

from msgspec import Struct, to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from tracelink.model.errors import encodable
from tracelink.model.fields import Field, Unit, elements_of, fields_of
from tracelink.model.results import ResultTable, values_of


class Type(StrEnum):
    """Types of columns, as DuckDB names them; every value may be null unless the column is `required`."""

    INTEGER = "BIGINT"
    REAL = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TEXT = "VARCHAR"
    """Values of any other type are JSON in it."""
    INTEGERS = "BIGINT[]"
    TEXTS = "VARCHAR[]"


class Column(Struct, frozen=True):
    """One column."""

    name: str
    type: Type
    text: str = ""
    unit: str = ""
    required: bool = False
    """Whether every row has a value."""

    @property
    def comment(self) -> str:
        """What it means, for databases that have no place for its unit."""
        return f"{self.text} Unit: {self.unit}.".strip() if self.unit else self.text


class Table(Struct, frozen=True):
    """One table."""

    name: str
    text: str
    columns: tuple[Column, ...]


class Batch(Struct, frozen=True):
    """Some rows of one table: a list for each column, in which None is unknown."""

    table: str
    columns: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def named(text: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + text.replace('"', '""') + '"'


SCALARS = {bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.REAL}
LISTS = {int: Type.INTEGERS, str: Type.TEXTS}


def column_of(field: Field) -> Column:
    """The column of a field that is declared as `model.fields` says."""
    unit = "" if field.unit in (None, Unit.NAME, Unit.RANKS) else str(field.unit)
    return Column(field.name, _type_of(field.kind), field.text, unit)


def _type_of(kind: Any) -> Type:
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return Type.TEXT
    if issubclass(origin, Sequence):
        return next((LISTS[one] for one in elements_of(kind) if one in LISTS), Type.TEXT)
    return next((kind for base, kind in SCALARS.items() if issubclass(origin, base)), Type.TEXT)


# Results.


def stored(name: str, result: ResultTable[Any]) -> tuple[Table, Batch]:
    """The table in which the rows of a result are stored, and all of these."""
    declared = [column_of(field) for field in fields_of(result.row_type).values()]
    columns = [replace(c, type=Type.REAL) if _is_huge(c, result) else c for c in declared]
    cells = {column.name: _cells(column.type, values_of(result.columns[column.name])) for column in columns}
    return Table(name, result.title, tuple(columns)), Batch(name, cells)


def _is_huge(column: Column, result: ResultTable[Any]) -> bool:
    """True for integers of more than 64 bits: sums of sizes that a damaged file states."""
    return column.type is Type.INTEGER and result.columns[column.name].dtype == object


def _cells(kind: Type, values: Sequence[Any]) -> Sequence[Any]:
    if kind is Type.REAL:
        return [None if value is None else float(value) for value in values]
    if kind in (Type.INTEGER, Type.BOOLEAN):
        return values
    if kind is Type.TEXT:
        return as_texts(encodable(to_builtins(values, enc_hook=list)))
    return [None if value is None else encodable(list(value)) for value in values]


def as_texts(values: Iterable[Any]) -> list[str | None]:
    """Texts, and all other values as JSON."""
    return [value if value is None or isinstance(value, str) else encode(value).decode() for value in values]
