"""The Parquet files of a dataset: how they are written, and what is checked before one is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tracelink._io.sources import Source
from tracelink._io.targets import Target
from tracelink._model import MANIFEST
from tracelink._model.errors import UnreadableError, did_you_mean
from tracelink._store.parquet import arrow_type
from tracelink.converters.tables import schema
from tracelink.converters.tables.schema import Manifest


def write_manifest(target: Target, manifest: Manifest) -> int:
    """Writes the manifest, after all files."""
    with target.file(MANIFEST) as stream:
        stream.write(msgspec.json.encode(manifest))
    return target.size(MANIFEST)


# Reading.


LONGEST_MANIFEST = 1 << 26
MOST_ROWS_OF_BYTE = 1024
"""Rows for each byte of a file: more have no times that differ."""
FEW_ROWS = 1 << 20
"""Rows that any file can have, such as samples of a value that never changes."""

AGAIN = "Write the dataset again: tracelink merge TRACES -o job.parquet/"


def manifest_of(source: Source) -> Manifest:
    """The manifest of a dataset; raises `UnreadableError` if this version cannot read it."""
    with source.open() as stream:
        return decoded_manifest(stream.read_all(LONGEST_MANIFEST), source.path)


def decoded_manifest(text: bytes, path: str) -> Manifest:
    """A manifest from its JSON."""
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableError(f"the manifest is invalid: {error}", source=path, advice=AGAIN) from error
    if manifest.schema != schema.VERSION:
        raise UnreadableError(
            f"its tables are of version {manifest.schema}, and this version of tracelink reads {schema.VERSION}",
            source=path,
            advice=f"It was written by tracelink {manifest.tracelink}. {AGAIN}",
        )
    ranks = manifest.ranks
    lengths = {len(set(ranks)), len(ranks), len(manifest.events), len(manifest.spans)}
    if len(lengths) > 1 or any(rank < 0 for rank in ranks):
        raise UnreadableError("the manifest is invalid: its ranks are", source=path, advice=AGAIN)
    return manifest


def read_file(path: Path, table: schema.Table) -> pa.Table:
    """The rows of a file; raises `UnreadableError` if it is not a file of this table."""
    with refused(path.as_posix()), pq.ParquetFile(path) as file:
        metadata = file.metadata
        if metadata.num_rows > FEW_ROWS + MOST_ROWS_OF_BYTE * path.stat().st_size:
            raise UnreadableError(f"it states {metadata.num_rows:,} rows, for which it is too small")
        check_columns(file.schema_arrow, table)
        rows = file.read([column.name for column in table.restored], use_threads=False)
        rows.validate(full=True)
        return rows.unify_dictionaries().combine_chunks()


def check_columns(found: pa.Schema, table: schema.Table) -> None:
    """Raises `UnreadableError` if a column is missing or of another type."""
    for column in table.restored:
        index = found.get_field_index(column.name)
        if index < 0:
            raise UnreadableError(
                f"the table {table.name} has no column {column.name}",
                advice=f"{did_you_mean(column.name, found.names)} {AGAIN}".strip(),
            )
        if found.field(index).type != arrow_type(column.type):
            raise UnreadableError(
                f"the column {column.name} of {table.name} is {found.field(index).type}, not {arrow_type(column.type)}",
                advice=AGAIN,
            )


@contextmanager
def refused(path: str) -> Iterator[None]:
    """Errors of the libraries as `UnreadableError`s about this file."""
    try:
        yield
    except UnreadableError as error:
        error.source = error.source or path
        raise
    except FileNotFoundError as error:
        raise UnreadableError("the file is missing", source=path, advice=AGAIN) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:300]
        raise UnreadableError(f"it is damaged: {text}", source=path, advice=AGAIN) from error
