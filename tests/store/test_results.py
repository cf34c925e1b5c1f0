"""Results as files and databases."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

from tracelink._model.errors import UsageError
from tracelink._model.fields import Bytes, Doc, Nanoseconds, RankNumber, Ranks, Row, Share
from tracelink._model.results import Result
from tracelink._store.results import save


class Color(StrEnum):
    RED = "red"


class Part(Row, frozen=True):
    size: int


class Thing(Row, frozen=True):
    """One of each type of field; rows and mappings within rows are in JSON only."""

    rank: RankNumber
    group: Annotated[str | None, Doc("It's a word of SQL.")]
    time_ns: Annotated[Nanoseconds | None, Doc("How long.")]
    bytes: Bytes
    share: Share
    exact: bool
    color: Color
    ranks: Ranks
    lines: tuple[str, ...]
    counts: Mapping[str, int]
    parts: Sequence[Part]


class Things(Result, frozen=True):
    things: Sequence[Thing]
    others: Sequence[Part]


FIRST = Thing(0, 'a "b"\ud800', 5, 1 << 70, 0.5, True, Color.RED, [0, 1], ("x",), {"one": 1}, [Part(3)])
SECOND = Thing(1, None, None, 7, float("nan"), False, Color.RED, [], (), {}, [])
ROWS = [
    (0, 'a "b"?', 5, float(1 << 70), 0.5, True, "red", [0, 1], ["x"]),
    (1, None, None, 7.0, None, False, "red", [], []),
]


@pytest.fixture
def things() -> Things:
    return Things([FIRST, SECOND], [])


def rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return found


def test_sqlite_has_every_table(things: Things, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    assert save(things, path) == [str(path)]
    database = sqlite3.connect(path)
    lists = [(*row[:7], *(json.dumps(cell, separators=(",", ":")) for cell in row[7:])) for row in ROWS]
    assert rows(database, "SELECT * FROM things") == lists
    assert rows(database, "SELECT * FROM others") == []
    ((made,),) = rows(database, "SELECT sql FROM sqlite_master WHERE name = 'things'")
    assert made.splitlines()[:5] == [
        'CREATE TABLE "things" ( -- Things',
        '  "rank" INTEGER,',
        '  "group" TEXT, -- It\'s a word of SQL.',
        '  "time_ns" INTEGER, -- How long.',
        '  "bytes" REAL,',
    ]


def test_duckdb_has_every_table_with_comments(things: Things, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "x.duckdb"
    assert save(things, path) == [str(path)]
    database = duckdb.connect(path, read_only=True)
    assert rows(database, "FROM things") == ROWS
    assert rows(database, "FROM others") == []
    comments = (
        "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'things' AND comment != ''"
    )
    assert dict(rows(database, comments)) == {
        "group": "It's a word of SQL.",
        "time_ns": "How long.",
    }


def test_parquet_has_a_file_for_each_table_with_rows(things: Things, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    assert save(things, path) == [str(path)]
    table = parquet.read_table(path)
    assert [tuple(row.values()) for row in table.to_pylist()] == ROWS
    field = table.schema.field("time_ns")
    assert field.metadata == {b"description": b"How long.", b"unit": b"ns"}
    assert table.equals(things.to_arrow("things"))
    both = Things([FIRST], [Part(1)])
    assert save(both, path) == [str(tmp_path / f"x.{name}.parquet") for name in ("things", "others")]
    assert parquet.read_table(tmp_path / "x.others.parquet").to_pylist() == [{"size": 1}]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("x.parquet", "pyarrow", "arrow"), ("x.duckdb", "duckdb", "sql"), ("x.duckdb", "pyarrow", "sql")],
)
def test_a_missing_package_is_an_error_that_names_the_extra(
    things: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    for module in (package, f"{package}.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"{package} is not installed. Run: .*\[{extra}\]"):
        save(things, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.sqlite", "x.duckdb"])
def test_an_earlier_file_is_replaced_by_a_complete_one_or_stays(
    things: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("duckdb")
    path = tmp_path / name
    path.write_bytes(b"before")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tracelink._store.sqlite.create_statement", interrupt)
        patched.setattr("tracelink._store.duckdb.create", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(things, path)
    assert path.read_bytes() == b"before"
    save(things, path)
    assert path.read_bytes() != b"before"
    assert [file.name for file in tmp_path.iterdir()] == [name]
