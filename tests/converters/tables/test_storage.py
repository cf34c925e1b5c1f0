"""DuckDB files: their tables and views, and connections that reach nothing else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import duckdb

import tracelink
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._store.duckdb import pattern, written_as
from tracelink.converters.tables import schema, storage

RELATIONS = {
    "launches",
    "kernels",
    "calls",
    "step_times",
    "breakdown",
    "exposed_communication",
    "arrivals",
    "sampled",
}


@pytest.fixture(scope="module")
def connection(written: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(written / "job.duckdb"), read_only=True) as opened:
        yield opened


def test_tables_have_the_columns_of_the_schema(connection: duckdb.DuckDBPyConnection) -> None:
    for table in schema.TABLES.values():
        found = connection.sql(
            f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table.name}'"
        )
        expected = [
            (column.name, column.sql_type.replace("ENUM (", "ENUM(")) for column in table.in_database.columns
        ]
        assert found.fetchall() == expected


def test_views_come_with_a_comment_and_have_rows(connection: duckdb.DuckDBPyConnection) -> None:
    known = connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert {name for (name,) in known} == RELATIONS
    assert set(storage.views()) == RELATIONS | {"call_tree"}
    assert all(text.startswith("-- ") for text in storage.views().values())
    for name in RELATIONS:
        assert connection.sql(f"SELECT count(*) > 0 FROM {name}").fetchall() == [(True,)]


def test_a_call_tree_has_everything_that_an_event_calls(
    connection: duckdb.DuckDBPyConnection, written: Path
) -> None:
    graph = tracelink.load(written / "job.parquet")
    (step,) = graph.find("ProfilerStep#1", rank=0, kind="annotation")
    rows = connection.sql(f"SELECT event, depth FROM call_tree(0, {step})").fetchall()
    assert {event for event, _ in rows} == {int(step), *graph.descendants(step, "calls").tolist()}
    assert min(depth for _, depth in rows) == 0


def test_callers_and_launches_are_those_of_the_edges(connection: duckdb.DuckDBPyConnection) -> None:
    wrong = connection.sql(
        "SELECT count(*) FROM events JOIN edges ON edges.rank = events.rank AND target = event "
        "WHERE (relation = 'calls' AND caller IS DISTINCT FROM edges.source) "
        "OR (relation = 'launches' AND part IS NOT NULL AND call IS DISTINCT FROM edges.source)"
    )
    assert wrong.fetchall() == [(0,)]
    total = "SELECT sum(self_ns)::BIGINT, sum(duration_ns) FILTER (caller IS NULL)::BIGINT FROM events WHERE kind "
    own, outermost = connection.sql(f"{total} IN ('operator', 'annotation', 'python', 'runtime')").fetchall()[
        0
    ]
    assert own == outermost


def test_a_path_is_a_pattern_that_only_fits_to_it() -> None:
    assert pattern("a[1]/b*c?.parquet") == "a[[]1]/b[*]c[?].parquet"


@pytest.mark.parametrize("name", ["job[1]", "it's", "a*b"])
def test_folders_with_any_name(tmp_path: Path, written: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    tracelink.merge(written / "job.parquet", output=folder / "job.parquet", jobs=1)
    tracelink.merge(written / "job.parquet", output=folder / "job.duckdb", jobs=1)
    for path in (folder / "job.parquet", folder / "job.duckdb"):
        assert tracelink.query(path, "SELECT count(*) FROM events").rows() == [(1410,)]


def test_macros_of_a_file_are_refused(tmp_path: Path, written: Path) -> None:
    path = Path(shutil.copy(written / "job.duckdb", tmp_path / "job.duckdb"))
    with duckdb.connect(path) as connection:
        connection.execute("CREATE MACRO sum(x) AS 666")
        connection.execute(
            "CREATE MACRO duckdb_functions() AS TABLE SELECT 'a' AS function_name, true AS internal"
        )
    with pytest.raises(
        UnreadableError, match="it has macros, which tracelink does not write: duckdb_functions, sum"
    ):
        tracelink.query(path, "SELECT sum(duration_ns) FROM events")


def test_errors_of_writing_name_the_file() -> None:
    expected = r"job\.duckdb: cannot be written: could not write\. Choose another place"
    with pytest.raises(TraceError, match=expected), written_as("job.duckdb"):
        raise duckdb.TransactionException("could not write")


def test_without_duckdb_a_summary_names_the_extra(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(
        UsageError, match=r"duckdb is not installed. Run: pip install 'torch-tracelink\[sql\]'"
    ):
        tracelink.summary(written / "job.duckdb")
