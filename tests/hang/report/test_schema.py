"""The documentation of the database: tables and queries."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from builders.data import traces
from builders.documentation import rewritten
from builders.dumps import examined, rows, sqlite_of
from builders.recorder import CREATED, collective, dump, frame, process_group
from tracelink._hang.examine import examine
from tracelink._hang.report.database import database_at

DOCUMENT = Path(__file__).parents[3] / "docs" / "database.md"
PAGE = DOCUMENT.read_text("utf-8")
MS = 1_000_000
FAST = frame("step", "/job/train.py", 12)
SLOW = frame("evaluate", "/job/evaluate.py", 7)


def blocks(language: str) -> dict[str, str]:
    """The examples in a language by their headings."""
    found = re.findall(
        rf"^### ([^\n]+)\n(?:(?!^##).)*?^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    )
    return dict(found)


QUERIES = blocks("sql")


def query(words: str) -> str:
    """The query under the heading that begins like this."""
    (text,) = (text for heading, text in QUERIES.items() if heading.startswith(words))
    return text


def test_documentation_lists_all_columns() -> None:
    assert rewritten(DOCUMENT) == PAGE, (
        "run: PYTHONPATH=tests python -m builders.documentation docs/database.md"
    )


def test_documentation_has_queries() -> None:
    assert len(QUERIES) == 4


def entry(sequence: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    return collective("nccl:all_reduce", sequence, created=CREATED + at_ms * MS, **fields)


@pytest.fixture
def job() -> Any:
    """Rank 1 comes 30 ms late to the first collective, from another line, and never to the second."""
    groups = process_group("0", [0, 1, 2])
    done = {"state": "completed", "retired": True, "time_discovered_completed_ns": CREATED + 40 * MS}
    return examined(
        {
            0: dump(entry(1, 0, frames=[FAST], **done), entry(2, 50, frames=[FAST]), pg_config=groups),
            1: dump(entry(1, 35, frames=[SLOW], **done), pg_config=groups),
            2: dump(entry(1, 5, frames=[FAST], **done), entry(2, 51, frames=[FAST]), pg_config=groups),
        }
    )


def test_query_ranks_that_have_not_joined(job: Any, tmp_path: Path) -> None:
    assert rows(sqlite_of(job, tmp_path), query("Ranks that have not")) == [
        ("0", "default_pg", 2, "all_reduce", 1, "finished", 1)
    ]


def test_query_longest_waits(job: Any, tmp_path: Path) -> None:
    assert rows(sqlite_of(job, tmp_path), query("Ranks that the others")) == [
        (1, "default_pg", 1, "all_reduce", 30.0, "/job/evaluate.py:7"),
        (2, "default_pg", 2, "all_reduce", 1.0, "/job/train.py:12"),
    ]


def test_query_lines_with_most_bytes(job: Any, tmp_path: Path) -> None:
    assert rows(sqlite_of(job, tmp_path), query("Lines of")) == [
        (0, "/job/train.py:12", "step", 2, 8192),
        (2, "/job/train.py:12", "step", 2, 8192),
        (1, "/job/evaluate.py:7", "evaluate", 1, 4096),
    ]


def test_query_last_calls_of_culprits(job: Any, tmp_path: Path) -> None:
    ((number, message, rank, operation, sequence, _, stack),) = rows(
        sqlite_of(job, tmp_path), query("Last calls")
    )
    assert (number, rank, operation, sequence) == (1, 1, "nccl:all_reduce", 1)
    assert message == job.diagnosis.problems[0].message
    assert stack == 'File "/job/evaluate.py", line 7, in evaluate'


def test_query_parquet(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    database_at(f"flight{os.sep}").write(job)
    (code,) = blocks("python").values()
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["lines"].to_dict() == {
        (0, "/job/train.py", 12): 8192,
        (1, "/job/evaluate.py", 7): 4096,
        (2, "/job/train.py", 12): 8192,
    }
    assert "evaluate.py" in capsys.readouterr().out


def test_queries_on_a_hang(tmp_path: Path) -> None:
    database = sqlite_of(examine(traces("gloo/never_joined/settled")), tmp_path)
    assert ("0", "default_pg", 7, "all_reduce", 3, "finished", 6) in rows(
        database, query("Ranks that have not")
    )
    assert all(rows(database, text) for text in QUERIES.values())
    ((_, _, rank, *_),) = rows(database, query("Last calls"))
    assert rank == 3
