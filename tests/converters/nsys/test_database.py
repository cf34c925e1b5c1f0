"""Databases that anybody may have written: nothing in them runs, and damage costs one table."""

from __future__ import annotations

import gzip
import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import tracelink
from builders.nsys import Export, example, parquet_folder
from tracelink._model.errors import UnreadableError
from tracelink.converters.nsys import database as databases
from tracelink.converters.nsys import is_nsys
from tracelink.converters.nsys.database import Database, known


def changed(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(example().write(path))
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def reasons(path: Path) -> list[str]:
    return [f.reason for f in tracelink.inspect(path).findings if f.severity != "info"]


def test_a_view_in_place_of_a_table_is_not_read(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "report.sqlite",
        "DROP TABLE NVTX_EVENTS",
        "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
        "SELECT start, start + 1 AS end, 59 AS eventType, 1 AS globalTid, 'x' AS text FROM n",
    )
    assert "NVTX_EVENTS" not in Database.open(path).tables
    assert [source.events for source in tracelink.inspect(path).sources] == [7, 7]


def test_cells_of_other_types_are_integers_or_unknown(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "report.sqlite",
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = 'seven', correlationId = NULL, end = 'x', deviceId = 1e300",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = '1\"}', start = -5",
    )
    inspection = tracelink.inspect(path)
    assert [(f.reason, f.count) for f in inspection.findings if f.severity != "info"] == [("not_an_event", 2)]
    graph = tracelink.load(path, jobs=1)
    assert all(isinstance(graph.arguments(row), dict) for row in range(len(graph)))


def test_texts_that_are_not_utf8_are_shown_as_far_as_possible(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "report.sqlite",
        "UPDATE NVTX_EVENTS SET text = CAST(x'61ff62' AS TEXT) WHERE text = 'step 0'",
    )
    graph = tracelink.load(path, jobs=1)
    assert "a\ufffdb" in graph.strings
    assert reasons(path) == []


def test_a_broken_page_costs_its_table_only(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    export = example()
    for number in range(2000):
        export.range(f"range {number}", 200_000 + number, 1, (100, 100))
    export.write(path)
    (root,) = (
        sqlite3.connect(path)
        .execute("SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")
        .fetchone()
    )
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    path.write_bytes(data)
    inspection = tracelink.inspect(path)
    assert [source.events for source in inspection.sources] == [7, 7]
    assert [f.example for f in inspection.findings if f.reason == "damaged"] == ["NVTX_EVENTS"]


def test_a_table_with_more_rows_than_the_file_can_hold_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Export().write(tmp_path / "report.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE numbers (value INTEGER)")
    connection.executemany("INSERT INTO numbers VALUES (?)", [(number,) for number in range(10)])
    connection.commit()
    monkeypatch.setattr(databases, "SMALLEST_ROW", 1 << 30)
    database = Database.open(path)
    assert list(database.blocks("numbers", ["value"])) == []
    assert database.damage == {"numbers": "it has more rows than the file can contain"}


def numbers(path: Path, rows: list[tuple[object, object]]) -> Database:
    """A database with one more table."""
    connection = sqlite3.connect(Export().write(path))
    connection.execute("CREATE TABLE numbers (value, name TEXT)")
    connection.executemany("INSERT INTO numbers VALUES (?, ?)", rows)
    connection.commit()
    return Database.open(path)


def test_blocks_are_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "ROWS_AT_ONCE", 4)
    database = numbers(tmp_path / "report.sqlite", [(number or None, f"{number}") for number in range(6)])
    blocks = list(database.blocks("numbers", [known("value", 7)]))
    assert [[column.tolist() for column in block] for block in blocks] == [
        [[1, 2, 3, 4], [7, 1, 2, 3]],
        [[5, 6], [4, 5]],
    ]
    joined = [database.joined("numbers", "name", block[0], b"|") for block in blocks]
    assert joined == [b"0|1|2|3", b"4|5"]


@pytest.mark.parametrize("odd", [None, "x", b"x", 1e300, "12"])
def test_values_that_are_no_integers_are_converted(
    odd: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "ROWS_AT_ONCE", 2)
    values = [1, 2, 3, odd, 5]
    database = numbers(tmp_path / "report.sqlite", [(value, "") for value in values])
    found = np.concatenate([block[1] for block in database.blocks("numbers", ["value"])])
    assert found.tolist() == [1, 2, 3, {None: -1, 1e300: 2**63 - 1, "12": 12}.get(odd, 0), 5]  # type: ignore[call-overload]
    assert database.damage == {}


def test_texts_with_separators_or_of_many_megabytes_stay_apart(tmp_path: Path) -> None:
    texts = ["a|b", "", "n" * 160, "m" * 160]
    database = numbers(tmp_path / "report.sqlite", [(1, text) for text in texts])
    database.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 300)
    rows = np.arange(1, 5)
    assert database.joined("numbers", "name", rows[:2], b"|") == b"a b|"
    assert database.joined("numbers", "name", rows[2:], b"|") == b"n" * 160 + b"|" + b"m" * 160


def test_queries_that_take_too_many_steps_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "STEPS", 5000)
    monkeypatch.setattr(databases, "STEPS_PER_BYTE", 0)
    monkeypatch.setattr(databases, "STEPS_AT_ONCE", 1000)
    database = numbers(tmp_path / "report.sqlite", [(number, "") for number in range(3000)])
    assert list(database.blocks("numbers", ["value"])) == []
    assert database.damage == {"numbers": "it takes more steps than a file of this size should"}


