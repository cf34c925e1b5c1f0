"""Metrics of the machine, sampled beside the training: a CSV file that the `metrics` reader understands.

One rank of each host samples. Rows are kept in memory and written from time to time, whole; if there are too many,
every second one is dropped, and samples are taken half as often from then on.
"""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tracelink._record.files import Files

NAME = "metrics_{}.csv"
KIND = "metrics"
TIME, HOST = "epoch_s", "host"
MOST_ROWS = 7200
WRITTEN_EVERY_S = 30.0
PATIENCE_S = 5.0
PROC = Path("/proc")
SECTOR = 512
MEGABYTE = 10**6
MEBIBYTE = 1 << 10
"""In kB, as /proc/meminfo counts."""


class Gauges(Protocol):
    """Something to sample: the names of its values, and the values now, as text."""

    @property
    def names(self) -> Sequence[str]:
        """Names, with units in brackets."""
        ...

    def sample(self) -> Sequence[str]:
        """One value for each name; empty if it is unknown."""
        ...


@dataclass(slots=True)
class Machine:
    """CPU, memory, disks and network of this host, from /proc."""

    proc: Path = PROC
    _before: dict[str, float] = field(default_factory=dict)
    _time: float = 0.0

    names: Sequence[str] = (
        "cpu [%]",
        "memory used [MiB]",
        "disk read [MB/s]",
        "disk written [MB/s]",
        "network received [MB/s]",
        "network sent [MB/s]",
    )

    def sample(self) -> Sequence[str]:
        """Rates are those since the last sample; the first has none."""
        now = time.monotonic()
        counts = {**self._cpu(), **self._disks(), **self._network()}
        seconds = now - self._time
        changes = {name: count - self._before[name] for name, count in counts.items() if name in self._before}
        self._before, self._time = counts, now
        total = changes.get("cpu", 0.0)
        rates = [changes.get(name) for name in ("read", "written", "received", "sent")]
        return [
            f"{100 * changes['busy'] / total:.1f}" if total > 0 else "",
            self._memory(),
            *("" if rate is None else f"{rate / seconds / MEGABYTE:.3f}" for rate in rates),
        ]

    def _cpu(self) -> dict[str, float]:
        times = [float(text) for text in self._lines("stat")[0].split()[1:9]]
        return {"cpu": sum(times), "busy": sum(times) - times[3] - times[4]}

    def _memory(self) -> str:
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in self._lines("meminfo")[:3]}
        return str((sizes["MemTotal"] - sizes["MemAvailable"]) // MEBIBYTE)

    def _disks(self) -> dict[str, float]:
        """Without partitions and stacked devices, which would count twice."""
        rows = [line.split() for line in self._lines("diskstats")]
        whole = [row for row in rows if (self.proc.parent / "sys" / "block" / row[2] / "device").exists()]
        return {
            "read": sum(int(row[5]) for row in whole) * float(SECTOR),
            "written": sum(int(row[9]) for row in whole) * float(SECTOR),
        }

    def _network(self) -> dict[str, float]:
        """Of all interfaces except the loopback."""
        rows = [line.replace(":", " ").split() for line in self._lines("net/dev")[2:]]
        rows = [row for row in rows if row[0] != "lo"]
        return {
            "received": float(sum(int(row[1]) for row in rows)),
            "sent": float(sum(int(row[9]) for row in rows)),
        }

    def _lines(self, name: str) -> list[str]:
        return (self.proc / name).read_text("utf-8").splitlines()


@dataclass
class Sampler:
    """A thread that samples gauges until `stop`."""

    files: Files
    rank: int
    host: str
    interval_s: float
    gauges: Sequence[Gauges]
    report: Callable[[str], object]
    """Records why a gauge cannot be sampled; the gauge is not sampled again."""
    _rows: list[list[str]] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failed: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="tracelink-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes a last sample, and writes the file."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)
        self.add()
        self._write()

    def _run(self) -> None:
        self._sample()  # rates need a first reading
        written = time.monotonic()
        while not self._end.wait(self.interval_s):
            self.add()
            if time.monotonic() - written >= WRITTEN_EVERY_S:
                written = time.monotonic()
                try:
                    self._write()
                except OSError as error:
                    self.report(f"{error.strerror or error}")
                    return

    def _sample(self) -> list[str]:
        row = [f"{time.time():.3f}", self.host]
        for number, gauge in enumerate(self.gauges):
            row += self._sampled(number, gauge)
        return row

    def add(self) -> None:
        """Takes a sample now."""
        with self._lock:
            self._rows.append(self._sample())
            if len(self._rows) > MOST_ROWS:
                del self._rows[1::2]
                self.interval_s *= 2

    def _sampled(self, number: int, gauge: Gauges) -> Sequence[str]:
        if number not in self._failed:
            try:
                return gauge.sample()
            except Exception as error:  # noqa: BLE001  a training must not end because it is recorded
                self._failed.add(number)
                self.report(f"{type(error).__name__}: {error}")
        return [""] * len(gauge.names)

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([TIME, HOST, *(name for gauge in self.gauges for name in gauge.names)])
        writer.writerows(self._rows)
        self.files.write(NAME.format(self.rank), text.getvalue().encode(), KIND)
