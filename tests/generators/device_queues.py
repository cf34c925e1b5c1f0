"""Flight-recorder dumps of jobs in which each rank executes its calls one after the other on one device.

The host of a rank enqueues calls until it has to wait for its device at the end of a step. A call starts when all
earlier ones of the rank are finished, and finishes when all ranks that take part in it have started theirs: calls of a
group are matched by their number, and messages between two ranks by their order.

    programs = pipeline(tensor=4, stages=2, replicas=2)
    dumps = dumps_of(run(skipped(programs, rank=5, index=27)))
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from generators.recorded_plan import START_NS

ENQUEUE_NS, WORK_NS, WATCHDOG_NS = 30_000, 60_000, 50_000_000
ELEMENTS = 65_536
NEVER = 1 << 62

# Programs.


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    name: str
    description: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """One end of a message."""

    sends: bool
    peer: int
    """Position in the group."""


@dataclass(frozen=True, slots=True)
class Call:
    """A collective, a message, or a batch of messages."""

    group: Group
    operation: str = "all_reduce"
    ends: tuple[End, ...] = ()
    line: int = 1
    elements: int = ELEMENTS
    batched: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waits for its device: the end of a step."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The host goes no further."""


Item = Call | Wait | Stop
Programs = Sequence[Sequence[Item]]


