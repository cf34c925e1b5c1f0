"""Metrics of the machine, sampled into a file that the `metrics` reader reads."""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tracelink
from tracelink._record import sampling
from tracelink._record.files import Files
from tracelink._record.sampling import Machine, Sampler


@dataclass
class Counting:
    """A gauge whose value is the number of the sample; fails from a number on."""

    names: Sequence[str] = ("number [%]",)
    count: int = 0
    failing: int = 10**9

    def sample(self) -> Sequence[str]:
        self.count += 1
        if self.count >= self.failing:
            raise OSError("gone")
        return [str(self.count)]


@dataclass
class Scene:
    folder: Path
    problems: list[str] = field(default_factory=list)

    def sampled(self, *gauges: sampling.Gauges, rows: int = 3) -> list[list[str]]:
        """The rows that a sampler writes after it took so many samples."""
        files = Files(self.folder, 10**9)
        sampler = Sampler(files, 0, "node0", 0.01, gauges, self.problems.append)
        sampler.start()
        end = time.monotonic() + 20
        while len(sampler._rows) < rows and time.monotonic() < end:
            time.sleep(0.005)
        sampler.stop()
        with (self.folder / "metrics_0.csv").open(newline="") as text:
            return list(csv.reader(text))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_each_row_has_time_host_and_values(scene: Scene) -> None:
    before = time.time()
    header, *rows = scene.sampled(Counting())
    assert header == ["epoch_s", "host", "number [%]"]
    assert [row[1:] for row in rows] == [["node0", str(number)] for number in range(2, len(rows) + 2)]
    assert before - 1 <= float(rows[0][0]) <= float(rows[-1][0]) <= time.time() + 1


def test_a_gauge_that_fails_is_reported_once_and_leaves_empty_cells(scene: Scene) -> None:
    _, *rows = scene.sampled(Counting(failing=3), Counting(("other",)))
    assert scene.problems == ["OSError: gone"]
    assert [row[2] for row in rows][:2] == ["2", ""]
    assert all(row[3] for row in rows)


def test_many_rows_are_thinned_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_ROWS", 4)
    files = Files(scene.folder, 10**9)
    sampler = Sampler(files, 0, "node0", 1.0, [Counting()], scene.problems.append)
    for _ in range(7):
        sampler.add()
    assert [row[2] for row in sampler._rows] == ["1", "5", "7"]
    assert sampler.interval_s == 4.0


def test_the_machine_is_read_from_proc(tmp_path: Path) -> None:
    proc, disk = tmp_path / "proc", tmp_path / "sys" / "block" / "sda" / "device"
    disk.mkdir(parents=True)
    (proc / "net").mkdir(parents=True)

    def state(busy: int, idle: int, moved: int) -> None:
        (proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        (proc / "meminfo").write_text("MemTotal: 4194304 kB\nMemFree: 0 kB\nMemAvailable: 1048576 kB\n")
        disks = [
            f"8 {number} {name} 1 0 {moved} 0 1 0 {moved} 0 0 0 0"
            for number, name in enumerate(("sda", "sda1"))
        ]
        (proc / "diskstats").write_text("\n".join(disks))
        (proc / "net" / "dev").write_text(
            f"head\nhead\n lo: 9 0 0 0 0 0 0 0 9 0\neth0: {moved} 0 0 0 0 0 0 0 0 0\n"
        )

    state(0, 0, 0)
    machine = Machine(proc)
    assert list(machine.sample()) == ["", "3072", "", "", "", ""]
    state(30, 90, 10**6)
    machine._time -= 1.0
    cpu, memory, read, written, received, sent = machine.sample()
    assert (cpu, memory, sent) == ("25.0", "3072", "0.000")
    assert read == written
    assert 400 < float(read) <= 512
    assert 0.8 < float(received) <= 1.0


def test_the_metrics_reader_reads_the_file(scene: Scene) -> None:
    scene.sampled(Machine())
    (info,) = tracelink.inspect([str(scene.folder)]).sources
    assert info.format == "metrics"
