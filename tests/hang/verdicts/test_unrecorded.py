"""Calls that gloo does not record: said where they may be the cause, counted by the gaps of `op_id`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.data import shared
from builders.dumps import SECOND, Entries, diagnosis_of, dumps, recorded, stack
from builders.recorder import CREATED, collective
from tracelink._hang.examine import examine
from tracelink._hang.facts.model import Category, Diagnosis, Kind, Movement
from tracelink._hang.facts.sets import Earlier
from tracelink._hang.facts.stalls import Clues
from tracelink._hang.verdicts.unrecorded import WHERE_ALL_ARE, count_unrecorded

UNSEEN = (
    "gloo does not record messages (send, recv), monitored_barrier and new_group, in which ranks may wait unseen: "
    "run py-spy dump --pid PID on each rank."
)


def calls(*numbers: int, open_last: bool = False, **fields: Any) -> list[dict[str, Any]]:
    """Collectives of gloo with these `op_id`s."""
    last = len(numbers)
    return [
        collective(
            "gloo:all_reduce",
            sequence,
            op_id=number,
            retired=not (open_last and sequence == last),
            frames=stack("step", 65),
            **fields,
        )
        for sequence, number in enumerate(numbers, 1)
    ]


def diagnosed(entries: Entries, *, hung: bool = False) -> Diagnosis:
    return diagnosis_of(recorded(entries), clues=Clues(hung=hung))


def test_a_healthy_job_has_a_note() -> None:
    found = diagnosed({rank: calls(1, 2) for rank in range(3)})
    note = (
        "If this job hangs, it does so after its last recorded calls: all_reduce #2 of group 0 (default_pg) at "
        f"train.py:65 on all ranks. {UNSEEN}"
    )
    assert (found.verdict, found.blind_spot, found.notes) == ("ok", note, [note])


def test_gaps_are_counted() -> None:
    found = diagnosed({0: calls(1, 6), 1: calls(1, 9), 2: calls(3, 4)})
    assert found.blind_spot.endswith("on each rank. op_id counts 7 such operations of rank 1 so far.")


def test_last_calls_differ() -> None:
    alone = {
        rank: collective("gloo:barrier", 1, group=(str(rank), ""), pg_id=1, retired=True)
        for rank in range(1, 6)
    }
    found = diagnosed({rank: [*calls(1), *([alone[rank]] if rank in alone else [])] for rank in range(7)})
    assert found.blind_spot.startswith(
        "If this job hangs, it does so after its last recorded calls: all_reduce #1 of group 0 (default_pg) at "
        "train.py:65 on ranks 0 and 6; barrier #1 of group 1 on rank 1; barrier #1 of group 2 on rank 2; "
        "and 3 more calls. gloo "
    )


def test_other_backends_record_everything() -> None:
    found = diagnosed({rank: [collective("nccl:all_reduce", completed=CREATED + 1)] for rank in range(2)})
    assert (found.verdict, found.blind_spot, found.notes) == ("ok", "", [])


def test_messages_that_are_recorded_are_not_named() -> None:
    entries = {
        0: [collective("gloo:send 0->1", p2p_seq_id=1, is_p2p=True, completed=CREATED + 1)],
        1: [collective("gloo:recv 1<-0", p2p_seq_id=1, is_p2p=True, completed=CREATED + 1)],
    }
    assert " gloo does not record monitored_barrier and new_group, " in diagnosed(entries).blind_spot


def test_a_culprit_that_called_unrecorded_operations_may_wait_in_one() -> None:
    hang = {0: calls(1, 4, 7, 10, open_last=True), 1: calls(1, 4, 7), 2: calls(1, 4, 7, 10, open_last=True)}
    (problem,) = diagnosed(hang, hung=True).problems
    assert (problem.culprits, problem.advice) == (
        (1,),
        "Check what rank 1 is doing now: run py-spy dump --pid PID on its host, and read the end of its log. It did "
        "not return to train.py:65 (step), where the others wait. Rank 1 may also wait in a call that gloo does not "
        "record: messages (send, recv), monitored_barrier and new_group; op_id counts 4 such operations of rank 1 "
        "before its last call.",
    )


def test_without_gaps_there_is_no_hint() -> None:
    (problem,) = diagnosed({0: calls(1, 2, open_last=True), 1: calls(1)}).problems
    assert (problem.culprits, "gloo does not record" in problem.advice) == ((1,), False)


def test_a_mismatch_needs_no_hint() -> None:
    hang = {0: calls(1, 4, open_last=True), 1: calls(1, 4, open_last=True), 2: calls(1, 4, open_last=True)}
    hang[2][-1] |= {"profiling_name": "gloo:broadcast"}
    (problem,) = diagnosed(hang).problems
    assert (problem.kind, "gloo does not record" in problem.advice) == ("operation_mismatch", False)


# The user knows that the job hangs, or that no rank moves.


def at_end(numbers: dict[int, int], **clues: Any) -> Diagnosis:
    journal = recorded({rank: calls(*range(1, count + 1)) for rank, count in numbers.items()})
    return diagnosis_of(journal, clues=Clues(**clues))


def moved(ranks: tuple[int, ...], unknown: tuple[int, ...] = (), *, chosen: bool = True) -> Earlier:
    unmoved = tuple({0, 1} - set(ranks) - set(unknown))
    nothing = np.empty(0, np.bool_)
    return Earlier(Movement(ranks, unmoved, unknown, None), nothing, nothing, chosen)


def test_a_job_that_is_known_to_hang_is_no_all_clear() -> None:
    found = at_end({0: 2, 1: 2}, hung=True)
    (problem,) = found.problems
    assert (
        found.verdict,
        problem.kind,
        problem.category,
        problem.culprits,
        problem.proven,
        problem.sequence,
    ) == (
        "problem",
        Kind.NOT_RECORDED,
        Category.UNKNOWN,
        (),
        False,
        2,
    )
    assert problem.message == (
        "The job hangs after its last recorded calls: all_reduce #2 of group 0 (default_pg) at train.py:65 "
        "on all ranks."
    )
    assert problem.advice == (
        f"{WHERE_ALL_ARE} gloo does not record messages (send, recv), monitored_barrier and new_group."
    )


def test_another_problem_is_the_cause_of_a_known_hang() -> None:
    entries = {0: calls(1, 2, open_last=True), 1: calls(1)}
    (problem,) = diagnosis_of(recorded(entries), clues=Clues(hung=True)).problems
    assert (problem.kind, problem.culprits) == (Kind.NEVER_JOINED, (1,))


def test_no_rank_moved_since_earlier_dumps() -> None:
    found = at_end({0: 2, 1: 2}, earlier=moved(()))
    assert (found.verdict, [problem.message for problem in found.problems]) == (
        "in_flight",
        [
            "Running or hung? No rank recorded a call since the earlier dumps, and none is in flight. The last calls: "
            "all_reduce #2 of group 0 (default_pg) at train.py:65 on all ranks."
        ],
    )


@pytest.mark.parametrize(
    "earlier",
    [None, moved((1,)), moved((), unknown=(1,)), moved((), chosen=False)],
    ids=["unknown", "one moved", "one may have moved", "not chosen"],
)
def test_ranks_moved_or_may_have_moved(earlier: Earlier | None) -> None:
    found = at_end({0: 2, 1: 2}, earlier=earlier)
    assert (found.verdict, bool(found.blind_spot)) == ("ok", True)


def test_no_entries_show_no_last_call() -> None:
    assert at_end({0: 0, 1: 0}, hung=True).blind_spot == ""


def test_files_written_long_after_the_last_call_are_a_hint(tmp_path: Path) -> None:
    folder = dumps(tmp_path, {rank: calls(1) for rank in range(2)})
    for file in folder.iterdir():
        os.utime(file, ns=(CREATED, CREATED + 60 * SECOND))
    diagnosis = examine(folder).diagnosis
    assert (diagnosis.verdict, diagnosis.notes[0]) == ("ok", diagnosis.blind_spot)
    assert diagnosis.blind_spot.endswith(
        "on each rank. Hint: the files were written 60.0 s after the last entry of each rank. If they are not copies, "
        "the job probably hangs."
    )


# Gaps.


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 3))
def test_hidden_operations_are_the_gaps(gaps: list[int], overwritten: int) -> None:
    numbers = [sum(gaps[: index + 1]) + index + 1 for index in range(len(gaps))]
    entries = calls(*numbers)
    for index, entry in enumerate(entries):
        entry["record_id"] = index + overwritten
    expected = sum(gaps[1:] if overwritten else gaps)
    assert count_unrecorded(recorded({0: entries}))[0] == expected


@pytest.mark.foreign
@pytest.mark.parametrize("phase", ["dumps_hang", "dumps_after_timeout"])
def test_monitored_barrier_is_not_recorded(phase: str) -> None:
    """Rank 6 did not call it: the dumps of all ranks end in the same call."""
    diagnosis = examine(shared(f"fr2/monitored/{phase}")).diagnosis
    assert (diagnosis.verdict, diagnosis.problems) == ("ok", [])
    assert diagnosis.notes[0] == (
        "If this job hangs, it does so after its last recorded calls: all_reduce #3 of group 0 (default_pg) at "
        f"record.py:49 on all ranks. {UNSEEN}"
    )
