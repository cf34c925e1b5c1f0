"""Examined dumps and their SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builders.dumps import journal
from tracelink.diagnosis.database.tables import database_at
from tracelink.diagnosis.examine import Examined, diagnosis_of

Row = tuple[Any, ...]


def examined(dumps: Mapping[int, Any]) -> Examined:
    """The diagnosis of dumps by rank: contents, or bytes as they stand."""
    made = journal(dumps)
    return Examined(diagnosis_of(made), made)


def sqlite_of(what: Examined, folder: Path) -> sqlite3.Connection:
    path = folder / "flight.sqlite"
    database_at(str(path)).write(what)
    return sqlite3.connect(path)


def rows(connection: sqlite3.Connection, query: str) -> list[Row]:
    return connection.execute(query).fetchall()
