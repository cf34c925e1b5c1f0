"""What is stuck, and what is only under way."""

from __future__ import annotations

from typing import Any

import pytest

from builders.journal import MS, Entries, recorded, rounds
from builders.recorder import process_group
from tracelink.diagnosis.clocks import Elapsed, longest_finished
from tracelink.diagnosis.hangs import is_stuck
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.participation import parts_of, whereabouts_of
from tracelink.diagnosis.waits import Wait, collective_waits
from tracelink.model.columns import UNKNOWN

SECOND = 1000
GROUPS = process_group("0", [0, 1, 2]) | process_group("1", [0, 1, 2], "dp")


def job(pending_at: float, others: list[float], usual: float = 5, **fields: Any) -> Entries:
    """Two collectives that take `usual` ms, one that all join and nobody finishes, and what goes on elsewhere."""
    finished = rounds(at=[[0] * 3, [10] * 3], done=[usual, 10 + usual], name="nccl:all_reduce")
    open_ended = rounds(at=[[pending_at] * 3], name="nccl:all_reduce", **fields)
    elsewhere = rounds(
        at=[[time] * 3 for time in others],
        done=[time + 1 for time in others],
        group=("1", "dp"),
        name="nccl:all_gather",
    )
    return {
        rank: [
            *finished[rank],
            *(entry | {"collective_seq_id": 3} for entry in open_ended[rank]),
            *elsewhere[rank],
        ]
        for rank in range(3)
    }


def pending(journal: Journal) -> Wait:
    parts = parts_of(journal)
    (wait,) = collective_waits(journal, parts, whereabouts_of(journal, parts, []))
    return wait


def judged(entries: Entries) -> bool:
    journal = recorded(entries, pg_config=GROUPS)
    return is_stuck(Elapsed(journal), pending(journal))


def test_what_was_pending_when_everything_else_ended_too_is_under_way() -> None:
    assert not judged(job(100, others=[90, 101]))


def test_what_is_pending_while_others_go_on_for_long_is_stuck() -> None:
    assert judged(job(100, others=[90, 101, 12 * SECOND]))


def test_what_usually_takes_long_may_take_long() -> None:
    assert not judged(job(SECOND, others=[12 * SECOND], usual=700))
    assert judged(job(SECOND, others=[16 * SECOND], usual=700))


def test_a_timeout_that_has_passed_is_stuck_however_short() -> None:
    assert judged(job(100, others=[4 * SECOND], timeout_ms=3000))
    assert not judged(job(100, others=[4 * SECOND], timeout_ms=5000))


def test_the_first_of_a_group_may_take_longer() -> None:
    entries = {rank: rows[2:] for rank, rows in job(100, others=[15 * SECOND]).items()}
    assert not judged(entries)
    entries = {rank: rows[2:] for rank, rows in job(100, others=[21 * SECOND]).items()}
    assert judged(entries)


def test_a_clock_that_is_ahead_makes_nothing_old() -> None:
    entries = job(100, others=[90, 101])
    for entry in entries[2]:
        entry["time_created_ns"] += 3600 * SECOND * MS
        entry["time_discovered_completed_ns"] = None
    assert not judged(entries)


def test_what_was_seen_by_a_clock_that_is_behind_still_makes_it_old() -> None:
    entries = job(100, others=[90, 101, 20 * SECOND])
    for entry in entries[2]:
        entry["time_created_ns"] -= 3600 * SECOND * MS
        entry["time_discovered_completed_ns"] = None
    assert judged(entries)


def test_what_was_given_up_is_stuck() -> None:
    assert judged(job(100, others=[101], retired=True))


@pytest.mark.parametrize(("name", "longest"), [("nccl:all_reduce", 5 * MS), ("gloo:all_reduce", 10 * MS)])
def test_without_completion_the_next_entry_tells_that_one_is_over(name: str, longest: int) -> None:
    entries = rounds(at=[[0, 0], [10, 10]], done=[5, 15], name=name)
    if name.startswith("gloo"):
        for entry in (entry for rows in entries.values() for entry in rows):
            entry |= {"state": "scheduled", "time_discovered_completed_ns": None}
    journal = recorded(entries)
    assert longest_finished(journal).tolist()[0] == longest


def test_nobody_knows_how_long_what_never_finished_takes() -> None:
    assert longest_finished(recorded(rounds(at=[[0, 0]]))).tolist() == [UNKNOWN]
