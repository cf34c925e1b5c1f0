"""Samples the GPUs of this host: `tracelink._record.gpus` starts this file as a process of its own.

It runs the programs of the makers of GPUs, each in a session of its own, and prints one line of JSON for each answer. A
program that hangs is killed. It ends with its parent, however that ends. Imports the standard library only.
"""

from __future__ import annotations

import csv
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

QUERIES = {
    "nvidia-smi": (
        "--query-gpu=index,uuid,utilization.gpu,utilization.memory,memory.used,power.draw,temperature.gpu,clocks.sm",
        "--format=csv",
    ),
    "amd-smi": ("monitor", "--csv"),
    "rocm-smi": ("--showuse", "--showmeminfo", "vram", "--showpower", "--showtemp", "--csv"),
}
"""The arguments with which each program prints one table of all GPUs, with a column of their numbers."""
INSTEAD = {"amd-smi": "rocm-smi"}
"""The program that is used if another one fails."""
PATIENCE_S = 10.0
"""How long a program may take."""
ATTEMPTS = 3
"""Failures in a row after which a program is not used again."""
SHARE = 0.1
"""Part of the time in which a program may run: slow ones are started less often."""
LOOKED_S = 0.5
"""How often the process looks for its parent."""
MOST_BYTES = 1 << 20
MOST_GPUS = 256
LONGEST_CELL = 128
DEVICES = ("index", "gpu", "device")
"""Columns of the numbers of GPUs."""
DEVICE = re.compile(r"(?:card|gpu)?\s*\d{1,4}", re.IGNORECASE)


class ProgramError(Exception):
    """Why a program gave no table."""


@dataclass
class Sampling:
    """Programs that are sampled, for as long as the parent lives."""

    parent: int
    interval_s: float
    _starting: bool = False
    """Whether a program is being started, which must not be interrupted: it could not be killed."""
    _ended: bool = False

    def end(self, *_: object) -> None:
        """Ends the process, and the program that runs: the handler of a signal."""
        self._ended = True
        if not self._starting:
            sys.exit(0)

    def answers(self, programs: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Tables and problems, as they come, until no program is left; `programs` are names and paths."""
        later = {INSTEAD.get(name) for name in programs}
        failures = dict.fromkeys((name for name in programs if name not in later), 0)
        while failures:
            begin = time.monotonic()
            for name in list(failures):
                before = time.time()
                try:
                    header, rows = table_of(self._output([programs[name], *QUERIES[name]]))
                except (ProgramError, OSError) as error:
                    failures[name] += 1
                    if failures[name] in (1, ATTEMPTS):
                        ends = ", again: it is not sampled any more" if failures[name] == ATTEMPTS else ""
                        yield {"program": name, "problem": f"{error}{ends}"}
                else:
                    failures[name] = 0
                    moment = (before + time.time()) / 2
                    yield {"program": name, "time": moment, "header": header, "rows": rows}
                if failures[name] >= ATTEMPTS:
                    del failures[name]
                    failures |= {other: 0 for other in [INSTEAD.get(name, "")] if other in programs}
            taken = time.monotonic() - begin
            self._wait(max(self.interval_s - taken, taken / SHARE - taken))

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._end_with_parent()
            time.sleep(min(left, LOOKED_S))
        self._end_with_parent()

    def _end_with_parent(self) -> None:
        if self._ended or os.getppid() != self.parent:
            sys.exit(0)

    def _output(self, words: Sequence[str]) -> str:
        """What a program prints; it is killed if it takes too long or prints too much."""
        process = self._started(words)
        try:
            self._starting = False
            text = self._read(process).decode(errors="replace")
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
        finally:
            _kill(process)
        if process.returncode and not text.count("\n") > 1:
            raise ProgramError(f"exit code {process.returncode}: {_first_line(text)}")
        return text

    def _started(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        self._starting = True
        try:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            self._starting = False
            raise

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        end, content = time.monotonic() + PATIENCE_S, b""
        while len(content) <= MOST_BYTES:
            self._end_with_parent()
            left = end - time.monotonic()
            if left <= 0:
                raise ProgramError(f"it did not answer within {PATIENCE_S:g} s")
            if select.select([descriptor], [], [], min(left, LOOKED_S))[0]:
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return content
                content += data
        raise ProgramError(f"it printed more than {MOST_BYTES} bytes")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a program and what it started."""
    if process.stdout is not None:
        process.stdout.close()
    if process.returncode is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # within a driver that hangs, nothing can be killed
        process.wait(1)


def table_of(text: str) -> tuple[list[str], list[list[str]]]:
    """The names of the columns, and a row for each GPU; other lines are left out.

    Raises:
        ProgramError: There is no such table.
    """
    header: list[str] = []
    rows: list[list[str]] = []
    column = 0
    for line in text.splitlines():
        try:
            cells = [cell.strip()[:LONGEST_CELL] for cell in next(csv.reader([line]), [])]
        except csv.Error:
            continue
        names = [cell.lower() for cell in cells]
        found = [name for name in DEVICES if name in names]
        if len(cells) > 1 and found and not any(name[:1].isdigit() for name in names):
            header, column, rows = cells, names.index(found[0]), []
        elif len(cells) == len(header) > 0 and DEVICE.fullmatch(cells[column]) and len(rows) < MOST_GPUS:
            rows.append(cells)
    if not rows:
        raise ProgramError(f"it printed no table of GPUs, but: {_first_line(text)}")
    return header, rows


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
    return "".join(char if char.isprintable() else "?" for char in line[:200])


def _main() -> None:
    parent, interval, programs = json.loads(sys.argv[1])
    sampling = Sampling(parent, interval)
    signal.signal(signal.SIGTERM, sampling.end)
    for answer in sampling.answers(programs):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        _main()
