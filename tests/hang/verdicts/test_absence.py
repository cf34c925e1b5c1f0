"""Ranks without a dump: what other ranks end in, and who is blamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.data import shared
from builders.dumps import SECOND, diagnosis_of, recorded
from builders.programs import diagnosis_of_programs, journal_of_programs, problems
from builders.recorded_jobs import diagnosed, faulty_plans, plans
from builders.recorder import CREATED, collective, process_group
from generators.recorded_jobs import FAULTS, Fault, Plan, Snapshot, job
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.journal import Journal
from tracelink._hang.facts.model import Kind
from tracelink._hang.facts.stalls import Clues

TWO, THREE, FOUR = [0, 1], [0, 1, 2], [0, 1, 2, 3]
PAIRS = {"b": "tp", "c": "tp", "d": "dp", "e": "dp"}
SQUARE = {"a": FOUR, "b": TWO, "c": [2, 3], "d": [0, 2], "e": [1, 3]}


# Backends that retire what failed: the last call of a rank may have failed because a member died.


def test_retired_call_with_an_absent_member_is_unfinished() -> None:
    ranks = {0: "a1~ b1~ d1~", 1: "a1~ b1~ e1~", 2: "a1~ c1~"}
    (problem,) = diagnosis_of_programs(ranks, descriptions=PAIRS, **SQUARE).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.NEVER_JOINED, (3,), (0, 1, 2))
    assert not problem.proven


def test_call_that_others_passed_is_finished() -> None:
    """Rank 2 stopped after the first call, which the others passed: it does not wait for rank 3."""
    found = problems({0: "a1~ a2~", 1: "a1~ a2~", 2: "a1~"}, a=FOUR)
    assert found == ["never_joined a2 by 2, for 0 1"]


def test_rank_that_went_on_does_not_wait_for_an_absent_one() -> None:
    found = problems({0: "b1~ a1~ a2~", 1: "b1~ a1~"}, a=TWO, b=THREE)
    assert found == ["never_joined a2 by 1, for 0"]


def test_broadcast_that_others_passed_may_be_unfinished() -> None:
    found = problems({0: "a1=broadcast~ a2~", 1: "a1=broadcast~"}, a=THREE)
    assert found == ["never_joined a1 by 2, for 0 1"]


# All-to-alls: each pair of ranks has sizes of its own, so that one can fail where others succeed.


@pytest.mark.parametrize("stopped", [0, 1, 3])
def test_retired_all_to_all_with_an_absent_member_may_have_failed(stopped: int) -> None:
    """Rank 2 is gone; another rank stopped after the exchange with it, the others went on."""
    ranks = {rank: f"a1=all_to_all~{' a2=barrier~' * (rank != stopped)}" for rank in (0, 1, 3)}
    (problem,) = diagnosis_of_programs(ranks, a=FOUR).problems
    assert (problem.culprits, problem.proven) == ((2,), False)


def test_stopped_after_an_all_to_all_of_present_ranks() -> None:
    ranks = {rank: f"a1=all_to_all~{' a2=barrier~' * (rank != 1)}" for rank in FOUR}
    assert problems(ranks, a=FOUR) == ["never_joined a2 by 1, for 0 2 3"]


@pytest.mark.parametrize(
    ("operation", "culprits"), [("gloo:all_to_all", (2,)), ("gloo:all_reduce", (1,))], ids=["pairs", "all"]
)
def test_late_after_a_call_with_an_absent_member(operation: str, culprits: tuple[int, ...]) -> None:
    """Rank 1 arrives after the others have given up."""
    late = CREATED + 30 * SECOND
    first = collective(operation, 1, retired=True)
    entries = {
        rank: [first, collective("gloo:barrier", 2, retired=True, timeout_ms=20_000, created=created)]
        for rank, created in {0: CREATED + SECOND, 1: late, 3: CREATED + SECOND}.items()
    }
    made = recorded(entries, pg_config=process_group("0", FOUR))
    (problem,) = diagnosis_of(made, clues=Clues(hung=True)).problems
    assert problem.culprits == culprits


# Whether ranks wait for it.


def only(diagnosis: Diagnosis) -> tuple[object, ...]:
    """The only problem: what, who, for whom, and how certain."""
    (problem,) = diagnosis.problems
    return problem.kind, problem.culprits, problem.waiting, problem.proven, problem.message


def test_ranks_wait_for_an_absent_one() -> None:
    assert only(diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!"}, a=THREE)) == (
        Kind.NEVER_JOINED,
        (2,),
        (0, 1),
        False,
        "Rank 2 left no dump, and 2 ranks wait for it: first in all_reduce #2 of group a. It had "
        "joined all_reduce #1 of group a, which others finished.",
    )


def test_no_rank_waits_for_an_absent_one() -> None:
    assert only(diagnosis_of_programs({0: "a1 a2", 1: "a1 a2"}, a=THREE)) == (
        Kind.ABSENT,
        (2,),
        (),
        False,
        "Rank 2 left no dump. It had joined all_reduce #2 of group a, which others finished. No rank is known to wait "
        "for it.",
    )


def test_backend_that_does_not_record_whether_the_last_call_failed() -> None:
    assert only(diagnosis_of_programs({0: "a1~ a2~", 1: "a1~ a2~"}, a=THREE)) == (
        Kind.ABSENT,
        (2,),
        (),
        False,
        "Rank 2 left no dump. Ranks 0 and 1 end in all_reduce #2 of group a; the dumps do not show whether it finished "
        "or failed. It had joined all_reduce #1 of group a, after which others went on.",
    )


def test_group_without_a_finished_collective_of_all() -> None:
    found = only(diagnosis_of_programs({0: "a1=broadcast a2=broadcast", 1: "a1=broadcast"}, a=THREE))
    assert found == (
        Kind.ABSENT,
        (2,),
        (),
        False,
        "Rank 2 left no dump. No rank is known to wait for it.",
    )


def test_group_that_no_rank_used() -> None:
    """A member without a dump may wait elsewhere."""
    assert problems({0: "b1", 1: "b1"}, a=THREE, b=TWO) == ["absent None by 2, for nobody"]


def test_no_entries_are_no_all_clear() -> None:
    found = diagnosis_of_programs({0: "", 1: ""}, a=TWO)
    assert (found.verdict, [problem.message for problem in found.problems]) == (
        "in_flight",
        ["No dump has an entry. The dumps do not show whether the job runs or hangs."],
    )
    assert only(diagnosis_of_programs({0: "", 1: ""}, a=THREE)) == (
        Kind.ABSENT,
        (2,),
        (),
        False,
        "Rank 2 left no dump. No rank is known to wait for it.",
    )


def test_host_without_dumps_is_one_problem() -> None:
    """Ranks 2 and 3 are one end of two pipelines."""
    ranks = {0: "a1 p>1! a2!", 1: "a1 q>1! a2!"}
    found = diagnosis_of_programs(ranks, a=FOUR, p=[0, 2], q=[1, 3])
    assert only(found) == (
        Kind.NEVER_JOINED,
        (2, 3),
        (0, 1),
        False,
        "Ranks 2 and 3 left no dump, and 2 ranks wait for them: first in send 0->1 #1 of group p. "
        "All of them had joined all_reduce #1 of group a, which others finished.",
    )


def test_nothing_is_proven_while_a_member_has_no_dump() -> None:
    diagnosis = diagnosis_of_programs({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, a=FOUR)
    assert [(problem.culprits, problem.proven) for problem in diagnosis.problems] == [((2,), False)]


# Dumps that are damaged.


def test_unreadable_dump_is_no_dump() -> None:
    """A process that is killed while it writes leaves such a file."""
    found = diagnosis_of(journal_of_programs({0: "a1", 1: "a1"}, a=THREE), {2: "rank_2: not a pickle"})
    assert only(found)[1:] == (
        (2,),
        (),
        False,
        "Rank 2 left a damaged dump. It had joined all_reduce #1 of group a, which others finished. No rank is known "
        "to wait for it.",
    )


def test_absent_and_unreadable_dumps_are_one_problem() -> None:
    found = diagnosis_of(
        journal_of_programs({0: "a1!"}, a=THREE), {2: "rank_2: not a pickle"}, clues=Clues(hung=True)
    )
    assert only(found)[1:] == (
        (1, 2),
        (0,),
        False,
        "Rank 1 left no dump and rank 2 left a damaged dump, and rank 0 waits for at least one of them: "
        "first in all_reduce #1 of group a.",
    )


def truncated(programs: Mapping[int, str], rank: int, **groups: Sequence[int]) -> Journal:
    """The journal of ranks of which one left a truncated dump."""
    found = journal_of_programs(programs, **groups)
    recordings = dict(found.recordings)
    recordings[rank] = replace(recordings[rank], broken_off=True)
    return replace(found, recordings=recordings)


def test_truncated_dump_of_the_culprit() -> None:
    found = diagnosis_of(truncated({0: "a1 a2!", 1: "a1 a2!", 2: "a1"}, 2, a=THREE), clues=Clues(hung=True))
    assert only(found) == (
        Kind.NEVER_JOINED,
        (2,),
        (0, 1),
        False,
        "Rank 2 left a damaged dump, and 2 ranks wait for it: first in all_reduce #2 of group a. It "
        "had joined all_reduce #1 of group a, which others finished.",
    )


def test_truncated_dump_of_a_rank_that_went_on() -> None:
    for mark in ("", "~"):
        found = truncated({0: f"a1{mark} a2{mark}", 1: f"a1{mark} a2{mark}", 2: f"a1{mark}"}, 2, a=THREE)
        assert diagnosis_of(found).problems == []


def test_truncated_dump_next_to_retired_calls() -> None:
    """Rank 0 waits for rank 1, which did not finish its call with rank 2."""
    found = diagnosis_of(truncated({0: "a1~ a2~", 1: "a1~ b1~", 2: "a1~"}, 2, a=TWO, b=[1, 2]))
    assert [(problem.culprits, problem.waiting, problem.proven) for problem in found.problems] == [
        ((2,), (0, 1), False)
    ]


# Generated jobs.


@settings(max_examples=20)
@given(plans() | faulty_plans(*FAULTS), st.sampled_from(["settled", "timed_out"]), st.data())
def test_any_absent_rank(case: Plan | tuple[Plan, Fault], when: str, data: st.DataObject) -> None:
    """Without the dump of a rank nothing is ok, and no rank is blamed that all dumps together do not blame."""
    plan, fault = case if isinstance(case, tuple) else (case, None)
    recorded = job(plan, fault, Snapshot(when))
    assume(len(recorded.dumps) > 1)
    absent = data.draw(st.sampled_from(list(recorded.dumps)))
    blamed = {rank for problem in diagnosed(recorded.dumps, hung=True).problems for rank in problem.culprits}
    found = diagnosed({rank: dump for rank, dump in recorded.dumps.items() if rank != absent})
    assert found.verdict != "ok"
    proven = [problem for problem in found.problems if problem.proven and not problem.tie]
    assert {rank for problem in proven for rank in problem.culprits} <= blamed


# Recorded jobs.


@pytest.mark.foreign
def test_killed_rank() -> None:
    for phase in ("after_error", "after_timeout"):
        (problem,) = diagnose(shared(f"fr2/sigkill/dumps_{phase}")).problems
        assert (problem.kind, problem.culprits, problem.proven) == (Kind.IN_FLIGHT, (5,), False)
        assert problem.waiting == (0, 1, 2, 3, 4, 6, 7)


@pytest.mark.foreign
def test_killed_rank_of_unaided_gloo() -> None:
    """No dump lists the members of groups."""
    for phase in ("after_error", "after_timeout"):
        diagnosis = diagnose(shared(f"fr2/sigkill_rawpg/dumps_{phase}"))
        (problem,) = diagnosis.problems
        assert (problem.kind, problem.culprits, problem.proven) == (Kind.IN_FLIGHT, (5,), False)
        assert (problem.waiting, list(diagnosis.missing)) == ((0, 1, 2, 3, 4, 6, 7), [5])


@pytest.mark.foreign
def test_rank_that_was_killed_while_others_gave_up_or_waited() -> None:
    (problem,) = diagnose(shared("fr2/world_kill_dp_only/dumps_after_error")).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.IN_FLIGHT, (2,), (0, 1, 3))
    (problem,) = diagnose(shared("fr2/world_kill_dp_only/dumps_after_timeout")).problems
    assert (problem.kind, problem.culprits, problem.proven) == (Kind.ABSENT, (2,), False)


@pytest.mark.foreign
def test_rank_that_crashed_between_collectives() -> None:
    (problem,) = diagnose(shared("fr2/crash_between")).problems
    assert (problem.kind, problem.culprits, problem.waiting) == (Kind.ABSENT, (6,), ())


@pytest.mark.foreign
def test_host_that_crashed() -> None:
    (problem,) = diagnose(shared("fr2/n64_node_crash")).problems
    assert (problem.kind, problem.culprits, problem.proven) == (
        Kind.IN_FLIGHT,
        tuple(range(24, 32)),
        False,
    )
    assert set(problem.waiting) == set(range(64)) - set(problem.culprits)


@pytest.mark.foreign
def test_truncated_dump_of_a_recorded_culprit() -> None:
    (problem,) = diagnose(shared("fr2/m64_culprit_truncated")).problems
    assert (problem.kind, problem.culprits, problem.proven) == (Kind.IN_FLIGHT, (37,), False)
    assert problem.message.startswith("Rank 37 left a damaged dump, and 63 ranks wait for it")
