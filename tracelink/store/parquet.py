"""Parquet files: each column has its description and its unit as metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelink.model.columns import not_installed
from tracelink.store.schema import Batch, Column, Table, Type

if TYPE_CHECKING:
    import pyarrow

    from tracelink.io.targets import FileTarget, RemoteTarget


def check_installed() -> None:
    """Raises `UsageError` if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise not_installed("pyarrow", "arrow") from None


def arrow_schema(table: Table) -> pyarrow.Schema:
    """The columns of a table in Arrow and Parquet."""
    import pyarrow

    types = {
        Type.INTEGER: pyarrow.int64(),
        Type.REAL: pyarrow.float64(),
        Type.BOOLEAN: pyarrow.bool_(),
        Type.TEXT: pyarrow.string(),
        Type.INTEGERS: pyarrow.list_(pyarrow.int64()),
        Type.TEXTS: pyarrow.list_(pyarrow.string()),
    }
    return pyarrow.schema(
        [
            pyarrow.field(column.name, types[column.type], not column.required, _described(column))
            for column in table.columns
        ],
        {"description": table.text},
    )


def _described(column: Column) -> dict[str, str]:
    return {"description": column.text} | ({"unit": column.unit} if column.unit else {})


def arrow_table(table: Table, batch: Batch) -> pyarrow.Table:
    """The rows as an Arrow table."""
    import pyarrow

    return pyarrow.table(dict(batch.columns), arrow_schema(table))


def write(target: FileTarget | RemoteTarget, table: Table, batch: Batch) -> None:
    """Writes the rows of a table as a file that appears when it is complete."""
    import pyarrow.parquet

    with target.file() as stream:
        pyarrow.parquet.write_table(arrow_table(table, batch), stream)
