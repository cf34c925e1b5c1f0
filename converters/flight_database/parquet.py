"""A directory of Parquet files, one for each table; columns carry what they mean."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracelink.converters.flight_database import schema
from tracelink.converters.flight_database.rows import Batch
from tracelink.converters.flight_database.schema import Table, Type
from tracelink.errors import UsageError
from tracelink.targets import DirectoryTarget

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"
MOST_ROWS = 1 << 16
MOST_BYTES = 32 << 20
"""So much is collected before it is written: readers are quick where row groups are large."""


def check_arrow() -> None:
    """Raises an error that says what to install, where Arrow is missing."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError(
            "Parquet files need pyarrow, which is not installed",
            advice="Run: pip install 'torch-tracelink[arrow]', or write SQLite: -o flight.sqlite",
        ) from None


def write_parquet(batches: Iterable[Batch], target: DirectoryTarget) -> None:
    """Writes all rows; the files appear when all of them are complete."""
    check_arrow()
    new = not target.location.exists()
    try:
        with ExitStack() as stack:
            files = {table.name: _opened(table, target, stack) for table in schema.TABLES.values()}
            for batch in batches:
                files[batch.table].add(batch)
            for file in files.values():
                file.finish()
    except BaseException:
        if new and target.location.is_dir() and not any(target.location.iterdir()):
            target.location.rmdir()
        raise


@dataclass(slots=True)
class _File:
    """One file that is being written."""

    schema: pyarrow.Schema
    writer: Any
    waiting: list[pyarrow.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: Batch) -> None:
        import pyarrow

        table = pyarrow.table({name: batch.columns[name] for name in self.schema.names}, schema=self.schema)
        self.waiting.append(table)
        self.rows += table.num_rows
        self.bytes += table.nbytes
        if self.rows >= MOST_ROWS or self.bytes >= MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        import pyarrow

        if self.waiting:
            self.writer.write_table(pyarrow.concat_tables(self.waiting).combine_chunks())
        self.waiting, self.rows, self.bytes = [], 0, 0

    def finish(self) -> None:
        self.flush()
        self.writer.close()


def _opened(table: Table, target: DirectoryTarget, stack: ExitStack) -> _File:
    import pyarrow.parquet

    stream = stack.enter_context(target.file(table.name + SUFFIX))
    fields = _fields(table)
    return _File(fields, stack.enter_context(pyarrow.parquet.ParquetWriter(stream, fields)))


def _fields(table: Table) -> pyarrow.Schema:
    import pyarrow

    types = {
        Type.INTEGER: pyarrow.int64(),
        Type.REAL: pyarrow.float64(),
        Type.TEXT: pyarrow.string(),
        Type.BOOLEAN: pyarrow.bool_(),
    }
    return pyarrow.schema(
        [
            pyarrow.field(
                column.name,
                types[column.type],
                nullable=not column.always,
                metadata={"description": column.text, "references": column.references},
            )
            for column in table.columns
        ],
        metadata={"description": table.text, "version": str(schema.VERSION)},
    )
