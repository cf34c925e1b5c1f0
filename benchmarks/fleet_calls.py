"""The calls of one rank of a fleet, made without the other ranks: what a worker has after it has read a dump.

A step of twenty entries: collectives of a tensor-parallel group of eight, of a data-parallel group and of all ranks,
and messages around the ring of pipeline stages. Ranks of a host share a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracelink._model.columns import StringTable
from tracelink._model.communications import Calls, Evidence, RankCalls
from tracelink._model.trace import ProcessGroup

STEP = (
    *(("tensor", "all_reduce"),) * 4,
    *(("tensor", "all_gather"),) * 2,
    ("pipeline", "send"),
    ("pipeline", "recv"),
    *(("tensor", "all_reduce"),) * 5,
    *(("tensor", "reduce_scatter"),) * 2,
    *(("data", "all_reduce"),) * 2,
    ("pipeline", "send"),
    ("pipeline", "recv"),
    ("world", "all_reduce"),
)
START_NS, PERIOD_NS, DURATION_NS = 1_700_000_000 * 10**9, 400_000, 200_000
LATENESS_NS, JITTER_NS, CLOCK_NS = 60_000, 5_000, 50_000_000


@dataclass(frozen=True, slots=True)
class FleetOfCalls:
    """How many ranks there are, what each did, and what its sources have of it."""

    ranks: int = 512
    entries: int = 2000
    tensor_parallel: int = 8
    stages: int = 4
    ranks_per_host: int = 8
    kernels: bool = False
    """Whether times are those of kernels, so that clocks are compared by the ends of collectives."""

    @property
    def collectives(self) -> int:
        """How many collectives all ranks together take part in."""
        sizes = {
            "tensor": self.tensor_parallel,
            "data": self.ranks // self.tensor_parallel // self.stages,
            "world": self.ranks,
        }
        steps = [STEP[number % len(STEP)][0] for number in range(self.entries)]
        return sum(self.ranks // size * steps.count(role) for role, size in sizes.items())

    @property
    def messages(self) -> int:
        """How many messages there are between all of them."""
        steps = [STEP[number % len(STEP)][1] for number in range(self.entries)]
        return self.ranks * steps.count("send")

    def groups(self, rank: int) -> dict[str, ProcessGroup]:
        """The groups of a rank by what they are for; every rank counts its groups by itself."""
        stage_ranks = self.ranks // self.stages
        stage, inside = divmod(rank, stage_ranks)
        replica, shard = divmod(inside, self.tensor_parallel)
        first = stage * stage_ranks
        members = {
            "world": range(self.ranks),
            "tensor": range(
                first + replica * self.tensor_parallel, first + (replica + 1) * self.tensor_parallel
            ),
            "data": range(first + shard, first + stage_ranks, self.tensor_parallel),
            "pipeline": range(inside, self.ranks, stage_ranks),
        }
        return {
            role: ProcessGroup(
                str(number),
                "default_pg" if role == "world" else f"{role}_parallel",
                tuple(ranks),
                len(ranks),
                "nccl",
            )
            for number, (role, ranks) in enumerate(members.items())
        }

    def calls(self, rank: int) -> RankCalls:
        """What one rank did."""
        groups, strings = self.groups(rank), StringTable()
        number = np.arange(self.entries)
        steps = [STEP[place % len(STEP)] for place in range(self.entries)]
        role = np.array([strings[groups[name].name] for name, _ in steps], np.int32)
        members = {strings[group.name]: strings[str(list(group.ranks))] for group in groups.values()}
        operation = strings.encode([name for _, name in steps])
        message = np.array([name == "pipeline" for name, _ in steps], np.bool_)
        sends = operation == strings.find("send")
        stage = rank // (self.ranks // self.stages)
        random = np.random.default_rng(rank)
        clock = int(np.random.default_rng(rank // self.ranks_per_host).integers(-CLOCK_NS, CLOCK_NS))
        begun = START_NS + PERIOD_NS * number + clock
        enqueued = begun + random.integers(0, LATENESS_NS, self.entries)
        ended = begun + LATENESS_NS + DURATION_NS + random.integers(0, JITTER_NS, self.entries)
        elements = np.where(message, 65536, 1024 + number % 7)
        calls = Calls.of(
            self.entries,
            operation=operation,
            group=role,
            sequence=_numbers(role, message),
            point_to_point=message,
            source=np.where(message & ~sends, (stage - 1) % self.stages, -1),
            target=np.where(sends, (stage + 1) % self.stages, -1),
            elements_in=elements,
            elements_out=elements,
            type=np.full(self.entries, strings["BFloat16"]),
            size=np.array([len(groups[name].ranks) for name, _ in steps], np.int32),
            members=np.array([members[code] for code in role.tolist()], np.int32),
            record=number,
            kernel=number if self.kernels else np.full(self.entries, -1),
            enqueued=enqueued,
            start=enqueued + 20_000,
            end=ended,
            evidence=np.full(self.entries, Evidence.KERNEL if self.kernels else Evidence.RECORDER),
            state=np.full(self.entries, strings["completed"]),
        )
        return RankCalls(
            rank,
            strings.texts(),
            calls,
            list(groups.values()),
            f"host{rank // self.ranks_per_host}",
            self.ranks,
        )


def _numbers(role: np.ndarray, message: np.ndarray) -> np.ndarray:
    """The sequence number of each entry within its group."""
    result = np.zeros(len(role), np.int64)
    for code in np.unique(role).tolist():
        rows = np.flatnonzero(role == code)
        result[rows] = np.arange(1, len(rows) + 1)
    return result
