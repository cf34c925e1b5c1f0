"""Who names another root than the others; one who says nothing agrees with everybody."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from builders.told import journal_told
from tracelink.diagnosis.disagreements import Roots, hangs_with_a_root
from tracelink.diagnosis.examine import diagnosis_of
from tracelink.diagnosis.journal import Journal
from tracelink.diagnosis.model import Diagnosis, Kind

WORLD = [0, 1, 2, 3]


def broadcasts(ranks: Mapping[int, str], **groups: list[int]) -> Journal:
    return journal_told(ranks, **(groups or {"a": WORLD}))


def named(journal: Journal, roots: Mapping[int, int], number: int = 1, group: str = "a") -> Roots:
    """What ranks said of one broadcast."""
    rows = {name: row for (_, name), row in journal.group_rows.items()}
    return Roots.of([(rows[group], number, rank, root) for rank, root in roots.items()])


def told(diagnosis: Diagnosis) -> list[tuple[Kind, int | None, tuple[int, ...], str]]:
    return [(one.kind, one.sequence, one.culprits, one.message) for one in diagnosis.problems]


ALL_IN = broadcasts(dict.fromkeys(WORLD, "a1=broadcast!"))


def test_the_one_who_names_another_root_is_to_blame() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 0, 2: 3, 3: 0}))
    message = "Rank 2 called broadcast #1 of group a with root 3, the others with root 0; 3 ranks wait."
    assert told(diagnosis) == [(Kind.PEER_MISMATCH, 1, (2,), message)]
    assert diagnosis.problems[0].waiting == (0, 1, 3)


def test_as_many_for_one_as_for_another_is_a_tie() -> None:
    diagnosis = diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 1, 1: 1, 2: 0, 3: 0}))
    ((kind, _, culprits, message),) = told(diagnosis)
    assert (kind, culprits, diagnosis.problems[0].tie) == (Kind.PEER_MISMATCH, (0, 1, 2, 3), True)
    assert message.startswith(
        "Ranks 0-3 do not agree in broadcast #1 of group a: root 1 or root 0? Nothing tells"
    )


def test_roots_are_told_by_their_ranks_in_the_job() -> None:
    journal = broadcasts({4: "a1=broadcast!", 5: "a1=broadcast!", 7: "a1=broadcast!"}, a=[4, 5, 7])
    diagnosis = diagnosis_of(journal, roots=named(journal, {4: 0, 5: 2, 7: 0}))
    ((_, _, culprits, message),) = told(diagnosis)
    assert culprits == (5,)
    assert "with root 7, the others with root 4" in message


def test_who_finished_can_still_have_got_the_wrong_data() -> None:
    journal = broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2"))
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 1, 2: 0}))
    assert [(one.kind, one.culprits, one.waiting) for one in diagnosis.problems] == [
        (Kind.PEER_MISMATCH, (1,), ())
    ]


def test_another_operation_explains_another_root() -> None:
    journal = broadcasts({0: "a1=broadcast!", 1: "a1=broadcast!", 2: "a1=reduce!", 3: "a1=broadcast!"})
    diagnosis = diagnosis_of(journal, roots=named(journal, {0: 0, 1: 0, 2: 3, 3: 0}))
    assert [(one.kind, one.culprits) for one in diagnosis.problems] == [(Kind.OPERATION_MISMATCH, (2,))]


def test_old_profiles_that_name_the_rank_itself_disagree_on_nothing() -> None:
    assert told(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: rank for rank in WORLD}))) == []


def test_roots_of_collectives_that_no_dump_holds_any_more_are_left_out() -> None:
    assert told(diagnosis_of(ALL_IN, roots=named(ALL_IN, {0: 0, 1: 2}, number=7))) == []


@given(st.dictionaries(st.sampled_from(WORLD), st.just(2)))
def test_the_same_root_is_no_problem_however_few_say_it(roots: dict[int, int]) -> None:
    assert told(diagnosis_of(ALL_IN, roots=named(ALL_IN, roots))) == []


def test_the_culprit_does_not_depend_on_who_is_told_first() -> None:
    said = {0: 0, 1: 0, 2: 3, 3: 0}
    found = {
        tuple(told(diagnosis_of(ALL_IN, roots=named(ALL_IN, {rank: said[rank] for rank in order}))))
        for order in permutations(WORLD)
    }
    assert len(found) == 1


def test_who_waits_in_something_with_a_root() -> None:
    assert hangs_with_a_root(ALL_IN)
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast")))
    assert not hangs_with_a_root(broadcasts(dict.fromkeys(WORLD, "a1=broadcast a2!")))
    assert not hangs_with_a_root(broadcasts({0: "", 1: "a1"}))
