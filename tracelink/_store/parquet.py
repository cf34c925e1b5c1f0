"""Parquet files: each column has its description and its unit as metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct, field

from tracelink._io.targets import Place, Target
from tracelink._model.errors import UsageError
from tracelink._store.schema import Batch, Column, Table, Type, stored

if TYPE_CHECKING:
    import pyarrow.parquet

    from tracelink._model.results import ResultTable

SUFFIX = ".parquet"
COMPRESSION = "zstd"
LEVEL = 1
"""Higher levels take longer than reading the JSON of a trace, and save less than a tenth."""
ROWS_OF_GROUP = 1 << 18
"""Rows of a row group: what a thread of a query works on."""
WHOLE_DICTIONARY = 1 << 30
"""Bytes of a dictionary: a larger one would be written as texts."""
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


def arrow_of(result: ResultTable[Any]) -> pyarrow.Table:
    """The rows of a result as an Arrow table."""
    return arrow_table(*stored("", result))


@contextmanager
def writer(
    stream: BinaryIO, table: Table, version: int | None = None
) -> Iterator[pyarrow.parquet.ParquetWriter]:
    """Writes rows of a table into a stream: equal rows give equal bytes. `version` is of the tables."""
    import pyarrow.parquet

    columns = arrow_schema(table)
    if version is not None:
        columns = columns.with_metadata({**columns.metadata, "version": str(version)})
    with pyarrow.parquet.ParquetWriter(
        stream,
        columns,
        compression=COMPRESSION,
        compression_level=LEVEL,
        use_dictionary=[column.name for column in table.columns if column.type == Type.SHARED],
        column_encoding={
            column.name: "DELTA_BINARY_PACKED"
            for column in table.columns
            if column.type in (Type.SMALL, Type.INTEGER)
        },
        dictionary_pagesize_limit=WHOLE_DICTIONARY,
        write_statistics=True,
    ) as opened:
        yield opened


def write(target: Target, name: str, table: Table, rows: pyarrow.Table) -> int:
    """Writes the rows of a table as a file that appears when it is complete. Returns its size."""
    with target.file(name) as stream, writer(stream, table) as opened:
        opened.write_table(rows, row_group_size=ROWS_OF_GROUP)
    return target.size(name)


def write_folder(
    tables: Iterable[Table],
    batches: Iterable[Batch],
    target: Place,
    version: int,
) -> None:
    """Writes a file for each table; the files appear when all of them are complete. `version` is of the tables."""
    location = target.local
    new = location is not None and not location.exists()
    try:
        with ExitStack() as stack:
            files = {}
            for table in tables:
                stream = stack.enter_context(target.file(table.name + SUFFIX))
                files[table.name] = _File(table, stack.enter_context(writer(stream, table, version)))
            for batch in batches:
                files[batch.table].add(batch)
            for file in files.values():
                file.flush()
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
