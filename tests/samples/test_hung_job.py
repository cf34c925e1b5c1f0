"""The sample of a hang is what its generator writes, and its truth is what a diagnosis finds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from generators.jobs import hung_job, truth_file
from tracelink import diagnose, samples

SAMPLE = samples.path("hung_job")
TRUTH: dict[str, Any] = json.loads(truth_file(SAMPLE).read_text("utf-8"))
TESTS = Path(__file__).parents[1]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_sample_is_what_the_generator_writes(tmp_path: Path) -> None:
    hung_job(tmp_path)
    assert files(tmp_path) == files(SAMPLE)
    assert truth_file(tmp_path).read_bytes() == truth_file(SAMPLE).read_bytes()


def test_the_diagnosis_is_the_truth() -> None:
    (problem,) = diagnose(SAMPLE).problems
    assert {
        "kind": problem.kind.value,
        "group": problem.group,
        "sequence": problem.sequence,
        "culprits": list(problem.culprits),
    } == {name: TRUTH[name] for name in ("kind", "group", "sequence", "culprits")}
    assert set(TRUTH["waiting"]) <= set(problem.waiting)


@pytest.mark.parametrize("fault", ["skipped", "deadlock"])
def test_other_faults_are_asked_for_by_name(tmp_path: Path, fault: str) -> None:
    command = [sys.executable, "-m", "generators", "hung_job", str(tmp_path), "--fault", fault]
    subprocess.run(command, cwd=TESTS, check=True, timeout=60)
    assert json.loads(truth_file(tmp_path).read_text("utf-8"))["fault"] == fault
    assert len(list((tmp_path / "dumps").iterdir())) == 8
