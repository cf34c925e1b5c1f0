"""What ranks did between two dumps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from builders.recorded_jobs import faulty_plans, plans
from builders.recorder import CREATED, as_source, collective, dump, pickled
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot, job
from tracelink._hang.dumps.movement import Earlier, Movement, earlier_of, is_continuation
from tracelink._hang.journal import journal_of
from tracelink._hang.participation import parts_of, positions_of
from tracelink._hang.waits import Wait, collective_waits
from tracelink._model.records import Recording
from tracelink._run.processes import Processes
from tracelink.converters.flight_recorder.reader import FlightRecorderReader

MS = 1_000_000
Entry = dict[str, Any]


def entries(*numbers: int, finished: int = 0, start: int = CREATED) -> list[Entry]:
    """All-reduces a millisecond apart, those up to `finished` completed."""
    return [
        collective(
            "nccl:all_reduce",
            number,
            created=start + number * MS,
            completed=start + number * MS + MS // 2 if number <= finished else None,
        )
        for number in numbers
    ]


def recording(rows: Sequence[Entry]) -> Recording:
    return FlightRecorderReader().read_records(as_source(pickled(dump(*rows))), Processes(1))


def recordings(rows: Mapping[int, Sequence[Entry]]) -> dict[int, Recording]:
    return {rank: recording(entries) for rank, entries in rows.items()}


def earlier(before: Mapping[int, Sequence[Entry]], now: Mapping[int, Sequence[Entry]]) -> Earlier:
    found = earlier_of(recordings(now), recordings(before))
    assert found
    return found


# Two dumps of one rank.


def test_repeated_record_ids_of_a_damaged_dump() -> None:
    before, now = (
        [entry | {"record_id": 7} for entry in entries(*numbers)] for numbers in ((1, 2), (1, 2, 3))
    )
    assert is_continuation(recording(before), recording(now)) is True


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (entries(1, 2, finished=1), entries(1, 2, 3, finished=2), True),
        (entries(1, 2), entries(1, 2), True),
        (entries(1, 2, 3, 4), entries(3, 4, 5, 6), True),
        (entries(1, 2), entries(1, 2, start=CREATED + 1), False),
        (entries(1, 2, 3), entries(1, start=CREATED + 9 * MS), False),
        (entries(1, 2), entries(5, 6), None),
        (entries(5, 6), entries(1, 2), False),
        (entries(1, 2, finished=2), entries(1, 2, finished=1), False),
        (entries(1, 2), [], False),
        ([], entries(1, 2), None),
    ],
    ids=[
        "more",
        "equal",
        "wrapped",
        "other times",
        "restarted",
        "wrapped completely",
        "older",
        "older states",
        "later empty",
        "empty",
    ],
)
def test_continuation(before: list[Entry], now: list[Entry], expected: bool | None) -> None:
    assert is_continuation(recording(before), recording(now)) is expected


# Two dumps of each rank.


def test_ranks_that_moved() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=1), 2: entries(1), 3: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=2), 2: entries(1, 2), 4: entries(1)}
    assert earlier(before, now).movement == Movement((1, 2), (0,), (4,), CREATED + 2 * MS)


def test_unchanged_wait_is_stuck() -> None:
    rows = {0: entries(1, 2, finished=1), 1: entries(1, finished=1)}
    assert earlier(rows, rows).decides([1], [1]) is True


def test_wait_for_a_rank_that_moved_is_undecided() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, finished=1)}
    assert earlier(before, now).decides([1], [1]) is None


def test_wait_that_began_since_then() -> None:
    before = {0: entries(1, 2, finished=1), 1: entries(1, 2, finished=1), 2: entries(1)}
    now = {0: entries(1, 2, finished=1), 1: entries(1, 2, 3, finished=2), 2: entries(1)}
    found = earlier(before, now)
    assert found.decides([1, 4], [2]) is False
    assert replace(found, chosen=False).decides([1, 4], [2]) is None


def test_rank_without_earlier_dump_does_not_count() -> None:
    now = {0: entries(1, 2), 1: entries(1, 2), 2: entries(1)}
    found = earlier({0: entries(1, 2)}, now)
    assert found.decides([1, 3], [2]) is True
    assert found.decides([3], [2]) is None


def test_wrapped_ring_buffer() -> None:
    found = earlier({0: entries(1, 2, 3, finished=2)}, {0: entries(2, 3, finished=2)})
    assert found.movement.unmoved == (0,)
    assert found.decides([1], []) is True


def test_dumps_of_another_job() -> None:
    now = recordings({0: entries(1, 2)})
    assert earlier_of(now, recordings({0: entries(1, 2, start=CREATED + 5)})) is None
    assert earlier_of(now, recordings({1: entries(1, 2)})) is None


def test_entries_that_cannot_be_used() -> None:
    """Entries after them keep their record ids."""
    before = [*entries(1), "unusable", *entries(3, 4, finished=3)]
    now = [*entries(1), "unusable", *entries(3, 4, 5, finished=3)]
    found = earlier_of({0: recording(now)}, {0: recording(before)})  # type: ignore[arg-type]
    assert found
    assert (found.movement.moved, found.unchanged.tolist()) == ((0,), [True, True, True, False])


# Generated jobs.


def decision(earlier: Earlier, wait: Wait) -> bool | None:
    return earlier.decides(wait.rows.values(), wait.awaited)


def waits_of(recorded: RecordedJob, before: RecordedJob) -> tuple[Earlier, list[Wait]]:
    now, earlier = (
        {rank: recording(content["entries"]) for rank, content in one.dumps.items()}
        for one in (recorded, before)
    )
    journal = journal_of(now)
    parts = parts_of(journal)
    found = earlier_of(now, earlier)
    assert found
    return found, collective_waits(journal, parts, positions_of(journal, parts, []))


@settings(max_examples=15)
@given(faulty_plans("never_joined", "died", "deadlock", "not_started", "skipped"))
def test_all_waits_of_a_job_that_hangs_are_stuck(case: tuple[Plan, Fault]) -> None:
    first, second = (job(*case, Snapshot(wait_ns=minutes * 60_000 * MS)) for minutes in (1, 2))
    earlier, waits = waits_of(second, first)
    assert (earlier.movement.moved, {decision(earlier, wait) for wait in waits}) == ((), {True})


@settings(max_examples=15)
@given(plans(backends=["nccl", "nccl2", "xccl"]).map(lambda plan: dataclasses.replace(plan, steps=4)))
def test_no_wait_of_a_running_job_is_stuck(plan: Plan) -> None:
    first, second = (job(plan, None, Snapshot("running", at=at)) for at in (0.2, 0.8))
    earlier, waits = waits_of(second, first)
    assert True not in [decision(earlier, wait) for wait in waits]
    assert set(earlier.movement.moved) == set(second.dumps)
