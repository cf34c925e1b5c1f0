"""A job on many hosts: tensor, data and pipeline parallel, with clock errors and late ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random

from generators.communication import (
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    REDUCE_SCATTER,
    batched,
    collective,
    point_to_point,
    wait,
)
from generators.job import COMMUNICATION_STREAM, Group, HostClock, Job
from generators.machine import Machine, Program
from generators.recording import Tensor
from generators.training import (
    BATCH,
    MATRIX_KERNEL,
    SCRIPT,
    WIDTH,
    Step,
    backward,
    forward_layer,
    load_batch,
    loss,
    update,
)

# The job: three kinds of groups, one clock per host, late ranks.

_ROLES = ("default_pg", "tensor_parallel", "data_parallel", "pipeline_parallel")
"""The descriptions of groups."""


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
    stream_per_group: bool = False
    """Whether each group has a stream of its own, as in NCCL, so that communication of several groups overlaps."""

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

    def communication_stream(self, group: Group) -> int:
        """The stream of the kernels of a group."""
        return COMMUNICATION_STREAM + (_ROLES.index(group.description) if self.stream_per_group else 0)

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


# The program of each rank: tensor, data and pipeline parallel at once.


TOKENS = 512
"""How many numbers the first rank of a tensor-parallel group sends to each; the second twice that, and so on."""


def train(machine: Machine, job: Cluster) -> Program:
    """All steps of one rank."""
    begin = machine.now
    machine.work(20_000, 40_000)
    with machine.frame(f"{SCRIPT}(80): main"):
        for number in range(1, job.steps + 1):
            if number > 1:
                machine.work(job.pause_ns, job.pause_ns)
            with (
                machine.frame(f"{SCRIPT}(41): train_step"),
                machine.annotation(f"ProfilerStep#{number}"),
            ):
                yield from train_step(machine, job, number)
    machine.recording.window = (begin, machine.now + 20_000)


def train_step(machine: Machine, job: Cluster, number: int) -> Program:
    """Broadcasts the hyperparameters, sends batches through the stages and gradients back, then waits in a barrier."""
    step, everyone = Step(), job.everyone
    rate = machine.tensor(1)
    yield from collective(machine, BROADCAST, everyone, rate, rate)
    batch = load_batch(machine)
    if machine.rank == job.straggler(number):
        machine.launch(MATRIX_KERNEL, job.straggler_ns, job.straggler_ns)
    yield from through_the_pipeline(machine, job, batch, step)
    loss(machine, step, batch)
    with machine.annotation("## backward ##"):
        yield from backward(machine, job, step)
    if job.stages > 1:
        yield from batched(machine, job.pipeline_group(machine.rank), batch, ring(job, machine.rank))
    update(machine, job)
    flag = machine.tensor(1)
    yield from collective(machine, BARRIER, everyone, flag, flag)
    machine.wait_for_device()


def through_the_pipeline(machine: Machine, job: Cluster, batch: Tensor, step: Step) -> Program:
    """What the stage before sends is computed on and sent to the stage behind."""
    group, stage = job.pipeline_group(machine.rank), job.stage(machine.rank)
    if stage > 0:
        yield from point_to_point(machine, group, batch, (group.ranks[stage - 1], machine.rank))
        wait(machine, group, machine.group_sequences[group.number, True])
    with machine.annotation("## forward ##"), machine.frame("nn.Module: Network_0", module=True):
        for layer in range(job.layers):
            machine.launch(MATRIX_KERNEL, 1_000, 1_000 + job.lateness_ns)
            yield from forward_layer(machine, job, layer, batch, step)
        yield from to_the_experts(machine, job)
    if stage < job.stages - 1:
        yield from point_to_point(machine, group, batch, (machine.rank, group.ranks[stage + 1]))


def to_the_experts(machine: Machine, job: Cluster) -> Program:
    """Of a tensor-parallel group, each sends more than the one before it; then the results are shared."""
    group = job.tensor_group(machine.rank)
    sizes = [TOKENS * (place + 1) for place in range(len(group.ranks))]
    own = sizes[group.ranks.index(machine.rank)]
    outgoing, incoming = machine.tensor(own * len(sizes)), machine.tensor(sum(sizes))
    yield from collective(machine, ALL_TO_ALL, group, outgoing, incoming, ([own] * len(sizes), sizes))
    whole, part = machine.tensor(BATCH * len(sizes), WIDTH), machine.tensor(BATCH, WIDTH)
    yield from collective(machine, REDUCE_SCATTER, group, whole, part)
    wait(machine, group, machine.group_sequences[group.number, False])


def ring(job: Cluster, rank: int) -> list[tuple[int, int]]:
    """Each stage sends to the next one, and the last to the first."""
    stages = job.pipeline_group(rank).ranks
    return [*pairwise(stages), (stages[-1], stages[0])]
