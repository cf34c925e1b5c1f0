"""Dumps of jobs with pipelines, rings and run-ahead programs on one device queue for each rank: healthy or faulty.

job = queued_job(Queued(schedule="forward"), "skip_tp", Dumping("settled"))
job.write(folder)
job.truth.culprits
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from generators.flight_recorder import START_NS, pickled
from generators.job import Group
from generators.queued_run import Machine, Recorder, Run, Taken, Work, run
from generators.recorded_faults import changed, put
from generators.recorded_plan import (
    CONTEXT,
    DATA,
    PIPELINE,
    TENSOR,
    WORLD,
    Call,
    Compute,
    Item,
    Pause,
    Plan,
    Program,
    Settle,
    Stop,
)
from generators.recorded_training import SEQUENCE, Author, batched_pipeline, dense, message, pipeline, ring

# The parameters of a job and of its dumps.


SCHEDULES = (
    "data",
    "sharded",
    "forward",
    "one_forward_one_backward",
    "batched",
    "ring",
    "ring_of_single_messages",
)
ROLES = {"world": WORLD, "tp": TENSOR, "dp": DATA, "pp": PIPELINE, "cp": CONTEXT}


@dataclass(frozen=True, slots=True)
class Queued:
    """The parameters of a job. Equal parameters give equal dumps."""

    world: int = 16
    tensor: int = 4
    stages: int = 2
    schedule: str = "forward"
    steps: int = 3
    microbatches: int = 3
    seed: int = 0
    run_ahead: int = 64
    eager: bool = False
    """Whether a send ends before its message is received."""
    settles: bool = False
    """Whether programs wait for their devices at the end of each step."""
    timing: bool = True
    """Whether the recorder learns of starts."""
    buffer: int = 2000
    timeout_ms: int = 600_000
    ranks_per_host: int = 8
    clock_skew_ns: int = 0

    @property
    def plan(self) -> Plan:
        """What the programs and the recorder need to know."""
        return Plan(
            world=self.world,
            tensor=self.tensor,
            stages=self.stages,
            microbatches=self.microbatches,
            steps=self.steps,
            buffer=self.buffer,
            seed=self.seed,
            timing=self.timing,
            timeout_ms=self.timeout_ms,
            ranks_per_host=self.ranks_per_host,
            clock_skew_ns=self.clock_skew_ns,
        )


@dataclass(frozen=True, slots=True)
class Dumping:
    """When dumps are made, and what becomes of them."""

    when: str = "settled"
    """`settled`: long after the last event; `timed_out`: after the timeout; `running`: before the end."""
    at: float = 0.6
    """Which share of the job is over, if it is running."""
    spread_ns: int = 0
    """By how much the times of the dumps differ."""
    wait_ns: int = 30_000_000_000
    lagging: bool = False
    """Whether states are those that the watchdog has found, and not those of the device."""
    message_status: bool = False
    lost: int = 0
    """How many innocent ranks have no dump."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is wrong, by what was done to the programs and devices."""

    fault: str
    culprits: tuple[int, ...] = ()
    """Empty if no rank is to blame."""
    classes: frozenset[str] = frozenset()
    """What a diagnosis may call it."""
    group: str = ""
    """The role of the group: `mesh_tp`."""
    at: str = ""
    """What was changed, for people."""
    hangs: bool = True
    tied: tuple[int, ...] = ()
    """Ranks that may be as wrong as the culprits: dumps do not show which."""
    absent: tuple[int, ...] = ()
    """Ranks without a dump."""
    waits: bool = False
    """Whether a rank with a dump had an unfinished call when it was made."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """The dumps of a job and what is true of it."""

    dumps: Mapping[int, dict[str, Any]]
    truncated: Mapping[int, bytes]
    truth: Truth
    taken: Mapping[int, int]
    run: Run

    def files(self) -> dict[int, bytes]:
        """The dumps as torch writes them, by rank."""
        return {**{rank: pickled(content) for rank, content in self.dumps.items()}, **self.truncated}

    def write(self, folder: Path) -> None:
        """Writes all dumps into a folder; the times of the files are those of the dumps."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, data in self.files().items():
            path = folder / f"nccl_trace_rank_{rank}"
            path.write_bytes(data)
            os.utime(path, ns=(self.taken[rank], self.taken[rank]))


