"""Whole commands, from the start of the interpreter to its end, as a user who has installed them types them.

The first, untimed run of each, in which memory is sampled, fills the folder of compiled modules (see measure.py).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from measure import (
    LONGEST_SECONDS,
    SAMPLING_SECONDS,
    Cost,
    JobFailed,
    environment,
    family,
    proportional_megabytes,
)


@dataclass(frozen=True, slots=True)
class Command:
    """What is started, how it has to end, and how the first line that it prints has to begin."""

    label: str
    words: Sequence[str]
    exit_code: int = 0
    answer: str = ""
    compiled: bool = True

    @property
    def environment(self) -> Mapping[str, str]:
        """That of this process, but for where compiled modules are."""
        return environment(self.words[0], compiled=self.compiled)


def alternately(commands: Sequence[Command], rounds: int) -> list[list[Cost]]:
    """The costs of each: all once without a clock but for the memory, then one run of each in a round."""
    peaks = [watched(command).tree_peak_mb for command in commands]
    columns = zip(*[[run(command) for command in commands] for _ in range(rounds)], strict=True)
    return [
        [replace(cost, tree_peak_mb=peak, peak_mb=peak) for cost in costs]
        for costs, peak in zip(columns, peaks, strict=True)
    ]


def run(command: Command) -> Cost:
    """One run; the processor time is that of all its processes."""
    return _run(command, watch=False)


def watched(command: Command) -> Cost:
    """One run in which the memory of all processes together is sampled."""
    return _run(command, watch=True)


def _run(command: Command, *, watch: bool) -> Cost:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command.words, stdout=output, stderr=errors, env=command.environment)
        try:
            peak = _most_megabytes(process.pid, begin) if watch else 0.0
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        took = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        said = output.readline().strip()
        _check(command, process.returncode, said, errors.read())
    return Cost(usage.ru_utime + usage.ru_stime, took, peak, tree_peak_mb=peak, details={"said": said})


def _most_megabytes(pid: int, begin: float) -> float:
    """Of all processes together, and never less than the first had by itself between two looks."""
    most = 0.0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        most = max(most, sum(map(proportional_megabytes, family(pid))), _own_most_megabytes(pid))
        if time.perf_counter() - begin > LONGEST_SECONDS:
            raise JobFailed(f"still running after {LONGEST_SECONDS:.0f} s")
        time.sleep(SAMPLING_SECONDS)
    return most


def _own_most_megabytes(pid: int) -> float:
    """The most that a process had resident; none of one that has just ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def _check(command: Command, exit_code: int, said: str, errors: str) -> None:
    if exit_code != command.exit_code or not said.startswith(command.answer):
        last = errors.strip().splitlines()[-1:]
        raise JobFailed(f"{command.label}: exit code {exit_code}, {said or last or 'nothing said'}")
