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
from measure import Cost, Job, JobFailed, Peer

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

    def best(self, pick: measure.Pick) -> float:
        """The least of its runs."""
        return measure.best(self.costs, pick)

    @property
    def peak_mb(self) -> float:
        """The most megabytes in any run."""
        return max(map(memory, self.costs))

    def as_json(self) -> dict[str, Any]:
        """The best time and the most memory first, then every run."""
        summary = {"cpu_s": self.best(cpu), "wall_s": self.best(wall), "peak_mb": self.peak_mb}
        runs = [asdict(cost) for cost in self.costs]
        return {
            "job": self.job,
            "input_mb": self.megabytes,
            "made_of": self.made_of,
            "remark": self.remark,
            **summary,
            "runs": runs,
        }


@dataclass(frozen=True, slots=True)
class Bar:
    """A number that may not be over another (or not under it), and the number that would be better still."""

    what: str
    measured: float
    bar: float
    moonshot: float | None = None
    at_least: bool = False

    @property
    def word(self) -> str:
        """Pass or fail."""
        return "pass" if self._kept(self.bar) else "fail"

    @property
    def reached_moonshot(self) -> bool:
        """Whether it is better still."""
        return self.moonshot is not None and self._kept(self.moonshot)

    def _kept(self, limit: float) -> bool:
        return self.measured >= limit if self.at_least else self.measured <= limit


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


def rows_of(jobs: Sequence[Job], files: Sequence[Input], repeats: int) -> list[Row]:
    """A row for each job, all on the same input."""
    return measured_rows(jobs, (), files, repeats).rows


def measured_rows(jobs: Sequence[Job], peers: Sequence[Peer], files: Sequence[Input], repeats: int) -> Result:
    """The same, followed by the rows of peers in the same rounds; a peer that fails is named."""
    megabytes = sum(file.megabytes for file in files)
    made_of = f"{files[0].copies} x {files[0].made_of}"
    ours, theirs = measure.beside_peers(jobs, peers, repeats)
    result = Result(
        [Row(job.label, runs, megabytes, "", made_of) for job, runs in zip(jobs, ours, strict=True)]
    )
    for peer, runs in zip(peers, theirs, strict=True):
        if isinstance(runs, JobFailed):
            result.failures.append(f"{peer.label}: {runs}")
        else:
            remark = f"{peer.remark}, once" if len(runs) < repeats else peer.remark
            result.rows.append(Row(peer.label, runs, megabytes, remark, made_of))
    return result


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
    return (long.best(cpu) - short.best(cpu)) / further if further else 0.0
