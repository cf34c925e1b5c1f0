"""A synthetic job on many hosts: three kinds of groups, clocks that differ from host to host, ranks that are late."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random

from tracelink.samples.generate.host_clock import HostClock
from tracelink.samples.generate.job import Group, Job


@dataclass(frozen=True, slots=True)
class Cluster(Job):
    """The parameters of a job whose ranks count tensor-parallel neighbours first and pipeline stages last."""

    ranks: int = 64
    clock_skew_ns: int = 50_000_000
    """How far the clock of a host can be off, to either side; that of the first host shows the true time."""
    drift_ppm: float = 50.0
    """How much too fast or too slow the clock of a host can go."""
    clocks: tuple[HostClock, ...] = ()
    """The clock of each host; without any, they are drawn within the two limits above."""
    ranks_per_host: int = 8
    tensor_parallel: int = 4
    stages: int = 2
    """Of the pipeline."""
    lateness_ns: int = 200_000
    """By how much longer than another a rank computes in a layer at most."""
    straggler_ns: int = 0
    """How long one rank of each step, a different one, keeps all others waiting."""
    jitter_ns: int = 3_000
    """By how much the ends of a collective differ between its ranks at most."""
    pause_ns: int = 0
    """Between steps, where nothing is recorded: drift shows only in the long run."""
    sequence_numbers: bool = False
    """Whether profiles number communications, as they do since March 2026."""

    def __post_init__(self) -> None:
        if self.ranks % (self.tensor_parallel * self.stages):
            raise ValueError(
                f"{self.ranks} ranks make no {self.stages} stages of {self.tensor_parallel} tensor-parallel ranks"
            )

    @property
    def end_jitter_ns(self) -> int:
        """By how much the ends of a collective differ between its ranks at most."""
        return self.jitter_ns

    @property
    def numbered(self) -> bool:
        """Whether profiles number communications."""
        return self.sequence_numbers

    @property
    def eager(self) -> bool:
        """A send does not wait for the receiver."""
        return True

    @property
    def replicas(self) -> int:
        """How many data-parallel copies of the network there are."""
        return self.ranks // (self.tensor_parallel * self.stages)

    def stage(self, rank: int) -> int:
        """The place of a rank in the pipeline."""
        return rank // (self.tensor_parallel * self.replicas)

    def tensor_group(self, rank: int) -> Group:
        """The ranks that share a layer."""
        first = rank - rank % self.tensor_parallel
        number = 1 + first // self.tensor_parallel
        return Group(number, "tensor_parallel", _every(first, 1, self.tensor_parallel))

    def gradient_group(self, rank: int) -> Group:
        """The ranks that have the same part of the network."""
        block = self.tensor_parallel * self.replicas
        first = rank // block * block + rank % self.tensor_parallel
        number = 1 + self.ranks // self.tensor_parallel
        number += self.stage(rank) * self.tensor_parallel + rank % self.tensor_parallel
        return Group(number, "data_parallel", _every(first, self.tensor_parallel, self.replicas))

    def pipeline_group(self, rank: int) -> Group:
        """The stages that a batch goes through."""
        block = self.tensor_parallel * self.replicas
        number = 1 + self.ranks // self.tensor_parallel + self.tensor_parallel * self.stages
        return Group(number + rank % block, "pipeline_parallel", _every(rank % block, block, self.stages))

    def groups(self, rank: int) -> tuple[Group, ...]:
        """The groups that a rank belongs to."""
        return self.everyone, self.tensor_group(rank), self.gradient_group(rank), self.pipeline_group(rank)

    @property
    def group_count(self) -> int:
        """How many groups there are in the whole job."""
        return self.pipeline_group(self.tensor_parallel * self.replicas - 1).number + 1

    def host(self, rank: int) -> str:
        """The name of the host of a rank."""
        return f"node{rank // self.ranks_per_host:03d}"

    def place(self, rank: int) -> int:
        """The number of a rank among those of its host."""
        return rank % self.ranks_per_host

    def clock(self, rank: int) -> HostClock:
        """The clock of the host of a rank."""
        host = rank // self.ranks_per_host
        if self.clocks:
            return self.clocks[host]
        if host == 0:
            return HostClock(reference_ns=self.start_ns)
        drawn = Random(f"clock {self.seed} {host}")
        offset = drawn.randint(-self.clock_skew_ns, self.clock_skew_ns)
        return HostClock(offset, drawn.uniform(-self.drift_ppm, self.drift_ppm), self.start_ns)

    def straggler(self, step: int) -> int | None:
        """Who keeps the others waiting in a step."""
        return Random(f"straggler {self.seed} {step}").randrange(self.ranks) if self.straggler_ns else None


@cache
def _every(first: int, stride: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + stride * count, stride))
