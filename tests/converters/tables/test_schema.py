"""The schema of tables, and its documentation."""

from __future__ import annotations

from pathlib import Path

from tracelink.converters.tables import schema

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "sql.md"


def described(table: schema.Table) -> str:
    """The section of a table in docs/sql.md."""
    rows = [
        f"| `{column.name}` | {'text' if column.words else column.sql_type.lower()} | {column.text} |"
        for column in table.in_database.columns
    ]
    return "\n".join(
        [f"### {table.name}", "", table.text, "", "| column | type | meaning |", "|---|---|---|", *rows]
    )


def test_the_documentation_has_every_column() -> None:
    text = DOCUMENTATION.read_text("utf-8")
    expected = "\n\n".join(described(table) for table in schema.TABLES.values())
    assert expected in text, f"replace the tables in docs/sql.md by:\n\n{expected}"
    assert f"Version {schema.VERSION} of the tables" in text


def test_names_are_unique_and_no_words_of_sql() -> None:
    reserved = {
        "all",
        "end",
        "group",
        "order",
        "select",
        "table",
        "when",
        "limit",
        "references",
        "desc",
        "user",
    }
    for table in schema.TABLES.values():
        names = [column.name for column in table.in_database.columns]
        assert len(set(names)) == len(names)
        assert not reserved & {table.name, *names}


def test_files_of_a_dataset() -> None:
    assert schema.partition("events", 3) == "events/rank=3/part-0.parquet"
    assert schema.file_of("ranks") == "ranks/part-0.parquet"
