"""Merged profiles in the hands of TraceLens: its tree finds the same kernels as in the original.

Its package needs more than its tree does: give it an environment of its own and name that one's Python.

    python -m venv VENV && VENV/bin/pip install pandas tqdm orjson pyyaml openpyxl tabulate matplotlib
    VENV/bin/pip install --no-deps git+https://github.com/AMD-AGI/TraceLens
    TRACELINK_TRACELENS_PYTHON=VENV/bin/python pytest -m peer tests/peers/test_tracelens.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders.data import foreign, shared
from tracelink import merge, samples

pytestmark = pytest.mark.peer

READ = """
import json, sys
from TraceLens import TreePerfAnalyzer

analyzer = TreePerfAnalyzer.from_file(sys.argv[1])
events = analyzer.tree.events
calls = [event for event in events if event.get("gpu_events")]
calls = [event for event in calls if event.get("cat") in ("cuda_runtime", "cuda_driver")]
named = {event["UID"]: event["name"] for event in events}
launched = [
    [call["name"], call["args"]["correlation"], sorted(named[uid] for uid in call["gpu_events"])] for call in calls
]
with open(sys.argv[2], "w") as output:
    json.dump({"launched": sorted(launched), "launchers": len(analyzer.get_kernel_launchers())}, output)
"""


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get("TRACELINK_TRACELENS_PYTHON", sys.executable)
    command = [found, "-c", "from TraceLens import TreePerfAnalyzer"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"{found} has no package TraceLens; name one that has it in TRACELINK_TRACELENS_PYTHON")
    return found


@pytest.fixture(
    params=[
        "gpu_pair",
        *foreign("h100_qwen", "nccl_data", "mi300_resnet", "cuda_graphs", "hta_overlay"),
    ]
)
def profile(request: pytest.FixtureRequest) -> Path:
    if request.param in samples.names():
        return samples.path(request.param) / "kineto_0.json.gz"
    return shared(f"kineto/{request.param}.json.gz")


def tree(python: str, path: Path, folder: Path) -> dict[str, Any]:
    """What TraceLens finds in a profile: the work that each call launched, and the number of launchers."""
    output = folder / "tree.json"
    done = subprocess.run(
        [python, "-c", READ, path, output], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(output.read_bytes())
    return found


def carried_by_slices(path: Path) -> set[int]:
    """Correlations of launches at slices that start together with others: their arrows are no events."""
    events = json.loads(path.read_bytes())["traceEvents"]
    carrying = [event["args"] for event in events if "bind_id" in event]
    return {arguments["correlation"] for arguments in carrying if "correlation" in arguments}


def test_the_tree_of_a_merged_rank_has_the_kernels_of_the_original(
    python: str, profile: Path, tmp_path: Path
) -> None:
    merged = tmp_path / "merged.json"
    merge(kineto=profile, output=merged)
    original, written = tree(python, profile, tmp_path), tree(python, merged, tmp_path)
    carried = carried_by_slices(merged)
    expected = [entry for entry in original["launched"] if entry[1] not in carried]
    assert expected
    assert len(carried) < len(expected) / 1000
    assert [entry for entry in expected if entry not in written["launched"]] == []
    assert written["launchers"] == original["launchers"]
