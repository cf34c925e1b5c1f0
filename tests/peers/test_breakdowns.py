"""Breakdowns next to those of HTA and TraceLens: equal where definitions are; docs/answers.md says where they differ.

Both need an environment of their own; name its Python:

    python -m venv VENV && VENV/bin/pip install HolisticTraceAnalysis 'pandas<3' tqdm orjson
    VENV/bin/pip install --no-deps git+https://github.com/AMD-AGI/TraceLens
    TRACELINK_HTA_PYTHON=VENV/bin/python TRACELINK_TRACELENS_PYTHON=VENV/bin/python pytest -m peer tests/peers
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tracelink
from builders.data import shared
from tracelink._model.columns import MICROSECOND
from tracelink._time.model.results import Step

pytestmark = [pytest.mark.peer, pytest.mark.foreign]

HTA = """
import json, logging, os, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
path = sys.argv[1]
analysis = TraceAnalysis(
    trace_files={0: path}, trace_dir=os.path.dirname(path), include_last_profiler_step=True
)
parts = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
overlap = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")[0]
_, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=100000)
sums = dict(zip(kernels["name"], kernels["sum (us)"]))
with open(sys.argv[2], "w") as output:
    json.dump({**parts, **overlap, "kernels": sums}, output)
"""

TRACELENS = """
import gzip, json, sys
from TraceLens.TreePerf.gpu_event_analyser import PytorchGPUEventAnalyser
with gzip.open(sys.argv[1]) as source:
    events = json.load(source)["traceEvents"]
events = [{**event, "UID": number} for number, event in enumerate(events) if event.get("ph") == "X"]
with open(sys.argv[2], "w") as output:
    json.dump(PytorchGPUEventAnalyser(events).compute_metrics(), output)
"""


def answer(variable: str, module: str, program: str, path: Path, folder: Path) -> dict[str, Any]:
    """What a program says of a profile, in the environment that the variable names."""
    python = os.environ.get(variable, sys.executable)
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no package {module}; name one that has it in {variable}")
    output = folder / "answer.json"
    done = subprocess.run(
        [python, "-c", program, path, output], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(output.read_bytes())
    return found


def recording(path: Path) -> Step:
    """The breakdown from the first to the last work."""
    (rank,) = tracelink.summary(path).ranks
    assert rank.recording
    return rank.recording


@pytest.mark.parametrize("name", ["resnet50_2021", "pair_rank0", "pair_rank1"])
def test_breakdown_and_kernels_are_those_of_hta(name: str, tmp_path: Path) -> None:
    """Of profiles with whole microseconds, in which each work has its launch."""
    path = shared(f"kineto/{name}.json.gz")
    theirs = answer("TRACELINK_HTA_PYTHON", "hta", HTA, path, tmp_path)
    summary, step = tracelink.summary(path), recording(path)
    assert (
        theirs["kernel_time(us)"] * MICROSECOND,
        theirs["compute_time(us)"] * MICROSECOND,
        theirs["non_compute_time(us)"] * MICROSECOND,
        theirs["idle_time(us)"] * MICROSECOND,
    ) == (
        step.duration_ns,
        step.compute_ns,
        step.exposed_communication_ns + step.exposed_copy_ns,
        step.idle_ns,
    )
    if step.communication_ns:
        hidden = 1 - step.exposed_communication_ns / step.communication_ns
        assert theirs["comp_comm_overlap_pctg"] == pytest.approx(100 * hidden, abs=0.005)
    own = {kernel.name: kernel.total_ns for kernel in summary.kernels}
    theirs_ns = {kernel: sum_us * MICROSECOND for kernel, sum_us in theirs["kernels"].items()}
    assert {kernel: ns for kernel, ns in theirs_ns.items() if kernel in own} == own


@pytest.mark.parametrize(
    "name", ["nccl_data", "h100_qwen", "mi300_resnet", "cuda_graphs", "pair_rank0", "hta_overlay"]
)
def test_idle_and_communication_are_those_of_tracelens(name: str, tmp_path: Path) -> None:
    """TraceLens counts memsets as computation: then compute and exposed copies differ, and their sum does not."""
    path = shared(f"kineto/{name}.json.gz")
    theirs = answer("TRACELINK_TRACELENS_PYTHON", "TraceLens", TRACELENS, path, tmp_path)
    step = recording(path)
    own = {
        "total_time": step.duration_ns,
        "idle_time": step.idle_ns,
        "busy_time": step.duration_ns - step.idle_ns,
        "total_comm_time": step.communication_ns,
    }
    error = 0.1 * MICROSECOND  # their times are floating-point numbers of microseconds
    assert {name: theirs[name] * MICROSECOND for name in own} == pytest.approx(own, abs=error)