# Programs.


BUCKET = (256, 128)
PAUSE_NS = 5_000_000
"""What a program does between two steps."""

LAYER_NS = 400_000


def programs(queued: Queued, fewer: tuple[int, Sequence[int]] = (-1, ())) -> list[Program]:
    """The program of each rank; in one step some ranks have a microbatch less."""
    return [_program(queued, rank, fewer[0] if rank in fewer[1] else -1) for rank in range(queued.world)]


def _program(queued: Queued, rank: int, step_with_fewer: int) -> Program:
    plan, random = queued.plan, Random(f"pauses {queued.seed} {rank}")
    less = replace(plan, microbatches=plan.microbatches - 1)
    items: list[Item] = []
    for step in range(queued.steps):
        author = Author(less if step == step_with_fewer else plan, rank)
        SCHEDULE_STEPS[queued.schedule](author, step)
        _finish(author)
        items += author.items
        items += [Settle()] * queued.settles
        items.append(Pause(PAUSE_NS // 2 + random.randrange(PAUSE_NS)))
    return tuple(items)


def _finish(author: Author) -> None:
    author.scatter(DATA, 16, site="grad_sync")
    author.gather(DATA, 16, site="all_gather_params")
    author.reduce(WORLD, (1,), site="clip_grad_norm")


def _data(author: Author, _step: int) -> None:
    for bucket in range(4):
        author.compute(LAYER_NS)
        author.reduce(WORLD, (BUCKET[0] + bucket, BUCKET[1]), site=f"bucket_{bucket}")


def _forward(author: Author, _step: int) -> None:
    stage, stages = author.plan.stage(author.rank), author.plan.stages
    for _ in range(author.plan.microbatches):
        if stage > 0:
            author.receive(PIPELINE, stage - 1, SEQUENCE, site="recv_forward")
        for layer in range(2):
            author.compute(LAYER_NS)
            author.reduce(TENSOR, SEQUENCE, site=f"row_parallel_{layer}")
        if stage + 1 < stages:
            author.send(PIPELINE, stage + 1, SEQUENCE, site="send_forward")


def _ring_of_single_messages(author: Author, _step: int) -> None:
    """Even ranks send first, odd ranks receive first."""
    if CONTEXT not in author.groups:
        return
    size, place = len(author.groups[CONTEXT].ranks), author.place(CONTEXT)
    for layer in range(2):
        for _ in range(size - 1):
            ends = [
                message("send", (place + 1) % size, (8 + layer, 128)),
                message("recv", (place - 1) % size, (8 + layer, 128)),
            ]
            author.messages(CONTEXT, ends[:: -1 if place % 2 else 1], site="ring_exchange")
            author.compute(LAYER_NS)
        author.reduce(TENSOR, (32 + layer, 128), site="output")


SCHEDULE_STEPS: dict[str, Callable[[Author, int], None]] = {
    "data": _data,
    "sharded": dense,
    "forward": _forward,
    "one_forward_one_backward": pipeline,
    "batched": batched_pipeline,
    "ring": ring,
    "ring_of_single_messages": _ring_of_single_messages,
}


# Faults.


@dataclass(slots=True)
class Scene:
    """The programs of a job, which a fault changes, and what is true after that."""

    queued: Queued
    programs: list[Program]
    healthy: Run
    random: Random
    truth: Truth = field(default_factory=lambda: Truth("", hangs=False))
    deaths: dict[int, int] = field(default_factory=dict)
    truncated: tuple[int, ...] = ()

    def call(self, role: str = "", *, messages: bool | None = None, late: bool = True) -> Work:
        """A call of a random rank: of groups of a role, and not among the first ones unless `late` is false."""
        found = [
            work
            for calls in self.healthy.calls
            for work in calls[len(calls) // 4 * late :]
            if _is(work, role, messages)
        ]
        if not found:
            raise ValueError(f"no call of {role or 'any group'} in {self.queued}")
        return self.random.choice(found)

    def put(self, work: Work, *items: Item, instead: int = 1) -> None:
        """Replaces a call in the program of its rank."""
        self.programs[work.rank] = put(self.programs[work.rank], work.index, *items, instead=instead)

    def blame(self, work: Work, *classes: str, **details: Any) -> None:
        """The truth: the rank of this call is wrong."""
        call = _call(work)
        site = f"{call.parts[0].operation} at {call.site}, number {work.numbers[call.messages]} of its group"
        given = {"culprits": (work.rank,), "group": call.group.description, "at": site, **details}
        self.truth = replace(self.truth, classes=frozenset(classes), hangs=True, **given)

    def members(self, work: Work) -> list[Work]:
        """The same collective on all members, or the message on both ends."""
        call = _call(work)
        if not call.messages:
            return [
                each
                for rank in call.group.ranks
                for each in self.healthy.calls[rank]
                if _call(each).group == call.group
                and not _call(each).messages
                and each.numbers[0] == work.numbers[0]
            ]
        return [work]


def _call(work: Work) -> Call:
    assert isinstance(work.item, Call)
    return work.item


def _is(work: Work, role: str, messages: bool | None) -> bool:
    call = _call(work)
    return (not role or call.group.description == ROLES[role]) and messages in (None, call.messages)


def _skip(role: str, messages: bool) -> Callable[[Scene], None]:
    def apply(scene: Scene) -> None:
        work = scene.call(role, messages=messages)
        scene.put(work)
        scene.blame(work, "code_path")

    return apply


def _fewer_microbatches(scene: Scene) -> None:
    if scene.queued.stages == 1 or scene.queued.microbatches == 1:
        raise ValueError("no microbatch to leave out")
    first = scene.random.randrange(0, scene.queued.world // scene.queued.stages, scene.queued.tensor)
    ranks = tuple(range(first, first + scene.queued.tensor))
    step = scene.random.randrange(scene.queued.steps)
    scene.programs[:] = programs(scene.queued, (step, ranks))
    scene.truth = replace(
        scene.truth,
        culprits=ranks,
        classes=frozenset({"code_path"}),
        group=PIPELINE,
        hangs=True,
        at=f"step {step}",
    )


def _extra(scene: Scene) -> None:
    work = scene.call(messages=False)
    scene.put(work, _call(work), _call(work))
    scene.blame(work, "code_path")


def _host_stuck(scene: Scene) -> None:
    work = scene.call()
    scene.programs[work.rank] = (*scene.programs[work.rank][: work.index], Stop())
    scene.blame(work, "not_reached", "code_path")


def _truncated(scene: Scene) -> None:
    _host_stuck(scene)
    scene.truncated = scene.truth.culprits


def _other_truncated(scene: Scene) -> None:
    _host_stuck(scene)
    others = [rank for rank in range(scene.queued.world) if rank not in scene.truth.culprits]
    scene.truncated = (scene.random.choice(others),)


def _device_stuck(scene: Scene) -> None:
    work = scene.call(messages=False)
    scene.put(work, Compute(None), instead=0)
    scene.blame(work, "device_or_network")


def _device_hangs(scene: Scene) -> None:
    """One device started and does not end: seen from outside nobody ends."""
    work = scene.call(messages=False)
    scene.put(work, replace(_call(work), lost=True))
    scene.blame(work, "device_or_network", culprits=())


def _network_stuck(scene: Scene) -> None:
    work = scene.call()
    for each in scene.members(work):
        scene.put(each, replace(_call(each), lost=True))
    scene.blame(work, "device_or_network", culprits=())


def _killed(scene: Scene) -> None:
    _die(scene, (scene.random.randrange(scene.queued.world),))


def _node_killed(scene: Scene) -> None:
    size = scene.queued.ranks_per_host
    if scene.queued.world <= size:
        raise ValueError("one host")
    first = scene.random.randrange(0, scene.queued.world, size)
    _die(scene, tuple(range(first, min(first + size, scene.queued.world))))


def _die(scene: Scene, ranks: tuple[int, ...]) -> None:
    span = scene.healthy.over - START_NS
    moment = START_NS + round(span * (0.2 + 0.6 * scene.random.random()))
    scene.deaths.update({rank: moment + scene.random.randrange(100_000) for rank in ranks})
    classes = frozenset({"process_gone"})
    scene.truth = replace(scene.truth, culprits=ranks, absent=ranks, classes=classes, hangs=True)


def _wrong(what: str) -> Callable[[Scene], None]:
    def apply(scene: Scene) -> None:
        work = scene.call(messages=False)
        call = _call(work)
        part = call.parts[0]
        rows, *rest = part.inputs[0]
        changes: dict[str, dict[str, Any]] = {
            "operation": {"operation": "broadcast", "outputs": part.inputs},
            "dtype": {"type": "Half"},
            "size": {"inputs": ((rows + 96, *rest),), "outputs": ((part.outputs[0][0] + 96, *rest),)},
        }
        scene.put(work, changed(call, replace(part, **changes[what])))
        scene.blame(work, "wrong_arguments", "code_path", tied=_only_other(call.group, work.rank))
        if what == "dtype":
            scene.truth = replace(scene.truth, hangs=False)

    return apply


def _wrong_peer(scene: Scene) -> None:
    work = scene.call(messages=True)
    call = _call(work)
    size, own = len(call.group.ranks), call.group.ranks.index(work.rank)
    others = [peer for peer in range(size) if peer not in (own, call.parts[0].peer)]
    if not others:
        raise ValueError("no other peer")
    scene.put(work, changed(call, replace(call.parts[0], peer=others[0])))
    scene.blame(work, "wrong_arguments", "code_path")


def _wrong_message_size(scene: Scene) -> None:
    work = scene.call(messages=True)
    call = _call(work)
    rows, *rest = call.parts[0].inputs[0]
    shapes = ((rows + 96, *rest),)
    scene.put(work, changed(call, replace(call.parts[0], inputs=shapes, outputs=shapes)))
    peer = call.group.ranks[call.parts[0].peer or 0]
    scene.blame(work, "wrong_arguments", "code_path", tied=(peer,))


def _crossed(scene: Scene) -> None:
    """Two neighbouring collectives of different groups in the other order."""
    pairs = [
        (first, second)
        for calls in scene.healthy.calls
        for first, second in zip(calls[len(calls) // 4 :], calls[len(calls) // 4 + 1 :], strict=False)
        if _call(first).group != _call(second).group
        and not (_call(first).messages or _call(second).messages)
        and _common(first, second)
    ]
    if not pairs:
        raise ValueError("no two collectives to exchange")
    first, second = scene.random.choice(pairs)
    scene.put(second)
    scene.put(first, _call(second), _call(first))
    scene.blame(first, "code_path", tied=_common(first, second) if len(_common(first, second)) < 2 else ())


def _common(first: Work, second: Work) -> tuple[int, ...]:
    """The other members of both groups."""
    both = set(_call(first).group.ranks) & set(_call(second).group.ranks)
    return tuple(sorted(both - {first.rank}))


def _only_other(group: Group, rank: int) -> tuple[int, ...]:
    """The other member of a group of two: no majority shows which of them is wrong."""
    others = tuple(member for member in group.ranks if member != rank)
    return others if len(others) == 1 else ()


FAULTS: dict[str, Callable[[Scene], None]] = {
    "none": lambda scene: None,
    "skip_tp": _skip("tp", False),
    "skip_dp": _skip("dp", False),
    "skip_world": _skip("world", False),
    "skip_message": _skip("pp", True),
    "skip_ring": _skip("cp", True),
    "fewer_microbatches": _fewer_microbatches,
    "extra": _extra,
    "host_stuck": _host_stuck,
    "truncated": _truncated,
    "other_truncated": _other_truncated,
    "device_stuck": _device_stuck,
    "device_hangs": _device_hangs,
    "network_stuck": _network_stuck,
    "killed": _killed,
    "node_killed": _node_killed,
    "wrong_operation": _wrong("operation"),
    "wrong_dtype": _wrong("dtype"),
    "wrong_size": _wrong("size"),
    "wrong_peer": _wrong_peer,
    "wrong_message_size": _wrong_message_size,
    "crossed": _crossed,
}
"""What can go wrong, by name."""


# The job: run, then dumped.


def queued_job(queued: Queued, fault: str = "none", dumping: Dumping = Dumping()) -> QueuedJob:
    """Runs a job and takes its dumps. Raises ValueError if the fault makes no sense, or has no effect."""
    machine = Machine(queued.run_ahead, queued.eager)
    programs_of_ranks = programs(queued)
    healthy = run(programs_of_ranks, queued.seed, machine)
    if healthy.stalled:
        raise ValueError(f"a healthy job that hangs: {queued}")
    random = Random(f"fault {queued.seed} {fault}")
    scene = Scene(queued, programs_of_ranks, healthy, random, Truth(fault, hangs=False))
    FAULTS[fault](scene)
    done = (
        healthy
        if fault == "none"
        else run(scene.programs, queued.seed, replace(machine, deaths=scene.deaths))
    )
    alive = [rank for rank in range(queued.world) if rank not in scene.truth.absent]
    if scene.truth.hangs and not set(done.stalled) & set(alive):
        raise ValueError(f"{fault} without an effect")
    if dumping.when == "running" and fault != "none":
        raise ValueError("only a healthy job is running")
    innocent = [rank for rank in alive if rank not in scene.truth.culprits]
    lost = set(random.sample(innocent, min(dumping.lost, len(innocent) - 1)))
    taken = _times(queued, done, dumping, random)
    present = [rank for rank in alive if rank not in lost]
    contents = {rank: _dump(queued, done, rank, taken[rank], dumping) for rank in present}
    broken = {rank: _half(pickled(contents.pop(rank))) for rank in scene.truncated if rank in contents}
    truth = replace(
        scene.truth,
        absent=tuple(sorted({*scene.truth.absent, *lost})),
        waits=any(_unfinished(work, taken[rank]) for rank in present for work in done.calls[rank]),
    )
    return QueuedJob(contents, broken, truth, {rank: taken[rank] for rank in present}, done)


def _times(queued: Queued, done: Run, dumping: Dumping, random: Random) -> list[int]:
    waits = {
        "settled": dumping.wait_ns,
        "timed_out": queued.timeout_ms * 1_000_000 + 1_000_000_000,
        "running": round((dumping.at - 1) * (done.over - START_NS)),
    }
    return [
        done.over + waits[dumping.when] + random.randint(0, dumping.spread_ns) for _ in range(queued.world)
    ]


def _dump(queued: Queued, done: Run, rank: int, time: int, dumping: Dumping) -> dict[str, Any]:
    taken = Taken(time, dumping.when == "timed_out", dumping.lagging, dumping.message_status)
    return Recorder(queued.plan, rank, done.calls[rank], taken).content()


def _unfinished(work: Work, time: int) -> bool:
    return work.created <= time and (work.end is None or work.end > time)


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]
