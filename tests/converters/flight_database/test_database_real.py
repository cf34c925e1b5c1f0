"""The database of dumps that torch wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracelink
from builders.data import DATA, shared
from builders.flight_database import rows, sqlite_of

CASES = sorted(
    str(folder.relative_to(DATA))
    for folder in DATA.glob("fr/*/*")
    if folder.is_dir() and any(folder.iterdir())
) or ["fr"]


@pytest.mark.parametrize("case", CASES)
def test_the_database_says_what_the_diagnosis_says(case: str, tmp_path: Path) -> None:
    what = tracelink.examine(shared(case))
    database = sqlite_of(what, tmp_path)
    assert rows(database, "PRAGMA foreign_key_check") == []
    assert rows(database, "SELECT count(*) FROM entries") == [(len(what.journal),)]
    query = """
        SELECT p.kind, p.sequence, g.name, r.role, r.rank
        FROM problems p JOIN groups g ON g.id = p.group_id JOIN problem_ranks r ON r.problem_id = p.id
        ORDER BY p.id, r.role, r.rank
    """
    assert rows(database, query) == [
        (problem.kind, problem.sequence, problem.group, role, rank)
        for problem in what.diagnosis.problems
        for role, ranks in (("culprit", problem.culprits), ("waiting", problem.waiting))
        for rank in ranks
    ]
    query = "SELECT rank, came_last, collectives, total_ns, worst_ns FROM lateness ORDER BY rank"
    assert rows(database, query) == sorted(
        (one.rank, one.collectives, one.of, one.total_ns, one.worst_ns) for one in what.diagnosis.lateness
    )
    query = "SELECT count(*) FROM members WHERE stage IS NULL"
    assert rows(database, query) == [(0,)]


def test_the_latest_of_all_is_the_last_of_its_collective(tmp_path: Path) -> None:
    database = sqlite_of(tracelink.examine(shared("fr/straggler/dumps_end")), tmp_path)
    query = """
        SELECT l.rank = c.last_rank, l.worst_ns = c.late_ns
        FROM lateness l JOIN collectives c ON c.id = l.worst_collective_id
    """
    found = rows(database, query)
    assert found
    assert set(found) == {(1, 1)}


def test_an_entry_is_what_its_dump_has(tmp_path: Path) -> None:
    (dump,) = shared("fr/healthy8/json").glob("*rank_3*")
    entries = json.loads(dump.read_text())["entries"]
    database = sqlite_of(tracelink.examine(dump.parent), tmp_path)
    query = "SELECT place, operation, input_sizes, created_ns, retired FROM entries WHERE rank = 3"
    assert [
        (place, operation, json.loads(sizes), created, bool(retired))
        for place, operation, sizes, created, retired in rows(database, query)
    ] == [
        (place, entry["profiling_name"], entry["input_sizes"], entry["time_created_ns"], entry["retired"])
        for place, entry in enumerate(entries)
    ]
