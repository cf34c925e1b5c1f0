"""`tracelink query`."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

import click
import pyarrow.parquet as pq

import tracelink as library
from builders.command_line import Run
from tracelink import samples, schemas
from tracelink.cli.query import query

COUNTS = "SELECT kind, count(*) AS events FROM events GROUP BY kind ORDER BY events DESC LIMIT 2"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("query") / "job.parquet"
    library.merge(samples.path("gpu_pair"), output=path, jobs=1)
    return str(path)


def test_rows_as_a_table(tracelink: Run, dataset: str) -> None:
    result = tracelink("query", dataset, COUNTS)
    assert (result.exit_code, result.stdout) == (0, "kind      events\nnode         392\noperator     336\n")


def test_traces_need_no_file_in_between(tracelink: Run) -> None:
    result = tracelink("query", str(samples.path("hung_job")), "SELECT count(*) AS events FROM events")
    assert (result.exit_code, result.stdout.split()) == (0, ["events", "349"])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("csv", "kind,events\nnode,392\noperator,336\n"),
        (
            "json",
            '[\n  {\n    "kind": "node",\n    "events": 392\n  },\n'
            '  {\n    "kind": "operator",\n    "events": 336\n  }\n]\n',
        ),
    ],
)
def test_rows_in_other_forms(tracelink: Run, dataset: str, tmp_path: Path, form: str, text: str) -> None:
    assert tracelink("query", dataset, COUNTS, "--format", form).stdout == text
    result = tracelink("query", dataset, COUNTS, "-o", str(tmp_path / f"rows.{form}"))
    assert (result.exit_code, result.stdout) == (0, f"Wrote {tmp_path}/rows.{form} (2 rows).\n")
    assert (tmp_path / f"rows.{form}").read_text() == text


def test_rows_as_parquet(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    rows = [{"kind": "node", "events": 392}, {"kind": "operator", "events": 336}]
    assert tracelink("query", dataset, COUNTS, "-o", str(tmp_path / "rows.parquet")).exit_code == 0
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows
    result = tracelink("query", dataset, COUNTS, "--format", "parquet")
    assert pq.read_table(io.BytesIO(result.stdout_bytes)).to_pylist() == rows


def test_rows_as_a_page_and_as_a_table_of_a_database(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    sql = COUNTS.replace("count(*)", "sum(2.5)")
    for suffix in ("html", "md", "sqlite"):
        result = tracelink("query", dataset, sql, "-o", str(tmp_path / f"rows.{suffix}"))
        assert (result.exit_code, result.stdout) == (0, f"Wrote {tmp_path}/rows.{suffix} (2 rows).\n")
    assert "<td>node</td>" in (tmp_path / "rows.html").read_text()
    assert "| node | 980.0 |" in (tmp_path / "rows.md").read_text()
    with closing(sqlite3.connect(tmp_path / "rows.sqlite")) as connection:
        assert connection.execute("SELECT * FROM rows").fetchall() == [("node", 980.0), ("operator", 840.0)]


def test_columns_of_any_name_have_names_in_a_database(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    sql = 'SELECT 1 AS a, 2 AS a, count(*), NULL AS "group", 3 AS "4", 4 AS class'
    assert tracelink("query", dataset, sql, "-o", str(tmp_path / "rows.sqlite")).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "rows.sqlite")) as connection:
        cursor = connection.execute("SELECT * FROM rows")
        assert [column[0] for column in cursor.description] == [
            "a",
            "a_1",
            "count_star",
            "group",
            "column_4",
            "column_class",
        ]


def test_a_query_by_its_name_and_parameters(tracelink: Run, dataset: str) -> None:
    result = tracelink(
        "query", dataset, "--name", "top-kernels", "-p", "limit=1", "-p", "rank=1", "--format", "csv"
    )
    header, row = result.stdout.splitlines()
    assert header == "name,communication,count,total_ns,share,mean_ns,max_ns,ranks"
    assert row.split(",")[1:4] == ["true", "12", "1526747"]


def test_the_list_of_queries(tracelink: Run) -> None:
    headline, _, *lines = tracelink("query", "--list").stdout.splitlines()
    assert headline == "12 queries"
    assert lines[0].split() == ["query", "answers", "parameters"]
    assert len(lines) == 13
    document = json.loads(tracelink("query", "--list", "--json").stdout)
    jsonschema.validate(document, schemas.load("queries"))
    assert [each["name"] for each in document["queries"]] == [line.split()[0] for line in lines[1:]]


def test_json_has_types_and_rows(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    document = json.loads(
        tracelink("query", dataset, "SELECT 1 AS a, [1, 2] AS b, NULL AS c, now() AS d", "--json").stdout
    )
    jsonschema.validate(document, schemas.load("query"))
    assert [column["name"] for column in document["columns"]] == ["a", "b", "c", "d"]
    assert document["rows"][0][:3] == [1, [1, 2], None]
    output = str(tmp_path / "rows.csv")
    document = json.loads(tracelink("query", dataset, COUNTS, "-o", output, "--json").stdout)
    assert (document["count"], document["rows"], document["output"]) == (2, [], output)


def test_long_tables_and_cells_are_cut_with_advice(tracelink: Run, dataset: str) -> None:
    result = tracelink("query", dataset, "SELECT repeat('x', 100) AS a FROM range(1001)")
    lines = result.stdout.splitlines()
    assert (lines[1], len(lines)) == ("x" * 59 + "…", 1002)
    assert lines[-1] == "1 more row: write them with -o rows.csv"
    assert tracelink("query", dataset, "SELECT 1 AS a LIMIT 0").stdout == "No rows.\n"


def test_names_cannot_control_the_terminal(tracelink: Run, dataset: str) -> None:
    sql = "SELECT 'a' || chr(27) || '[2J' AS x, '=1+1' AS y"
    for form in ("table", "csv", "json"):
        output = tracelink("query", dataset, sql, "--format", form).stdout
        assert "\x1b" not in output
    assert "'=1+1" in tracelink("query", dataset, sql, "--format", "csv").stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("SELECT nmae FROM events",), 'Referenced column "nmae"'),
        (("--name", "top"), "there is no query 'top'"),
        (("--name", "top-kernels", "-p", "most=1"), "has no parameter 'most'"),
        (("--name", "top-kernels", "-p", "limit"), "is not of the form NAME=VALUE"),
        (("SELECT 1", "-o", "rows.txt"), "rows.txt: unknown suffix '.txt'. There are: .html, .md, .csv"),
        (("SELECT 1", "-o", "rows.xml"), "rows.xml: unknown suffix '.xml'. Did you mean .html?"),
        (("SELECT 1", "-o", "missing/rows.csv"), "there is no folder missing"),
        (("SELECT 1", "--format", "parquet", "--json"), "Parquet is not for a terminal"),
        (("COPY events TO 'x.csv'",), "not one statement that selects"),
        (("SELECT 1", "--name", "top-kernels"), "There are two queries. Give either SQL or --name."),
    ],
)
def test_errors_are_one_paragraph(
    tracelink: Run, dataset: str, arguments: tuple[str, ...], problem: str
) -> None:
    result = tracelink("query", dataset, *arguments)
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_names_of_queries_are_completed() -> None:
    option = next(param for param in query.params if param.name == "name")
    items = option.shell_complete(click.Context(query), "top")
    assert [(item.value, item.help) for item in items] == [
        ("top-kernels", "Which kernels take most of the time on the devices?")
    ]


def test_a_query_needs_a_source_and_sql(tracelink: Run, dataset: str) -> None:
    assert "Missing an input" in tracelink("query").stderr
    assert "Missing a query, or --name" in tracelink("query", dataset).stderr
    assert "SQL comes last" in tracelink("query", "SELECT 1", dataset).stderr
    assert "there is no such file" in tracelink("query", "missing", "SELECT 1").stderr


# Types, names and places of rows.

KINDS = (
    "SELECT 1 AS a, 2 AS a, true AS t, [1, NULL] AS l, {'x': 1} AS s, INTERVAL 1 DAY AS i, "
    "'a\\xFF'::BLOB AS b; -- end"
)


def test_values_are_those_of_duckdb(tracelink: Run, dataset: str) -> None:
    result = tracelink("query", dataset, KINDS, "--format", "csv")
    assert result.stdout == """a,a,t,l,s,i,b\n1,2,true,"[1, NULL]",{'x': 1},1 day,a\\xFF\n"""
    statement = KINDS.replace("2 AS a", "2 AS c")
    (row,) = json.loads(tracelink("query", dataset, statement, "--format", "json").stdout)
    expected = {"a": 1, "c": 2, "t": True, "l": [1, None], "s": {"x": 1}, "i": "1 day", "b": "a\\xFF"}
    assert row == expected
    document = json.loads(tracelink("query", dataset, KINDS, "--json").stdout)
    assert document["rows"] == [list(expected.values())]
    assert [column["type"] for column in document["columns"][2:6]] == [
        *("BOOLEAN", "INTEGER[]", "STRUCT(x INTEGER)", "INTERVAL")
    ]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_columns_of_one_name_are_refused_where_names_count(
    tracelink: Run, dataset: str, tmp_path: Path, form: str
) -> None:
    result = tracelink("query", dataset, KINDS, "-o", str(tmp_path / f"rows.{form}"))
    assert result.exit_code == 2
    assert "2 columns are named a. Name each of them with AS." in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_an_interval_is_not_parquet(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    result = tracelink("query", dataset, "SELECT INTERVAL 1 DAY AS i", "-o", str(tmp_path / "rows.parquet"))
    assert "Cast it: CAST(i AS VARCHAR)." in " ".join(result.stderr.split())


def test_rows_of_many_batches(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    sql, output = "SELECT range::HUGEINT AS a FROM range(100000)", tmp_path / "rows.parquet"
    assert tracelink("query", dataset, sql, "-o", str(output)).exit_code == 0
    assert pq.read_table(output).column("a").to_pylist() == list(range(100000))
    for form in ("json", "csv"):
        tracelink("query", dataset, sql, "-o", str(tmp_path / f"rows.{form}"))
    assert [row["a"] for row in json.loads((tmp_path / "rows.json").read_text())] == list(range(100000))
    assert (tmp_path / "rows.csv").read_text() == "\n".join(["a", *map(str, range(100000)), ""])


def test_rows_are_printed_when_quiet(tracelink: Run, dataset: str) -> None:
    assert tracelink("query", dataset, "SELECT 1 AS a", "-q").stdout == "a\n1\n"


def test_a_folder_is_no_output(tracelink: Run, dataset: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").mkdir()
    result = tracelink("query", dataset, "SELECT 1 AS a", "-o", str(tmp_path / "rows.csv"))
    assert (result.exit_code, "is a folder. Name a file" in " ".join(result.stderr.split())) == (2, True)


# Commands that read tables in place of the traces.


def test_a_summary_of_tables_is_that_of_the_traces(tracelink: Run, dataset: str) -> None:
    assert tracelink("summary", dataset).stdout == tracelink("summary", str(samples.path("gpu_pair"))).stdout


def test_rows_are_written_to_a_store(tracelink: Run, dataset: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    result = tracelink("query", dataset, "SELECT 1 AS a", "-o", "memory://bucket/rows.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert fsspec.filesystem("memory").cat("/bucket/rows.csv") == b"a\n1\n"
