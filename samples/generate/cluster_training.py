"""The program of every rank of a job on many hosts: tensor, data and pipeline parallel at once."""

from __future__ import annotations

from itertools import pairwise

from tracelink.samples.generate.cluster import Cluster
from tracelink.samples.generate.communication import collective, wait
from tracelink.samples.generate.kinds import ALL_TO_ALL, BARRIER, BROADCAST, REDUCE_SCATTER
from tracelink.samples.generate.machine import Machine, Program
from tracelink.samples.generate.messages import batched, point_to_point
from tracelink.samples.generate.recording import Tensor
from tracelink.samples.generate.training import (
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
    """Everyone is told how to learn; batches go through the stages and gradients back; everyone waits for all."""
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
        wait(machine, machine.group_sequences[group.number, True])
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
    wait(machine, machine.group_sequences[group.number, False])


def ring(job: Cluster, rank: int) -> list[tuple[int, int]]:
    """Each stage sends to the next one, and the last to the first."""
    stages = job.pipeline_group(rank).ranks
    return [*pairwise(stages), (stages[-1], stages[0])]
