"""What a job costs: each runs in a process of its own, and jobs that are compared take turns.

Processor time is that of the process and of its children. Memory has three numbers, for no single one
is exact: `peak_mb` is the most that the process had resident (VmHWM, which begins anew when a program
starts), `children_peak_mb` the most of its largest child (a forked child's share of its parent counts
again), and `tree_peak_mb` the most of all together. Without children that is `peak_mb`; with children
it is sampled in a run that is not timed, as the sum of proportional set sizes, so shared pages count once.

An installed package has compiled modules; a checkout may have none, and an environment may forbid to write them.
So jobs of this interpreter share a folder of compiled modules, which one untimed run of each job fills. Other
interpreters use the compiled modules of what is installed there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

COMPILED = Path(tempfile.gettempdir()) / "tracelink-benchmarks" / "compiled"
NOT_COMPILING, COMPILING_TO = "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"
JOBS = Path(__file__).with_name("jobs.py")
SAMPLING_SECONDS = 0.01
LONGEST_SECONDS = 1800.0
LONG_SECONDS = 5.0
"""A peer that takes more CPU runs once."""


class JobFailed(Exception):  # noqa: N818  reads better where it is caught
    """A job that did not end as it should, with what it said last."""


@dataclass(frozen=True, slots=True)
class Job:
    """A function of jobs.py with its arguments, and who runs it."""

    label: str
    function: str
    arguments: Sequence[object]
    python: str = sys.executable
    remark: str = ""
    cpu_limit: int | None = None

    @property
    def command(self) -> list[str]:
        """What to start."""
        return [self.python, str(JOBS), self.function, *map(str, self.arguments)]

    def measured(self) -> Cost:
        """One run."""
        return run(self)


class Peer(Protocol):
    """What is measured beside our jobs and may fail: a job of another interpreter, a load into an engine."""

    @property
    def label(self) -> str:
        """The name of its row."""

    @property
    def remark(self) -> str:
        """What else its row says."""

    def measured(self) -> Cost:
        """One run."""


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
    """The costs of each job: all once without a clock, then one run of each in a round."""
    costs, _ = beside_peers(jobs, (), repeats)
    return costs


def beside_peers(
    jobs: Sequence[Job], peers: Sequence[Peer], repeats: int
) -> tuple[list[list[Cost]], list[list[Cost] | JobFailed]]:
    """The same of jobs and of peers in the same rounds; a peer that fails costs only itself."""
    peaks = [tree_peak(job.command) for job in jobs]
    ours: list[list[Cost]] = [[] for _ in jobs]
    theirs: list[list[Cost] | JobFailed] = [[] for _ in peers]
    for _ in range(repeats):
        for job, costs, peak in zip(jobs, ours, peaks, strict=True):
            cost = run(job)
            costs.append(replace(cost, tree_peak_mb=max(peak, cost.peak_mb)))
        theirs = [_once_more(peer, costs) for peer, costs in zip(peers, theirs, strict=True)]
    return ours, theirs


def _once_more(peer: Peer, costs: list[Cost] | JobFailed) -> list[Cost] | JobFailed:
    if isinstance(costs, JobFailed) or any(cost.cpu_s > LONG_SECONDS for cost in costs):
        return costs
    try:
        return [*costs, peer.measured()]
    except JobFailed as failure:
        return failure


def environment(python: str, *, compiled: bool = True) -> Mapping[str, str]:
    """That of this process, but for where compiled modules are."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in (NOT_COMPILING, COMPILING_TO)
    }
    if not compiled:
        return inherited | {NOT_COMPILING: "1"}
    return inherited | ({COMPILING_TO: str(COMPILED)} if python == sys.executable else {})


def run(job: Job) -> Cost:
    """One run, as the job tells."""
    return cost_of(output_of(job.command, job.cpu_limit))


def cost_of(output: str) -> Cost:
    """What a job printed last."""
    told = json.loads(output.splitlines()[-1])
    numbers = {name: told.pop(name) for name in ("cpu_s", "wall_s", "peak_mb", "children_peak_mb")}
    return Cost(**numbers, tree_peak_mb=numbers["peak_mb"], details=told)


def output_of(command: Sequence[str], cpu_limit: int | None) -> str:
    """What a command prints; with a limit, its processes are stopped after so many seconds of CPU."""
    limited = ["prlimit", f"--cpu={cpu_limit}", *command] if cpu_limit else command
    try:
        done = subprocess.run(
            limited,
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
            env=environment(command[0]),
        )
    except subprocess.TimeoutExpired as error:
        raise JobFailed(f"still running after {LONGEST_SECONDS:.0f} s") from error
    if cpu_limit and done.returncode == -signal.SIGKILL:
        raise JobFailed(f"stopped after {cpu_limit} s of CPU")
    check(done.returncode, done.stdout, done.stderr)
    return done.stdout


def check(exit_code: int, output: str, errors: str) -> None:
    """A job that failed or printed nothing did not end as it should."""
    if exit_code or not output.strip():
        lines = errors.strip().splitlines() or ["it printed nothing"]
        raise JobFailed(f"exit code {exit_code}: {lines[-1]}")


def tree_peak(command: Sequence[str]) -> float:
    """The most megabytes that a command and its children have at once, in a run of its own."""
    return sampled_output(command)[1]


def sampled(job: Job) -> Cost:
    """One run of which memory is sampled while it is timed: for jobs too long to be run once more."""
    output, peak = sampled_output(job.command)
    cost = cost_of(output)
    return replace(cost, tree_peak_mb=max(peak, cost.peak_mb))


def sampled_output(command: Sequence[str]) -> tuple[str, float]:
    """What a command prints, and the most megabytes that it and its children have at once."""
    peak = 0.0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment(command[0]))
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


def best(costs: Sequence[Cost], pick: Pick) -> float:
    """The least of the runs: other programs make a run slower, never faster."""
    return min(map(pick, costs))


def best_ratio(ours: Sequence[Cost], baseline: Sequence[Cost], pick: Pick) -> float:
    """The best of our runs by the best of the others, all of the same rounds."""
    return best(ours, pick) / best(baseline, pick)
