"""What a job costs: each runs in a process of its own, and jobs that are compared take turns.

Processor time is that of the process and of its children. Memory has three numbers, for no single one
is exact: `peak_mb` is the most that the process had resident (VmHWM, which begins anew when a program
starts), `children_peak_mb` the most of its largest child (a forked child's share of its parent counts
again), and `tree_peak_mb` the most of all together. Without children that is `peak_mb`; with children
it is sampled in a run that is not timed, as the sum of proportional set sizes, so shared pages count once.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

JOBS = Path(__file__).with_name("jobs.py")
SAMPLING_SECONDS = 0.01
LONGEST_SECONDS = 1800


class JobFailed(Exception):  # noqa: N818  reads better where it is caught
    """A job that did not end as it should, with what it said last."""


@dataclass(frozen=True, slots=True)
class Job:
    """A function of jobs.py with its arguments, and who runs it."""

    label: str
    function: str
    arguments: Sequence[object]
    python: str = sys.executable

    @property
    def command(self) -> list[str]:
        """What to start."""
        return [self.python, str(JOBS), self.function, *map(str, self.arguments)]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a job took; `details` is what it found."""

    cpu_s: float
    wall_s: float = 0.0
    peak_mb: float = 0.0
    children_peak_mb: float = 0.0
    tree_peak_mb: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)


Pick = Callable[[Cost], float]


def alternately(jobs: Sequence[Job], repeats: int) -> list[list[Cost]]:
    """The costs of each job: one run of each, then the next round."""
    rounds = [[run(job) for job in jobs] for _ in range(repeats)]
    return [
        with_tree_peak(job, list(costs)) for job, costs in zip(jobs, zip(*rounds, strict=True), strict=True)
    ]


def run(job: Job) -> Cost:
    """One run, as the job tells."""
    return as_told(output_of(job.command))


def as_told(output: str) -> Cost:
    """What a job printed last."""
    told = json.loads(output.splitlines()[-1])
    numbers = {name: told.pop(name) for name in ("cpu_s", "wall_s", "peak_mb", "children_peak_mb")}
    return Cost(**numbers, tree_peak_mb=numbers["peak_mb"], details=told)


def output_of(command: Sequence[str]) -> str:
    """What a command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise JobFailed(f"still running after {LONGEST_SECONDS} s") from error
    check(done.returncode, done.stdout, done.stderr)
    return done.stdout


def check(exit_code: int, output: str, errors: str) -> None:
    """A job that failed or printed nothing did not end as it should."""
    if exit_code or not output.strip():
        said = errors.strip().splitlines() or ["nothing said"]
        raise JobFailed(f"exit code {exit_code}: {said[-1]}")


def with_tree_peak(job: Job, costs: list[Cost]) -> list[Cost]:
    """Of a job that has children, the same costs with the memory of all its processes."""
    if not any(cost.children_peak_mb for cost in costs):
        return costs
    sampled = tree_peak(job.command)
    return [replace(cost, tree_peak_mb=max(sampled, cost.peak_mb)) for cost in costs]


def tree_peak(command: Sequence[str]) -> float:
    """The most megabytes that a command and its children have at once, in one more run of it."""
    return sampled_output(command)[1]


def sampled(job: Job) -> Cost:
    """One run of which memory is sampled while it is timed: for jobs too long to be run once more."""
    output, peak = sampled_output(job.command)
    cost = as_told(output)
    return replace(cost, tree_peak_mb=max(peak, cost.peak_mb))


def sampled_output(command: Sequence[str]) -> tuple[str, float]:
    """What a command prints, and the most megabytes that it and its children have at once."""
    peak = 0.0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        try:
            while process.poll() is None:
                peak = max(peak, sum(proportional_megabytes(pid) for pid in family(process.pid)))
                time.sleep(SAMPLING_SECONDS)
        finally:
            process.kill()
            process.wait()
        texts = []
        for file in (output, errors):
            file.seek(0)
            texts.append(file.read())
    check(process.returncode, *texts)
    return texts[0], peak


def family(pid: int) -> list[int]:
    """A process, its children and theirs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in family(int(child)))]


def proportional_megabytes(pid: int) -> float:
    """The proportional set size; none of a process that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def whole_process(command: Sequence[str]) -> Cost:
    """A command from its start to its end, the interpreter's own start included."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise JobFailed(f"exit code {process.returncode}: {said.strip().splitlines()[-1:]}")
    return Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - started)


def median(costs: Sequence[Cost], pick: Pick) -> float:
    """The middle of the runs."""
    return statistics.median(map(pick, costs))


def median_ratio(ours: Sequence[Cost], baseline: Sequence[Cost], pick: Pick) -> float:
    """The middle of the ratios, each between runs of the same round."""
    return statistics.median(pick(one) / pick(other) for one, other in zip(ours, baseline, strict=True))
