"""The rows of all tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.data import HANGS, HEALTHY, traces
from builders.dumps import examined, rows, sqlite_of
from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import CREATED, collective, dump, frame, process_group
from generators.recorded_jobs import FAULTS, Fault, Plan, job
from tracelink._hang.examine import Examined, examine
from tracelink._hang.report.database import TABLES, database_at

# Single tables.


TENSOR = ("1", "tp")
MS = 1_000_000
LOOP = frame("step", "/job/train.py", 12)
IN_TORCH = frame(
    "all_reduce", "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9
)
STACK = [IN_TORCH, LOOP, frame("<module>", "/job/train.py", 40)]
DONE = collective(retired=True)
GROUPS = process_group("0", [0, 1, 2]) | process_group("1", [2, 0])


def test_ranks_table(tmp_path: Path) -> None:
    what = examined({0: dump(collective(record_id=7), pg_config=GROUPS), 1: dump(pg_config=GROUPS)})
    assert rows(sqlite_of(what, tmp_path), "SELECT * FROM ranks") == [
        (0, "complete", None, "comm_lib_trace_rank_0", "2.10", 1, 7),
        (1, "complete", None, "comm_lib_trace_rank_1", "2.10", 0, 0),
        (2, "missing", None, None, None, 0, None),
    ]


def test_members_table(tmp_path: Path) -> None:
    what = examined(
        {
            0: dump(collective(), collective(sequence=2), pg_config=GROUPS),
            1: dump(collective(), pg_config=GROUPS),
            2: dump(collective(), collective(group=TENSOR), pg_config=GROUPS),
        }
    )
    database = sqlite_of(what, tmp_path)
    query = """
        SELECT g.name, m.position, m.rank, m.stage, m.sequence FROM members m JOIN groups g ON g.id = m.group_id
        ORDER BY g.name, m.position
    """
    assert rows(database, query) == [
        ("0", 0, 0, "waiting", 1),
        ("0", 1, 1, "waiting", 1),
        ("0", 2, 2, "waiting", 1),
        ("1", 0, 2, "waiting", 1),
        ("1", 1, 0, "never_joined", None),
    ]


def test_collectives_table(tmp_path: Path) -> None:
    def at(ms: int, name: str = "nccl:_allgather_base", completed: int | None = None) -> dict[str, object]:
        done = None if completed is None else CREATED + completed * MS
        return dump(collective(name, created=CREATED + ms * MS, completed=done), pg_config=GROUPS)

    what = examined({0: at(0, completed=9), 1: at(7, "nccl:broadcast"), 2: at(2, completed=8)})
    assert rows(sqlite_of(what, tmp_path), "SELECT * FROM collectives") == [
        (
            *(0, 0, 1, "nccl:_allgather_base", "all_gather"),
            *(3, 3, 1),
            *(CREATED, CREATED + 7 * MS, 1, 7 * MS, 5 * MS, CREATED + 9 * MS),
        )
    ]


def test_single_rank_is_not_late(tmp_path: Path) -> None:
    what = examined({0: dump(collective(), pg_config=GROUPS)})
    query = "SELECT joined_ranks, first_created_ns, last_rank, skew_ns, late_ns FROM collectives"
    assert rows(sqlite_of(what, tmp_path), query) == [(1, CREATED, 0, None, None)]


def test_entries_table(tmp_path: Path) -> None:
    entry = collective(
        "nccl:_allgather_base",
        3,
        completed=CREATED + 5 * MS,
        time_discovered_started_ns=CREATED + MS,
        duration_ms=1.5,
        input_sizes=[[2, 3], [4]],
        input_dtypes=["Float", "BFloat16"],
        output_sizes=[[]],
        output_dtypes=["Odd"],
        frames=STACK,
    )
    database = sqlite_of(examined({1: dump(entry, pg_config=GROUPS)}), tmp_path)
    cursor = database.execute("SELECT * FROM entries")
    names = [column[0] for column in cursor.description]
    assert [dict(zip(names, row, strict=True)) for row in cursor] == [
        {
            "id": 0,
            "rank": 1,
            "place": 0,
            "group_id": 0,
            "collective_id": 0,
            "message_id": None,
            "sequence": 3,
            "point_to_point": 0,
            "operation": "nccl:_allgather_base",
            "operation_kind": "all_gather",
            "source_rank": None,
            "target_rank": None,
            "input_sizes": "[[2,3],[4]]",
            "output_sizes": "[[]]",
            "input_types": '["Float","BFloat16"]',
            "output_types": '["Odd"]',
            "input_elements": 10,
            "output_elements": 1,
            "input_bytes": 32,
            "output_bytes": None,
            "state": "completed",
            "retired": 1,
            "outcome": "finished",
            "created_ns": CREATED,
            "started_ns": CREATED + MS,
            "completed_ns": CREATED + 5 * MS,
            "duration_ms": 1.5,
            "timeout_ms": 600_000,
            "traceback_id": 0,
        }
    ]


def test_sizes_and_times_of_each_rank(tmp_path: Path) -> None:
    what = examined(
        {rank: dump(collective(input_sizes=[[rank + 1]], created=CREATED + rank)) for rank in (0, 1)}
    )
    query = "SELECT rank, input_sizes, input_bytes, created_ns FROM entries"
    assert rows(sqlite_of(what, tmp_path), query) == [(0, "[[1]]", 4, CREATED), (1, "[[2]]", 8, CREATED + 1)]


def message(name: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    return collective(name, group=TENSOR, is_p2p=True, collective_seq_id=0, p2p_seq_id=number, **fields)


def test_messages_table(tmp_path: Path) -> None:
    what = examined(
        {
            2: dump(message("nccl:send 0->1"), message("nccl:send 0->1", 2), pg_config=GROUPS),
            0: dump(message("nccl:recv 1<-0"), pg_config=GROUPS),
        }
    )
    database = sqlite_of(what, tmp_path)
    assert rows(database, "SELECT * FROM messages ORDER BY send_entry_id") == [
        (0, 1, 2, 0, 1, 0),
        (1, 1, 2, 0, 2, None),
    ]
    query = """
        SELECT rank, sequence, point_to_point, operation_kind, source_rank, target_rank, message_id, collective_id
        FROM entries
    """
    assert rows(database, query) == [
        (0, 1, 1, "recv", 2, 0, 0, None),
        (2, 1, 1, "send", 2, 0, 0, None),
        (2, 2, 1, "send", 2, 0, 1, None),
    ]
    assert rows(database, "SELECT * FROM collectives") == []


def test_outcome_of_a_batch(tmp_path: Path) -> None:
    what = examined(
        {
            2: dump(
                message("nccl:send 0->1"),
                message("nccl:recv 0<-1"),
                message("nccl:coalesced", completed=CREATED + MS),
                pg_config=GROUPS,
            )
        }
    )
    query = "SELECT operation_kind, outcome FROM entries"
    assert rows(sqlite_of(what, tmp_path), query) == [
        ("send", "finished"),
        ("recv", "finished"),
        ("coalesced", "finished"),
    ]


def test_entry_without_optional_fields(tmp_path: Path) -> None:
    bare = {"profiling_name": "own:thing", "time_created_ns": 0, "process_group": ("0", "")}
    query = """
        SELECT sequence, collective_id, input_sizes, output_types, input_elements, input_bytes, state, retired,
               outcome, created_ns, started_ns, completed_ns, duration_ms, timeout_ms, traceback_id FROM entries
    """
    unknown = (*[None] * 8, "open", *[None] * 6)
    assert rows(sqlite_of(examined({0: dump(bare)}), tmp_path), query) == [unknown]


def test_entry_without_inputs(tmp_path: Path) -> None:
    barrier = collective("gloo:barrier", input_sizes=[], input_dtypes=[])
    query = "SELECT input_sizes, input_elements, input_bytes FROM entries"
    assert rows(sqlite_of(examined({0: dump(barrier)}), tmp_path), query) == [("[]", 0, 0)]


def test_equal_stacks_are_stored_once(tmp_path: Path) -> None:
    same = json.loads(json.dumps(STACK))
    what = examined(
        {
            0: dump(collective(frames=STACK), collective(sequence=2, frames=STACK[1:])),
            1: dump(collective(frames=same), collective(sequence=2)),
        }
    )
    database = sqlite_of(what, tmp_path)
    assert rows(database, "SELECT rank, sequence, traceback_id FROM entries") == [
        (0, 1, 0),
        (0, 2, 1),
        (1, 1, 0),
        (1, 2, None),
    ]
    assert rows(database, "SELECT id, name, filename, line FROM tracebacks") == [
        (0, "step", "/job/train.py", 12),
        (1, "step", "/job/train.py", 12),
    ]
    assert rows(database, "SELECT text FROM tracebacks WHERE id = 1") == [
        ('File "/job/train.py", line 40, in <module>\nFile "/job/train.py", line 12, in step',)
    ]
    assert rows(database, "SELECT * FROM frames WHERE traceback_id = 0") == [
        (0, place, one["name"], one["filename"], one["line"]) for place, one in enumerate(STACK)
    ]


def test_problems_tables(tmp_path: Path) -> None:
    what = examined(
        {
            0: dump(DONE, collective(sequence=2), pg_config=process_group("0", [0, 1])),
            1: dump(DONE, pg_config=process_group("0", [0, 1])),
        }
    )
    database = sqlite_of(what, tmp_path)
    (problem,) = what.diagnosis.problems
    query = """
        SELECT p.id, p.kind, g.name, c.sequence, p.sequence, p.operation, p.message, p.proven, p.tie, p.count
        FROM problems p JOIN groups g ON g.id = p.group_id
        JOIN collectives c ON c.group_id = g.id AND c.sequence = p.sequence
    """
    assert rows(database, query) == [(1, "in_flight", "0", 2, 2, "gloo:all_reduce", problem.message, 1, 0, 1)]
    query = """
        SELECT r.problem_id, r.rank, r.role, e.rank, e.sequence
        FROM problem_ranks r JOIN entries e ON e.id = r.entry_id ORDER BY r.rank
    """
    assert rows(database, query) == [(1, 0, "waiting", 0, 2), (1, 1, "culprit", 1, 1)]


def test_groups_with_the_same_name(tmp_path: Path) -> None:
    pairs = {rank: process_group("1", [rank // 2 * 2, rank // 2 * 2 + 1]) for rank in range(4)}
    counts = {0: 1, 1: 1, 2: 2, 3: 1}
    what = examined(
        {
            rank: dump(
                *(
                    collective(sequence=1 + number, group=TENSOR, retired=not number)
                    for number in range(counts[rank])
                ),
                pg_config=pairs[rank],
            )
            for rank in pairs
        }
    )
    database = sqlite_of(what, tmp_path)
    query = """
        SELECT r.rank FROM problems p JOIN members m ON m.group_id = p.group_id
        JOIN problem_ranks r ON r.problem_id = p.id AND r.rank = m.rank ORDER BY r.rank
    """
    assert rows(database, query) == [(2,), (3,)]
    query = "SELECT rank, sequence, stage FROM members ORDER BY rank"
    assert rows(database, query) == [
        (0, 1, "finished"),
        (1, 1, "finished"),
        (2, 2, "waiting"),
        (3, 1, "finished"),
    ]


def test_findings_table(tmp_path: Path) -> None:
    what = examined({0: dump(collective(), {"profiling_name": 3})})
    query = "SELECT severity, reason, count FROM findings"
    assert rows(sqlite_of(what, tmp_path), query) == [
        (one.severity.value, one.reason, one.count) for one in what.diagnosis.findings
    ]


# Generated jobs.


SOME = settings(max_examples=15)


def check(what: Examined, folder: Path) -> None:
    """Everything is there, once, and leads to what it belongs to."""
    database = sqlite_of(what, folder)
    checked, diagnosis = what.diagnosis.checked, what.diagnosis
    assert rows(database, "PRAGMA foreign_key_check") == []
    counts = "SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM collectives), (SELECT count(*) FROM groups)"
    assert rows(database, counts) == [(checked.entries, checked.collectives, checked.groups)]
    whole = "SELECT count(*) FROM messages WHERE send_entry_id IS NOT NULL AND receive_entry_id IS NOT NULL"
    assert rows(database, whole) == [(checked.messages,)]
    crossed = """
        SELECT count(*) FROM messages m
        JOIN entries s ON s.id = m.send_entry_id JOIN entries r ON r.id = m.receive_entry_id
        WHERE s.rank <> m.source_rank OR r.rank <> m.target_rank OR s.group_id <> r.group_id
           OR s.message_id <> m.id OR r.message_id <> m.id
    """
    assert rows(database, crossed) == [(0,)]
    joined = """
        SELECT count(*) FROM collectives c WHERE c.joined_ranks <> (
            SELECT count(DISTINCT e.rank) FROM entries e
            WHERE e.group_id = c.group_id AND e.sequence = c.sequence AND NOT e.point_to_point)
    """
    assert rows(database, joined) == [(0,)]
    assert rows(database, "SELECT count(*) FROM members WHERE stage IS NOT NULL") == [
        (sum(len(one.ranks) for one in diagnosis.standings),)
    ]
    assert rows(database, "SELECT kind, message FROM problems WHERE group_id IS NOT NULL ORDER BY id") == [
        (one.kind, one.message) for one in diagnosis.problems
    ]
    database.close()


@given(plan=plans())
@SOME
def test_healthy_job(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(examined(job(plan).dumps), tmp_path_factory.mktemp("healthy"))


@given(case=faulty_plans(*FAULTS), order=st.randoms())
@SOME
def test_faulty_job(
    case: tuple[Plan, Fault], order: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dumps = list(job(*case).dumps.items())
    order.shuffle(dumps)
    check(examined(dict(dumps)), tmp_path_factory.mktemp("faulty"))


# Dumps in files.


@pytest.mark.parametrize("case", [*HANGS, *HEALTHY, "cpu_job", "hung_job"])
def test_database_agrees_with_diagnosis(case: str, tmp_path: Path) -> None:
    what = examine(traces(case))
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
    query = 'SELECT rank, collectives, "of", total_ns, worst_ns FROM lateness ORDER BY rank'
    assert rows(database, query) == sorted(
        (one.rank, one.collectives, one.of, one.total_ns, one.worst_ns) for one in what.diagnosis.lateness
    )
    query = "SELECT count(*) FROM members WHERE stage IS NULL"
    assert rows(database, query) == [(0,)]


def test_latest_rank_is_last_of_its_collective(tmp_path: Path) -> None:
    database = sqlite_of(examine(traces("gloo/late")), tmp_path)
    query = """
        SELECT l.rank = c.last_rank, l.worst_ns = c.late_ns
        FROM lateness l JOIN collectives c ON c.group_id = l.group_id AND c.sequence = l.sequence
    """
    found = rows(database, query)
    assert found
    assert set(found) == {(1, 1)}


def test_any_entry(tmp_path: Path) -> None:
    (dump,) = traces("gloo/healthy_json").glob("*rank_3*")
    entries = json.loads(dump.read_text())["entries"]
    database = sqlite_of(examine(dump.parent), tmp_path)
    query = "SELECT place, operation, input_sizes, created_ns, retired FROM entries WHERE rank = 3"
    assert [
        (place, operation, json.loads(sizes), created, bool(retired))
        for place, operation, sizes, created, retired in rows(database, query)
    ] == [
        (place, entry["profiling_name"], entry["input_sizes"], entry["time_created_ns"], entry["retired"])
        for place, entry in enumerate(entries)
    ]


def test_duckdb_has_the_same_rows_as_sqlite(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    what = examined({0: dump(collective(), pg_config=GROUPS), 1: dump(pg_config=GROUPS)})
    database_at(str(tmp_path / "flight.duckdb")).write(what)
    database = sqlite_of(what, tmp_path)
    with duckdb.connect(str(tmp_path / "flight.duckdb"), read_only=True) as connection:
        for table in TABLES:
            found = connection.execute(f"SELECT * FROM {table}").fetchall()
            stored = rows(database, f"SELECT * FROM {table}")
            assert Counter(found) == Counter(stored), table
