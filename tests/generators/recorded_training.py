"""The steps of each kind of recorded job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from random import Random

from generators.job import Group
from generators.recorded_plan import (
    COALESCED,
    CONTEXT,
    DATA,
    EXPERT,
    PAIRS,
    PIPELINE,
    TENSOR,
    WORLD,
    Call,
    Compute,
    Item,
    Part,
    Pause,
    Plan,
    Program,
    Settle,
    Shapes,
)

# Building the program of one rank, call by call.


WIDTH = 128
LAYER_NS = 4_000_000
MOST_ROWS = 9


class Author:
    """Calls are left out where the rank has no group for them."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self.plan, self.rank = plan, rank
        self.groups = plan.groups(rank)
        self.items: list[Item] = []

    def compute(self, ns: int = LAYER_NS) -> None:
        self.items.append(Compute(ns))

    def settle(self) -> None:
        self.items.append(Settle())

    def size(self, role: str) -> int:
        """How many ranks a group has; 0 without one."""
        return len(self.groups[role].ranks) if role in self.groups else 0

    def place(self, role: str) -> int:
        return self.groups[role].ranks.index(self.rank)

    def call(self, role: str, *parts: Part, site: str, closing: str = "", waits: bool = True) -> None:
        """One operation, or several that start and end together."""
        if role in self.groups:
            self.items.append(Call(self.groups[role], parts, site, closing, waits))

    def reduce(self, role: str, shape: tuple[int, ...], *, site: str, waits: bool = True) -> None:
        self.call(role, same("all_reduce", shape), site=site, waits=waits)

    def gather(self, role: str, *rows: int, site: str) -> None:
        """An all_gather into one tensor, or several in one call of a coalescing manager."""
        size, closing = self.size(role), COALESCED if len(rows) > 1 else ""
        parts = (Part("_all_gather_base", _rows(each), _rows(each * size)) for each in rows)
        self.call(role, *parts, site=site, closing=closing)

    def scatter(self, role: str, rows: int, *, site: str) -> None:
        """A reduce_scatter of one tensor, for which nothing waits."""
        part = Part("_reduce_scatter_base", _rows(rows * self.size(role)), _rows(rows))
        self.call(role, part, site=site, waits=False)

    def uneven(self, role: str, member: str, closing: str, *, site: str) -> None:
        """An all_gather or reduce_scatter of tensors of different sizes: one operation for each member."""
        parts = (same(member, (3 + place, WIDTH)) for place in range(self.size(role)))
        self.call(role, *parts, site=site, closing=closing)

    def exchange(self, role: str, step: int, *, site: str, listed: bool = False, back: bool = False) -> None:
        """An uneven all_to_all; `back` sends the rows to where they came from."""
        if role not in self.groups:
            return
        me, rows = self.place(role), _matrix(self.groups[role], self.plan.seed, step)
        given, gotten = rows[me], tuple(line[me] for line in rows)
        if back:
            given, gotten = gotten, given
        inputs, outputs = (_rows(*each) if listed else _rows(sum(each)) for each in (given, gotten))
        self.call(role, Part("all_to_all", inputs, outputs), site=site)


def same(operation: str, shape: tuple[int, ...], dtype: str = "BFloat16", peer: int | None = None) -> Part:
    """An operation whose input is as large as its output, or one end of a message."""
    return Part(operation, (shape,), (shape,), dtype, peer)


def _rows(*rows: int) -> Shapes:
    return tuple((each, WIDTH) for each in rows)


@lru_cache(maxsize=512)
def _matrix(group: Group, seed: int, step: int) -> tuple[tuple[int, ...], ...]:
    """How many rows each member has for each other."""
    random = Random(f"experts {seed} {step} {group.name}")
    size = range(len(group.ranks))
    return tuple(tuple(random.randint(1, MOST_ROWS) for _ in size) for _ in size)


# One step of each kind of job.


ROWS = 16
PAUSE_NS = 5_000_000
"""What a program with a queue does between two steps."""

SEQUENCE = (64, WIDTH)


@lru_cache(maxsize=32)
def programs(plan: Plan) -> tuple[Program, ...]:
    """The program of every rank, if nothing goes wrong."""
    return tuple(program(plan, rank) for rank in range(plan.world))


def program(plan: Plan, rank: int, step_with_fewer: int = -1) -> Program:
    """The program of one rank; in one step it can have a microbatch less."""
    author, random = Author(plan, rank), Random(f"pauses {plan.seed} {rank}")
    fewer = replace(plan, microbatches=plan.microbatches - 1)
    if not plan.queued:
        author.call(WORLD, same("broadcast", (1,), "Float"), site="start")
    for step in range(plan.steps):
        author.plan = fewer if step == step_with_fewer else plan
        for part in STEPS[plan.kind]:
            part(author, step)
        if plan.queued:
            finish_queue(author, PAUSE_NS // 2 + random.randrange(PAUSE_NS))
        else:
            finish(author, step)
    return tuple(author.items)


def buckets(author: Author, _step: int) -> None:
    """Gradients are reduced as they are computed."""
    for bucket in range(4):
        author.compute()
        author.reduce(WORLD, (256 + bucket, WIDTH), site=f"bucket_{bucket}")


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


def ring(author: Author, _step: int, *, in_turns: bool = False) -> None:
    """Every rank passes a block on to the next and gets one from the one before, all the way round."""
    if CONTEXT not in author.groups:
        return
    size, place = len(author.groups[CONTEXT].ranks), author.place(CONTEXT)
    for layer in range(author.plan.layers):
        for _ in range(size - 1):
            ends = (("send", (place + 1) % size), ("recv", (place - 1) % size))
            parts = [same(name, (8 + layer, WIDTH), peer=peer) for name, peer in ends]
            if in_turns:
                for part in parts[:: -1 if place % 2 else 1]:
                    author.call(CONTEXT, part, site="ring_exchange")
            else:
                author.call(CONTEXT, *parts, site="ring_exchange", closing=COALESCED)
            author.compute(LAYER_NS // size)
        if author.plan.queued:
            author.reduce(TENSOR, (32 + layer, WIDTH), site="output")


def forward(author: Author, _step: int) -> None:
    """Microbatches go through the stages of a pipeline, and nothing comes back."""
    for _ in range(author.plan.microbatches):
        _trade(author, False, -1, "recv")
        for layer in range(2):
            author.compute()
            author.reduce(TENSOR, SEQUENCE, site=f"row_parallel_{layer}")
        _trade(author, False, 1, "send")


def pipeline(author: Author, _step: int, *, batched: bool = False) -> None:
    """One forward, one backward; what goes both ways between two stages is two messages, or one batch."""
    stages, stage, count = author.plan.stages, author.plan.stage(author.rank), author.plan.microbatches
    if stages == 1:
        return
    trade = partial(_trade, author, batched)
    early = min(stages - 1 - stage, count)
    for _ in range(early):
        trade(-1, "recv")
        _forward(author)
        trade(1, "send")
    if early < count:
        trade(-1, "recv")
    for number in range(count - early):
        _forward(author)
        trade(1, "send", "recv")
        _backward(author)
        back = ("send",) if number + 1 == count - early else ("send", "recv")
        # Both ends of single messages keep the same order.
        trade(-1, *(back if batched else back[::-1]))
    for _ in range(early):
        trade(1, "recv")
        _backward(author)
        trade(-1, "send")


def _trade(author: Author, batched: bool, way: int, *operations: str) -> None:
    """Messages with the next stage, or with the one before (-1), if there is one."""
    peer = author.plan.stage(author.rank) + way
    if not 0 <= peer < author.plan.stages:
        return
    sites = {
        name: f"{name}_{'forward' if (name == 'send') == (way > 0) else 'backward'}" for name in operations
    }
    parts = [same(name, SEQUENCE, peer=peer) for name in operations]
    if batched:
        author.call(PIPELINE, *parts, site="_".join(sites.values()), closing=COALESCED)
        return
    for part in parts:
        author.call(PIPELINE, part, site=sites[part.operation])


def _forward(author: Author) -> None:
    author.compute()
    author.reduce(TENSOR, SEQUENCE, site="microbatch_forward")


def _backward(author: Author) -> None:
    author.compute(2 * LAYER_NS)
    author.reduce(TENSOR, SEQUENCE, site="microbatch_backward")


def coalesced(author: Author, _step: int) -> None:
    """Everything that can be put together, in all ways."""
    size = author.size(DATA)
    author.gather(DATA, 4, 5, 6, site="coalesced_gather")
    author.compute()
    small, large = _rows(2, 3), _rows(2 * size, 3 * size)
    author.call(DATA, Part("all_gather_into_tensor_coalesced", small, large), site="fused_gather")
    author.call(DATA, Part("reduce_scatter_tensor_coalesced", large, small), site="fused_scatter")
    author.uneven(DATA, "_broadcast_oop", "ALLGATHER_coalesced", site="uneven_gather")
    author.compute()
    author.uneven(DATA, "_reduce_oop", "REDUCE_SCATTER_coalesced", site="uneven_scatter")
    author.call(WORLD, Part("allreduce_coalesced", _rows(7, 1), _rows(7, 1)), site="fused_reduce")


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
        author.call(WORLD, same("mystery_op", (2, 3), "Float"), site="mystery")
    for role in (DATA, TENSOR, PIPELINE):
        author.reduce(role, (4,), site="balance")
    author.reduce(WORLD, (2,), site="loss")
    author.settle()
    if step % 2:
        author.call(WORLD, same("all_reduce_barrier", (1,), "Float"), site="checkpoint")
        author.settle()


def finish_queue(author: Author, pause_ns: int) -> None:
    """Gradients are exchanged, and the program waits for data."""
    author.scatter(DATA, ROWS, site="grad_sync")
    author.gather(DATA, ROWS, site="all_gather_params")
    author.reduce(WORLD, (1,), site="clip_grad_norm")
    if author.plan.settles:
        author.settle()
    author.items.append(Pause(pause_ns))


STEPS: dict[str, tuple[Callable[[Author, int], None], ...]] = {
    "buckets": (buckets,),
    "forward": (forward,),
    "ring_in_turns": (partial(ring, in_turns=True),),
    "data_parallel": (dense,),
    "ring": (ring,),
    "pipeline": (pipeline,),
    "batched_pipeline": (partial(pipeline, batched=True),),
    "coalesced": (coalesced,),
    "expert": (expert,),
    "mixed": (dense, ring, pipeline, partial(pipeline, batched=True), coalesced, expert),
}
"""What a kind of job does in a step, in order."""
