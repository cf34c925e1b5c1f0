"""Datasets and DuckDB files read back: one rank at a time, and refused if they are damaged."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import tracelink
from tracelink import samples
from tracelink._io.sources import discover_inputs
from tracelink._join.job_reader import Reading, read_job
from tracelink._model.errors import UnreadableError, UsageError
from tracelink._model.graph import EventGraph
from tracelink._run.processes import Processes
from tracelink.converters.tables import schema, storage

NAMES = ["job.parquet", "job.duckdb"]


def job_of(path: Path) -> Any:
    return read_job(Reading(discover_inputs(path), Processes()))


@pytest.mark.parametrize("name", NAMES)
def test_parts_are_small_and_load_in_any_process(written: Path, name: str) -> None:
    part = job_of(written / name).parts[1]
    packed = pickle.dumps(part)
    assert len(packed) < 10_000
    graph = pickle.loads(packed).load()
    assert isinstance(graph, EventGraph)
    assert (part.rank, [rank.rank for rank in graph.ranks], len(graph)) == (1, [1], 705)


def test_reading_one_rank_opens_no_file_of_others(dataset: Path) -> None:
    for path in dataset.rglob("rank=0"):
        shutil.rmtree(path)
    graph = tracelink.load(dataset, ranks="1")
    assert ([rank.rank for rank in graph.ranks], len(graph)) == ([1], 705)
    with pytest.raises(UnreadableError, match=r"rank=0/part-0.parquet: the file is missing"):
        tracelink.load(dataset, jobs=1)


@pytest.mark.parametrize("name", NAMES)
def test_a_selection_cuts_as_in_the_traces(written: Path, name: str) -> None:
    chosen = {"ranks": "0", "steps": "2", "only": "kernels"}
    found, expected = (tracelink.load(path, **chosen) for path in (written / name, samples.path("gpu_pair")))
    assert found.table("events")["name"].tolist() == expected.table("events")["name"].tolist()
    assert found.span == expected.span
    alone = tracelink.load(written / name, ranks="0")
    assert (len(alone.collectives), len(alone.participations), len(alone.messages)) == (14, 14, 2)
    assert set(alone.table("collectives")["verdict"]) == {"complete"}
    with pytest.raises(UsageError, match="there is no rank 7"):
        tracelink.load(written / name, ranks="7")


@pytest.mark.parametrize("name", NAMES)
def test_another_clock_is_refused(written: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is on one clock already"):
        tracelink.load(written / name, clock="none")


def test_a_dataset_next_to_traces_is_skipped_unless_it_is_named(written: Path, tmp_path: Path) -> None:
    job = Path(shutil.copytree(samples.path("gpu_pair"), tmp_path / "traces"))
    shutil.copytree(written / "job.parquet", job / "job.parquet")
    shutil.copy(written / "job.duckdb", job / "job.duckdb")
    graph = tracelink.load(job)
    assert (len(graph), len(graph.sources)) == (1410, 6)
    skipped = [finding for finding in graph.findings if finding.reason == "whole_job"]
    assert [Path(finding.source).name for finding in skipped] == ["job.duckdb", "tracelink.json"]
    for named in (job / "job.parquet", job / "job.duckdb"):
        with pytest.raises(UsageError, match="cannot be read together"):
            tracelink.load([job / "dumps", named])
    with pytest.raises(UsageError, match="cannot be read together"):
        tracelink.load([job / "job.duckdb", job / "job.parquet"])


@pytest.mark.parametrize("name", NAMES)
def test_inspect_has_a_row_for_each_rank(written: Path, name: str) -> None:
    found = tracelink.inspect(written / name).sources
    assert [(info.format, info.version, info.rank, info.events) for info in found] == [
        (name.partition(".")[2], str(schema.VERSION), rank, 705) for rank in (0, 1)
    ]


# Damage.


def changed(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Writes a file again with other rows."""
    pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[pa.Table], pa.Table]:
    """Replaces the values of a column."""

    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(name)
        field = table.schema.field(index).with_nullable(True)
        return table.set_column(
            index, field, pa.array(values(table.column(index).to_pylist())).cast(field.type)
        )

    return change


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