def test_nothing_can_be_written(tmp_path: Path) -> None:
    database = Database.open(Export().write(tmp_path / "report.sqlite"))
    with pytest.raises(sqlite3.OperationalError):
        database.connection.execute("CREATE TABLE x (y)")


def test_a_file_with_a_broken_list_of_tables_is_unreadable(tmp_path: Path) -> None:
    path = example().write(tmp_path / "report.sqlite")
    data = bytearray(path.read_bytes())
    data[100:112] = b"\xff" * 12
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match="the database is damaged"):
        Database.open(path)


@pytest.mark.parametrize("column", ["rowid INTEGER", "extra INTEGER AS (length(hex(zeroblob(8000000))))"])
def test_a_table_that_computes_columns_or_names_its_own_rows_is_not_read(tmp_path: Path, column: str) -> None:
    path = changed(tmp_path / "report.sqlite", f"ALTER TABLE NVTX_EVENTS ADD COLUMN {column}")
    database = Database.open(path)
    assert "NVTX_EVENTS" not in database.tables
    assert list(database.damage) == ["NVTX_EVENTS"]
    assert reasons(path) == ["damaged"]


def test_texts_that_are_larger_than_the_file_end_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.open(example().write(tmp_path / "report.sqlite"))
    monkeypatch.setattr(databases, "LARGEST_TEXTS", 0)
    monkeypatch.setattr(databases, "GROWTH", 0)
    assert database.select("StringIds", "SELECT value FROM StringIds") == []
    assert database._texts("NVTX_EVENTS", "SELECT CAST(text AS BLOB) FROM NVTX_EVENTS WHERE text > ''") == []
    assert database.damage == dict.fromkeys(["StringIds", "NVTX_EVENTS"], databases.REPEATED)


# Reports and Parquet folders: they become databases, or an error says what to do.


REPORT = b"\x00\x01NVIDIA report"


def events_of(path: Path) -> list[tuple[str, int, int]]:
    graph = tracelink.load(path, jobs=1)
    names = [graph.strings[code] for code in graph.events.name.tolist()]
    return list(zip(names, graph.events.start.tolist(), graph.events.duration.tolist(), strict=True))


def test_a_parquet_folder_has_the_events_of_the_database(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    assert events_of(folder) == events_of(tmp_path / "source.sqlite")
    assert [source.path for source in tracelink.inspect(folder).sources] == [
        f"{folder}/CUPTI_ACTIVITY_KIND_GRAPH_TRACE.parquet:rank-{rank}" for rank in range(2)
    ]


def test_one_file_of_a_parquet_folder_names_the_folder(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    with pytest.raises(UnreadableError, match=r"one table of a Parquet export\. Name its folder"):
        tracelink.load(folder / "NVTX_EVENTS.parquet")


def test_a_damaged_parquet_file_costs_its_table_only(tmp_path: Path) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    path = folder / "NVTX_EVENTS.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    inspection = tracelink.inspect(folder)
    assert [source.events for source in inspection.sources] == [7, 7]
    assert [finding.reason for finding in inspection.findings if finding.severity == "warning"] == [
        "truncated"
    ]


def test_parquet_without_pyarrow_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = parquet_folder(example(), tmp_path / "report")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UnreadableError, match=r"pip install 'torch-tracelink\[arrow\]'"):
        tracelink.load(folder)


def program(folder: Path, script: str) -> str:
    """A folder with a program `nsys`."""
    folder.mkdir()
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(folder)


def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(REPORT)
    return path


def test_a_report_is_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = example().write(tmp_path / "made.sqlite")
    commands = program(
        tmp_path / "bin", f'test "$1 $2 $3 $4" = "export --type sqlite --output" && cp {database} "$5"'
    )
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    assert events_of(report(tmp_path)) == events_of(database)


def test_a_report_without_nsys_names_the_export_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreadableError, match=r"nsys is not on the PATH.*nsys export --type sqlite"):
        tracelink.load(report(tmp_path))


def test_the_error_of_nsys_is_shown_without_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = program(tmp_path / "bin", r"printf 'unsupported \033[31mversion' >&2; exit 3")
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    with pytest.raises(UnreadableError, match=r"could not export it: unsupported \\x1b\[31mversion"):
        tracelink.load(report(tmp_path))


def test_text_with_the_name_of_a_report_is_no_report() -> None:
    assert is_nsys(REPORT, "a.nsys-rep")
    assert not is_nsys(b"notes on the report", "a.nsys-rep")


def test_temporary_copies_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(example().data()))
    graph = tracelink.load(packed, jobs=1)
    assert graph.arguments(0)["correlation"] == 7
    del graph
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_compressed_database_that_is_cut_is_reported(tmp_path: Path) -> None:
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(example().data())[:-3000])
    with pytest.raises(UnreadableError, match=r"report\.sqlite\.gz"):
        tracelink.load(packed, jobs=1)


def test_a_full_disk_is_an_error_that_names_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracelink._io.system.write_at", full)
    with pytest.raises(UnreadableError, match=r"temporary files in .*: No space left on device. .*TMPDIR"):
        tracelink.load(example().write(tmp_path / "report.sqlite"), jobs=1)
