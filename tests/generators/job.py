"""A synthetic job: size, process groups, the clock of each host."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

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
        """What it shows at a true time."""
        drifted = round((true_ns - self.reference_ns) * self.drift_ppm * 1e-6)
        stepped = self.step_ns if self.step_ns and true_ns >= self.step_at_ns else 0
        return true_ns + self.offset_ns + drifted + stepped

    def offset_at(self, true_ns: int) -> int:
        """What it shows more than the true time, then."""
        return self.shown(true_ns) - true_ns


# The job: size, process groups, clocks.


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
class Group:
    """A process group."""

    number: int
    description: str
    ranks: tuple[int, ...]

    @property
    def name(self) -> str:
        """How every tool calls the group."""
        return str(self.number)


def parallel_groups(ranks: int, tensor: int, stages: int) -> dict[str, list[range]]:
    """The ranks of each group: tensor-parallel neighbours count first, pipeline stages last."""
    block = ranks // stages
    return {
        "tensor": [range(first, first + tensor) for first in range(0, ranks - tensor + 1, tensor)],
        "data": [
            range(stage + place, stage + block, tensor)
            for stage in range(0, ranks, block)
            for place in range(tensor)
        ],
        "pipeline": [range(first, ranks, block) for first in range(block)],
    }


@dataclass(frozen=True, slots=True)
class Job:
    """The parameters of a synthetic job. Equal parameters give equal bytes."""

    ranks: int = 2
    steps: int = 2
    layers: int = 3
    clock_skew_ns: int = 150_000
    """How far the clock of a rank can be off, to either side; that of rank 0 is the reference."""
    seed: int = 0
    start_ns: int = BASE_NS + SIXTY_DAYS_NS

    @property
    def everyone(self) -> Group:
        """The default group."""
        return Group(0, "default_pg", tuple(range(self.ranks)))

    @property
    def end_jitter_ns(self) -> int:
        """By how much the ends of a collective differ between its ranks at most."""
        return 0

    @property
    def numbered(self) -> bool:
        """Whether profiles number collectives, as they do since March 2026."""
        return False

    @property
    def eager(self) -> bool:
        """Whether a send is over before the message is received."""
        return False

    def communication_stream(self, group: Group) -> int:
        """The stream of the kernels of a group."""
        return COMMUNICATION_STREAM

    def tensor_group(self, rank: int) -> Group | None:
        """The tensor-parallel group of a rank: two neighbours; the last of an odd number has none."""
        first = rank - rank % 2
        if first + 1 >= self.ranks:
            return None
        return Group(1 + first // 2, "tensor_parallel", (first, first + 1))

    def gradient_group(self, rank: int) -> Group:
        """The group that shares the gradients of a rank."""
        return self.everyone

    def groups(self, rank: int) -> tuple[Group, ...]:
        """The groups that a rank belongs to."""
        pair = self.tensor_group(rank)
        return (self.everyone, pair) if pair else (self.everyone,)

    @property
    def group_count(self) -> int:
        """How many groups there are in the whole job."""
        return 1 + self.ranks // 2

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
