"""Jobs under torchrun, recorded by `tracelink.capture` and `tracelink run`: what they leave, and what is made of it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tracelink
from peers.merged_case import read_json

pytest.importorskip("torch")
pytestmark = pytest.mark.peer

TESTS = Path(__file__).parents[1]
ROOTS = "[pytorch|profiler|execution_trace|"
"""Nodes that stand for a process or a thread."""
WITHOUT_CAPTURE = """
import torch, torch.distributed as dist
from torch import nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
network = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
for _ in range(6):
    network(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Job:
    """A job that ran."""

    folder: Path
    code: int
    output: str

    def capture(self, rank: int) -> dict[str, Any]:
        """The capture file of a rank."""
        document: dict[str, Any] = json.loads((self.folder / f"capture_{rank}.json").read_text())
        return document

    def names(self) -> list[str]:
        """The files, except for those with random names."""
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.parent.name != "compile")
        return sorted(str(path.relative_to(self.folder)) for path in files)

    def unlinked(self, rank: int) -> list[str]:
        """The nodes of the execution trace whose operators are not in a profile, under the same id and name."""
        profiled = {
            (event["args"]["Record function id"], event["name"])
            for path in self.folder.rglob(f"kineto_{rank}.json.gz")
            for event in read_json(path)["traceEvents"]
            if "Record function id" in event.get("args", {})
        }
        nodes = read_json(self.folder / f"et_{rank}.json.gz")["nodes"]
        operators = [node for node in nodes if not node["name"].startswith(ROOTS)]
        assert len(operators) > 100
        return [node["name"] for node in operators if (handle_of(node), node["name"]) not in profiled]


def handle_of(node: dict[str, Any]) -> int:
    return next(int(attribute["value"]) for attribute in node["attrs"] if attribute["name"] == "rf_id")


def torchrun(ranks: int) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def ran(folder: Path, words: list[str], timeout: float = 240) -> Job:
    variables = {**os.environ, "PYTHONPATH": str(TESTS), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        words, env=variables, cwd=folder.parent, capture_output=True, text=True, timeout=timeout, check=False
    )
    return Job(folder, result.returncode, result.stdout + result.stderr)


def trained(folder: Path, ranks: int, *options: str) -> Job:
    return ran(folder, [*torchrun(ranks), "-m", "generators.captured_training", str(folder), *options])


@pytest.mark.parametrize(("ranks", "mode"), [(2, "fine"), (4, "fine"), (2, "compile")])
def test_every_operator_of_a_captured_job_is_linked(tmp_path: Path, ranks: int, mode: str) -> None:
    job = trained(tmp_path / "traces", ranks, "--mode", mode)
    assert job.code == 0, job.output
    assert {rank: job.unlinked(rank) for rank in range(ranks)} == {rank: [] for rank in range(ranks)}
    for rank in range(ranks):
        document = job.capture(rank)
        assert (document["outcome"], document["steps"], document["troubles"]) == ("finished", 9, [])
        assert [group["description"] for group in document["groups"]] == ["default_pg", "tensor_parallel"]
        assert len(document["round_trips"]) == (4 if rank else 0)
    each = [f"{name}_{rank}.json" for rank in range(ranks) for name in ("et", "kineto")]
    expected = [f"{name}.gz" for name in each] + [f"capture_{rank}.json" for rank in range(ranks)]
    dumps = [f"fr/comm_lib_trace_rank_{rank}" for rank in range(ranks)]
    assert job.names() == sorted([*expected, *dumps, "metrics_0.csv"])
    assert len(list((job.folder / "compile").glob("*_rank_*"))) == (ranks if mode == "compile" else 0)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = trained(tmp_path_factory.mktemp("windows") / "traces", 2, "--steps", "0,2-3,6-7")
    assert job.code == 0, job.output
    return job


def test_all_windows_are_linked_with_one_execution_trace(windows: Job) -> None:
    assert [windows.unlinked(rank) for rank in range(2)] == [[], []]
    steps = {
        event["name"]
        for path in windows.folder.rglob("kineto_1.json.gz")
        for event in read_json(path)["traceEvents"]
        if event["name"].startswith("ProfilerStep#")
    }
    assert steps == {f"ProfilerStep#{step}" for step in (0, 2, 3, 6, 7)}


def test_commands_guess_nothing_on_a_captured_job(windows: Job) -> None:
    inspection = tracelink.inspect([str(windows.folder)])
    guesses = {"assumed_rank", "unknown_rank", "missing_ranks", "clock_unbounded"}
    assert {finding.reason for finding in inspection.findings} & guesses == set()
    graph = tracelink.load([str(windows.folder)])
    assert {rank.world_size for rank in graph.ranks} == {2}
    assert {finding.reason for finding in graph.findings} & guesses == set()


def test_round_trips_bound_clocks_to_a_millisecond(windows: Job) -> None:
    clock = tracelink.clocks([str(windows.folder)], clock="collectives").by_rank[1]
    assert clock.uncertainty_ns is not None
    assert clock.uncertainty_ns < 2_000_000


def test_a_hang_is_dumped_and_diagnose_names_rank_and_line(tmp_path: Path) -> None:
    job = trained(tmp_path / "traces", 2, "--mode", "hang", "--watchdog", "4")
    assert job.code != 0
    for rank in range(2):
        assert job.capture(rank)["dumps"][0]["reason"] == "watchdog"
    diagnosis = tracelink.diagnose([str(job.folder)])
    problem = diagnosis.problems[0]
    assert list(problem.culprits) == [1]
    (stack,) = problem.stacks
    assert [(frame.name, Path(frame.filename).name) for frame in stack.frames][:2] == [
        ("fault", "captured_training.py"),
        ("main", "captured_training.py"),
    ]


def test_an_exception_passes_through_and_all_ranks_are_dumped(tmp_path: Path) -> None:
    job = trained(tmp_path / "traces", 2, "--mode", "exception")
    assert job.code != 0
    assert "UserError: of the user" in job.output
    assert job.capture(1)["outcome"] == "UserError"
    assert [(tmp_path / "traces" / f"fr/comm_lib_trace_rank_{rank}").exists() for rank in range(2)] == [
        True,
        True,
    ]
    assert list(tracelink.diagnose([str(job.folder)]).problems[0].culprits) == [1]


def test_a_killed_rank_leaves_whole_files(tmp_path: Path) -> None:
    job = trained(tmp_path / "traces", 2, "--mode", "kill", "--steps", "1-2,6-8")
    assert job.code != 0
    assert job.capture(1)["outcome"] == "running"
    for path in sorted(job.folder.rglob("[!.]*.json*")):
        content = path.read_bytes()
        json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    assert (job.folder / "steps_1-2" / "kineto_1.json.gz").exists()
    assert not (job.folder / "steps_6-8" / "kineto_1.json.gz").exists()


def test_run_records_a_program_that_does_not_know_of_it(tmp_path: Path) -> None:
    program, folder = tmp_path / "train.py", tmp_path / "traces"
    program.write_text(WITHOUT_CAPTURE)
    command = [sys.executable, "-m", "tracelink", "run", "-o", str(folder), "--steps", "2-3", "--"]
    job = ran(folder, [*command, *torchrun(2), str(program)])
    assert job.code == 0, job.output
    assert f"Recorded ranks 0-1 in {folder}" in job.output
    assert [job.unlinked(rank) for rank in range(2)] == [[], []]
    graph = tracelink.load([str(folder)])
    assert {finding.reason for finding in graph.findings} & {"missing_parent", "unknown_parent"} == set()
