"""Package."""

from __future__ import annotations

from string import ascii_lowercase
from time import process_time
from typing import Any

import pytest

from builders.journal import MS, Entries, journal, recorded, rounds
from builders.recorder import collective, dump, process_group
from builders.told import diagnosed, problems
from tracelink.diagnosis.clocks import Elapsed, longest_finished_work
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.hangs import is_stuck
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Kind, Link
from tracelink.diagnosis.participation import parts_of, positions_of
from tracelink.diagnosis.waits import Wait, collective_waits
from tracelink.model.columns import UNKNOWN

# Rings of waits: who waits for whom, and who left the order that others keep.


TP = {"b": "tp", "c": "tp", "d": "tp"}
SIX = [0, 1, 2, 3, 4, 5]


def test_one_that_began_with_its_pair_where_all_others_began_with_the_whole() -> None:
    found = problems(
        {0: "a1~", 1: "a1~", 2: "a1~", 3: "b1~"}, descriptions=TP, a=[0, 1, 2, 3], b=[2, 3], c=[0, 1]
    )
    assert found == ["deadlock a1 by 3, for 0 1 2"]


def test_one_that_began_with_the_whole_where_all_others_did_their_pairs_first() -> None:
    ranks = {0: "b1 a1!", 1: "b1 a1!", 2: "c1!", 3: "a1!", 4: "d1 a1!", 5: "d1 a1!"}
    found = problems(ranks, descriptions=TP, a=SIX, b=[0, 1], c=[2, 3], d=[4, 5])
    assert found == ["deadlock c1 by 3, for 0 1 2 4 5"]


def test_two_that_wait_for_each_other_and_nothing_tells_who_is_wrong() -> None:
    found = problems({0: "a1!", 1: "b1!"}, a=[0, 1], b=[0, 1])
    assert found == ["deadlock a1 by 0 1 (tie), for 0 1"]


