"""GPUs of the host, sampled beside the training: a CSV file for each program that was asked, for the `metrics` reader.

The programs run below a process of their own (`gpu_process`), so that none of them can hold up or survive the training.
Its times are seconds since 1970, whatever the programs print. GPUs are numbered as the job sees them.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tracelink._record import gpu_process
from tracelink._record.files import Files
from tracelink._record.sampling import HOST, KIND, TIME, WRITTEN_EVERY_S

NAME = "{}_{}.csv"
"""Such as nvidia-smi_0.csv."""
INDEX = "index"
OWN_TIMES = ("timestamp",)
"""Columns of times of the programs, of which some have no zone, and others whole seconds."""
MOST_ROUNDS = 3600
"""Answers of a program that are kept; of more, every second one is dropped."""
PATIENCE_S = 3.0
DRIVERS = (("/dev/nvidia0", "nvidia-smi"), ("/dev/kfd", "amd-smi"))
"""What shows that a host has GPUs, and the program that samples them."""
VISIBLE = {
    "nvidia-smi": ("CUDA_VISIBLE_DEVICES",),
    "amd-smi": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "rocm-smi": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
}
"""Variables that choose and number GPUs, each among those that the one before left."""


class _Answer(msgspec.Struct):
    """A line of the process: a table, or why there is none."""

    program: str
    problem: str = ""
    time: float = 0.0
    header: list[str] = []
    rows: list[list[str]] = []


@dataclass
class GpuSampler:
    """Samples all GPUs of this host until `stop`."""

    files: Files
    rank: int
    host: str
    interval_s: float
    report: Callable[[str], object]
    """Called with what is not sampled, and why."""
    _tables: dict[str, _Rounds] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _thread: threading.Thread | None = None
    _ending: bool = False

    def start(self) -> bool:
        """Starts the process, if a program that samples GPUs is on the PATH; False if not."""
        programs = {name: path for name in gpu_process.QUERIES if (path := shutil.which(name))}
        for device, name in DRIVERS:
            if Path(device).exists() and not programs:
                self.report(f"GPUs are not sampled: {device} exists, but {name} is not on the PATH")
        if not programs:
            return False
        settings = msgspec.json.encode([os.getpid(), self.interval_s, programs]).decode()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", gpu_process.__file__, settings],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, name="tracelink-gpus", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """Ends the process, and writes the files."""
        self._ending = True
        if self._process is None or self._thread is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._thread.join(PATIENCE_S)
        self._write()

    def _read(self) -> None:
        """Takes the answers of the process until it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        written = time.monotonic()
        try:
            for line in self._process.stdout:
                self._take(msgspec.json.decode(line, type=_Answer))
                if time.monotonic() - written >= WRITTEN_EVERY_S:
                    written = time.monotonic()
                    self._write()
        except Exception as error:  # noqa: BLE001  a training must not end because it is recorded
            self.report(f"GPUs are not sampled any more: {type(error).__name__}: {error}")
            self._process.terminate()
        code = self._process.wait()
        if code and not self._ending:
            self.report(f"GPUs are not sampled any more: their process ended with exit code {code}")

    def _take(self, answer: _Answer) -> None:
        if answer.problem:
            self.report(f"{answer.program}: {answer.problem}")
            return
        table = self._tables.get(answer.program)
        if table is None:
            chosen = chosen_gpus(answer.program, os.environ)
            table = self._tables[answer.program] = _Rounds(self.host, chosen)
        if not table.add(answer) and not table.refused:
            table.refused = True
            names = ", ".join(VISIBLE[answer.program])
            self.report(
                f"{answer.program}: none of its GPUs is one of {names}; all are written, by their own numbers"
            )
            table.chosen = None
            table.add(answer)

    def _write(self) -> None:
        for program, table in list(self._tables.items()):
            self.files.write(NAME.format(program, self.rank), table.text().encode(), KIND)


def chosen_gpus(program: str, variables: Mapping[str, str]) -> list[str] | None:
    """The GPUs of the job by number or UUID, in its order; None for all in their own order.

    If each rank of the host has another GPU, those of the other ranks are not known here, and all are sampled.
    """
    chosen: list[str] | None = None
    for name in VISIBLE[program]:
        if name not in variables:
            continue
        entries = [entry.strip() for entry in variables[name].split(",")]
        if chosen is not None:
            numbers = [int(entry) for entry in entries if entry.isdecimal()]
            entries = [chosen[number] for number in numbers if number < len(chosen)]
        chosen = entries
    several = variables.get("LOCAL_WORLD_SIZE") or variables.get("SLURM_NTASKS_PER_NODE") or "1"
    if chosen is not None and several.isdecimal() and len(chosen) < int(several):
        return None
    return chosen


@dataclass
class _Rounds:
    """The answers of one program, as parts of a CSV."""

    host: str
    chosen: Sequence[str] | None
    refused: bool = False
    _headers: list[str] = field(default_factory=list)
    _rounds: list[tuple[int, str]] = field(default_factory=list)
    """The number of the header, and the rows."""
    _seen: int = 0
    _kept_every: int = 1

    def add(self, answer: _Answer) -> bool:
        """Keeps a table; False if none of its GPUs is a chosen one."""
        names = [name.lower() for name in answer.header]
        device = names.index(next(name for name in gpu_process.DEVICES if name in names))
        uuid = names.index("uuid") if "uuid" in names else None
        used = [number for number, name in enumerate(names) if number != device and name not in OWN_TIMES]
        rows = []
        for row in answer.rows:
            number = self._number(row[device], row[uuid] if uuid is not None else "")
            if number is not None:
                rows.append([f"{answer.time:.3f}", self.host, number, *(row[column] for column in used)])
        if not rows:
            return False
        self._seen += 1
        if (self._seen - 1) % self._kept_every == 0:
            header = _csv([[TIME, HOST, INDEX, *(answer.header[column] for column in used)]])
            if header not in self._headers:
                self._headers.append(header)
            self._rounds.append((self._headers.index(header), _csv(rows)))
            if len(self._rounds) > MOST_ROUNDS:
                del self._rounds[1::2]
                self._kept_every *= 2
        return True

    def _number(self, device: str, uuid: str) -> str | None:
        """The number of a GPU in the job; None if it is not one of its GPUs."""
        number = device.lower().removeprefix("card").removeprefix("gpu").strip()
        if self.chosen is None:
            return number
        for index, entry in enumerate(self.chosen):
            if entry == number or (len(entry) > 4 and uuid.lower().startswith(entry.lower())):
                return str(index)
        return None

    def text(self) -> str:
        """The CSV; a header is repeated where the columns change."""
        parts, current = [], -1
        for header, rows in list(self._rounds):
            if header != current:
                parts.append(self._headers[header])
                current = header
            parts.append(rows)
        return "".join(parts)


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
