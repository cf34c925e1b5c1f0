"""Hangs: deadlocks, missing ranks, and stuck or running collectives."""

from __future__ import annotations

from string import ascii_lowercase
from time import process_time
from typing import Any

import pytest

from builders.dumps import MS, Entries, journal, recorded, rounds
from builders.programs import diagnosis_of_programs, journal_of_programs, problems
from builders.recorder import collective, dump, process_group
from tracelink.diagnosis.clocks import Elapsed, longest_finished_work
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Category, Kind, Link, Stage
from tracelink.diagnosis.participation import parts_of, positions_of
from tracelink.diagnosis.stalls import Clues, is_stuck
from tracelink.diagnosis.waits import Wait, collective_waits
from tracelink.model.columns import UNKNOWN

# Deadlocks: cycles of waits, and their culprits.


TP = {"b": "tp", "c": "tp", "d": "tp"}
TWO, THREE, FOUR, SIX = [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5]


def test_deadlock_by_pair_first() -> None:
    found = problems(
        {0: "a1~", 1: "a1~", 2: "a1~", 3: "b1~"}, descriptions=TP, a=[0, 1, 2, 3], b=[2, 3], c=[0, 1]
    )
    assert found == ["deadlock a1 by 3, for 0 1 2"]


def test_deadlock_by_all_ranks_first() -> None:
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    found = problems(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5])
    assert found == ["deadlock c1 by 3, for 0 1 2 4 5"]


def test_deadlock_of_two_is_a_tie() -> None:
    found = problems({0: "a1!", 1: "b1!"}, a=[0, 1], b=[0, 1])
    assert found == ["deadlock a1 by 0 1 (tie), for 0 1"]


