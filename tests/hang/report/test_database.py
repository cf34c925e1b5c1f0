"""SQLite and Parquet files: types, limits, and complete output."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.dumps import examined, rows, sqlite_of
from builders.recorder import as_json, collective, dump, frame, pickled, process_group
from tracelink._hang.examine import Examined, examine
from tracelink._hang.report.database import TABLES, VERSION, database_at
from tracelink._model.errors import ChangedError, TraceError, UsageError
from tracelink._store import parquet as writer
from tracelink._store.schema import Type

# SQLite.


EVIL = "x'); DROP TABLE entries; --\0\n"
TYPES = {Type.INTEGER: "integer", Type.REAL: "real", Type.TEXT: "text", Type.BOOLEAN: "integer"}


def check(database: sqlite3.Connection) -> None:
    """Keys join, and every column holds only what it says."""
    assert rows(database, "PRAGMA foreign_key_check") == []
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
    for table in TABLES.values():
        for column in table.columns:
            kinds = rows(database, f"SELECT DISTINCT typeof({column.name}) FROM {table.name}")
            allowed = {TYPES[column.type]} if column.required else {TYPES[column.type], "null"}
            assert {kind for (kind,) in kinds} <= allowed


def test_sqlite_schema_contains_descriptions(tmp_path: Path) -> None:
    database = sqlite_of(examined({0: dump(collective())}), tmp_path)
    made = dict(rows(database, "SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    assert list(made) == list(TABLES)
    for table in TABLES.values():
        assert table.text in made[table.name]
        assert all(f'"{column.name}" ' in made[table.name] for column in table.columns)
        assert all(column.text in made[table.name] for column in table.columns)
    assert rows(database, "PRAGMA user_version") == [(VERSION,)]


def test_all_keys_are_declared(tmp_path: Path) -> None:
    database = sqlite_of(examined({0: dump(collective())}), tmp_path)
    declared = {
        (table, name, f"{other}.{referenced}")
        for table in TABLES
        for _, _, other, name, referenced, *_ in rows(database, f"PRAGMA foreign_key_list({table})")
    }
    assert declared == {
        (table.name, column.name, column.references)
        for table in TABLES.values()
        for column in table.columns
        if column.references
    }
    assert all(reference.split(".")[0] in TABLES for _, _, reference in declared)


def test_equal_dumps_write_equal_files(tmp_path: Path) -> None:
    what = examined({rank: dump(collective(), frames=[frame("f")]) for rank in range(3)})
    for name in ("one.db", "two.sqlite3"):
        database_at(str(tmp_path / name)).write(what)
    assert (tmp_path / "one.db").read_bytes() == (tmp_path / "two.sqlite3").read_bytes()


def test_hostile_names(tmp_path: Path) -> None:
    entry = collective(EVIL, group=(EVIL, EVIL), input_dtypes=[EVIL], frames=[frame(EVIL, EVIL)])
    database = sqlite_of(examined({0: dump(entry, pg_config=process_group(EVIL, [0], EVIL))}), tmp_path)
    query = """
        SELECT e.operation, g.name, g.description, t.name, f.filename
        FROM entries e JOIN groups g ON g.id = e.group_id
        JOIN tracebacks t ON t.id = e.traceback_id JOIN frames f ON f.traceback_id = t.id
    """
    assert rows(database, query) == [(EVIL,) * 5]
    check(database)


def test_lone_surrogates_become_question_marks(tmp_path: Path) -> None:
    entry = collective("a~~~b", group=("c~~~d", ""), frames=[frame("e~~~f")])
    data = pickled(dump(entry)).replace(b"~~~", "\ud800".encode("utf-8", "surrogatepass"))
    query = """
        SELECT e.operation, g.name, t.name FROM entries e
        JOIN groups g ON g.id = e.group_id JOIN tracebacks t ON t.id = e.traceback_id
    """
    assert rows(sqlite_of(examined({0: data}), tmp_path), query) == [("a?b", "c?d", "e?f")]


@pytest.mark.parametrize(
    ("fields", "columns", "values"),
    [
        (
            {"input_sizes": [[1 << 40, 1 << 40]]},
            "input_sizes, input_elements",
            ("[[1099511627776,1099511627776]]", None),
        ),
        ({"input_sizes": [[1 << 62], [1 << 62]]}, "input_elements, input_bytes", (None, None)),
        ({"input_sizes": [[-1]]}, "input_sizes, input_elements", ("[[-1]]", None)),
        ({"input_sizes": [["two"]]}, "input_sizes, input_elements", ('[["two"]]', None)),
        ({"input_sizes": "none"}, "input_sizes, input_elements", ('"none"', None)),
        ({"input_dtypes": [1]}, "input_types, input_bytes", ("[1]", None)),
        ({"input_dtypes": []}, "input_types, input_bytes", ("[]", None)),
        ({"timeout_ms": (1 << 64) - 1}, "timeout_ms", (None,)),
        ({"duration_ms": "long"}, "duration_ms", (None,)),
        ({"frames": "here"}, "traceback_id", (None,)),
        ({"frames": [{"name": 3}]}, "traceback_id", (None,)),
    ],
)
def test_values_that_do_not_fit_a_column(
    tmp_path: Path, fields: dict[str, Any], columns: str, values: tuple[Any, ...]
) -> None:
    database = sqlite_of(examined({0: as_json(dump(collective(**fields)))}), tmp_path)
    assert rows(database, f"SELECT {columns} FROM entries") == [values]
    check(database)


def test_line_number_too_large(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "a.py", "line": (1 << 64) - 1}, {"name": "g"}]
    database = sqlite_of(examined({0: as_json(dump(collective(frames=frames)))}), tmp_path)
    assert rows(database, "SELECT depth, name, filename, line FROM frames") == [
        (0, "f", "a.py", None),
        (1, "g", "", None),
    ]


def test_omitted_stacks_and_sizes_are_findings(tmp_path: Path) -> None:
    deep = [frame(f"f{depth}") for depth in range(2000)]
    many = [[1]] * 20_000
    what = examined(
        {
            0: as_json(
                dump(
                    collective(frames=deep),
                    collective(sequence=2, frames="none"),
                    collective(sequence=3, input_sizes=many, input_dtypes=["Float"] * len(many)),
                )
            )
        }
    )
    database = sqlite_of(what, tmp_path)
    assert rows(database, "SELECT count(*), max(depth) FROM frames") == [(1024, 1023)]
    assert rows(database, "SELECT input_sizes, input_types, input_bytes FROM entries WHERE sequence = 3") == [
        (None, None, 80_000)
    ]
    query = "SELECT reason, count FROM findings WHERE reason IN ('sizes_left_out', 'stacks_cut', 'stacks_unreadable')"
    assert rows(database, query) == [("sizes_left_out", 2), ("stacks_unreadable", 1), ("stacks_cut", 1)]


def test_dump_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(as_json(dump(collective())))
    what = examine(folder)
    (folder / "comm_lib_trace_rank_1").unlink()
    with pytest.raises(
        ChangedError, match="comm_lib_trace_rank_1: the file was removed since it was first read"
    ):
        sqlite_of(what, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["dumps"]


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(collective(frames=[], duration_ms=1.0))


@given(
    entries=st.lists(st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=6), max_size=5),
    config=JUNK,
    status=JUNK,
)
def test_keys_join_for_any_dump(
    tmp_path_factory: pytest.TempPathFactory, entries: list[dict[str, Any]], config: Any, status: Any
) -> None:
    content = {
        "version": "2.10",
        "pg_config": config,
        "pg_status": status,
        "entries": [collective(sequence=place) | fields for place, fields in enumerate(entries)],
    }
    database = sqlite_of(
        examined({0: orjson.dumps(content), 3: as_json(dump(collective()))}),
        tmp_path_factory.mktemp("junk"),
    )
    check(database)
    database.close()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", ["flight.sqlite", "flight.parquet", "flight/"])
def test_interrupted_write_leaves_nothing(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = examined({0: dump(collective())})
    monkeypatch.setattr("tracelink._hang.report.database.problems_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        database_at(f"{tmp_path}/{place}").write(what)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["flight.sqlite", "flight.parquet/entries.parquet"])
def test_interrupted_write_keeps_the_old_output(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = examined({0: dump(collective())})
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"before")
    monkeypatch.setattr("tracelink._hang.report.database.problems_table", interrupt)
    with pytest.raises(KeyboardInterrupt):
        database_at(str(tmp_path / place.split("/")[0])).write(what)
    assert file.read_bytes() == b"before"
    assert list(file.parent.iterdir()) == [file]


def test_existing_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "flight.sqlite").write_bytes(b"before")
    database = sqlite_of(examined({0: dump(collective())}), tmp_path)
    assert rows(database, "SELECT count(*) FROM entries") == [(1,)]
    assert [path.name for path in tmp_path.iterdir()] == ["flight.sqlite"]


def full(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def in_a_lost_folder(folder: Path) -> Path:
    return folder / "missing" / "flight.sqlite"


def where_a_folder_is(folder: Path) -> Path:
    (folder / "flight.sqlite").mkdir()
    return folder / "flight.sqlite"


@pytest.mark.parametrize("where", [in_a_lost_folder, where_a_folder_is])
def test_path_not_writable(tmp_path: Path, where: Callable[[Path], Path]) -> None:
    with pytest.raises(TraceError, match=r"flight\.sqlite: cannot be written: .*another place"):
        database_at(str(where(tmp_path))).write(examined({0: dump(collective())}))


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracelink._store.sqlite._insert_statement", full)
    with pytest.raises(
        TraceError, match=r"flight\.sqlite: cannot be written: database or disk is full\. .*another place"
    ):
        sqlite_of(examined({0: dump(collective())}), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["flight", "report.html", "flight.json", "-", "flight.sqlite.gz"])
def test_unknown_suffix(name: str) -> None:
    with pytest.raises(UsageError, match=r"flight\.parquet"):
        database_at(name)


# Parquet.


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
def test_parquet_rows_equal_sqlite_rows(
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


def test_parquet_schema_contains_descriptions(job: Examined, tmp_path: Path) -> None:
    database_at(str(tmp_path / "flight.parquet")).write(job)
    types = {Type.INTEGER: "int64", Type.REAL: "double", Type.TEXT: "string", Type.BOOLEAN: "bool"}
    for name, table in TABLES.items():
        found = parquet.read_schema(tmp_path / "flight.parquet" / f"{name}.parquet")
        assert [
            (field.name, str(field.type), field.nullable, field.metadata[b"description"].decode())
            for field in found
        ] == [(column.name, types[column.type], not column.required, column.text) for column in table.columns]
        assert found.metadata[b"description"].decode() == table.text


def test_existing_directory(job: Examined, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    database_at(str(tmp_path)).write(job)
    assert (tmp_path / "entries.parquet").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["flight/", "flight.parquet"])
def test_pyarrow_not_installed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UsageError, match=r"pip install 'torch-tracelink\[arrow\]'.*FILE\.sqlite"):
        database_at(f"{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []
