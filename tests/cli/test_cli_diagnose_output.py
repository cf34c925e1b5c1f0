"""`tracelink diagnose -o`: the database beside the answer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import orjson
import pytest
from conftest import Run

from builders.recorder import collective, dump, pickled, process_group

DONE = collective(retired=True)


@pytest.fixture
def dumps(tmp_path: Path) -> str:
    """Rank 1 never joins the second collective."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, entries in enumerate([(DONE, collective(sequence=2)), (DONE,)]):
        content = dump(*entries, pg_config=process_group("0", [0, 1]))
        (folder / f"comm_lib_trace_rank_{rank}").write_bytes(pickled(content))
    return str(folder)


def culprits(path: Path) -> list[tuple[int]]:
    with sqlite3.connect(path) as database:
        return database.execute("SELECT rank FROM problem_ranks WHERE role = 'culprit'").fetchall()


def test_the_answer_is_the_same_and_the_database_lies_beside_it(
    tracelink: Run, dumps: str, tmp_path: Path
) -> None:
    alone = tracelink("diagnose", dumps)
    result = tracelink("diagnose", dumps, "-o", "flight.sqlite")
    assert (result.exit_code, result.stdout) == (1, alone.stdout)
    assert result.stderr == "Wrote flight.sqlite: 3 entries.\n"
    assert culprits(tmp_path / "flight.sqlite") == [(1,)]


def test_json_stays_one_document(tracelink: Run, dumps: str, tmp_path: Path) -> None:
    result = tracelink("diagnose", dumps, "--json", "--output", "flight.db")
    assert orjson.loads(result.stdout)["problems"][0]["culprits"] == [1]
    assert result.stderr == ""
    assert culprits(tmp_path / "flight.db") == [(1,)]


def test_a_directory_gets_parquet_files(tracelink: Run, dumps: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert tracelink("diagnose", dumps, "-o", "flight/").stderr == "Wrote flight/: 3 entries.\n"
    assert parquet.read_table(tmp_path / "flight" / "entries.parquet").num_rows == 3


def test_a_name_that_says_nothing_is_refused_before_anything_is_read(tracelink: Run) -> None:
    result = tracelink("diagnose", "there-is-nothing-here", "-o", "flight.xlsx")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'flight.xlsx' does not say what to write" in result.stderr


def test_nothing_readable_writes_nothing(tracelink: Run, tmp_path: Path) -> None:
    (tmp_path / "comm_lib_trace_rank_0").write_bytes(b"\x80\x02junk")
    assert tracelink("diagnose", "comm_lib_trace_rank_0", "-o", "flight.sqlite").exit_code == 3
    assert not (tmp_path / "flight.sqlite").exists()
