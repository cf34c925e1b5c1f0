"""Parquet files: each column has its description and its unit as metadata."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from tracelink.io.targets import DirectoryTarget, FileTarget, RemoteFolderTarget, RemoteTarget
from tracelink.model.errors import UsageError
from tracelink.store.schema import Batch, Column, Table, Type

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"
MOST_ROWS = 1 << 16
MOST_BYTES = 32 << 20
"""Rows are collected up to this size: large row groups are fast to read."""


def check_installed() -> None:
    """Raises `UsageError` if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError(
            "pyarrow is not installed",
            advice="Run: pip install 'torch-tracelink[arrow]', or write SQLite: -o FILE.sqlite",
        ) from None


@cache
def arrow_type(kind: Type) -> pyarrow.DataType:
    """The type of a column in Arrow and Parquet."""
    import pyarrow

    text, integer = pyarrow.string(), pyarrow.int64()
    return {
        Type.SMALL: pyarrow.int32(),
        Type.INTEGER: integer,
        Type.REAL: pyarrow.float64(),
        Type.BOOLEAN: pyarrow.bool_(),
        Type.TEXT: text,
        Type.SHARED: pyarrow.dictionary(pyarrow.int32(), text),
        Type.INTEGERS: pyarrow.list_(integer),
        Type.TEXTS: pyarrow.list_(text),
        Type.COUNTS: pyarrow.map_(text, integer),
    }[kind]


@cache
def arrow_schema(table: Table) -> pyarrow.Schema:
    """The columns of a table in Arrow and Parquet."""
    import pyarrow

    return pyarrow.schema(
        [
            pyarrow.field(column.name, arrow_type(column.type), not column.required, _described(column))
            for column in table.columns
        ],
        {"description": table.text},
    )


def _described(column: Column) -> dict[str, str]:
    known = {"description": column.text, "references": column.references, "unit": column.unit}
    return {name: text for name, text in known.items() if text}


def arrow_table(table: Table, batch: Batch) -> pyarrow.Table:
    """The rows as an Arrow table."""
    import pyarrow

    columns = arrow_schema(table)
    return pyarrow.table({name: batch.columns[name] for name in columns.names}, columns)


def write(target: FileTarget | RemoteTarget, table: Table, batch: Batch) -> None:
    """Writes the rows of a table as a file that appears when it is complete."""
    import pyarrow.parquet

    with target.file() as stream:
        pyarrow.parquet.write_table(arrow_table(table, batch), stream)


def write_folder(
    tables: Iterable[Table],
    batches: Iterable[Batch],
    target: DirectoryTarget | RemoteFolderTarget,
    version: int,
) -> None:
    """Writes a file for each table; the files appear when all of them are complete. `version` is of the tables."""
    location = target.location if isinstance(target, DirectoryTarget) else None
    new = location is not None and not location.exists()
    try:
        with ExitStack() as stack:
            files = {table.name: _open(table, target, stack, version) for table in tables}
            for batch in batches:
                files[batch.table].add(batch)
            for file in files.values():
                file.finish()
    except BaseException:
        if location and new and location.is_dir() and not any(location.iterdir()):
            location.rmdir()
        raise


class _File(Struct):
    """A Parquet file that is being written."""

    table: Table
    writer: Any
    pending: list[pyarrow.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: Batch) -> None:
        table = arrow_table(self.table, batch)
        self.pending.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes
        if self.rows >= MOST_ROWS or self.bytes >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow

        if self.pending:
            self.writer.write_table(pyarrow.concat_tables(self.pending).combine_chunks())
        self.pending, self.rows, self.bytes = [], 0, 0

    def finish(self) -> None:
        self.flush()
        self.writer.close()


def _open(
    table: Table, target: DirectoryTarget | RemoteFolderTarget, stack: ExitStack, version: int
) -> _File:
    import pyarrow.parquet

    stream = stack.enter_context(target.file(table.name + SUFFIX))
    columns = arrow_schema(table)
    columns = columns.with_metadata({**columns.metadata, "version": str(version)})
    return _File(table, stack.enter_context(pyarrow.parquet.ParquetWriter(stream, columns)))
