"""Logs of generated jobs with a known truth: no innocent rank is blamed, and no hang is an all-clear."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.dumps import journal
from builders.monitors import logs_of
from generators.recorded_jobs import Fault, Plan, RecordedJob, Snapshot, job
from generators.recorded_plan import DATA, KINDS, TENSOR, WORLD
from tracelink import diagnose

QUEUED = (
    *map(Fault, ("deadlock", "not_started", "repeated", "stuck", "killed", "timed_out")),
    *map(Fault, ("operation_mismatch", "size_mismatch")),
    *(Fault("left_out", role=role) for role in (DATA, TENSOR, WORLD)),
)
RECORDED = (
    "deadlock",
    "died",
    "extra",
    "lagging",
    "never_joined",
    "operation_mismatch",
    "size_mismatch",
    "skipped",
)


def blamed(folder: Path, dumps: Mapping[int, Any], *, all_groups: bool) -> set[int]:
    for rank, lines in logs_of(journal(dumps), all_groups=all_groups).items():
        (folder / f"rank_{rank}.log").write_text("\n".join([*lines, ""]))
    found = diagnose(folder, jobs=1)
    assert found.verdict == "problem"
    return {rank for problem in found.problems for rank in problem.culprits}


def queued_job(fault: Fault, seed: int = 0) -> RecordedJob:
    how = {"microbatches": 3, "run_ahead": 64, "queued": True, "settles": False}
    return job(Plan(kind="forward", seed=seed, **how), fault, Snapshot("timed_out"))


@pytest.mark.parametrize("fault", QUEUED, ids=str)
@pytest.mark.parametrize("all_groups", [False, True])
def test_programs_that_run_ahead_of_their_devices(tmp_path: Path, fault: Fault, all_groups: bool) -> None:
    made = queued_job(fault, seed=1)
    assert made.truth
    assert blamed(tmp_path, made.dumps, all_groups=all_groups) <= made.truth.suspects


@pytest.mark.parametrize("fault", RECORDED)
@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("all_groups", [False, True])
def test_programs_that_wait(tmp_path: Path, fault: str, kind: str, all_groups: bool) -> None:
    made = job(Plan(kind=kind, world=8, tensor=2, seed=2), Fault(fault), Snapshot("timed_out"))
    assert made.truth
    assert blamed(tmp_path, made.dumps, all_groups=all_groups) <= set(made.truth.culprits)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("stuck", rank=0, role=TENSOR, number=17),
        Fault("stuck", rank=6, role=TENSOR, number=10),
        Fault("left_out", rank=6, role=WORLD, number=3),
        Fault("operation_mismatch", rank=1, role=WORLD, number=2),
        Fault("size_mismatch", rank=2, role=DATA, number=3),
    ],
    ids=str,
)
def test_ranks_whose_own_lines_show_it_are_named(tmp_path: Path, fault: Fault) -> None:
    made = queued_job(fault)
    assert made.truth
    assert blamed(tmp_path, made.dumps, all_groups=True) == set(made.truth.culprits)
