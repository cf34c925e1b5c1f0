"""Logs of generated jobs with a known truth: no innocent rank is blamed, and no hang is an all-clear."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders.watchdog_job import journal_of_dumps, logs_of
from generators.queued_jobs import Dumping, Queued, queued_job
from generators.recorded_jobs import Fault, Plan, Snapshot, job
from generators.recorded_plan import KINDS
from tracelink import diagnose

QUEUED = (
    *("crossed", "device_stuck", "extra", "host_stuck", "killed", "network_stuck", "skip_dp", "skip_tp"),
    *("skip_world", "wrong_operation", "wrong_size"),
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
    for rank, lines in logs_of(journal_of_dumps(dumps), all_groups=all_groups).items():
        (folder / f"rank_{rank}.log").write_text("\n".join([*lines, ""]))
    found = diagnose(folder, jobs=1)
    assert found.verdict == "problem"
    return {rank for problem in found.problems for rank in problem.culprits}


@pytest.mark.parametrize("fault", QUEUED)
@pytest.mark.parametrize("all_groups", [False, True])
def test_programs_that_run_ahead_of_their_devices(tmp_path: Path, fault: str, all_groups: bool) -> None:
    made = queued_job(Queued(world=8, tensor=2, stages=1, seed=1), fault, Dumping("timed_out"))
    truth = made.truth
    assert blamed(tmp_path, made.dumps, all_groups=all_groups) <= {
        *truth.culprits,
        *truth.tied,
        *truth.absent,
    }


@pytest.mark.parametrize("fault", RECORDED)
@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("all_groups", [False, True])
def test_programs_that_wait(tmp_path: Path, fault: str, kind: str, all_groups: bool) -> None:
    made = job(Plan(kind=kind, world=8, tensor=2, seed=2), Fault(fault), Snapshot("timed_out"))
    assert made.truth
    assert blamed(tmp_path, made.dumps, all_groups=all_groups) <= set(made.truth.culprits)


@pytest.mark.parametrize(
    ("fault", "seed"),
    [("host_stuck", 0), ("host_stuck", 1), ("skip_world", 0), ("wrong_operation", 3), ("wrong_size", 0)],
)
def test_ranks_whose_own_lines_show_it_are_named(tmp_path: Path, fault: str, seed: int) -> None:
    made = queued_job(Queued(world=8, tensor=2, stages=1, seed=seed), fault, Dumping("timed_out"))
    assert blamed(tmp_path, made.dumps, all_groups=True) == set(made.truth.culprits)
