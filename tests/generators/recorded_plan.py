"""A job with flight recorders: size, groups, backend, and the calls of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from generators.job import Group, parallel_ranks

# The program of a rank: calls, compute and waits, in order.


Shapes = tuple[tuple[int, ...], ...]
COALESCED = "coalesced"


@dataclass(frozen=True, slots=True)
class Part:
    """One operation, as it is recorded."""

    operation: str
    inputs: Shapes
    outputs: Shapes
    type: str = "BFloat16"
    peer: int | None = None
    """The other end of a message: a rank of the group."""

    @property
    def sends(self) -> bool:
        return self.operation == "send"

    @property
    def agreement(self) -> tuple[object, ...]:
        """What the members of a group must have in common."""
        # Pieces of an uneven all_to_all differ from rank to rank; its matrix is another matter.
        if self.operation == "all_to_all":
            return (self.operation,)
        return self.operation, self.inputs, self.outputs


@dataclass(frozen=True, slots=True)
class Call:
    """One or several operations that start and end together."""

    group: Group
    parts: tuple[Part, ...]
    site: str
    """Where in the program it stands."""
    closing: str = ""
    """The operation of the entry that ends several operations; empty if it is a single one."""
    waits: bool = True
    """Whether what is computed next needs the result."""
    lost: bool = False
    """True if it never ends, for a reason that is not recorded."""

    @property
    def messages(self) -> bool:
        """Whether it consists of sends and receives."""
        return self.parts[0].peer is not None

    @property
    def agreement(self) -> tuple[object, ...]:
        """What the members of a group must have in common, or none of them gets any further."""
        return (self.closing, *(part.agreement for part in self.parts))


@dataclass(frozen=True, slots=True)
class Compute:
    """Keeps the GPU busy."""

    ns: int | None
    """None: unbounded."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Keeps the program busy: data loading."""

    ns: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Waits until everything issued is over: the end of a step."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Goes no further."""


Item = Call | Compute | Pause | Settle | Stop
Program = Sequence[Item]


def recorded(call: Call, by_gloo: bool) -> tuple[Part, ...]:
    """The operations of a call that a backend records, and what ends them if they are several."""
    if by_gloo:
        return (_as_gloo(call),)
    return (*call.parts, Part(call.closing, (), ())) if call.closing else call.parts


def _as_gloo(call: Call) -> Part:
    """The single entry of a call; gloo has fewer operations."""
    part = call.parts[0]
    if call.closing or (len(part.inputs) > 1 and part.operation != "all_to_all"):
        shapes = tuple(shape for each in call.parts for shape in each.inputs)
        return Part("all_reduce", shapes, shapes, part.type)
    match part.operation:
        case "all_reduce_barrier":
            return Part("barrier", (), ())
        case "_reduce_scatter_base":
            return Part("all_reduce", part.inputs, part.inputs, part.type)
        case "_all_gather_base":
            return Part("all_gather", part.inputs, ((len(call.group.ranks), *part.inputs[0]),), part.type)
    return part


# The job: size, groups, kind, and when its dumps are taken.


WORLD, TENSOR, DATA, PIPELINE, EXPERT, CONTEXT = (
    *("default_pg", "mesh_tp", "mesh_dp", "mesh_pp", "mesh_ep", "mesh_cp"),
)
PAIRS = ("pair_01", "pair_12", "pair_02")
"""What groups are for; torch records it as their description."""

KINDS = ("data_parallel", "ring", "pipeline", "batched_pipeline", "coalesced", "expert", "mixed")
PIPELINES = ("forward", "pipeline", "batched_pipeline")
QUEUED_KINDS = ("buckets", "data_parallel", *PIPELINES, "ring", "ring_in_turns")
START_NS, SECOND_NS = 1_794_982_617_000_000_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a recorded job. Equal parameters give equal dumps."""

    world: int = 8
    tensor: int = 2
    """How many ranks share a layer."""
    stages: int = 1
    """Of the pipeline."""
    kind: str = "data_parallel"
    steps: int = 3
    layers: int = 2
    microbatches: int = 4
    backend: str = "nccl"
    """The prefix of every operation: nccl, nccl2, nccl-lazy, gloo, ucc, xccl or anything else."""
    buffer: int = 2000
    """How many entries a recorder keeps."""
    seed: int = 0
    timing: bool = True
    """Whether the recorder learns of starts (TORCH_NCCL_ENABLE_TIMING); without, nothing is ever `started`."""
    configured: bool = True
    """Whether `pg_config` names the groups; gloo leaves it empty."""
    unknown_operations: bool = False
    """True if the backend has operations with unknown names."""
    triangle: bool = False
    """Whether the first three ranks have a group for each two of them."""
    queued: bool = False
    """Whether a device works off everything in the order of issue, and not the calls of each group by themselves."""
    settles: bool = True
    """Whether programs wait for their devices at the end of each step."""
    eager: bool = False
    """Whether a send ends before its message is received."""
    run_ahead: int = 200
    """How many calls a program issues before it waits for the first of them."""
    timeout_ms: int = 600_000
    ranks_per_host: int = 8
    clock_skew_ns: int = 0
    """How far the clock of a host is off at most, to either side; that of the first host is right."""

    def __post_init__(self) -> None:
        kinds = QUEUED_KINDS if self.queued else KINDS
        if self.world % (self.tensor * self.stages):
            raise ValueError(f"{self.world} ranks make no {self.stages} stages of {self.tensor} ranks")
        if self.kind not in kinds:
            raise ValueError(f"{self.kind} is not one of {', '.join(kinds)}")
        if self.triangle and self.world < 3:
            raise ValueError("a triangle has three corners")

    @property
    def replicas(self) -> int:
        return self.world // (self.tensor * self.stages)

    @property
    def blocks(self) -> bool:
        """Whether a collective keeps the program waiting; such backends record no sends and receives."""
        return self.backend == "gloo"

    @property
    def shows_starts(self) -> bool:
        """Whether entries can be `started`."""
        return self.timing and not self.blocks

    def stage(self, rank: int) -> int:
        return rank // (self.tensor * self.replicas)

    def groups(self, rank: int) -> dict[str, Group]:
        """The groups of a rank by what they are for, in the order of their making."""
        made = _groups(self.world, self.tensor, self.stages, self.triangle)
        return {group.description: group for group in made if rank in group.ranks}

    def clock_offset(self, rank: int) -> int:
        host = rank // self.ranks_per_host
        if host == 0 or not self.clock_skew_ns:
            return 0
        return Random(f"clock {self.seed} {host}").randint(-self.clock_skew_ns, self.clock_skew_ns)


@lru_cache(maxsize=64)
def _groups(world: int, tensor: int, stages: int, triangle: bool) -> tuple[Group, ...]:
    """All groups of a job, numbered as the program makes them."""
    members = [*_members(world, tensor, stages)]
    if triangle:
        members += [(role, (int(role[-2]), int(role[-1]))) for role in PAIRS]
    return tuple(Group(number, role, tuple(ranks)) for number, (role, ranks) in enumerate(members))


def _members(world: int, tensor: int, stages: int) -> Iterator[tuple[str, Sequence[int]]]:
    yield WORLD, range(world)
    parallel, replicated, staged = parallel_ranks(world, tensor, stages).values()
    made = ((TENSOR, parallel), (DATA, replicated), (PIPELINE, staged))
    for role, all_ranks in (*made, (EXPERT, replicated), (CONTEXT, replicated)):
        yield from ((role, ranks) for ranks in all_ranks if len(ranks) > 1)


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. Fields that are None are chosen at random."""

    kind: str
    rank: int | None = None
    step: int | None = None
    role: str | None = None
    """In a group of this description: `mesh_tp`."""
    number: int | None = None
    """Of the call, as its group counts."""
    share: float = 0.5
    """How late a straggler is: the share of a step's computing."""

    def __str__(self) -> str:
        where = (("rank", self.rank), ("step", self.step), ("", self.role), ("#", self.number))
        return " ".join([self.kind, *(f"{name}{value}" for name, value in where if value is not None)])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """When the dumps are taken and what becomes of them."""

    when: str = "settled"
    """`settled`: the job is over or hangs; `timed_out`: after the timeout, too; `running`: in between."""
    at: float = 0.5
    """Which share of the job is over, if it is running."""
    skew_ns: int = 0
    """By how much the times of the dumps differ."""
    moments: tuple[int, ...] = ()
    """When the dump of each rank is taken after the start, if it matters."""
    wait_ns: int = 30 * SECOND_NS
    """How long nothing has moved, if it is settled."""
    missing: tuple[int, ...] = ()
    """Ranks without a dump."""
    cut_short: tuple[int, ...] = ()
    """Ranks whose dump breaks off in the middle."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong, by what was done to the programs and not by what the dumps show."""

    fault: str
    """The kind of the fault that was put in."""
    kind: str
    """What a diagnosis should call it."""
    group: str
    """The group's name; empty where the whole job is meant."""
    sequence: int | None
    """The first number at which the culprit does not do what it should, as the culprit counts."""
    culprits: tuple[int, ...]
    waiting: tuple[int, ...] = ()
    """Who waits for the culprits there."""
    members: tuple[int, ...] = ()
    """Of the group."""
    operation: str = ""
    """What should have been done there: `nccl:all_reduce`."""
    point_to_point: bool = False
    """Whether `sequence` counts messages."""
    also: frozenset[str] = frozenset()
    """Other names for it that the dumps do not rule out."""
    places: tuple[tuple[str, int], ...] = ()
    """Every group of the culprit with the first number there that it does not take part in."""
    tie: bool = False
    """Whether no majority tells the culprit from the others."""
    cycle: tuple[tuple[str, int, int, int], ...] = ()
    """Of a deadlock: group, sequence, who waits there, for whom."""
    hangs: bool = True
    """Whether the job stops."""
    evident: bool = True
    """Whether dumps that were taken like this still hold, or already hold, what shows it."""

    @property
    def suspects(self) -> set[int]:
        """The culprits, and those whom the dumps do not tell from them."""
        others = {rank for *_, waiting, awaited in self.cycle for rank in (waiting, awaited)} or self.members
        return {*self.culprits, *(others if self.tie else ())}
