"""Answers of NCCL's monitor: who launched less, who does not answer, and what one moment cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.dumps import dumps, healthy
from builders.monitors import TEXT, as_json, communicator
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.model import Category, Kind
from tracelink._model.errors import UnreadableError


def answers(folder: Path, *documents: bytes, hung: bool = False) -> Diagnosis:
    for number, document in enumerate(documents):
        (folder / f"ras_{number}").write_bytes(document)
    return diagnose(folder, hung=hung)


def outcomes(diagnosis: Diagnosis) -> list[tuple[object, ...]]:
    return [(one.kind, one.culprits, one.waiting, one.proven) for one in diagnosis.problems]


def test_one_answer_does_not_show_whether_the_job_runs(tmp_path: Path) -> None:
    found = answers(tmp_path, as_json(communicator([21, 21, 20, 21])))
    assert outcomes(found) == [(Kind.IN_FLIGHT, (2,), (0, 1, 3), False)]
    assert found.problems[0].message == (
        "Running or hung? AllReduce in communicator 0xae94 of 4 ranks: 3 ranks launched 21, 1 rank launched 20. "
        "Behind: Rank 2. The counts alone do not show whether the job still runs."
    )


@pytest.mark.parametrize("hung", [False, True])
def test_a_rank_that_is_behind_and_does_not_move(tmp_path: Path, hung: bool) -> None:
    one = communicator([21, 21, 20, 21])
    documents = [as_json(one)] if hung else [as_json(one), as_json(one, time="2026-11-19 14:05:00")]
    found = answers(tmp_path, *documents, hung=hung)
    assert outcomes(found) == [(Kind.NEVER_JOINED, (2,), (0, 1, 3), False)]
    assert (found.problems[0].sequence, found.problems[0].operation) == (21, "nccl:AllReduce")


def test_counts_that_grow(tmp_path: Path) -> None:
    found = answers(
        tmp_path,
        as_json(communicator([99, 99, 98]), time="2026-11-19 14:05:00"),
        as_json(communicator([21, 21, 20])),
    )
    assert outcomes(found) == [(Kind.IN_FLIGHT, (2,), (0, 1), False)]
    assert "ranks launched collectives between 2026-11-19 14:00:00 and 2026-11-19 14:05:00" in found.notes[1]


def test_equal_counts_are_no_all_clear(tmp_path: Path) -> None:
    found = answers(tmp_path, as_json(communicator([21, 21])))
    assert outcomes(found) == [(Kind.IN_FLIGHT, (), (), False)]
    assert answers(tmp_path, as_json(communicator([21, 21])), hung=True).verdict == "problem"


def test_most_ranks_behind_one_blame_nobody(tmp_path: Path) -> None:
    found = answers(tmp_path, as_json(communicator([21, 20, 20, 20])), hung=True)
    assert outcomes(found) == [(Kind.TIMED_OUT, (), (0,), False)]


def test_a_rank_that_waits_in_another_communicator_is_not_to_blame(tmp_path: Path) -> None:
    """Rank 2 is behind in the group of all ranks, because rank 3 did not come to the group of both."""
    world = communicator([21, 21, 20, 20, 21, 21])
    pair = communicator([9, 8], places=[2, 3], name="0xbb")
    found = answers(tmp_path, as_json(world, pair), hung=True)
    assert {one.culprits for one in found.problems if one.operation == "nccl:AllReduce"} == {(3,), ()}


def test_ranks_of_a_communicator_are_not_those_of_the_job(tmp_path: Path) -> None:
    """No communicator contains all processes."""
    one, other = communicator([5, 5, 4], places=[0, 2, 4]), communicator([5, 5], places=[1, 3], name="0xbb")
    found = answers(tmp_path, as_json(one, other), hung=True)
    assert outcomes(found) == [(Kind.TIMED_OUT, (), (), False)]
    assert "Behind: Rank 2 (within the communicator)." in found.problems[0].message


def test_a_rank_that_does_not_answer(tmp_path: Path) -> None:
    found = answers(tmp_path, as_json(communicator([21, 21, None])))
    assert outcomes(found) == [(Kind.IN_FLIGHT, (2,), (), False)]
    assert "did not answer NCCL's monitor" in found.problems[0].message


def test_a_dead_process(tmp_path: Path) -> None:
    found = answers(tmp_path, as_json(communicator([21, 20, None], dead=True)))
    assert outcomes(found)[0] == (Kind.ABSENT, (2,), (), False)
    assert found.problems[0].category is Category.PROCESS_GONE
    assert found.problems[0].message == "Rank 2 is dead, as NCCL's monitor says (process 102 on 10.0.0.1)."
    assert [problem.culprits for problem in found.problems[1:]] == [()]


def test_text(tmp_path: Path) -> None:
    found = answers(tmp_path, TEXT.encode())
    assert [(one.kind, one.culprits) for one in found.problems] == [
        (Kind.ABSENT, ()),
        (Kind.IN_FLIGHT, ()),
        (Kind.IN_FLIGHT, ()),
    ]
    assert "29 ranks launched 6,650, 2 ranks launched 6,649" in found.problems[2].message


def test_next_to_healthy_dumps_counts_are_a_note_and_a_dead_process_is_a_problem(tmp_path: Path) -> None:
    folder = dumps(tmp_path / "dumps", healthy(4))
    (tmp_path / "ras.json").write_bytes(as_json(communicator([21, 21, 20, 21])))
    fine = diagnose([folder, tmp_path / "ras.json"])
    assert fine.verdict == "ok"
    assert any(note.startswith("NCCL RAS: Running or hung?") for note in fine.notes)
    (tmp_path / "ras.json").write_bytes(as_json(communicator([21, 21, None, 21], dead=True)))
    assert outcomes(diagnose([folder, tmp_path / "ras.json"])) == [(Kind.ABSENT, (2,), (), False)]


def test_a_damaged_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="the status cannot be read"):
        answers(tmp_path, as_json(communicator([1]))[:300])