EVENTS, EDGES, KEYS = (schema.partition(name, 0) for name in ("events", "edges", "keys"))
DAMAGE = {
    "a column is missing": (EVENTS, lambda table: table.drop_columns(["kind"]), "has no column kind"),
    "a column has another type": (
        EVENTS,
        lambda table: table.set_column(3, "track", table.column("track").cast(pa.string())),
        "the column track of events is string, not int32",
    ),
    "rows are missing": (EVENTS, lambda table: table.slice(0, 600), "contains|states"),
    "events are not numbered": (EVENTS, column("event", first(7)), "events are not numbered from 0 on"),
    "a track is none": (EVENTS, column("track", first(99)), "track contains 99"),
    "a source is none": (EVENTS, column("source", first(-1)), "source contains -1"),
    "sources are mixed": (EVENTS, column("source", first(1)), "not grouped by source"),
    "a kind is none": (EVENTS, column("kind", first("party")), "kind contains 'party'"),
    "an edge leads nowhere": (EDGES, column("target", first(705)), "target contains 705"),
    "an edge has no end": (EDGES, column("target", first(None)), "target contains -1"),
    "a key is none": (KEYS, column("key", first("mine")), "no link key 'mine'"),
    "a text is missing": (KEYS, column("text", lambda values: [None] * len(values)), "has no text"),
    "a collective is none": (
        "participations/part-0.parquet",
        column("collective", first(14)),
        "collective contains 14",
    ),
    "a rank is none": ("participations/part-0.parquet", column("rank", first(5)), "rank 5, which is missing"),
    "an event is none": ("messages/part-0.parquet", column("send", first(9999)), "send contains 9999"),
    "a group is none": ("collectives/part-0.parquet", column("group_id", first(9)), "group_id contains 9"),
    "ranks differ": ("ranks/part-0.parquet", column("rank", first(3)), "not those of the table ranks"),
    "a header is none": ("sources/part-0.parquet", column("header", first("[]")), "header of a source"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_dataset_is_unreadable(dataset: Path, what: str) -> None:
    name, change, problem = DAMAGE[what]
    changed(dataset / name, change)
    with pytest.raises(UnreadableError, match=problem):
        tracelink.load(dataset, jobs=1)


@pytest.mark.parametrize("name", [EVENTS, "ranks/part-0.parquet"])
def test_bytes_that_are_no_parquet_are_unreadable(dataset: Path, name: str) -> None:
    whole = (dataset / name).read_bytes()
    for text in (b"", b"PAR1", whole[:-100], whole[:60] + bytes(60) + whole[120:]):
        (dataset / name).write_bytes(text)
        with pytest.raises(UnreadableError, match=f"{name}.*Write the dataset again"):
            tracelink.load(dataset, jobs=1)


def test_more_rows_than_a_file_can_have_are_not_read(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "FEW_ROWS", 0)
    monkeypatch.setattr(storage, "MOST_ROWS_OF_BYTE", 0)
    with pytest.raises(UnreadableError, match="states 2 rows, for which it is too small"):
        tracelink.load(dataset, jobs=1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"spans": []}, "the manifest is invalid"),
        ({"schema": 99}, "its tables are of version 99"),
        ({"ranks": [0, 0]}, "the manifest is invalid"),
        ({"ranks": [0, -1]}, "the manifest is invalid"),
        ({"ranks": ["../../0", 1]}, "the manifest is invalid"),
        ({"events": [1]}, "the manifest is invalid"),
        ({"events": [705, 704]}, "send|704"),
        ({"ranks": None}, "the manifest is invalid"),
    ],
)
def test_a_wrong_manifest_is_unreadable(dataset: Path, change: dict[str, Any], problem: str) -> None:
    manifest = dataset / "tracelink.json"
    content = json.loads(manifest.read_text()) | change
    manifest.write_text(json.dumps(content, separators=(",", ":")))
    with pytest.raises(UnreadableError, match=problem):
        tracelink.load(dataset, jobs=1)


def test_a_dataset_without_its_manifest_is_incomplete(dataset: Path) -> None:
    (dataset / "tracelink.json").unlink()
    for path in (dataset, dataset.parent):
        with pytest.raises(UnreadableError, match=r"without tracelink.json, so it is incomplete"):
            tracelink.load(path)


# DuckDB files.


def test_a_duckdb_file_of_another_program_is_unreadable(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "other.duckdb")).close()
    with pytest.raises(UnreadableError, match="a DuckDB file that tracelink did not write"):
        tracelink.load(tmp_path / "other.duckdb")


def test_a_truncated_duckdb_file_is_unreadable(written: Path, tmp_path: Path) -> None:
    whole = (written / "job.duckdb").read_bytes()
    for size in (100, 9000, len(whole) // 2):
        (tmp_path / "job.duckdb").write_bytes(whole[:size])
        with pytest.raises(UnreadableError):
            tracelink.load(tmp_path / "job.duckdb", jobs=1)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DROP TABLE events CASCADE", "it has no table events|events"),
        ("ALTER TABLE counters RENAME COLUMN value TO values_", "value"),
        ("UPDATE events SET track = 99 WHERE event = 0", "track contains 99"),
        ("UPDATE dataset SET manifest = '{}'", "the manifest is invalid"),
        ("DELETE FROM dataset", "it has no manifest"),
        (
            "ALTER TABLE findings RENAME TO f; CREATE VIEW findings AS SELECT * FROM read_csv('/etc/passwd')",
            "it has no table findings",
        ),
    ],
)
def test_a_changed_duckdb_file_is_unreadable(
    written: Path, tmp_path: Path, statement: str, problem: str
) -> None:
    path = Path(shutil.copy(written / "job.duckdb", tmp_path))
    with duckdb.connect(str(path)) as connection:
        for (view,) in connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall():
            connection.execute(f"DROP VIEW IF EXISTS {view}")
        connection.execute(statement)
    with pytest.raises(UnreadableError, match=problem):
        tracelink.load(path, jobs=1)
