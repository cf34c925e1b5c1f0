"""What the kinds of recorded jobs do in a step."""

from __future__ import annotations

from functools import lru_cache

from tracelink.samples.generate.recorded_author import LAYER_NS, WIDTH, Author, message
from tracelink.samples.generate.recorded_plan import (
    CONTEXT,
    DATA,
    EXPERT,
    PAIRS,
    PIPELINE,
    TENSOR,
    WORLD,
    Plan,
)
from tracelink.samples.generate.recorded_program import Program

ROWS = 16
SEQUENCE = (64, WIDTH)


@lru_cache(maxsize=32)
def programs(plan: Plan) -> tuple[Program, ...]:
    """The program of every rank, if nothing goes wrong."""
    return tuple(program(plan, rank) for rank in range(plan.world))


def program(plan: Plan, rank: int) -> Program:
    """The program of one rank."""
    author = Author(plan, rank)
    author.same(WORLD, "broadcast", (1,), site="start")
    for step in range(plan.steps):
        for part in STEPS[plan.kind]:
            part(author, step)
        finish(author, step)
    return tuple(author.items)


def dense(author: Author, _step: int) -> None:
    """Sharded parameters are gathered before use, gradients scattered behind the computing."""
    layers = range(author.plan.layers)
    for layer in layers:
        author.gather(DATA, ROWS + layer, site="forward_gather")
        author.compute()
        author.reduce(TENSOR, (32 + layer, WIDTH), site="forward_reduce")
    for layer in reversed(layers):
        author.gather(DATA, ROWS + layer, site="backward_gather")
        author.compute(2 * LAYER_NS)
        author.reduce(TENSOR, (32 + layer, WIDTH), site="backward_reduce")
        author.scatter(DATA, ROWS + layer, site="backward_scatter")


def ring(author: Author, _step: int) -> None:
    """Every rank passes a block on to the next and gets one from the one before, all the way round."""
    if CONTEXT not in author.groups:
        return
    size, place = len(author.groups[CONTEXT].ranks), author.place(CONTEXT)
    for layer in range(author.plan.layers):
        for _ in range(size - 1):
            block = (8 + layer, WIDTH)
            parts = [message("send", (place + 1) % size, block), message("recv", (place - 1) % size, block)]
            author.batch(CONTEXT, parts, site="ring_exchange")
            author.compute(LAYER_NS // size)


def pipeline(author: Author, _step: int) -> None:
    """One forward, one backward, with single sends and receives; both ends keep the same order."""
    stages, stage, count = author.plan.stages, author.plan.stage(author.rank), author.plan.microbatches
    if stages == 1:
        return
    early = min(stages - 1 - stage, count)
    for _ in range(early):
        _receive_forward(author)
        _forward(author)
        _send_forward(author)
    _receive_forward(author, early < count)
    for number in range(count - early):
        _forward(author)
        _send_forward(author)
        _receive_backward(author)
        _backward(author)
        _receive_forward(author, number + 1 < count - early)
        _send_backward(author)
    for _ in range(early):
        _receive_backward(author)
        _backward(author)
        _send_backward(author)


def _receive_forward(author: Author, wanted: bool = True) -> None:
    stage = author.plan.stage(author.rank)
    if stage > 0 and wanted:
        author.receive(PIPELINE, stage - 1, SEQUENCE, site="recv_forward")


def _send_forward(author: Author) -> None:
    stage = author.plan.stage(author.rank)
    if stage + 1 < author.plan.stages:
        author.send(PIPELINE, stage + 1, SEQUENCE, site="send_forward")


def _receive_backward(author: Author) -> None:
    stage = author.plan.stage(author.rank)
    if stage + 1 < author.plan.stages:
        author.receive(PIPELINE, stage + 1, SEQUENCE, site="recv_backward")


def _send_backward(author: Author) -> None:
    stage = author.plan.stage(author.rank)
    if stage > 0:
        author.send(PIPELINE, stage - 1, SEQUENCE, site="send_backward")


def _forward(author: Author) -> None:
    author.compute()
    author.reduce(TENSOR, SEQUENCE, site="microbatch_forward")


def _backward(author: Author) -> None:
    author.compute(2 * LAYER_NS)
    author.reduce(TENSOR, SEQUENCE, site="microbatch_backward")


def batched_pipeline(author: Author, _step: int) -> None:
    """One forward, one backward; what goes both ways between two stages goes in one batch."""
    stages, stage, count = author.plan.stages, author.plan.stage(author.rank), author.plan.microbatches
    if stages == 1:
        return
    before, after = stage - 1, stage + 1 if stage + 1 < stages else -1
    early = min(stages - 1 - stage, count)
    for _ in range(early):
        _batch(author, before, "recv", "recv_forward")
        _forward(author)
        _batch(author, after, "send", "send_forward")
    if early < count:
        _batch(author, before, "recv", "recv_forward")
    for number in range(count - early):
        last = number + 1 == count - early
        _forward(author)
        _batch(author, after, "send recv", "send_forward_recv_backward")
        _backward(author)
        _batch(author, before, "send" if last else "send recv", "send_backward_recv_forward")
    for _ in range(early):
        _batch(author, after, "recv", "recv_backward")
        _backward(author)
        _batch(author, before, "send", "send_backward")


def _batch(author: Author, peer: int, operations: str, site: str) -> None:
    if peer >= 0:
        author.batch(PIPELINE, [message(name, peer, SEQUENCE) for name in operations.split()], site=site)


def coalesced(author: Author, _step: int) -> None:
    """Everything that can be put together, in all ways."""
    author.several(DATA, (4, 5, 6), site="coalesced_gather")
    author.compute()
    author.fused(DATA, "all_gather_into_tensor_coalesced", (2, 3), site="fused_gather")
    author.fused(DATA, "reduce_scatter_tensor_coalesced", (2, 3), site="fused_scatter")
    author.uneven(DATA, "_broadcast_oop", "ALLGATHER_coalesced", site="uneven_gather")
    author.compute()
    author.uneven(DATA, "_reduce_oop", "REDUCE_SCATTER_coalesced", site="uneven_scatter")
    author.fused(WORLD, "allreduce_coalesced", (7, 1), site="fused_reduce")


def expert(author: Author, step: int) -> None:
    """Tokens go to their experts and back."""
    for layer in range(author.plan.layers):
        number, listed = step * author.plan.layers + layer, layer % 2 == 1
        author.exchange(EXPERT, number, site="dispatch", listed=listed)
        author.compute()
        author.exchange(EXPERT, number, site="combine", listed=listed, back=True)


def finish(author: Author, step: int) -> None:
    """Gradients are measured, the step ends."""
    for pair in PAIRS:
        author.reduce(pair, (3,), site="corner")
    author.reduce(WORLD, (1,), site="gradient_norm", waits=False)
    if author.plan.unknown_operations:
        author.same(WORLD, "mystery_op", (2, 3), site="mystery")
    for role in (DATA, TENSOR, PIPELINE):
        author.reduce(role, (4,), site="balance")
    author.reduce(WORLD, (2,), site="loss")
    author.settle()
    if step % 2:
        author.same(WORLD, "all_reduce_barrier", (1,), site="checkpoint")
        author.settle()


STEPS = {
    "data_parallel": (dense,),
    "ring": (ring,),
    "pipeline": (pipeline,),
    "batched_pipeline": (batched_pipeline,),
    "coalesced": (coalesced,),
    "expert": (expert,),
    "mixed": (dense, ring, pipeline, batched_pipeline, coalesced, expert),
}
"""What a kind of job does in a step, in order."""
