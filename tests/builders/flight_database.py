"""Examined dumps and their SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.recorder import as_source, pickled
from tracelink.converters.flight_recorder.reader import FlightRecorderReader
from tracelink.diagnosis.database.tables import database_at
from tracelink.diagnosis.examine import Examined, diagnosis_of
from tracelink.diagnosis.journal import journal_of
from tracelink.engines.processes import Processes

Row = tuple[Any, ...]


def examined(contents: Mapping[int, dict[str, Any]]) -> Examined:
    """The diagnosis of these dumps, by rank."""
    return examined_bytes({rank: pickled(content) for rank, content in contents.items()})


def examined_bytes(dumps: Mapping[int, bytes]) -> Examined:
    """The diagnosis of these files, by rank."""
    reader, engine = FlightRecorderReader(), Processes()
    journal = journal_of(
        {
            rank: reader.read_records(as_source(data, f"comm_lib_trace_rank_{rank}"), engine)
            for rank, data in dumps.items()
        }
    )
    return Examined(diagnosis_of(journal), journal)


def sqlite_of(what: Examined, folder: Path) -> sqlite3.Connection:
    """The SQLite database of a diagnosis."""
    path = folder / "flight.sqlite"
    database_at(str(path)).write(what)
    return sqlite3.connect(path)


def rows(connection: sqlite3.Connection, query: str) -> list[Row]:
    """The rows of a query."""
    found: list[Row] = connection.execute(query).fetchall()
    return found
