"""What a suite gives: rows of what jobs cost, bars that hold or do not, and what could not be measured."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import measure
from inputs import Input
from measure import Cost, Job, JobFailed

LEAST_SHORT_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Options:
    """How big, how often, and with whose interpreter the peers run."""

    size_mb: int = 200
    repeats: int = 3
    peer_pythons: Sequence[str] = (sys.executable,)

    @property
    def size(self) -> int:
        """Bytes of a long input."""
        return self.size_mb * 1_000_000

    @property
    def short_repeats(self) -> int:
        """Rounds of what takes less than a second."""
        return max(self.repeats, LEAST_SHORT_REPEATS)


@dataclass(frozen=True, slots=True)
class Row:
    """A job on an input; without megabytes, the input is not a file whose size matters."""

    job: str
    costs: Sequence[Cost]
    megabytes: float = 0.0
    remark: str = ""
    made_of: str = ""

    def median(self, pick: measure.Pick) -> float:
        """The middle of its runs."""
        return measure.median(self.costs, pick)

    def as_json(self) -> dict[str, Any]:
        """Medians first, then every run."""
        middle = {name: self.median(pick) for name, pick in PICKS.items()}
        runs = [asdict(cost) for cost in self.costs]
        return {
            "job": self.job,
            "input_mb": self.megabytes,
            "made_of": self.made_of,
            "remark": self.remark,
            **middle,
            "runs": runs,
        }


@dataclass(frozen=True, slots=True)
class Bar:
    """A number that may not be over another."""

    what: str
    measured: float
    bar: float

    @property
    def word(self) -> str:
        """Pass or fail."""
        return "pass" if self.measured <= self.bar else "fail"


@dataclass(slots=True)
class Result:
    """The rows and bars of one suite, and what could not be measured."""

    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def cpu(cost: Cost) -> float:
    """Processor seconds."""
    return cost.cpu_s


def wall(cost: Cost) -> float:
    """Seconds on the clock."""
    return cost.wall_s


def memory(cost: Cost) -> float:
    """Megabytes of all processes at their most."""
    return cost.tree_peak_mb


PICKS = {"cpu_s": cpu, "wall_s": wall, "tree_peak_mb": memory}


def rows_of(jobs: Sequence[Job], files: Sequence[Input], repeats: int) -> list[Row]:
    """A row for each job, all on the same input."""
    megabytes = sum(file.megabytes for file in files)
    costs = measure.alternately(jobs, repeats)
    made_of = f"{files[0].copies} x {files[0].made_of}"
    return [Row(job.label, runs, megabytes, made_of=made_of) for job, runs in zip(jobs, costs, strict=True)]


@contextmanager
def failures_of(what: str, result: Result) -> Iterator[None]:
    """A peer that fails costs its row."""
    try:
        yield
    except JobFailed as failure:
        result.failures.append(f"{what}: {failure}")


@contextmanager
def output_folder() -> Iterator[Path]:
    """Where what a job writes goes, and then goes away."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def warmed(files: Sequence[Input]) -> list[Path]:
    """The paths of the files, read once so that no job waits for the disk."""
    for file in files:
        with file.path.open("rb") as stream:
            while stream.read(1 << 24):
                pass
    return [file.path for file in files]


def slope(short: Row, long: Row) -> float:
    """Processor seconds for each further megabyte; 0 if the inputs are equally long."""
    further = long.megabytes - short.megabytes
    return (long.median(cpu) - short.median(cpu)) / further if further else 0.0
