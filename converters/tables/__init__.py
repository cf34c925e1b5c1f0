"""The graph as tables: a folder of Parquet files, partitioned by rank, or one DuckDB file; both are read back."""

from __future__ import annotations

from tracelink._model import MANIFEST, MANIFEST_START
from tracelink.plugins import Content, Files, Format, ReaderSpec, WriterSpec

__all__ = ["DUCKDB", "PARQUET", "schema", "storage", "writer"]

DUCKDB_MAGIC = b"DUCK"
DUCKDB_MAGIC_AT = 8

ARGUMENTS = {"args": ("link", "none", "all")}
"""Links are columns; `link` are the arguments that analyses read: of waits, and of all-to-all."""


def is_manifest(head: bytes, name: str) -> bool:
    """True for the manifest of a dataset."""
    return name == MANIFEST and head.startswith(MANIFEST_START)


def is_database(head: bytes, name: str) -> bool:
    """True for a DuckDB file, whatever its name is."""
    return head[DUCKDB_MAGIC_AT:].startswith(DUCKDB_MAGIC)


PARQUET = Format(
    "parquet",
    reader=ReaderSpec(
        "The graph as Parquet tables, as tracelink writes it: a folder with tracelink.json",
        is_manifest,
        "tracelink.converters.tables.reader:DatasetReader",
        content=Content.JOB,
        inspects=True,
    ),
    writer=WriterSpec(
        "The graph as a folder of Parquet tables, partitioned by rank",
        (".parquet",),
        "tracelink.converters.tables.writer:DatasetWriter",
        Files.FOLDER,
        options=ARGUMENTS,
    ),
    extra="sql",
)
DUCKDB = Format(
    "duckdb",
    reader=ReaderSpec(
        "The graph as a DuckDB file, as tracelink writes it: .duckdb",
        is_database,
        "tracelink.converters.tables.reader:DatabaseReader",
        content=Content.JOB,
        inspects=True,
    ),
    writer=WriterSpec(
        "The graph as one DuckDB file, with tables and views",
        (".duckdb",),
        "tracelink.converters.tables.writer:DatabaseWriter",
        options=ARGUMENTS,
    ),
    extra="sql",
)
