"""A job recorded with the torch that is installed, merged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peers.merged_case import Case, Merged, merge, read_json

pytest.importorskip("torch")
pytestmark = pytest.mark.peer

RANKS = 2
TESTS = Path(__file__).parents[1]
WITHOUT_OPERATOR = "[pytorch|profiler|execution_trace|"
"""Nodes that stand for no operator: roots. The list of groups is in the profile, which starts before the observer."""


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Merged:
    folder = tmp_path_factory.mktemp("job")
    recorder = [sys.executable, "-m", "generators", "cpu_job", str(folder), "--ranks", str(RANKS)]
    run = subprocess.run(recorder, cwd=TESTS, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    output = tmp_path_factory.mktemp("merged") / "merged.json"
    return merge(Case("job", folder, "kineto_*.json.gz"), output)


def nodes_of_operators(execution_trace: Path) -> list[dict[str, Any]]:
    nodes = read_json(execution_trace)["nodes"]
    return [node for node in nodes if not node["name"].startswith(WITHOUT_OPERATOR)]


def links(merged: Merged, rank: int, relation: str) -> dict[str, int]:
    (found,) = (entry for entry in merged.result["ranks"] if entry["rank"] == rank)
    linked: dict[str, int] = found["links"][relation]
    return linked


@pytest.mark.parametrize("rank", range(RANKS))
def test_every_node_of_an_operator_is_linked(merged: Merged, rank: int) -> None:
    nodes = nodes_of_operators(merged.case.inputs / f"et_{rank}.json.gz")
    assert nodes
    assert links(merged, rank, "same.et_kineto")["linked"] == len(nodes)


@pytest.mark.parametrize("rank", range(RANKS))
def test_every_backward_arrow_of_the_profile_is_reproduced(merged: Merged, rank: int) -> None:
    (profile,) = (path for path in merged.case.profile_files() if path.name == f"kineto_{rank}.json.gz")
    arrows = sum(
        event.get("ph") == "s" and event.get("cat") == "fwdbwd" for event in read_json(profile)["traceEvents"]
    )
    assert arrows
    assert links(merged, rank, "backward_of")["linked"] >= arrows


@pytest.mark.parametrize("rank", range(RANKS))
def test_the_recorder_is_linked_within_the_profile(merged: Merged, rank: int) -> None:
    found = links(merged, rank, "same.recorder_kineto")
    assert found["linked"] > 0
    assert found["linked"] == found["candidates"]
