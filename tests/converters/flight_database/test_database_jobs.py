"""The database of recorded jobs of every kind, healthy or not: it holds all that was examined, and its keys join."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.flight_database import examined, rows, sqlite_of
from builders.recorded_jobs import faulty_plans, plans
from tracelink.diagnosis.examine import Examined
from tracelink.samples.generate.recorded_jobs import FAULTS, Fault, Plan, job

SOME = settings(max_examples=30)


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
def test_a_healthy_job(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(examined(job(plan).dumps), tmp_path_factory.mktemp("healthy"))


@given(case=faulty_plans(*FAULTS), order=st.randoms())
@SOME
def test_a_job_with_a_fault(
    case: tuple[Plan, Fault], order: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dumps = list(job(*case).dumps.items())
    order.shuffle(dumps)
    check(examined(dict(dumps)), tmp_path_factory.mktemp("faulty"))
