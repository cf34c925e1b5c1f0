"""Synthetic jobs: size, process groups, the clock of each host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import ClassVar

# A host clock with an offset, a drift and possibly a step.


@dataclass(frozen=True, slots=True)
class HostClock:
    """A clock against the true time."""

    offset_ns: int = 0
    """What it shows more than the true time, at the true time `reference_ns`."""
    drift_ppm: float = 0.0
    """How much faster than true time it goes."""
    reference_ns: int = 0
    step_ns: int = 0
    """By how much it is set forward at the true time `step_at_ns`."""
    step_at_ns: int = 0

    def shown(self, true_ns: int) -> int:
        drifted = round((true_ns - self.reference_ns) * self.drift_ppm * 1e-6)
        stepped = self.step_ns if self.step_ns and true_ns >= self.step_at_ns else 0
        return true_ns + self.offset_ns + drifted + stepped

    def offset_at(self, true_ns: int) -> int:
        """What it shows more than the true time, then."""
        return self.shown(true_ns) - true_ns


# Process groups.


WORLD, TENSOR, DATA, PIPELINE = "default_pg", "tensor_parallel", "data_parallel", "pipeline_parallel"
"""What groups are for; torch records it as their description."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    number: int
    description: str
    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """How every tool calls the group."""
        return str(self.number)


def parallel_ranks(ranks: int, tensor: int, stages: int) -> dict[str, list[range]]:
    """The ranks of the groups of each kind: tensor-parallel neighbours count first, pipeline stages last."""
    block = ranks // stages
    first_of_stages = range(0, ranks, block)
    return {
        TENSOR: [range(first, first + tensor) for first in range(0, ranks - tensor + 1, tensor)],
        DATA: [range(at + place, at + block, tensor) for at in first_of_stages for place in range(tensor)],
        PIPELINE: [range(first, ranks, block) for first in range(block)],
    }


@cache
def _groups(ranks: int, tensor: int, stages: int, roles: tuple[str, ...]) -> list[list[Group]]:
    members = parallel_ranks(ranks, tensor, stages)
    found: list[list[Group]] = [[] for _ in range(ranks)]
    made = [(WORLD, range(ranks)), *((role, each) for role in roles for each in members[role])]
    for number, (role, each) in enumerate(made):
        group = Group(number, role, tuple(each))
        for rank in each:
            found[rank].append(group)
    return found


# Jobs.


BASE_NS = 1_735_632_360_000_000_000
"""The base time that profiles of that quarter share."""

SIXTY_DAYS_NS = 60 * 86_400 * 10**9
"""So far into the quarter a double of microseconds no longer holds nanoseconds."""

DEVICE_COUNT = 8
COMPUTE_STREAM = 7
COMMUNICATION_STREAM = 20
MAIN_THREAD, BACKWARD_THREAD = 1, 2
"""Logical thread numbers."""


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters of a job on one host: pairs of ranks share layers. Equal parameters give equal bytes."""

    ranks: int = 2
    steps: int = 2
    layers: int = 3
    clock_skew_ns: int = 150_000
    """How far the clock of a rank can be off, to either side; that of rank 0 is the reference."""
    seed: int = 0
    start_ns: int = BASE_NS + SIXTY_DAYS_NS

    # What jobs of other classes have as parameters.
    roles: ClassVar[tuple[str, ...]] = (TENSOR,)
    """The kinds of groups besides that of all ranks."""
    tensor_parallel, stages = 2, 1
    jitter_ns, pause_ns = 0, 0
    sequence_numbers, eager, stream_per_group = False, False, False

    def groups(self, rank: int) -> list[Group]:
        """The groups that a rank belongs to; the first one is that of all ranks."""
        return _groups(self.ranks, self.tensor_parallel, self.stages, self.roles)[rank]

    def group(self, role: str, rank: int) -> Group | None:
        """The group of a rank for something; None if it has none."""
        return next((group for group in self.groups(rank) if group.description == role), None)

    def gradient_group(self, rank: int) -> Group:
        """The ranks that have the same part of the network."""
        return self.group(DATA, rank) or self.groups(rank)[0]

    @property
    def group_count(self) -> int:
        """How many groups there are in the whole job."""
        return 1 + max(group.number for rank in range(self.ranks) for group in self.groups(rank))

    def communication_stream(self, group: Group) -> int:
        kind = (WORLD, TENSOR, DATA, PIPELINE).index(group.description)
        return COMMUNICATION_STREAM + kind * self.stream_per_group

    def host(self, rank: int) -> str:
        """The name of the host of a rank; empty if its profile does not tell."""
        return ""

    def place(self, rank: int) -> int:
        """The number of a rank among those of its host."""
        return rank

    def clock(self, rank: int) -> HostClock:
        """The clock of a rank; that of rank 0 shows the true time."""
        if rank == 0 or not self.clock_skew_ns:
            return HostClock()
        skew = self.clock_skew_ns
        return HostClock(Random(f"clock {self.seed} {rank}").randint(-skew, skew))


@dataclass(frozen=True, slots=True)
class Cluster(Job):
    """The parameters of a job on many hosts: tensor, data and pipeline parallel, with clock errors and late ranks."""

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
    stream_per_group: bool = False
    """Whether each group has a stream of its own, as in NCCL, so that communication of several groups overlaps."""

    roles: ClassVar = (TENSOR, DATA, PIPELINE)
    eager = True
    """A send does not wait for the receiver."""

    def __post_init__(self) -> None:
        if self.ranks % (self.tensor_parallel * self.stages):
            raise ValueError(
                f"{self.ranks} ranks make no {self.stages} stages of {self.tensor_parallel} tensor-parallel ranks"
            )

    def stage(self, rank: int) -> int:
        return rank * self.stages // self.ranks

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
