"""Hangs: deadlocks, missing ranks, and stuck or running collectives."""

from __future__ import annotations

from typing import Any

import pytest

from builders.dumps import MS, Entries, diagnosis_of, recorded, rounds
from builders.programs import diagnosis_of_programs, problems
from builders.recorder import collective, process_group
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Category, Kind, Stage
from tracelink._hang.facts.participation import parts_of, positions_of
from tracelink._hang.facts.stalls import Elapsed, is_stuck, longest_finished_work
from tracelink._hang.facts.waits import Wait, find_collective_waits
from tracelink._model.columns import UNKNOWN

TWO, THREE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]

# Ranks that did not join.


def test_all_finished() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2"}, a=TWO) == []


def test_never_joined() -> None:
    found = problems({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_never_joined_any_collective_of_a_group() -> None:
    assert problems({0: "a1!", 1: "a1!", 2: "b1"}, a=THREE, b=[2]) == ["never_joined a1 by 2, for 0 1"]


def test_lagging() -> None:
    found = problems({0: "a1 a2! a3! a4!", 1: "a1 a2! a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a2 by 2, for 0 1"]


def test_two_missing_ranks() -> None:
    found = problems({0: "a1!", 1: "b1", 2: "a1!", 3: "b1"}, hung=False, a=FOUR, b=[1, 3])
    assert found == ["in_flight a1 by 1 3, for 0 2"]


def test_two_hanging_groups() -> None:
    found = problems({0: "a1!", 1: "c1", 2: "b1!", 3: "c1"}, hung=False, a=TWO, b=[2, 3], c=[1, 3])
    assert found == ["in_flight a1 by 1 3, for 0 2"]
    left = problems({0: "a1?", 1: "c1", 2: "b1!", 3: "c1"}, a=TWO, b=[2, 3], c=[1, 3])
    assert left == ["never_joined a1 by 1, for 0", "never_joined b1 by 3, for 2"]


def test_chain_of_waits() -> None:
    found = problems({0: "a1!", 1: "b1!", 2: "c1!", 3: ""}, a=TWO, b=[1, 2], c=[2, 3])
    assert found == ["never_joined c1 by 3, for 0 1 2"]


def test_first_missed_collective_in_program_order() -> None:
    """Ranks 1 and 2 show that the pair comes before the group of all."""
    ranks = {0: "b1! a1!", 1: "c1 a1!", 2: "c1 a1!", 3: ""}
    found = problems(ranks, descriptions={"b": "tp", "c": "tp"}, a=FOUR, b=[0, 3], c=[1, 2])
    assert found == ["never_joined b1 by 3, for 0 1 2"]


def test_gloo_retired_with_a_missing_rank() -> None:
    found = problems({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_finished_proves_that_all_joined() -> None:
    """The dump of rank 2 was made before those of the others."""
    assert problems({0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1"}, a=THREE) == []


def test_broadcast_finished_early() -> None:
    found = problems({0: "a1 a2=broadcast a3!", 1: "a1 a2=broadcast a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a3 by 2, for 0 1"]


def test_started_on_some_ranks() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2^", 2: "a1 a2!"}, hung=False, a=THREE) == []


def test_in_flight() -> None:
    diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!"}, hung=False, a=TWO)
    assert diagnosis.verdict == "in_flight"
    (problem,) = diagnosis.problems
    assert problem.message == (
        "Running or hung? All ranks (0-1) joined all_reduce #2 of group a and no rank has finished it. "
        "The dumps do not show whether the job hangs or still runs."
    )
    assert (problem.category, problem.culprits, problem.waiting) == (Category.IN_FLIGHT, (), (0, 1))


def test_finished_by_another_rank_is_ok() -> None:
    diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2"}, hung=False, a=TWO)
    assert (diagnosis.verdict, [standing.stage for standing in diagnosis.standings]) == (
        "ok",
        [Stage.ENDING, Stage.FINISHED],
    )
    assert diagnosis.notes == [
        "Rank 0 had not yet finished all_reduce #2 of group a, which other ranks have, when its dump was written."
    ]


def test_user_knows_that_it_hangs() -> None:
    hung = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=TWO)
    assert [(problem.kind, problem.sequence) for problem in hung.problems] == [(Kind.TIMED_OUT, 2)]


def test_timed_out() -> None:
    assert problems({0: "a1 a2?", 1: "a1 a2?"}, a=TWO) == ["timed_out a2 by nobody, for 0 1"]


def test_consequence_of_a_missing_rank() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "c1", 3: "b1?"}, a=THREE, b=[0, 3], c=[2])
    assert found == ["never_joined a1 by 2, for 0 1 3"]


def test_deadlock_behind_queued_calls() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "b1?"}, a=THREE, b=[0, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_first_timed_out_collective() -> None:
    found = problems({0: "a1? b1?", 1: "a1? b1?", 2: "b1?"}, a=TWO, b=THREE)
    assert found == ["timed_out a1 by nobody, for 0 1 2"]


def late(seconds: float, timeout_ms: int = 14_000) -> Journal:
    """Rank 0 joins the last collective later than ranks 1 and 2, which have retired it."""
    entries = rounds(
        at=[[seconds * 1000, 0, 0]], name="gloo:all_reduce", timeout_ms=timeout_ms, **STATES_OF_GLOO
    )
    return recorded(entries)


STATES_OF_GLOO: dict[str, Any] = {"state": "scheduled", "retired": True}


def test_joined_after_the_timeout_of_others() -> None:
    diagnosis = diagnosis_of(late(17))
    assert [problem.message for problem in diagnosis.problems] == [
        "Rank 0 joined all_reduce #1 of group 0 (default_pg) 17.0 s late; "
        "2 ranks gave it up after a timeout of 14.0 s."
    ]
    assert [(one.kind, one.culprits, one.proven) for one in diagnosis.problems] == [
        (Kind.NEVER_JOINED, (0,), True)
    ]


def test_a_late_rank_is_shown_in_the_call_that_it_joined_late() -> None:
    entries = rounds(at=[[17_000, 0, 0]], name="gloo:all_reduce", timeout_ms=14_000, **STATES_OF_GLOO)
    entries[0].append(collective("gloo:all_reduce", 1, group=("1", "alone"), pg_id=1, **STATES_OF_GLOO))
    (problem,) = diagnosis_of(recorded(entries)).problems
    assert (problem.culprits, problem.rows) == ((0,), {0: 0, 1: 2})


def test_joined_before_the_timeout_of_others() -> None:
    assert diagnosis_of(late(13)).verdict == "ok"


class TestMissingDumps:
    def test_other_dumps_prove_the_culprit(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=THREE).problems
        assert (problem.culprits, problem.proven) == ((2,), False)

    def test_rank_with_a_dump_is_the_culprit(self) -> None:
        diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=FOUR)
        assert [problem.culprits for problem in diagnosis.problems] == [(2,)]
        assert list(diagnosis.missing) == [3]

    def test_one_of_several(self) -> None:
        (problem,) = diagnosis_of_programs({0: "a1 a2!"}, a=THREE).problems
        assert problem.culprits == (1, 2)
        assert problem.message == (
            "Ranks 1 and 2 left no dump, and rank 0 waits for at least one of them: first in all_reduce #2 of group a. "
            "All of them had joined all_reduce #1 of group a, which others finished."
        )

    def test_unproven_rank_is_a_note(self) -> None:
        diagnosis = diagnosis_of_programs({0: "a1!", 1: "b1", 2: "c1!"}, a=TWO, b=[1], c=[2, 3])
        assert [problem.culprits for problem in diagnosis.problems] == [(1,)]
        assert diagnosis.notes == [
            "Other ranks also wait for rank 3, whose dump does not show why. It may wait because of the problem above."
        ]

    def test_no_waiting_ranks(self) -> None:
        assert problems({0: "a1", 1: "a1"}, a=THREE) == ["absent a1 by 2, for nobody"]


class TestWrappedBuffers:
    def test_later_start_of_the_buffer(self) -> None:
        found = problems({0: "a3 a4", 1: "a1 a2 a3 a4"}, forgotten={0: 2}, a=TWO)
        assert found == []

    def test_overwritten_group_is_unknown(self) -> None:
        (problem,) = diagnosis_of_programs(
            {0: "a1 b1! b2!", 1: "a1 a2 a3"}, forgotten={1: 5}, a=TWO, b=TWO
        ).problems
        assert (problem.culprits, problem.proven) == ((1,), False)

    def test_missing_rank_in_wrapped_buffers(self) -> None:
        found = problems({0: "a8 a9!", 1: "a8 a9!", 2: "a7 a8"}, forgotten={0: 7, 1: 7, 2: 6}, a=THREE)
        assert found == ["never_joined a9 by 2, for 0 1"]


# Stuck or running.


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
    (wait,) = find_collective_waits(journal, parts, positions_of(journal, parts, []))
    return wait


def judged(entries: Entries) -> bool:
    journal = recorded(entries, pg_config=GROUPS)
    return is_stuck(Elapsed(journal), pending(journal))


def test_pending_at_the_end_is_running() -> None:
    assert not judged(job(100, others=[90, 101]))


def test_pending_for_long_is_stuck() -> None:
    assert judged(job(100, others=[90, 101, 12 * SECOND]))


def test_usually_slow_is_not_stuck() -> None:
    assert not judged(job(SECOND, others=[12 * SECOND], usual=700))
    assert judged(job(SECOND, others=[16 * SECOND], usual=700))


def test_passed_timeout_is_stuck() -> None:
    assert judged(job(100, others=[4 * SECOND], timeout_ms=3000))
    assert not judged(job(100, others=[4 * SECOND], timeout_ms=5000))


def test_first_of_a_group_may_take_longer() -> None:
    entries = {rank: rows[2:] for rank, rows in job(100, others=[15 * SECOND]).items()}
    assert not judged(entries)
    entries = {rank: rows[2:] for rank, rows in job(100, others=[21 * SECOND]).items()}
    assert judged(entries)


def test_clock_ahead_is_not_stuck() -> None:
    entries = job(100, others=[90, 101])
    for entry in entries[2]:
        entry["time_created_ns"] += 3600 * SECOND * MS
        entry["time_discovered_completed_ns"] = None
    assert not judged(entries)


def test_clock_behind_is_stuck() -> None:
    entries = job(100, others=[90, 101, 20 * SECOND])
    for entry in entries[2]:
        entry["time_created_ns"] -= 3600 * SECOND * MS
        entry["time_discovered_completed_ns"] = None
    assert judged(entries)


def test_dropped_is_stuck() -> None:
    assert judged(job(100, others=[101], retired=True))


@pytest.mark.parametrize(("name", "longest"), [("nccl:all_reduce", 5 * MS), ("gloo:all_reduce", 10 * MS)])
def test_duration_until_the_next_entry(name: str, longest: int) -> None:
    entries = rounds(at=[[0, 0], [10, 10]], done=[5, 15], name=name)
    if name.startswith("gloo"):
        for entry in (entry for rows in entries.values() for entry in rows):
            entry |= {"state": "scheduled", "time_discovered_completed_ns": None}
    journal = recorded(entries)
    assert longest_finished_work(journal).tolist()[0] == longest


def test_unfinished_work_has_no_duration() -> None:
    assert longest_finished_work(recorded(rounds(at=[[0, 0]]))).tolist() == [UNKNOWN]
