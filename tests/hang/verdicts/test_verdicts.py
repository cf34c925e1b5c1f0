"""The verdict: classes of problems, the law that nothing is `ok` while ranks wait, and hints."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from builders.dumps import recorded
from builders.programs import diagnosis_of_programs
from builders.recorded_jobs import diagnosed, faulty_plans
from builders.recorder import CREATED, collective
from generators.recorded_jobs import Fault, Plan, Snapshot, job
from tracelink._hang.facts.model import Category, Diagnosis, Kind, RanksOfDumps, Stage, Standing
from tracelink._hang.facts.stalls import hint_of_file_times
from tracelink._hang.verdicts.absence import NeverJoined
from tracelink._hang.verdicts.drafts import Draft, apply_law
from tracelink._model.columns import SECOND
from tracelink._model.trace import ProcessGroup

HANGS = (
    *("never_joined", "never_joined_any", "lagging", "skipped", "operation_mismatch"),
    *("not_started", "timed_out", "deadlock", "deadlock_of_three", "wrong_target", "messages_swapped"),
)


# The law.


def diagnosis(*standings: Standing, missing: Sequence[int] = ()) -> Diagnosis:
    """A diagnosis that found no problem."""
    return Diagnosis(standings=standings, ranks=RanksOfDumps.of([0, 1, 2], missing))


def standing(stage: Stage, *ranks: int, sequence: int | None = 7) -> Standing:
    return Standing("0", "default_pg", sequence, "nccl:all_reduce", stage, ranks)


def law(found: Diagnosis) -> list[tuple[object, ...]]:
    lawfully = apply_law(Draft((), found)).settled()
    return [
        (one.kind, one.category, one.culprits, one.waiting, one.message, one.proven)
        for one in lawfully.problems
    ]


def test_finished_ranks_are_ok() -> None:
    assert law(diagnosis(standing(Stage.FINISHED, 0, 1), standing(Stage.ENDING, 2))) == []


def test_rank_that_waits_is_not_ok() -> None:
    found = law(diagnosis(standing(Stage.FINISHED, 0), standing(Stage.WAITING, 1, 2)))
    message = (
        "Running or hung? Ranks 1 and 2 joined all_reduce #7 of group 0 (default_pg) and did not finish it. "
        "The dumps do not show whether the job hangs or still runs."
    )
    assert found == [(Kind.IN_FLIGHT, Category.IN_FLIGHT, (), (1, 2), message, True)]


def test_missing_member_of_a_used_group_is_not_ok() -> None:
    found = law(diagnosis(standing(Stage.FINISHED, 0, 1), standing(Stage.UNKNOWN, 3), missing=[3]))
    message = (
        "Rank 3 left no dump. It had joined all_reduce #7 of group 0 (default_pg), which others finished. No rank is "
        "known to wait for it."
    )
    assert found == [(Kind.ABSENT, Category.PROCESS_GONE, (3,), (), message, False)]


def test_missing_member_of_an_unused_group_is_not_ok() -> None:
    found = law(diagnosis(standing(Stage.UNKNOWN, 3, sequence=None), missing=[3]))
    message = "Rank 3 left no dump. No rank is known to wait for it."
    assert found == [(Kind.ABSENT, Category.PROCESS_GONE, (3,), (), message, False)]


@settings(max_examples=20)
@given(faulty_plans(*HANGS), st.sampled_from(["settled", "timed_out"]), st.data())
def test_hung_job_is_never_ok(case: tuple[Plan, Fault], when: str, data: st.DataObject) -> None:
    """Whichever dumps are missing."""
    recorded = job(*case, Snapshot(when))
    dumps = {**recorded.dumps, **recorded.cut_short}
    kept = data.draw(st.sets(st.sampled_from(sorted(dumps)), min_size=1))
    assert diagnosed({rank: dumps[rank] for rank in kept}).verdict != "ok"


# Classes.


def test_category_of_what_a_dump_does_not_prove() -> None:
    """Rank 3 left no dump; that of rank 2 does not show what it did."""
    group = ProcessGroup("0", "default_pg")
    shown, open_, gone = (
        NeverJoined.of_call(group, 7, "nccl:all_reduce", culprits=[rank], **facts)
        for rank, facts in enumerate(({}, {"proven": False}, {"proven": False, "undumped": (3,)}), 1)
    )
    found = [one.found_category() for one in (shown, open_, gone)]
    assert found == [Category.NOT_REACHED, Category.UNKNOWN, Category.PROCESS_GONE]


# File times.


def hint(*seconds_later: float) -> str:
    dumps = recorded({rank: [collective("nccl:all_reduce", 1, created=CREATED)] for rank in range(2)})
    written = {rank: CREATED + int(seconds * SECOND) for rank, seconds in enumerate(seconds_later)}
    return hint_of_file_times(dumps, written)


def test_files_written_together_long_after_the_last_entries() -> None:
    assert hint(30, 31) == (
        "Hint: the files were written 30.0 s after the last entry of each rank. If they are not copies, the job "
        "probably hangs."
    )


def test_file_times_that_indicate_nothing() -> None:
    """Written at once, by several hours, or apart; or the times of some are unknown."""
    assert [hint(0.1, 31), hint(30, 300), hint(90_000, 90_000), hint(30)] == [""] * 4


# Jobs of parts that are not connected.


def test_ranks_of_another_replica_do_not_make_a_hang_doubtful() -> None:
    ranks = {0: "a1 a2!", 1: "a1 a2!", 2: "a1", 3: "b1 b2", 4: "b1 b2"}
    found = diagnosis_of_programs(ranks, a=[0, 1, 2], b=[3, 4])
    assert [(one.kind, one.culprits) for one in found.problems] == [(Kind.NEVER_JOINED, (2,))]


def test_other_ranks_of_a_connected_job_make_it_doubtful() -> None:
    ranks = {0: "c1 a1 a2!", 1: "c1 a1 a2!", 2: "c1 a1", 3: "c1 b1 b2", 4: "c1 b1 b2"}
    found = diagnosis_of_programs(ranks, hung=False, a=[0, 1, 2], b=[3, 4], c=[0, 1, 2, 3, 4])
    assert [(one.kind, one.culprits) for one in found.problems] == [(Kind.IN_FLIGHT, (2,))]


# Representations in an interpreter.


def test_diagnosis_in_a_few_lines() -> None:
    found = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=[0, 1, 2])
    assert repr(found) == (
        "<Diagnosis: Rank 2 never joined all_reduce #2 of group a; 2 ranks wait.\n"
        "  tables: problems 1, standings 2, lateness 0, findings 0, other_jobs 0>"
    )