def test_links_of_a_deadlock() -> None:
    (problem,) = diagnosis_of_programs({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[1, 2], c=[2, 0]).problems
    assert set(problem.cycle) == {
        Link("a", 1, "nccl:all_reduce", (0,), (1,)),
        Link("b", 1, "nccl:all_reduce", (1,), (2,)),
        Link("c", 1, "nccl:all_reduce", (2,), (0,)),
    }


def test_device_starts_in_another_order() -> None:
    found = problems({0: "a1^ b1!", 1: "a1^ b1!", 2: "b1^ a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_order_of_entries_without_states() -> None:
    found = problems({0: "a1! b1!", 1: "a1! b1!", 2: "b1! a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


PIPELINES = {"b": "tp", "c": "tp", "p": "pp", "q": "pp"}


def test_deadlock_behind_queued_messages() -> None:
    """Rank 1 skipped a collective of its pair; the message of rank 0 is queued behind it."""
    ranks = {
        0: "b1 b2^ p>1! a1!",
        1: "b1 q>1 a1^",
        2: "c1 p<0^ c2! a1!",
        3: "c1 q<0 c2^ a1!",
    }
    groups = {"a": FOUR, "b": TWO, "c": [2, 3], "p": [0, 2], "q": [1, 3]}
    found = problems(ranks, descriptions=PIPELINES, **groups)
    assert found == ["deadlock b2 by 1, for 0 2 3"]


def test_messages_in_flight_are_no_deadlock() -> None:
    ranks = {0: "b1 b2^ p>1! a1!", 1: "b1 b2^ q>1! a1!", 2: "c1 p<0^ c2! a1!", 3: "c1 q<0^ c2! a1!"}
    groups = {"a": FOUR, "b": TWO, "c": [2, 3], "p": [0, 2], "q": [1, 3]}
    assert problems(ranks, descriptions=PIPELINES, **groups) == ["in_flight b2 by nobody, for 0 1"]


def test_culprit_of_a_deadlock_and_its_shortest_cycle_are_named() -> None:
    """Ranks 4 and 5 wait for others of the cycle; they are not part of what is shown."""
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    (problem,) = diagnosis_of_programs(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5]).problems
    assert problem.message == (
        "Rank 3 deadlocks: rank 2 in all_reduce #1 of group c (tp) waits for rank 3; "
        "ranks 0-1, 3-5 in all_reduce #1 of group a wait for rank 2."
    )


def test_ends_of_a_message_with_different_numbers() -> None:
    ranks = {0: "r>2 a1^ r>1!", 1: "r<0^ a1!", 2: "r<0 a1^"}
    assert problems(ranks, a=THREE, r=THREE) == ["deadlock r2 by 0 1 (tie), for 0 1 2"]


def test_ranks_waiting_for_a_cycle() -> None:
    (problem,) = diagnosis_of_programs({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[0, 1], c=[1, 2]).problems
    assert (problem.culprits, problem.waiting) == ((0, 1), (0, 1, 2))


def test_cycle_waiting_for_an_outside_rank() -> None:
    ranks = {0: "a1! d1!", 1: "b1!", 2: "", 3: "d1!"}
    found = problems(ranks, a=[0, 1], b=[0, 1], d=[0, 2, 3])
    assert found == ["never_joined d1 by 2, for 0 1 3"]


def test_message_of_a_long_cycle() -> None:
    groups = {name: [rank, (rank + 1) % 20] for rank, name in enumerate(ascii_lowercase[:20])}
    (problem,) = diagnosis_of_programs(
        {rank: f"{name}1!" for rank, name in enumerate(groups)}, **groups
    ).problems
    assert len(problem.cycle) == 20
    assert problem.message.count(" waits for rank ") == 6
    assert problem.message.endswith("; and 14 more waits.")


def test_cycle_of_many_groups_is_fast() -> None:
    names = [str(number) for number in range(150)]
    dumps = {
        rank: dump(
            *(collective("nccl:all_reduce", group=(name, "dp")) for name in names if (int(name) + rank) % 4),
            pg_config={
                key: value for name in names for key, value in process_group(name, [0, 1, 2, 3], "dp").items()
            },
        )
        for rank in range(4)
    }
    recorded = journal(dumps)
    began = process_time()
    (problem,) = diagnosis_of(recorded).problems
    assert (problem.kind, len(problem.cycle)) == (Kind.DEADLOCK, 150)
    assert process_time() - began < 5


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
    found = problems({0: "a1!", 1: "b1", 2: "a1!", 3: "b1"}, a=FOUR, b=[1, 3])
    assert found == ["in_flight a1 by 1 3, for 0 2"]


def test_two_hanging_groups() -> None:
    found = problems({0: "a1!", 1: "c1", 2: "b1!", 3: "c1"}, a=TWO, b=[2, 3], c=[1, 3])
    assert found == ["in_flight a1 by 1, for 0"]
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
    assert problems({0: "a1 a2", 1: "a1 a2^", 2: "a1 a2!"}, a=THREE) == []


def test_in_flight() -> None:
    diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=TWO)
    assert diagnosis.verdict == "in_flight"
    (problem,) = diagnosis.problems
    assert problem.message == (
        "Running or hung? All ranks (0-1) joined all_reduce #2 of group a and no rank has finished it. "
        "The dumps do not show whether the job still runs."
    )
    assert (problem.category, problem.culprits, problem.waiting) == (Category.IN_FLIGHT, (), (0, 1))


def test_finished_by_another_rank_is_ok() -> None:
    diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2"}, a=TWO)
    assert (diagnosis.verdict, [standing.stage for standing in diagnosis.standings]) == (
        "ok",
        [Stage.ENDING, Stage.FINISHED],
    )
    assert diagnosis.notes == [
        "Rank 0 had not yet finished all_reduce #2 of group a, which other ranks have, when its dump was written."
    ]


def test_user_knows_that_it_hangs() -> None:
    hung = diagnosis_of(journal_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=TWO), clues=Clues(hung=True))
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
        "2 ranks gave it up after a timeout of 14.0 s; 2 ranks wait."
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
    (wait,) = collective_waits(journal, parts, positions_of(journal, parts, []))
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