class _Mesh:
    """Groups along each dimension; the last dimension varies fastest from rank to rank."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        self.world = 1
        for size in sizes.values():
            self.world *= size
        self.everybody = Group("0", "default_pg", tuple(range(self.world)))
        self._groups: dict[tuple[str, tuple[int, ...]], Group] = {}
        for name in sizes:
            for rank in range(self.world):
                ranks = tuple(self._line(name, rank))
                if (name, ranks) not in self._groups:
                    number = str(len(self._groups) + 1)
                    self._groups[name, ranks] = Group(number, f"mesh_{name}", ranks)

    def group(self, name: str, rank: int) -> Group:
        """The group of a rank along a dimension."""
        return self._groups[name, tuple(self._line(name, rank))]

    def position(self, name: str, rank: int) -> int:
        """The position of a rank along a dimension."""
        return rank // self._stride(name) % self.sizes[name]

    def _stride(self, name: str) -> int:
        stride = 1
        for other in reversed(self.sizes):
            if other == name:
                break
            stride *= self.sizes[other]
        return stride

    def _line(self, name: str, rank: int) -> Iterator[int]:
        stride = self._stride(name)
        first = rank - self.position(name, rank) * stride
        return (first + number * stride for number in range(self.sizes[name]))


def pipeline(
    *, tensor: int = 2, stages: int = 2, replicas: int = 2, steps: int = 3, microbatches: int = 3
) -> list[list[Item]]:
    """Stages that pass on microbatches, with tensor and data parallelism."""
    mesh = _Mesh(pp=stages, dp=replicas, tp=tensor)
    return [
        [item for _ in range(steps) for item in _pipeline_step(mesh, rank, microbatches)]
        for rank in range(mesh.world)
    ]


def _pipeline_step(mesh: _Mesh, rank: int, microbatches: int) -> Iterator[Item]:
    stage, last = mesh.position("pp", rank), mesh.sizes["pp"] - 1
    between, tensor = mesh.group("pp", rank), mesh.group("tp", rank)
    for _ in range(microbatches):
        if stage:
            yield Call(between, ends=(End(False, stage - 1),), line=200)
        if mesh.sizes["tp"] > 1:
            yield Call(tensor, line=300)
            yield Call(tensor, line=301)
        if stage < last:
            yield Call(between, ends=(End(True, stage + 1),), line=210)
    yield from _end_of_step(mesh, rank)


def _end_of_step(mesh: _Mesh, rank: int) -> Iterator[Item]:
    if mesh.sizes["dp"] > 1:
        yield Call(mesh.group("dp", rank), "_reduce_scatter_base", line=400)
        yield Call(mesh.group("dp", rank), "_all_gather_base", line=410)
    yield Call(mesh.everybody, line=500, elements=1)
    yield Wait()


def ring(
    *,
    size: int = 4,
    tensor: int = 1,
    replicas: int = 2,
    steps: int = 3,
    layers: int = 2,
    batched: bool = True,
) -> list[list[Item]]:
    """Rings in which each rank sends to the next and receives from the previous one, for each layer."""
    mesh = _Mesh(dp=replicas, cp=size, tp=tensor)
    return [
        [item for _ in range(steps) for item in _ring_step(mesh, rank, layers, batched)]
        for rank in range(mesh.world)
    ]


def _ring_step(mesh: _Mesh, rank: int, layers: int, batched: bool) -> Iterator[Item]:
    for _ in range(layers):
        if mesh.sizes["tp"] > 1:
            yield Call(mesh.group("tp", rank), line=300)
        for _ in range(mesh.sizes["cp"] - 1):
            yield from _exchange(mesh, rank, batched)
        if mesh.sizes["tp"] > 1:
            yield Call(mesh.group("tp", rank), line=301)
    yield from _end_of_step(mesh, rank)


def _exchange(mesh: _Mesh, rank: int, batched: bool) -> Iterator[Call]:
    group, size, position = mesh.group("cp", rank), mesh.sizes["cp"], mesh.position("cp", rank)
    sends, receives = End(True, (position + 1) % size), End(False, (position - 1) % size)
    if batched:
        yield Call(group, ends=(sends, receives), line=220, batched=True)
        return
    calls = Call(group, ends=(sends,), line=221), Call(group, ends=(receives,), line=222)
    yield from calls if position % 2 == 0 else reversed(calls)


# Faults.


def calls_of(programs: Programs, rank: int) -> list[int]:
    """The indexes of the calls of a rank."""
    return [index for index, item in enumerate(programs[rank]) if isinstance(item, Call)]


def skipped(programs: Programs, rank: int, index: int, count: int = 1) -> list[list[Item]]:
    """The rank leaves out a call, or several."""
    return _changed(programs, rank, [*programs[rank][:index], *programs[rank][index + count :]])


def repeated(programs: Programs, rank: int, index: int) -> list[list[Item]]:
    """The rank makes a call twice."""
    return _changed(programs, rank, [*programs[rank][: index + 1], *programs[rank][index:]])


def swapped(programs: Programs, rank: int, index: int) -> list[list[Item]]:
    """The rank makes a call after the next one."""
    first, second = programs[rank][index : index + 2]
    return _changed(programs, rank, [*programs[rank][:index], second, first, *programs[rank][index + 2 :]])


def stopped(programs: Programs, rank: int, index: int) -> list[list[Item]]:
    """The host of the rank stops before a call."""
    return _changed(programs, rank, [*programs[rank][:index], Stop()])


def _changed(programs: Programs, rank: int, program: Sequence[Item]) -> list[list[Item]]:
    return [list(program if number == rank else items) for number, items in enumerate(programs)]


# Execution.


@dataclass(slots=True)
class Issued:
    """A call that a host enqueued."""

    call: Call
    rank: int
    number: int
    """Among the collectives of its group, or among its messages and batches."""
    enqueued: int
    started: int = NEVER
    finished: int = NEVER
    open_ends: int = 0


@dataclass(slots=True)
class _Rank:
    program: Sequence[Item]
    clock: int
    position: int = 0
    issued: list[Issued] = field(default_factory=list)
    head: int = 0
    numbers: defaultdict[tuple[str, bool], int] = field(default_factory=lambda: defaultdict(int))


@dataclass(slots=True)
class _State:
    ranks: Sequence[_Rank]
    meetings: defaultdict[tuple[str, int], list[Issued]] = field(default_factory=lambda: defaultdict(list))
    channels: defaultdict[tuple[str, int, int], tuple[list[Issued], list[Issued]]] = field(
        default_factory=lambda: defaultdict(lambda: ([], []))
    )


def run(programs: Programs, *, seed: int = 0, stuck: Mapping[int, int] | None = None) -> list[list[Issued]]:
    """Runs until all ranks are done, or wait; `stuck` devices start no call from this one on."""
    random = Random(seed)
    state = _State([_Rank(program, START_NS + random.randrange(ENQUEUE_NS)) for program in programs])
    moved = True
    while moved:
        moved = False
        for number, rank in enumerate(state.ranks):
            moved |= _enqueue(rank, number, random)
            moved |= _execute(state, rank, (stuck or {}).get(number, NEVER), random)
    return [rank.issued for rank in state.ranks]


def _enqueue(rank: _Rank, number: int, random: Random) -> bool:
    before = rank.position
    while rank.position < len(rank.program):
        item = rank.program[rank.position]
        if isinstance(item, Stop) or (isinstance(item, Wait) and rank.head < len(rank.issued)):
            break
        if isinstance(item, Wait):
            rank.clock = max([rank.clock, *(each.finished for each in rank.issued[-1:])])
        else:
            rank.clock += ENQUEUE_NS + random.randrange(ENQUEUE_NS)
            key = item.group.name, bool(item.ends)
            rank.numbers[key] += 1
            rank.issued.append(Issued(item, number, rank.numbers[key], rank.clock))
        rank.position += 1
    return rank.position > before


def _execute(state: _State, rank: _Rank, stuck: int, random: Random) -> bool:
    moved = False
    while rank.head < min(len(rank.issued), stuck):
        call = rank.issued[rank.head]
        if call.started == NEVER:
            before = [rank.issued[rank.head - 1].finished] if rank.head else []
            call.started = max([call.enqueued, *before]) + random.randrange(1000)
            _meet(state, call)
            moved = True
        if call.finished == NEVER:
            break
        rank.head += 1
        moved = True
    return moved


def _meet(state: _State, issued: Issued) -> None:
    call = issued.call
    if not call.ends:
        members = state.meetings[call.group.name, issued.number]
        members.append(issued)
        if len(members) == len(call.group.ranks):
            _finish(members)
        return
    issued.open_ends = len(call.ends)
    own = call.group.ranks.index(issued.rank)
    for end in call.ends:
        sender, receiver = (own, end.peer) if end.sends else (end.peer, own)
        channel = state.channels[call.group.name, sender, receiver]
        channel[end.sends].append(issued)
        while channel[0] and channel[1]:
            pair = channel[0].pop(0), channel[1].pop(0)
            for each in pair:
                each.open_ends -= 1
                if not each.open_ends:
                    _finish([each], max(both.started for both in pair))


def _finish(members: Sequence[Issued], at: int = 0) -> None:
    last = max(at, *(each.started for each in members))
    for each in members:
        each.finished = last + WORK_NS


# Dumps.


def dumps_of(
    issued: Sequence[Sequence[Issued]],
    *,
    at: Sequence[int] | None = None,
    buffer: int = 2000,
    stacks: bool = True,
) -> dict[int, dict[str, Any]]:
    """The dump of each rank, taken at this time, or when nothing has moved for long."""
    return {
        rank: _dump(rank, calls, at[rank] if at else NEVER - 1, buffer, stacks)
        for rank, calls in enumerate(issued)
    }


def _dump(rank: int, calls: Sequence[Issued], at: int, buffer: int, stacks: bool) -> dict[str, Any]:
    groups = {call.call.group.name: call.call.group for call in calls}
    numbers = {name: number for number, name in enumerate(groups)}
    entries: list[dict[str, Any]] = []
    operations: defaultdict[str, int] = defaultdict(int)
    for issued in calls:
        if issued.enqueued > at:
            break
        for entry in _entries(issued, at):
            operations[issued.call.group.name] += 1
            more: dict[str, Any] = {
                "record_id": len(entries),
                "pg_id": numbers[issued.call.group.name],
                "op_id": operations[issued.call.group.name],
            }
            if stacks:
                more["frames"] = [_frame("call", issued.call.line), _frame("train", 900)]
            entries.append(entry | more)
    return {
        "version": "2.10",
        "pg_config": {
            name: {"name": name, "desc": group.description, "ranks": str(list(group.ranks))}
            for name, group in groups.items()
        },
        "comm_lib_version": "2.27.5",
        "pg_status": {},
        "entries": entries[-buffer:],
    }


def _frame(name: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": "/srv/job/train.py", "line": line}


def _entries(issued: Issued, at: int) -> Iterator[dict[str, Any]]:
    call = issued.call
    if not call.ends:
        yield _entry(issued, at, f"nccl:{call.operation}", [[call.elements]])
        return
    own = call.group.ranks.index(issued.rank)
    scheduled = _without_times(issued) if call.batched else issued
    for end in call.ends:
        way = f"send {own}->{end.peer}" if end.sends else f"recv {own}<-{end.peer}"
        yield _entry(scheduled, at, f"nccl:{way}", [[call.elements]]) | {"is_p2p": True}
    if call.batched:
        yield _entry(issued, at, "nccl:coalesced", [])


def _without_times(issued: Issued) -> Issued:
    """The ends of a batch have no state of their own."""
    return replace(issued, started=NEVER, finished=NEVER)


def _entry(issued: Issued, at: int, name: str, sizes: list[list[int]]) -> dict[str, Any]:
    started, finished = issued.started <= at, issued.finished <= at
    messages = bool(issued.call.ends)
    return {
        "process_group": (issued.call.group.name, issued.call.group.description),
        "collective_seq_id": 0 if messages else issued.number,
        "p2p_seq_id": issued.number if messages else 0,
        "profiling_name": name,
        "time_created_ns": issued.enqueued,
        "input_sizes": sizes,
        "input_dtypes": ["BFloat16"] * len(sizes),
        "output_sizes": sizes,
        "output_dtypes": ["BFloat16"] * len(sizes),
        "state": "completed" if finished else "started" if started else "scheduled",
        "time_discovered_started_ns": issued.started if started else None,
        "time_discovered_completed_ns": issued.finished if finished else None,
        "retired": issued.finished + WATCHDOG_NS <= at,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }
