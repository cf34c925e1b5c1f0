"""The programs of ranks, and all ranks run together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from generators.communication import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    BARRIER,
    BROADCAST,
    REDUCE_SCATTER,
    Exchange,
    batched,
    communicate,
    exchange_of,
    wait,
)
from generators.job import BACKWARD_THREAD, COMPUTE_STREAM, MAIN_THREAD, TENSOR, Cluster, Group, Job
from generators.machine import Machine, Meeting, Program, kernel_shape
from generators.recording import Event, Operation, Recording, Tensor

# The program of each rank: steps of a network whose layers are split over pairs of ranks.


BATCH, WIDTH = 64, 1024
MATRIX_KERNEL = "ampere_sgemm_128x64_tn"
ELEMENTWISE_KERNEL = (
    "void at::native::vectorized_elementwise_kernel<4, {op}, at::detail::Array<char*, 2> >"
    "(int, {op}, at::detail::Array<char*, 2>)"
)
GRAPH_KERNELS = (MATRIX_KERNEL, "triton_poi_fused_gelu_0", "triton_red_fused_native_layer_norm_1")
SCRIPT = "train.py"
AnyJob = TypeVar("AnyJob", bound=Job)


@dataclass(slots=True)
class Step:
    """What backward needs to know of forward."""

    forward: list[tuple[str, Operation]] = field(default_factory=list)
    """(name of the backward node, the forward operator that recorded it)."""
    gradients: list[Tensor] = field(default_factory=list)


def train(machine: Machine, job: AnyJob, step: Callable[[Machine, AnyJob, int], Program]) -> Program:
    begin = machine.now
    machine.work(20_000, 40_000)
    with machine.frame(f"{SCRIPT}(80): main"):
        for number in range(1, job.steps + 1):
            if number > 1 and job.pause_ns:
                machine.work(job.pause_ns, job.pause_ns)
            with (
                machine.frame(f"{SCRIPT}(41): train_step"),
                machine.annotation(f"ProfilerStep#{number}"),
            ):
                yield from step(machine, job, number)
    machine.recording.window = (begin, machine.now + 20_000)


def train_step(machine: Machine, job: Job, _number: int) -> Program:
    """Load, forward, backward, update; then everyone waits for its own device."""
    step = Step()
    batch = load_batch(machine)
    with machine.annotation("## forward ##"), machine.frame("nn.Module: Network_0", module=True):
        for layer in range(job.layers):
            yield from forward_layer(machine, job, layer, batch, step)
        replay_graph(machine)
    # The first of a pair sends to the second.
    if pair := job.group(TENSOR, machine.rank):
        yield from communicate(machine, exchange_of(machine, pair, batch, (pair.ranks[0], pair.ranks[1])))
    loss(machine, step, batch)
    with (
        machine.annotation("## backward ##"),
        machine.frame("torch/_tensor.py(626): backward"),
        machine.on_thread(BACKWARD_THREAD),
    ):
        yield from backward(machine, job, step)
    update(machine, job)
    machine.wait_for_device()


def load_batch(machine: Machine) -> Tensor:
    """A batch comes from the host; the CPU waits for it."""
    batch = machine.tensor(BATCH, WIDTH)
    with (
        machine.frame(f"{SCRIPT}(22): load_batch"),
        machine.operation("aten::to", [batch], [batch]),
        machine.operation("aten::_to_copy", [batch], [batch]),
    ):
        with machine.operation("aten::empty_strided", [[BATCH, WIDTH]], [batch]):
            machine.allocate(batch.elements * 4)
        with machine.operation("aten::copy_", [batch, batch], [batch]):
            call = machine.call("cudaMemcpyAsync", kernels=1)
            start = machine.ready(call, COMPUTE_STREAM)
            size = batch.elements * 4
            _move(machine, call, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start, 24_000, size)
            machine.wait_for_stream(COMPUTE_STREAM)
    return batch


def forward_layer(machine: Machine, job: Job, layer: int, batch: Tensor, step: Step) -> Program:
    """A linear layer and its activation; then what its tensor-parallel half needs from the other."""
    weight, result = machine.tensor(WIDTH, WIDTH), machine.tensor(BATCH, WIDTH)
    with machine.frame(f"nn.Module: Linear_{layer}", module=True):
        linear(machine, step, batch, weight, result)
    with machine.frame(f"nn.Module: ReLU_{layer}", module=True):
        number = next(machine.sequences)
        with (
            machine.operation("aten::relu", [result], [result], sequence=number),
            machine.operation("aten::clamp_min", [result, 0], [result], sequence=number) as recorded,
        ):
            machine.launch(ELEMENTWISE_KERNEL.format(op="at::native::ClampMinFunctor<float>"))
    step.forward.append(("ReluBackward0", recorded))
    pair = job.group(TENSOR, machine.rank)
    if pair is None:
        return
    with machine.frame("torch/distributed/distributed_c10d.py(2770): all_reduce"):
        yield from communicate(machine, Exchange(ALL_REDUCE, pair, result, result))
        wait(machine, pair)
    if layer == 0:
        gathered = machine.tensor(BATCH * len(pair.ranks), WIDTH)
        with machine.frame("torch/distributed/distributed_c10d.py(3706): all_gather_into_tensor"):
            yield from communicate(machine, Exchange(ALL_GATHER, pair, result, gathered))
            wait(machine, pair)


def linear(machine: Machine, step: Step, batch: Tensor, weight: Tensor, result: Tensor) -> None:
    """A matrix product; it and the transposition in it have a backward node each."""
    bias = machine.tensor(WIDTH)
    first = next(machine.sequences)
    with machine.operation("aten::linear", [batch, weight, bias], [result], sequence=first):
        with machine.operation("aten::t", [weight], [weight], sequence=first) as transposed:
            pass
        second = next(machine.sequences)
        with machine.operation(
            "aten::addmm", [bias, batch, weight, 1, 1], [result], sequence=second
        ) as multiplied:
            machine.allocate(result.elements * 4)
            machine.launch(MATRIX_KERNEL, 40_000, 90_000)
    step.forward += [("TBackward0", transposed), ("AddmmBackward0", multiplied)]
    step.gradients.append(weight)


def replay_graph(machine: Machine) -> None:
    """One launch, several kernels, and no operator to distinguish them."""
    with machine.frame("torch/cuda/graphs.py(115): replay"):
        call = machine.call("cudaGraphLaunch", kernels=len(GRAPH_KERNELS))
        unlinked = replace(call, args={"correlation": call.correlation})
        start = machine.ready(call, COMPUTE_STREAM)
        for kernel in GRAPH_KERNELS:
            end = start + machine.random.randint(3_000, 12_000)
            machine.place(
                unlinked, "kernel", kernel, COMPUTE_STREAM, (start, end), **kernel_shape(machine.random)
            )
            start = end + 1_200


def loss(machine: Machine, step: Step, batch: Tensor) -> None:
    number = next(machine.sequences)
    with machine.operation("aten::mse_loss", [batch, batch, 1], [batch], sequence=number) as recorded:
        machine.launch(ELEMENTWISE_KERNEL.format(op="at::native::MseLossFunctor<float>"))
    step.forward.append(("MseLossBackward0", recorded))


def backward(machine: Machine, job: Job, step: Step) -> Program:
    """The backward nodes in reverse order; the gradient of a layer is reduced as soon as it is there."""
    gradients = list(step.gradients)
    for name, forward in reversed(step.forward):
        with (
            machine.operation(
                f"autograd::engine::evaluate_function: {name}",
                sequence=forward.sequence,
                forward_thread=MAIN_THREAD,
                scope=1,
            ),
            machine.operation(name, sequence=forward.sequence, forward_thread=MAIN_THREAD, scope=1) as ran,
        ):
            run_backward(machine, name)
        machine.recording.backward_of.append((forward, ran))
        if name == "TBackward0":
            gradient = gradients.pop()
            accumulate(machine, gradient)
            yield from communicate(
                machine, Exchange(ALL_REDUCE, job.gradient_group(machine.rank), gradient, gradient)
            )


def run_backward(machine: Machine, name: str) -> None:
    """What a backward node computes."""
    if name == "AddmmBackward0":
        for _ in ("input", "weight"):
            with machine.operation("aten::mm"):
                machine.launch(MATRIX_KERNEL, 40_000, 90_000)
    elif name == "ReluBackward0":
        with machine.operation("aten::threshold_backward"):
            machine.launch(ELEMENTWISE_KERNEL.format(op="at::native::ThresholdBackwardFunctor<float>"))
    elif name == "MseLossBackward0":
        with machine.operation("aten::mse_loss_backward"):
            machine.launch(ELEMENTWISE_KERNEL.format(op="at::native::MseLossBackwardFunctor<float>"))
    else:
        with machine.operation("aten::t"):
            pass


def accumulate(machine: Machine, gradient: Tensor) -> None:
    """The end of a chain of backward nodes, which has no number of its own."""
    name = "torch::autograd::AccumulateGrad"
    with (
        machine.operation(
            f"autograd::engine::evaluate_function: {name}", forward_thread=MAIN_THREAD, scope=1
        ),
        machine.operation(name, [gradient], forward_thread=MAIN_THREAD, scope=1),
    ):
        machine.allocate(gradient.elements * 4)


def update(machine: Machine, job: Job) -> None:
    """The optimizer waits for the reduced gradients, changes the weights and clears the gradients."""
    wait(machine, job.gradient_group(machine.rank))
    with (
        machine.frame("torch/optim/optimizer.py(473): wrapper"),
        machine.annotation("Optimizer.step#SGD.step"),
        machine.operation("aten::_foreach_add_"),
    ):
        machine.launch("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>")
    for _ in range(job.layers):
        with machine.operation("aten::zero_"):
            clear(machine, WIDTH * WIDTH * 4)
            machine.allocate(-WIDTH * WIDTH * 4)


def clear(machine: Machine, size: int) -> None:
    call = machine.call("cudaMemsetAsync", kernels=1)
    start = machine.ready(call, COMPUTE_STREAM)
    _move(machine, call, "gpu_memset", "Memset (Device)", start, 3_000, size)


def _move(machine: Machine, call: Event, category: str, name: str, start: int, ns: int, size: int) -> None:
    bandwidth = {"memory bandwidth (GB/s)": size / ns}
    machine.place(call, category, name, COMPUTE_STREAM, (start, start + ns), bytes=size, **bandwidth)


# The second of two runs: kernels are slower and a data loader makes a rank late.


SLOWER = 1.3
"""How many times as long matrix kernels take."""
LATE_RANK, LATE_NS = 1, 250_000


def slow_step(machine: Machine, job: Job, number: int) -> Program:
    """A step of the second run."""
    machine.slower[MATRIX_KERNEL] = SLOWER
    if machine.rank == LATE_RANK:
        with (
            machine.frame("torch/utils/data/dataloader.py(701): __next__"),
            machine.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        ):
            machine.work(LATE_NS, LATE_NS + 20_000)
    yield from train_step(machine, job, number)


# Many hosts: tensor, data and pipeline parallel at once.


TOKENS = 512
"""How many numbers the first rank of a tensor-parallel group sends to each; the second twice that, and so on."""


def cluster_step(machine: Machine, job: Cluster, number: int) -> Program:
    """Broadcasts the hyperparameters, sends batches through the stages and gradients back, then waits in a barrier."""
    step, (everyone, *_, pipeline) = Step(), job.groups(machine.rank)
    rate = machine.tensor(1)
    yield from communicate(machine, Exchange(BROADCAST, everyone, rate, rate))
    batch = load_batch(machine)
    if machine.rank == job.straggler(number):
        machine.launch(MATRIX_KERNEL, job.straggler_ns, job.straggler_ns)
    yield from through_the_pipeline(machine, job, pipeline, batch, step)
    loss(machine, step, batch)
    with machine.annotation("## backward ##"):
        yield from backward(machine, job, step)
    if job.stages > 1:
        # Each stage sends to the next one, and the last to the first.
        ring = [*pairwise(pipeline.ranks), (pipeline.ranks[-1], pipeline.ranks[0])]
        yield from batched(machine, pipeline, batch, ring)
    update(machine, job)
    flag = machine.tensor(1)
    yield from communicate(machine, Exchange(BARRIER, everyone, flag, flag))
    machine.wait_for_device()


def through_the_pipeline(machine: Machine, job: Cluster, group: Group, batch: Tensor, step: Step) -> Program:
    """What the stage before sends is computed on and sent to the stage behind."""
    stage = job.stage(machine.rank)
    if stage > 0:
        yield from communicate(
            machine, exchange_of(machine, group, batch, (group.ranks[stage - 1], machine.rank))
        )
        wait(machine, group, message=True)
    with machine.annotation("## forward ##"), machine.frame("nn.Module: Network_0", module=True):
        for layer in range(job.layers):
            machine.launch(MATRIX_KERNEL, 1_000, 1_000 + job.lateness_ns)
            yield from forward_layer(machine, job, layer, batch, step)
        yield from to_the_experts(machine, job)
    if stage < job.stages - 1:
        yield from communicate(
            machine, exchange_of(machine, group, batch, (machine.rank, group.ranks[stage + 1]))
        )


def to_the_experts(machine: Machine, job: Cluster) -> Program:
    """Of a tensor-parallel group, each sends more than the one before it; then the results are shared."""
    group = job.groups(machine.rank)[1]
    sizes = [TOKENS * (place + 1) for place in range(len(group.ranks))]
    own = sizes[group.ranks.index(machine.rank)]
    outgoing, incoming = machine.tensor(own * len(sizes)), machine.tensor(sum(sizes))
    splits = ([own] * len(sizes), sizes)
    yield from communicate(machine, Exchange(ALL_TO_ALL, group, outgoing, incoming, splits=splits))
    whole, part = machine.tensor(BATCH * len(sizes), WIDTH), machine.tensor(BATCH, WIDTH)
    yield from communicate(machine, Exchange(REDUCE_SCATTER, group, whole, part))
    wait(machine, group)


# Execution of all ranks together: a communication ends after its participants have arrived.


def simulate(job: Job, step: Callable[[Machine, Any, int], Program] | None = None) -> list[Recording]:
    """What each rank of the job records when all do the same steps: those of jobs of its class, unless given."""
    usual: Callable[[Machine, Any, int], Program] = cluster_step if isinstance(job, Cluster) else train_step
    machines = [Machine(job, rank) for rank in range(job.ranks)]
    programs = [train(machine, job, step or usual) for machine in machines]
    waiting: dict[tuple[int, str, int], dict[int, Meeting]] = {}
    runnable: deque[tuple[int, int | None]] = deque((rank, None) for rank in range(job.ranks))
    while runnable:
        rank, answer = runnable.popleft()
        try:
            meeting = next(programs[rank]) if answer is None else programs[rank].send(answer)
        except StopIteration:
            continue
        arrived = waiting.setdefault(meeting.key, {})
        arrived[rank] = meeting
        if len(arrived) == len(meeting.ranks):
            runnable.extend((member, end_of(member, arrived)) for member in waiting.pop(meeting.key))
    if waiting:
        raise RuntimeError(f"ranks deadlock: {sorted(waiting)}")
    return [machine.recording for machine in machines]


def end_of(rank: int, arrived: Mapping[int, Meeting]) -> int:
    """When a communication for which all are ready ends on one rank."""
    own = arrived[rank]
    return max(own.ready, *(arrived[other].ready for other in own.awaited)) + own.transfer
