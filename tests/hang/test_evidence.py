"""Sources that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builders.dumps import dumps, hang, healthy, steps
from builders.monitors import LOADS, MAIN, gave_up, hung, py_spy, status
from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.model import Category, Kind
from tracelink._model.records import Frame

REDUCES = (Frame("all_reduce", "/opt/site-packages/torch/distributed/distributed_c10d.py", 2806), *MAIN)
SYNCHRONIZES = (Frame("synchronize", "torch/cuda/__init__.py", 1040), *MAIN)


def diagnosis(folder: Path, files: Mapping[str, str], healthy_job: bool = False) -> Diagnosis:
    for name, text in files.items():
        (folder / name).write_text(text)
    return diagnose([dumps(folder / "dumps", healthy(4) if healthy_job else hang(4)), folder])


def conflicts(found: Diagnosis) -> list[tuple[tuple[int, ...], str]]:
    assert found.witnesses
    return [(one.ranks, one.message) for one in found.witnesses.conflicts]


def stacks(**frames: tuple[Frame, ...]) -> dict[str, str]:
    return {f"pyspy_{rank}.txt": py_spy(own) for rank, own in frames.items()}


def test_stacks_that_fit_are_no_conflict(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, stacks(rank_0=REDUCES, rank_1=SYNCHRONIZES, rank_2=LOADS, rank_3=REDUCES))
    assert conflicts(found) == []
    assert found.witnesses
    assert [stack.ranks for stack in found.witnesses.stacks] == [(1,), (2,), (0, 3)]


def test_a_culprit_that_is_in_a_call(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, stacks(rank_2=REDUCES))
    assert conflicts(found) == [
        (
            (2,),
            "Rank 2 did not join all_reduce #3 of group 0 (default_pg), and its stack is in all_reduce "
            "(distributed_c10d.py:2806): what was recorded is older than the stack, or this is another call.",
        )
    ]
    assert found.witnesses
    assert found.witnesses.conflicts[0].sources == (
        str(tmp_path / "dumps" / "comm_lib_trace_rank_2"),
        str(tmp_path / "pyspy_rank_2.txt"),
    )


def test_logs_that_agree_with_dumps(tmp_path: Path) -> None:
    lines = {rank: "\n".join(own) for rank, own in hung(4, 2, sequence=3).items()}
    found = diagnosis(tmp_path, {f"rank_{rank}.log": text for rank, text in lines.items()})
    assert conflicts(found) == []
    assert [problem.culprits for problem in found.problems] == [(2,)]


def test_a_log_that_is_newer_than_the_dump(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, {f"rank_{rank}.log": "\n".join(gave_up(rank, 9)) for rank in (0, 1)})
    assert conflicts(found) == [
        (
            (0, 1),
            "Ranks 0 and 1: the dumps end at #3 of group 0 (default_pg), the logs say that #9 was enqueued. "
            "The dump is older than the log, or they are of different runs.",
        )
    ]


def test_a_call_that_was_recorded_and_did_not_return(tmp_path: Path) -> None:
    """A dump contains a call from its start, the log counts it from its end."""
    found = diagnosis(tmp_path, {"rank_0.log": status(0, 2, 2)})
    assert conflicts(found) == []


def test_healthy_dumps_are_no_all_clear_if_a_log_reports_a_timeout(tmp_path: Path) -> None:
    lines = {rank: "\n".join(own) for rank, own in hung(4, 2, sequence=3).items()}
    files = {f"rank_{rank}.log": text for rank, text in lines.items()}
    found = diagnosis(tmp_path, files, healthy_job=True)
    assert (found.verdict, [problem.culprits for problem in found.problems]) == ("problem", [(2,)])


def test_a_log_that_ends_before_healthy_dumps_may_be_of_a_later_run(tmp_path: Path) -> None:
    for rank, lines in hung(4, 2, sequence=3).items():
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines))
    entries = {rank: steps(rank, 10)[:9] for rank in range(4)}
    found = diagnose([dumps(tmp_path / "dumps", entries), tmp_path])
    assert found.verdict == "problem"
    end = "The log is older than the dump, or they are of different runs."
    assert [message for _, message in conflicts(found)] == [
        f"Rank 2: the dump ends at #9 of group 0 (default_pg), the log says that #2 was enqueued. {end}",
        f"Ranks 0-1, 3: the dumps end at #9 of group 0 (default_pg), the logs say that #3 was enqueued. {end}",
    ]


# Ranks whose dumps are missing


def some_dumps(folder: Path, logs: Mapping[int, list[str]]) -> Diagnosis:
    """Dumps of ranks 0 and 1 of 4; rank 2 did not come."""
    entries = hang(4)
    for rank, lines in logs.items():
        (folder / f"rank_{rank}.log").write_text("\n".join(lines))
    return diagnose([dumps(folder / "dumps", {rank: entries[rank] for rank in (0, 1)}, world=4), folder])


def test_a_log_proves_which_rank_without_a_dump_is_behind(tmp_path: Path) -> None:
    (problem,) = some_dumps(tmp_path, hung(4, 2, sequence=3)).problems
    assert (problem.kind, problem.culprits, problem.waiting, problem.proven) == (
        Kind.NEVER_JOINED,
        (2,),
        (0, 1, 3),
        True,
    )
    assert problem.category is Category.NOT_REACHED
    assert problem.message.endswith("The log shows it; its dump is missing.")
    assert [evidence.rank for evidence in problem.evidence] == [0]


def test_a_log_clears_a_rank_without_a_dump(tmp_path: Path) -> None:
    logs = hung(4, 2, sequence=3)
    del logs[2]
    (problem,) = some_dumps(tmp_path, logs).problems
    assert (problem.culprits, problem.proven) == ((2,), False)
    assert problem.message.endswith(" By its log, rank 3 had joined #3.")


def test_logs_of_another_run_clear_nobody(tmp_path: Path) -> None:
    (problem,) = some_dumps(tmp_path, {rank: gave_up(rank, 900) for rank in (0, 1, 3)}).problems
    assert problem.culprits == (2, 3)


def test_logs_without_dumps_are_compared_with_stacks(tmp_path: Path) -> None:
    for rank, own in hung(4, 2).items():
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(own))
    for name, text in stacks(rank_2=REDUCES).items():
        (tmp_path / name).write_text(text)
    found = diagnose(tmp_path)
    assert [ranks for ranks, _ in conflicts(found)] == [(2,)]
    assert [stack.rank for stack in found.problems[0].stacks] == [2]
