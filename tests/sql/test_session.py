"""`tracelink.query`: rows of tables, errors, and what a statement cannot do."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow as pa

import tracelink
from tracelink import samples
from tracelink._model.errors import UnreadableError, UsageError

COUNTS = "SELECT kind, count(*) AS events FROM events WHERE rank = $rank GROUP BY kind ORDER BY events DESC LIMIT 2"
SUM = "SELECT sum(duration_ns) AS total, avg(duration_ns) AS mean FROM events WHERE kind = 'kernel'"


def test_rows_of_a_statement_with_a_parameter(source: Path) -> None:
    found = tracelink.query(source, COUNTS, parameters={"rank": 0})
    assert (found.columns, found.rows(), len(found)) == (
        ["kind", "events"],
        [("node", 196), ("operator", 168)],
        2,
    )
    assert list(found.findings) == []
    assert repr(found) == "<QueryResult: 2 rows of kind, events>"


def test_traces_are_queried_without_a_file_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "notes.json").write_text('{"remarks": []}')
    traces = [samples.path("gpu_pair"), tmp_path]
    found = tracelink.query(traces, COUNTS, parameters={"rank": 0})
    assert found.rows() == [("node", 196), ("operator", 168)]
    assert {finding.reason for finding in found.findings} == {"skipped"}
    assert [path.name for path in tmp_path.iterdir()] == ["notes.json"]


def test_arguments_of_traces_are_read_on_request() -> None:
    sql = "SELECT count(*) FROM arguments WHERE arguments->>'stream' = '20'"
    assert tracelink.query(samples.path("gpu_pair"), sql).rows() == [(0,)]
    assert tracelink.query(samples.path("gpu_pair"), sql, arguments=True).rows() == [(64,)]


def test_sums_are_integers_and_means_are_not(source: Path) -> None:
    found = tracelink.query(source, SUM)
    graph = tracelink.load(samples.path("gpu_pair"))
    kernels = graph.events.duration[graph.find(kind="kernel")]
    assert found.rows() == [(int(kernels.sum()), pytest.approx(float(kernels.mean())))]
    assert [str(column.type) for column in found.table.schema] == ["int64", "double"]


# Frames share the memory of the rows.


def addresses(column: Any) -> list[int]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None]


def test_arrow_pandas_and_polars_share_the_memory_of_the_rows(source: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    found = tracelink.query(source, "SELECT event, duration_ns FROM events ORDER BY rank, event")
    column = found.to_arrow().column("event")
    frame = found.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert addresses(pa.chunked_array(frame["event"].array.__arrow_array__())) == addresses(column)
    assert addresses(found.to_polars()["event"].to_arrow())[-1] in addresses(column)
    assert addresses(pa.table(found).column("event")) == addresses(column)
    assert polars.DataFrame(found).equals(found.to_polars())


def test_columns_of_a_graph_share_their_memory_with_arrow() -> None:
    graph = tracelink.load(samples.path("gpu_pair"))
    events, counters = graph.to_arrow("events"), graph.to_arrow("counters")
    for column, values in (
        (events.column("start"), graph.events.start),
        (events.column("track"), graph.events.track),
        (counters.column("value"), graph.counters.value),
    ):
        assert addresses(column)[-1] == values.__array_interface__["data"][0]


# What is refused.


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT nmae FROM events", 'Referenced column "nmae" not found.*"name"'),
        (
            "SELECT * FROM event",
            'Table with name event does not exist! Did you mean "events".*There are: .*edges',
        ),
        ("SELEC 1", r'syntax error at or near "selec".*docs/sql.md|syntax error at or near "SELEC"'),
        ("SELECT $limit", "limit"),
        ("SELECT rank + 'x' FROM events", "x"),
        ("", "there is no query"),
        ("SELECT 1; SELECT 2", "not one statement that selects"),
        ("CREATE TABLE mine AS SELECT 1", "not one statement that selects"),
        ("COPY events TO 'x.csv'", "not one statement that selects"),
        ("SET threads = 1", "not one statement that selects"),
        ("ATTACH 'x.duckdb'", "not one statement that selects"),
        ("INSTALL httpfs", "not one statement that selects"),
        ("EXPLAIN ANALYZE SELECT 1", "not one statement that selects"),
        ("SELECT * FROM read_text('/etc/passwd')", "can only read the tables of the job"),
        ("SELECT * FROM 'https://example.org/x.parquet'", "example.org|can only read"),
        ("SELECT * FROM glob('/etc/*')", "can only read the tables of the job"),
    ],
)
def test_a_wrong_statement_is_one_error(source: Path, sql: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){problem}") as error:
        tracelink.query(source, sql)
    assert "\n" not in str(error.value)


def test_variables_of_the_program_are_no_tables(source: Path) -> None:
    frame = pa.table({"a": [1]})
    with pytest.raises(UsageError, match="frame"):
        tracelink.query(source, "SELECT * FROM frame")
    assert len(frame) == 1


def test_a_dataset_of_another_schema_is_unreadable(written: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(written / "job.parquet", tmp_path / "job.parquet"))
    shutil.copy(folder / "ranks" / "part-0.parquet", folder / "events" / "rank=0" / "part-0.parquet")
    with pytest.raises(UnreadableError, match="DuckDB cannot read"):
        tracelink.query(folder, "SELECT name FROM events")


def test_a_query_and_a_name_are_too_much(source: Path) -> None:
    with pytest.raises(UsageError, match="there are two queries"):
        tracelink.query(source, "SELECT 1", name="top-kernels")


def test_without_duckdb_the_error_names_the_extra(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(
        UsageError, match=r"duckdb is not installed. Run: pip install 'torch-tracelink\[sql\]'"
    ):
        tracelink.query(source, "SELECT 1")


def test_a_limit_of_memory_is_set(source: Path) -> None:
    sql = "SELECT current_setting('memory_limit'), current_setting('threads')"
    ((memory, threads),) = tracelink.query(source, sql, memory=1 << 30, jobs=1).rows()
    assert (memory, threads) == ("1.0 GiB", 1)