def test_the_ring_link_by_link() -> None:
    (problem,) = diagnosed({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[1, 2], c=[2, 0]).problems
    assert set(problem.cycle) == {
        Link("a", 1, "nccl:all_reduce", (0,), (1,)),
        Link("b", 1, "nccl:all_reduce", (1,), (2,)),
        Link("c", 1, "nccl:all_reduce", (2,), (0,)),
    }


def test_all_queued_everything_and_one_device_is_in_the_second() -> None:
    found = problems({0: "a1^ b1!", 1: "a1^ b1!", 2: "b1^ a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_without_states_the_order_in_which_they_were_asked_for_tells() -> None:
    found = problems({0: "a1! b1!", 1: "a1! b1!", 2: "b1! a1!"}, a=[0, 1, 2], b=[0, 1, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_who_waits_for_the_ring_is_no_part_of_it() -> None:
    (problem,) = diagnosed({0: "a1!", 1: "b1!", 2: "c1!"}, a=[0, 1], b=[0, 1], c=[1, 2]).problems
    assert (problem.culprits, problem.waiting) == ((0, 1), (0, 1, 2))


def test_a_ring_with_a_way_out_is_the_fault_of_the_one_outside() -> None:
    ranks = {0: "a1! d1!", 1: "b1!", 2: "", 3: "d1!"}
    found = problems(ranks, a=[0, 1], b=[0, 1], d=[0, 2, 3])
    assert found == ["never_joined d1 by 2, for 0 1 3"]


def test_of_a_long_ring_the_message_tells_the_first_links_and_the_cycle_all() -> None:
    groups = {name: [rank, (rank + 1) % 20] for rank, name in enumerate(ascii_lowercase[:20])}
    (problem,) = diagnosed({rank: f"{name}1!" for rank, name in enumerate(groups)}, **groups).problems
    assert len(problem.cycle) == 20
    assert problem.message.count(" waits for rank ") == 6
    assert problem.message.endswith("; and 14 more waits.")


def test_a_ring_of_very_many_groups_takes_no_long_time() -> None:
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


# Who did not join what others wait in: from the entries of all ranks to the one cause.


TWO, THREE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]


def test_everybody_finished_everything() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2"}, a=TWO) == []


def test_one_is_in_no_collective_and_the_others_wait() -> None:
    found = problems({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_one_that_never_took_part_in_a_group() -> None:
    assert problems({0: "a1!", 1: "a1!", 2: "b1"}, a=THREE, b=[2]) == ["never_joined a1 by 2, for 0 1"]


def test_others_that_queued_more_are_ahead_and_the_first_counts() -> None:
    found = problems({0: "a1 a2! a3! a4!", 1: "a1 a2! a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a2 by 2, for 0 1"]


def test_two_that_are_missing() -> None:
    found = problems({0: "a1!", 1: "b1", 2: "a1!", 3: "b1"}, a=FOUR, b=[1, 3])
    assert found == ["never_joined a1 by 1 3, for 0 2"]


def test_two_groups_that_hang_by_themselves_are_two_problems() -> None:
    found = problems({0: "a1!", 1: "c1", 2: "b1!", 3: "c1"}, a=TWO, b=[2, 3], c=[1, 3])
    assert found == ["never_joined a1 by 1, for 0", "never_joined b1 by 3, for 2"]


def test_who_waits_for_one_that_waits_is_no_cause() -> None:
    found = problems({0: "a1!", 1: "b1!", 2: "c1!", 3: ""}, a=TWO, b=[1, 2], c=[2, 3])
    assert found == ["never_joined c1 by 3, for 0 1 2"]


def test_of_several_that_it_did_not_join_the_first_in_its_program() -> None:
    """Ranks 1 and 2 show that the pair comes before the group of all."""
    ranks = {0: "b1! a1!", 1: "c1 a1!", 2: "c1 a1!", 3: ""}
    found = problems(ranks, descriptions={"b": "tp", "c": "tp"}, a=FOUR, b=[0, 3], c=[1, 2])
    assert found == ["never_joined b1 by 3, for 0 1 2"]


def test_on_gloo_what_was_retired_is_not_finished_while_somebody_is_missing() -> None:
    found = problems({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=THREE)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_who_finished_proves_that_all_had_joined() -> None:
    """The dump of rank 2 was made before those of the others."""
    assert problems({0: "a1 a2 a3", 1: "a1 a2 a3", 2: "a1"}, a=THREE) == []


def test_a_broadcast_can_be_over_before_all_have_joined() -> None:
    found = problems({0: "a1 a2=broadcast a3!", 1: "a1 a2=broadcast a3!", 2: "a1"}, a=THREE)
    assert found == ["lagging a3 by 2, for 0 1"]


def test_that_some_have_finished_what_others_have_only_started_is_nothing() -> None:
    assert problems({0: "a1 a2", 1: "a1 a2^", 2: "a1 a2!"}, a=THREE) == []


def test_what_all_joined_and_nobody_finished_is_worth_a_note() -> None:
    diagnosis = diagnosed({0: "a1 a2!", 1: "a1 a2!"}, a=TWO)
    assert diagnosis.problems == []
    assert len(diagnosis.notes) == 1


def test_what_all_joined_and_gave_up_has_timed_out() -> None:
    assert problems({0: "a1 a2?", 1: "a1 a2?"}, a=TWO) == ["timed_out a2 by nobody, for 0 1"]


def test_what_all_gave_up_because_one_was_missing_elsewhere_is_a_consequence() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "c1", 3: "b1?"}, a=THREE, b=[0, 3], c=[2])
    assert found == ["never_joined a1 by 2, for 0 1 3"]


def test_who_is_missing_because_it_began_with_what_others_queued_behind_it_is_in_a_ring() -> None:
    found = problems({0: "a1? b1?", 1: "a1?", 2: "b1?"}, a=THREE, b=[0, 2])
    assert found == ["deadlock a1 by 2, for 0 1"]


def test_of_what_all_gave_up_the_first_is_told() -> None:
    found = problems({0: "a1? b1?", 1: "a1? b1?", 2: "b1?"}, a=TWO, b=THREE)
    assert found == ["timed_out a1 by nobody, for 0 1 2"]


class TestWithoutADump:
    def test_the_others_prove_the_one_that_is_missing(self) -> None:
        (problem,) = diagnosed({0: "a1 a2!", 1: "a1 a2!"}, a=THREE).problems
        assert (problem.culprits, problem.proven) == ((2,), False)

    def test_one_that_has_a_dump_and_is_missing_is_blamed_alone(self) -> None:
        diagnosis = diagnosed({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=FOUR)
        assert [problem.culprits for problem in diagnosis.problems] == [(2,)]
        assert list(diagnosis.missing) == [3]

    def test_of_several_it_is_one_of_them(self) -> None:
        (problem,) = diagnosed({0: "a1 a2!"}, a=THREE).problems
        assert problem.culprits == (1, 2)
        assert problem.message.startswith("At least one of ranks 1 and 2 (no complete dumps) is missing in")

    def test_beside_one_that_is_proven_it_may_be_waiting_itself(self) -> None:
        diagnosis = diagnosed({0: "a1!", 1: "b1", 2: "c1!"}, a=TWO, b=[1], c=[2, 3])
        assert [problem.culprits for problem in diagnosis.problems] == [(1,)]
        assert diagnosis.notes == [
            "Other ranks also wait for rank 3, whose dump does not show why. It may wait because of the problem above."
        ]

    def test_without_anybody_waiting_nothing_is_said_of_it(self) -> None:
        assert problems({0: "a1", 1: "a1"}, a=THREE) == []


class TestWrapped:
    def test_a_ring_that_begins_later_misses_nothing(self) -> None:
        found = problems({0: "a3 a4", 1: "a1 a2 a3 a4"}, forgotten={0: 2}, a=TWO)
        assert found == []

    def test_a_group_that_was_forgotten_is_unknown_and_not_unused(self) -> None:
        (problem,) = diagnosed({0: "a1 b1! b2!", 1: "a1 a2 a3"}, forgotten={1: 5}, a=TWO, b=TWO).problems
        assert (problem.culprits, problem.proven) == ((1,), False)

    def test_the_last_entries_tell_who_is_missing(self) -> None:
        found = problems({0: "a8 a9!", 1: "a8 a9!", 2: "a7 a8"}, forgotten={0: 7, 1: 7, 2: 6}, a=THREE)
        assert found == ["never_joined a9 by 2, for 0 1"]


# What is stuck, and what is only under way.


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
    assert longest_finished_work(journal).tolist()[0] == longest


def test_nobody_knows_how_long_what_never_finished_takes() -> None:
    assert longest_finished_work(recorded(rounds(at=[[0, 0]]))).tolist() == [UNKNOWN]
