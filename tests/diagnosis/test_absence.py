"""Ranks without a dump: what other ranks end in, and who is blamed."""

from __future__ import annotations

from builders.data import shared
from builders.programs import diagnosis_of_programs, problems
from tracelink import diagnose
from tracelink.diagnosis.model import Kind

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


# Recorded jobs.


def test_killed_rank() -> None:
    for phase in ("after_error", "after_timeout"):
        (problem,) = diagnose(shared(f"fr2/sigkill/dumps_{phase}")).problems
        assert (problem.kind, problem.culprits, problem.proven) == (Kind.NEVER_JOINED, (5,), False)
        assert problem.waiting == (0, 1, 2, 3, 4, 6, 7)


def test_killed_rank_of_unaided_gloo() -> None:
    """No dump lists the members of groups."""
    for phase in ("after_error", "after_timeout"):
        diagnosis = diagnose(shared(f"fr2/sigkill_rawpg/dumps_{phase}"))
        (problem,) = diagnosis.problems
        assert (problem.kind, problem.culprits, problem.proven) == (Kind.NEVER_JOINED, (5,), False)
        assert (problem.waiting, list(diagnosis.missing)) == ((0, 1, 2, 3, 4, 6, 7), [5])
