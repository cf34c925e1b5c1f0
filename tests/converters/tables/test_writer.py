"""Datasets and DuckDB files: which files they have, and that they appear whole."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

import pyarrow.parquet as pq

import tracelink
from tracelink import samples
from tracelink._api.functions import linked_job
from tracelink._model.errors import TraceError, UsageError
from tracelink._store.parquet import arrow_schema
from tracelink.converters.tables import schema, writer

JOB = samples.path("gpu_pair")


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_file_for_each_rank_and_one_for_each_table_of_the_job(written: Path) -> None:
    by_rank = [schema.partition(table.name, rank) for table in schema.OF_RANK for rank in (0, 1)]
    of_job = [schema.file_of(table.name) for table in schema.OF_JOB]
    assert sorted(digests(written / "job.parquet")) == sorted([*by_rank, *of_job, "tracelink.json"])
    for name in (*by_rank, *of_job):
        table = schema.TABLES[name.partition("/")[0]]
        found = pq.read_schema(written / "job.parquet" / name)
        assert found.equals(arrow_schema(table))
        assert [field.metadata.get(b"description", b"").decode() for field in found] == [
            column.text for column in table.columns
        ]


def test_the_manifest_counts_the_rows(written: Path) -> None:
    manifest = json.loads((written / "job.parquet" / "tracelink.json").read_text())
    graph = tracelink.load(JOB)
    counted = {name: manifest["tables"][name] for name in ("events", "tracks", "collectives", "messages")}
    assert counted == {"events": 1410, "tracks": len(graph.tracks), "collectives": 14, "messages": 2}
    assert (manifest["schema"], manifest["ranks"], manifest["events"]) == (schema.VERSION, [0, 1], [705, 705])
    assert (manifest["first_ns"], manifest["last_ns"]) == graph.span


def test_equal_inputs_give_equal_bytes_with_any_number_of_processes(tmp_path: Path) -> None:
    for jobs in (1, 2):
        tracelink.merge(samples.path("hung_job"), output=tmp_path / f"{jobs}.parquet", jobs=jobs)
    assert digests(tmp_path / "1.parquet") == digests(tmp_path / "2.parquet")


def test_arguments_of_waits_are_written_and_all_on_request(tmp_path: Path, written: Path) -> None:
    tracelink.merge(JOB, output=tmp_path / "job.parquet/")
    tracelink.merge(JOB, output=tmp_path / "none.parquet/", options={"args": "none"})
    assert not (tmp_path / "none.parquet" / "arguments").exists()
    graph, whole = tracelink.load(tmp_path / "job.parquet"), tracelink.load(written / "job.parquet")
    waits = graph.find(kind="synchronization")
    expected = [{}] * len(graph)
    for row, arguments in zip(waits.tolist(), whole.arguments(waits), strict=True):
        expected[row] = arguments
    assert any(expected)
    assert graph.arguments(range(len(graph))) == expected
    for option in ("some", "python"):
        with pytest.raises(UsageError, match="args can be link, none, all"):
            tracelink.merge(JOB, output=tmp_path / "job.parquet", options={"args": option})


def test_an_earlier_dataset_is_replaced(tmp_path: Path) -> None:
    output = tmp_path / "job.parquet"
    tracelink.merge(samples.path("hung_job"), output=output)
    tracelink.merge(JOB, output=output)
    assert [rank.rank for rank in linked_job(output).ranks] == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["job.parquet"]


@pytest.mark.parametrize("name", ["job.parquet", "job.parquet/"])
def test_another_folder_with_files_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "job.parquet").mkdir()
    (tmp_path / "job.parquet" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is a folder with other files, and would be overwritten"):
        tracelink.merge(JOB, output=f"{tmp_path}/{name}")
    assert [path.name for path in (tmp_path / "job.parquet").iterdir()] == ["notes.txt"]


def test_a_file_is_not_replaced_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "job.parquet").write_text("mine")
    with pytest.raises(UsageError, match="is a file, and would be overwritten"):
        tracelink.merge(JOB, output=tmp_path / "job.parquet")
    assert (tmp_path / "job.parquet").read_text() == "mine"


@pytest.mark.parametrize("to", ["parquet", "duckdb"])
def test_a_stream_is_refused(to: str) -> None:
    with pytest.raises(UsageError, match="Name it: -o job"):
        tracelink.merge(JOB, output="-", to=to)


@pytest.mark.parametrize("name", ["job.parquet", "job.duckdb"])
def test_what_was_there_stays_when_writing_ends_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tracelink.merge(samples.path("run_before"), output=tmp_path / name)
    before = tracelink.load(tmp_path / name).table("events")["name"].tolist()

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "job_tables", fails)
    with pytest.raises(KeyboardInterrupt):
        tracelink.merge(JOB, output=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert tracelink.load(tmp_path / name).table("events")["name"].tolist() == before


def test_a_duckdb_file_in_a_folder_has_a_name(tmp_path: Path) -> None:
    (output,) = tracelink.merge(JOB, output=tmp_path, to="duckdb").outputs
    assert (output.path, output.format, output.events) == (str(tmp_path / "job.duckdb"), "duckdb", 1410)
    assert output.bytes == (tmp_path / "job.duckdb").stat().st_size


def test_names_that_are_no_utf_8_are_written_with_question_marks() -> None:
    found = writer.dictionary(["a\udcff", "b"], np.array([1, 0, -1]))
    assert found.to_pylist() == ["b", "a?", None]


@pytest.mark.parametrize("name", ["job.parquet", "job.duckdb"])
def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, name: str) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import tracelink\n"
        "try:\n    tracelink.merge(sys.argv[1], output=sys.argv[2])\n"
        "except tracelink.UsageError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, str(JOB), str(tmp_path / name)]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert output.endswith("which is not installed. Run: pip install 'torch-tracelink[sql]'\n")


def test_a_missing_folder_is_an_error_before_reading(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no folder"):
        tracelink.merge(JOB, output=tmp_path / "missing" / "job.parquet")
