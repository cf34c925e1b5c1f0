"""Kills `tracelink merge` at random moments, and checks what it leaves behind.

PYTHONPATH=tests python -m builders.kills [--count 100] [--seed 1]

Each run merges a generated job of 8 ranks with several processes, and a signal goes to the command, to its process
group (as from a terminal) or to one of its workers. No output may be half, no worker may outlive the command, and only
the files of a command that got SIGKILL may be left, which the next run removes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random

from generators.jobs import write_cluster

COMMAND = (sys.executable, "-m", "tracelink")
FORMATS = (("perfetto-json", "out/job.json"), ("perfetto", "out/job.pftrace"), ("chakra", "out/job"))
JOBS = "4"
PATIENCE = 60.0
LOOK = 0.001
FINISHED = 0
"""The exit code of a command that was faster than the signal."""

CODES = {signal.SIGINT: {130, -2}, signal.SIGTERM: {143, -15}, signal.SIGKILL: {-9}}
"""Exit codes of the command after each signal; the negative ones are of a signal before or after its work."""

MESSAGES = {
    signal.SIGINT: {"", "tracelink: interrupted."},
    signal.SIGTERM: {"", "tracelink: terminated."},
    signal.SIGKILL: {""},
}
WITHOUT_ANSWER = "tracelink: a worker process ended without an answer."


class Goal(StrEnum):
    """Which process gets the signal."""

    COMMAND = "command"
    GROUP = "process group"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Kill:
    """A signal, its goal, and the part of the time of a whole run after which it is sent."""

    goal: Goal
    number: signal.Signals
    moment: float
    format: str
    output: str


def random_kills(count: int, seed: int) -> Iterator[Kill]:
    """Kills in random order and at random moments."""
    random = Random(seed)
    for _ in range(count):
        goal = random.choice([*Goal])
        number = random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        yield Kill(goal, number, random.uniform(0, 1.05), *random.choice(FORMATS))


class Bench:
    """A generated job, and the bytes and the time of each whole output of it."""

    def __init__(self, folder: Path, *, steps: int = 20) -> None:
        self.inputs = folder / "job"
        self.folder = folder
        write_cluster(self.inputs, ranks=8, ranks_per_host=4, steps=steps)
        self.whole: dict[str, dict[str, bytes]] = {}
        self.seconds: dict[str, float] = {}
        for format_name, output in FORMATS:
            began = time.monotonic()
            process = self.start(format_name, output)
            _, stderr = process.communicate(timeout=PATIENCE)
            assert (process.returncode, stderr) == (0, ""), stderr
            self.seconds[format_name] = time.monotonic() - began
            self.whole[format_name] = self.outputs()
            self.clear()

    def start(self, format_name: str, output: str) -> subprocess.Popen[str]:
        """Starts a merge in a process group of its own."""
        (self.folder / "out").mkdir(exist_ok=True)
        command = ("merge", self.inputs, "--to", format_name, "-o", output, "-q", "-j", JOBS)
        return subprocess.Popen(
            [*COMMAND, *command], cwd=self.folder, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def outputs(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / "out").iterdir()}

    def clear(self) -> None:
        for path in (self.folder / "out").iterdir():
            path.unlink()

    def problems(self, kill: Kill) -> tuple[list[str], str]:
        """What is wrong after a kill, and its outcome in words."""
        process = self.start(kill.format, kill.output)
        began = time.monotonic()
        while time.monotonic() - began < kill.moment * self.seconds[kill.format]:
            time.sleep(LOOK)
        goal = _send(process, kill)
        try:
            _, stderr = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return ["the command hangs"], "hang"
        found = [*self._wrong_files(kill, goal), *_wrong_end(kill, goal, process.returncode, stderr.strip())]
        if orphans := _left(process.pid):
            found.append(f"processes are left: {orphans}")
        self.clear()
        return found, f"{goal or 'nothing'}, {kill.number.name}, exit code {process.returncode}"

    def _wrong_files(self, kill: Kill, goal: Goal | None) -> Iterator[str]:
        whole = self.whole[kill.format]
        for name, text in self.outputs().items():
            if name in whole:
                if text != whole[name]:
                    yield f"{name} is not whole"
            elif not (kill.number is signal.SIGKILL and goal in (Goal.COMMAND, Goal.GROUP)):
                yield f"{name} is left"
        if any(name not in whole for name in self.outputs()):
            process = self.start(kill.format, kill.output)
            process.communicate(timeout=PATIENCE)
            if self.outputs() != whole:
                yield f"the next run leaves {sorted(self.outputs().keys() - whole.keys())}"


def _send(process: subprocess.Popen[str], kill: Kill) -> Goal | None:
    """Sends the signal; returns which process got it, None if there was none any more."""
    if kill.goal is Goal.WORKER:
        while process.poll() is None:  # until there is a worker
            if workers := _children(process.pid):
                try:
                    os.kill(workers[0], kill.number)
                except ProcessLookupError:
                    continue
                return Goal.WORKER
            time.sleep(LOOK)
        return None
    if process.poll() is not None:
        return None
    if kill.goal is Goal.GROUP:
        os.killpg(process.pid, kill.number)
    else:
        process.send_signal(kill.number)
    return kill.goal


def _wrong_end(kill: Kill, goal: Goal | None, code: int, stderr: str) -> Iterator[str]:
    message = stderr.partition(" It may have run out of memory")[0]
    if goal is None:
        good = code == FINISHED and not stderr
    elif goal is Goal.WORKER:
        died = code == 1 and message == WITHOUT_ANSWER
        good = (code == FINISHED and not stderr) or (died and kill.number is not signal.SIGINT)
    elif "init_import_site" in stderr or (stderr.endswith("KeyboardInterrupt") and "tracelink" not in stderr):
        good = True  # Python itself was starting
    else:
        ended = code in CODES[kill.number] and message in MESSAGES[kill.number]
        good = ended or (code == FINISHED and not stderr)
    if not good:
        yield f"exit code {code}, message {stderr!r}"


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _left(group: int) -> list[int]:
    """The processes of a process group a moment after its command has ended."""
    latest = time.monotonic() + 5
    while found := _members(group):
        if time.monotonic() > latest:
            break
        time.sleep(LOOK)
    return found


def _members(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, parent_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:
                continue
            if int(parent_group) == group and state != "Z":
                found.append(int(entry.name))
    return found


def run(kills: Sequence[Kill], bench: Bench) -> tuple[Counter[str], list[str]]:
    """The number of kills with each outcome, and the problems."""
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for kill in kills:
        problems, outcome = bench.problems(kill)
        outcomes[outcome] += 1
        wrong += [f"{kill}: {problem}" for problem in problems]
    return outcomes, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill `tracelink merge` at random moments.")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes, wrong = run([*random_kills(arguments.count, arguments.seed)], Bench(Path(folder)))
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:4} {outcome}")  # noqa: T201  a program for developers
    print("\n".join(wrong) or "No problem.")  # noqa: T201
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
