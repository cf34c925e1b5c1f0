"""Jobs recorded with the torch that is installed: a rank compiles while others wait, or hangs after that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracelink import Diagnosis, diagnose
from tracelink._hang.facts.model import Category, Kind

pytest.importorskip("torch")
pytestmark = pytest.mark.peer

TESTS = Path(__file__).parents[1]
RANKS = 3


def diagnosis(folder: Path, *options: str) -> Diagnosis:
    recorder = [sys.executable, "-m", "generators", "compiling_hang", str(folder), *options]
    run = subprocess.run(recorder, cwd=TESTS, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    return diagnose([folder / "dumps", folder / "traces"])


def test_a_rank_that_compiles_again(tmp_path: Path) -> None:
    (problem,) = diagnosis(tmp_path / "job").problems
    assert (problem.kind, problem.category, problem.culprits) == (
        Kind.IN_FLIGHT,
        Category.COMPILING,
        (RANKS - 1,),
    )
    (shown,) = problem.compiling
    assert (shown.id, shown.function, shown.open, shown.cold) == ("0/1", "train_step", True, False)
    assert shown.guard == "length == 2"
    assert shown.guard_frame is not None
    assert shown.guard_frame.name == "train_step"


def test_a_rank_that_hangs_after_its_compilation(tmp_path: Path) -> None:
    (problem,) = diagnosis(tmp_path / "job", "--then-hang").problems
    assert (problem.kind, problem.category, problem.culprits) == (
        Kind.IN_FLIGHT,
        Category.IN_FLIGHT,
        (RANKS - 1,),
    )
