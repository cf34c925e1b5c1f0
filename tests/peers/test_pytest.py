"""The example of docs/record.md with real torch: a benchmark in pytest is recorded, and gives facts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.peer

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```python\n(import pytest\n.*?)```", re.DOTALL)
HARNESS = """
import json, pytest

class Benchmark:
    extra_info = {}
    def __call__(self, function): return function()

@pytest.fixture
def benchmark():
    yield Benchmark()
    with open("facts.json", "w") as text:
        json.dump(Benchmark.extra_info, text)
"""
"""What pytest-benchmark has, without it."""


def test_the_example_records_a_benchmark(tmp_path: Path) -> None:
    (example,) = EXAMPLE.findall((ROOT / "docs" / "record.md").read_text())
    (tmp_path / "conftest.py").write_text(HARNESS)
    (tmp_path / "test_example.py").write_text(example)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tracelink.pytest", "--tracelink-traces", "kept"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    facts = json.loads((tmp_path / "facts.json").read_text())["tracelink"]
    assert facts["problems"] == []
    assert [(step["rank"], step["step"]) for step in facts["steps"]] == [(0, 2), (0, 3), (0, 4)]
    assert all(0 < step["seconds"] < 60 for step in facts["steps"])
    assert facts["link_rates"]["same.et_kineto"] == 1.0
    assert facts["collectives"] == []
    (kept,) = (tmp_path / "kept").iterdir()
    assert str(kept).endswith(facts["traces"])
    assert (kept / "kineto_0.json.gz").exists()
