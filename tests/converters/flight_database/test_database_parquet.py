"""Parquet files: the same rows as in SQLite, with types, and with what the columns mean."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from builders.flight_database import examined, rows, sqlite_of
from builders.recorder import collective, dump, frame, process_group
from tracelink.diagnosis.database import storage as writer
from tracelink.diagnosis.database.schema import TABLES, Type
from tracelink.diagnosis.database.tables import database_at
from tracelink.diagnosis.examine import Examined
from tracelink.errors import UsageError

parquet = pytest.importorskip("pyarrow.parquet")
SMALL_GROUPS = {"MOST_ROWS": 3, "MOST_BYTES": 1 << 20}


@pytest.fixture
def job() -> Examined:
    groups = process_group("0", [0, 1])
    return examined(
        {
            0: dump(
                *(collective(sequence=number, frames=[frame("f")]) for number in range(1, 9)),
                pg_config=groups,
            ),
            1: dump(collective(duration_ms=1.5, retired=True), pg_config=groups),
        }
    )


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    table = parquet.read_table(path).to_pydict()
    return list(zip(*table.values(), strict=True))


@pytest.mark.parametrize("limits", [{}, SMALL_GROUPS])
def test_the_rows_are_those_of_sqlite(
    job: Examined, tmp_path: Path, limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(writer, name, value)
    database = sqlite_of(job, tmp_path)
    database_at(f"{tmp_path}/flight/").write(job)
    assert sorted(path.name for path in (tmp_path / "flight").iterdir()) == sorted(
        f"{table}.parquet" for table in TABLES
    )
    for name, table in TABLES.items():
        order = f" ORDER BY {', '.join(table.key)}" if table.key else ""
        assert rows_of(tmp_path / "flight" / f"{name}.parquet") == rows(
            database, f"SELECT * FROM {name}{order}"
        )


def test_columns_have_types_and_say_what_they_mean(job: Examined, tmp_path: Path) -> None:
    database_at(str(tmp_path / "flight.parquet")).write(job)
    types = {Type.INTEGER: "int64", Type.REAL: "double", Type.TEXT: "string", Type.BOOLEAN: "bool"}
    for name, table in TABLES.items():
        found = parquet.read_schema(tmp_path / "flight.parquet" / f"{name}.parquet")
        assert [
            (field.name, str(field.type), field.nullable, field.metadata[b"description"].decode())
            for field in found
        ] == [(column.name, types[column.type], not column.always, column.text) for column in table.columns]
        assert found.metadata[b"description"].decode() == table.text


def test_a_directory_that_is_there_is_enough(job: Examined, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    database_at(str(tmp_path)).write(job)
    assert (tmp_path / "entries.parquet").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["flight/", "flight.parquet"])
def test_without_arrow_the_error_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install 'torch-tracelink\[arrow\]'.*flight\.sqlite"):
        database_at(f"{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []
