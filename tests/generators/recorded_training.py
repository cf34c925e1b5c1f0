"""The steps of each kind of recorded job."""

from __future__ import annotations

from functools import lru_cache
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
        """Keeps the GPU busy."""
        self.items.append(Compute(ns))

    def settle(self) -> None:
        """Ends a step."""
        self.items.append(Settle())

    def place(self, role: str) -> int:
        """The number of this rank in a group."""
        return self.groups[role].ranks.index(self.rank)

    def reduce(self, role: str, shape: tuple[int, ...], *, site: str, waits: bool = True) -> None:
        """An all_reduce."""
        self._collective(role, Part("all_reduce", (shape,), (shape,)), site, waits)

    def same(self, role: str, operation: str, shape: tuple[int, ...], *, site: str) -> None:
        """An operation whose input is as large as its output: broadcast, barrier, or an unknown operation."""
        self._collective(role, Part(operation, (shape,), (shape,), "Float"), site, True)

    def gather(self, role: str, rows: int, *, site: str, waits: bool = True) -> None:
        """An all_gather into one tensor."""
        if role in self.groups:
            self._collective(role, gathering(self.groups[role], rows), site, waits)

    def scatter(self, role: str, rows: int, *, site: str, waits: bool = False) -> None:
        """A reduce_scatter of one tensor."""
        if role in self.groups:
            self._collective(role, scattering(self.groups[role], rows), site, waits)

    def several(self, role: str, rows: tuple[int, ...], *, site: str) -> None:
        """Several all_gathers in one call of a coalescing manager."""
        if role in self.groups:
            parts = tuple(gathering(self.groups[role], each) for each in rows)
            self.items.append(Call(self.groups[role], parts, site, COALESCED))

    def fused(self, role: str, operation: str, rows: tuple[int, ...], *, site: str) -> None:
        """One entry of several tensors."""
        if role in self.groups:
            whole = Part(operation, *_tensors(operation, rows, len(self.groups[role].ranks)))
            self._collective(role, whole, site, True)

    def uneven(self, role: str, member: str, closing: str, *, site: str) -> None:
        """An all_gather or reduce_scatter of tensors of different sizes: one operation for each member."""
        if role in self.groups:
            shapes = [((3 + place, WIDTH),) for place in range(len(self.groups[role].ranks))]
            parts = tuple(Part(member, shape, shape) for shape in shapes)
            self.items.append(Call(self.groups[role], parts, site, closing))

    def exchange(self, role: str, step: int, *, site: str, listed: bool = False, back: bool = False) -> None:
        """An uneven all_to_all; `back` sends the rows to where they came from."""
        if role not in self.groups:
            return
        group, me = self.groups[role], self.place(role)
        rows = matrix(group, self.plan.seed, step)
        given, gotten = rows[me], tuple(line[me] for line in rows)
        if back:
            given, gotten = gotten, given
        self._collective(
            role, Part("all_to_all", _pieces(given, listed), _pieces(gotten, listed)), site, True
        )

    def send(self, role: str, peer: int, shape: tuple[int, ...], *, site: str) -> None:
        """A message to a rank of a group."""
        self.messages(role, [message("send", peer, shape)], site=site)

    def receive(self, role: str, peer: int, shape: tuple[int, ...], *, site: str) -> None:
        """A message from a rank of a group."""
        self.messages(role, [message("recv", peer, shape)], site=site)

    def batch(self, role: str, parts: list[Part], *, site: str, waits: bool = True) -> None:
        """Messages that start and end together."""
        if parts and role in self.groups:
            self.items.append(Call(self.groups[role], tuple(parts), site, COALESCED, waits))

    def messages(self, role: str, parts: list[Part], *, site: str) -> None:
        """Messages one after the other."""
        if role in self.groups:
            self.items += [Call(self.groups[role], (part,), site) for part in parts]

    def _collective(self, role: str, part: Part, site: str, waits: bool) -> None:
        if role in self.groups:
            self.items.append(Call(self.groups[role], (part,), site, waits=waits))


def message(operation: str, peer: int, shape: tuple[int, ...]) -> Part:
    """One end of a message."""
    return Part(operation, (shape,), (shape,), peer=peer)


def gathering(group: Group, rows: int) -> Part:
    """Every rank contributes `rows`."""
    return Part("_all_gather_base", ((rows, WIDTH),), ((rows * len(group.ranks), WIDTH),))


def scattering(group: Group, rows: int) -> Part:
    """Every rank receives `rows`."""
    return Part("_reduce_scatter_base", ((rows * len(group.ranks), WIDTH),), ((rows, WIDTH),))


@lru_cache(maxsize=512)
def matrix(group: Group, seed: int, step: int) -> tuple[tuple[int, ...], ...]:
    """How many rows each member has for each other."""
    random = Random(f"experts {seed} {step} {group.name}")
    size = range(len(group.ranks))
    return tuple(tuple(random.randint(1, MOST_ROWS) for _ in size) for _ in size)


def _pieces(rows: tuple[int, ...], listed: bool) -> Shapes:
    return tuple((each, WIDTH) for each in rows) if listed else ((sum(rows), WIDTH),)


def _tensors(operation: str, rows: tuple[int, ...], size: int) -> tuple[Shapes, Shapes]:
    small = tuple((each, WIDTH) for each in rows)
    large = tuple((each * size, WIDTH) for each in rows)
    if operation.startswith("all_gather"):
        return small, large
    return (large, small) if operation.startswith("reduce_scatter") else (small, small)


# One step of each kind of job.


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
