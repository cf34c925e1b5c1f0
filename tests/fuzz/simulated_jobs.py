"""Jobs that are simulated, with a fault or without, and the flight-recorder dumps that they leave.

Nothing here is shared with the builders of unit tests: hosts run a program, devices and threads of gloo carry out what
they were given, and a dump contains what a recorder would know at its moment. Times are in ms.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

EPOCH_NS = 1_794_982_617_000_000_000
WATCHDOG_MS = 100
"""NCCL's watchdog retires finished calls so often."""
TIMEOUT_MS = 600_000
RUNNING, SLOW = "running", "slow"
HOST_FAULTS = ("stuck", "two_stuck", "dead")
CALL_FAULTS = ("skip", "extra", "order", "size", "dtype", "device")
FAULTS = (RUNNING, SLOW, *HOST_FAULTS, *CALL_FAULTS)
NEVER = math.inf


class Group(NamedTuple):
    """A process group."""

    description: str
    ranks: tuple[int, ...]


class Call(NamedTuple):
    """A call of a program; `peer` is the other rank of a message."""

    group: int
    name: str
    elements: int
    line: int
    peer: int = -1
    dtype: str = "BFloat16"
    blocks: bool = False
    """Whether the host waits for it."""


class Wait(NamedTuple):
    """The host waits for all that it has called."""


Item = Call | Wait | float
"""Numbers are ms of computing on the host."""


@dataclass
class Issued:
    """A call that a rank made."""

    call: Call
    record: int
    collective: int
    message: int
    operation: int
    enqueued: float
    ready: float = NEVER
    """When its device, or its thread, began with it."""
    done: float = NEVER
    meeting: tuple[int, ...] = ()
    """The same for all ranks that take part."""

    @property
    def sequence(self) -> int:
        return self.message or self.collective


# Programs.


class Programs:
    """Writes the program of each rank of a job of one kind."""

    def __init__(self, random: Random, world: int, *, gloo: bool, messages: bool) -> None:
        self.random, self.world, self.gloo = random, world, gloo
        self.groups = [Group("default_pg", tuple(range(world)))]
        self.items: list[list[Item]] = [[] for _ in range(world)]
        self.pace = 10 ** random.uniform(-1, 1.3)
        """About how long a host computes between calls."""
        kinds = [self._data_parallel, self._sharded, self._mesh, self._experts]
        random.choice(kinds + [self._pipeline] * 2 * messages)()

    def split(self, description: str, size: int, stride: int = 1) -> list[int]:
        """Makes groups of `size` ranks that are `stride` apart; returns the group of each rank."""
        of_rank = [0] * self.world
        for first in range(self.world):
            if first // stride % size == 0:
                members = tuple(first + stride * place for place in range(size))
                for rank in members:
                    of_rank[rank] = len(self.groups)
                self.groups.append(Group(description, members))
        return of_rank

    def step(self, rank: int, *items: Item) -> None:
        """Appends calls, with some computing before each."""
        for item in items:
            if isinstance(item, Call):
                self.items[rank].append(self.pace * self.random.uniform(0.2, 1.8))
                item = item._replace(blocks=item.blocks or (self.gloo and self.random.random() < 0.5))
            self.items[rank].append(item)

    def _ranks(self, steps: int) -> Iterator[int]:
        return (rank for _ in range(steps) for rank in range(self.world))

    def _data_parallel(self) -> None:
        buckets = self.random.randint(2, 5)
        for rank in self._ranks(self.random.randint(4, 12)):
            gradients = (Call(0, "all_reduce", 4096 - bucket, 20) for bucket in range(buckets))
            self.step(rank, *gradients, Call(0, "all_reduce", 1, 450, dtype="Float"), Wait())

    def _sharded(self) -> None:
        shard = self.split("mesh_shard", max(2, self.world // 2)) if self.world > 4 else [0] * self.world
        layers = self.random.randint(2, 4)
        for rank in self._ranks(self.random.randint(3, 6)):
            group = shard[rank]
            for line in (210, 230):
                for layer in range(layers):
                    self.step(rank, Call(group, "_all_gather_base", 64 * (layer + 1), line))
                    if line == 230:
                        self.step(rank, Call(group, "_reduce_scatter_base", 64 * (layer + 1), 240))
            self.step(rank, Call(0, "all_reduce", 1, 450, dtype="Float"), Wait())

    def _mesh(self) -> None:
        tensor = self.split("mesh_tp", 2)
        data = self.split("mesh_dp", self.world // 2, 2)
        for rank in self._ranks(self.random.randint(3, 8)):
            for layer in range(2):
                self.step(rank, *(Call(tensor[rank], "all_reduce", 512, 120 + layer) for _ in range(2)))
            self.step(rank, Call(data[rank], "all_reduce", 1024, 401), Call(0, "all_reduce", 1, 450), Wait())

    def _experts(self) -> None:
        expert = self.split("mesh_ep", self.world // 2)
        data = self.split("mesh_dp", 2, self.world // 2)
        for rank in self._ranks(self.random.randint(3, 7)):
            for layer in range(2):
                both = (Call(expert[rank], "all_to_all", 256, 310 + 2 * layer + way) for way in range(2))
                self.step(rank, *both)
            self.step(rank, Call(data[rank], "all_reduce", 1024, 401), Wait())

    def _pipeline(self) -> None:
        """Tensor, data and pipeline parallel, one microbatch forward and one backward in turn."""
        stages = self.random.choice([size for size in (2, 4) if size * 2 <= self.world])
        tensor = self.split("mesh_tp", 2)
        data = self.split("mesh_dp", self.world // (2 * stages), 2)
        pipe = self.split("mesh_pp", stages, self.world // stages)
        batches = self.random.randint(stages, stages + 2)
        width = self.world // stages
        for rank in self._ranks(self.random.randint(2, 4)):
            stage, layer = rank // width, Call(tensor[rank], "all_reduce", 512, 120)
            comes = Call(pipe[rank], "recv", 4096, 320, blocks=True)
            goes = comes._replace(name="send", line=321, blocks=False)
            below, above = rank - width, rank + width
            forward = [layer, layer]
            backward = [layer._replace(line=121)] * 2
            if stage:
                forward.insert(0, comes._replace(peer=below))
                backward.append(goes._replace(peer=below, line=331))
            if stage < stages - 1:
                forward.append(goes._replace(peer=above))
                backward.insert(0, comes._replace(peer=above, line=330))
            ahead = min(stages - 1 - stage, batches)
            both = [*forward, *backward] * (batches - ahead)
            self.step(rank, *forward * ahead, *both, *backward * ahead)
            if len(self.groups[data[rank]].ranks) > 1:
                self.step(rank, Call(data[rank], "_reduce_scatter_base", 1024, 401))
                self.step(rank, Call(data[rank], "_all_gather_base", 1024, 402))
            self.step(rank, Call(0, "all_reduce", 1, 450, dtype="Float"), Wait())


# Faults.


@dataclass
class Fault:
    """What goes wrong, on which ranks, and where in their programs."""

    kind: str
    ranks: tuple[int, ...] = ()
    line: int = 0
    device: dict[int, int] = field(default_factory=dict)
    """The number of the call that the device of a rank does not carry out."""


def with_fault(kind: str, random: Random, programs: list[list[Item]]) -> Fault:
    """Changes the programs of some ranks."""
    if kind == RUNNING:
        return Fault(kind)
    ranks = random.sample(range(len(programs)), 2 if kind == "two_stuck" else 1)
    for rank in ranks if kind == SLOW else ():
        factor = random.choice([1.3, 2, 5, 20])
        programs[rank] = [item * factor if isinstance(item, float) else item for item in programs[rank]]
    fault = Fault(kind, tuple(sorted(ranks)))
    share = random.uniform(0.2, 0.8)
    for rank in ranks if kind != SLOW else ():
        items = programs[rank]
        calls = [at for at, item in enumerate(items) if isinstance(item, Call)]
        place = int(len(calls) * share)
        at = calls[place]
        call = items[at]
        assert isinstance(call, Call)
        fault.line = call.line
        match kind:
            case "skip":
                del items[at]
            case "extra":
                items.insert(at, call._replace(line=149))
            case "order":
                others = [one for one in calls[place:] if items[one][0] != call.group]  # type: ignore[index]
                other = next(iter(others), at)
                items[at], items[other] = items[other], items[at]
            case "size":
                items[at] = call._replace(elements=call.elements * 2 + 1)
            case "dtype":
                items[at] = call._replace(dtype="Int")
            case "device":
                fault.device[rank] = place
            case _:
                del items[at:]
    return fault


# What hosts and devices do.


class Simulation:
    """Runs the programs of all ranks to their ends, or until none can continue."""

    def __init__(
        self,
        random: Random,
        groups: Sequence[Group],
        programs: Sequence[Sequence[Item]],
        fault: Fault,
        *,
        serial: bool,
    ) -> None:
        self.random, self.groups, self.programs, self.fault = random, groups, programs, fault
        self.serial = serial
        """Whether a device carries out one collective after the other, whatever their groups."""
        self.issued: list[list[Issued]] = [[] for _ in programs]
        self.clock = [random.uniform(0, 5) for _ in programs]
        self._place = [0] * len(programs)
        self._awaited: list[Sequence[Issued]] = [() for _ in programs]
        self._counts: list[Counter[Any]] = [Counter() for _ in programs]
        self._queues: defaultdict[Any, deque[Issued]] = defaultdict(deque)
        self.joined: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        """The ranks that called, by meeting."""
        self._met: defaultdict[Any, dict[tuple[int, ...], Issued]] = defaultdict(dict)
        left, before = set(range(len(programs))), -1
        while left and before != sum(self._place):
            before = sum(self._place)
            left = {rank for rank in sorted(left) if not self._advance(rank)}
        self.unfinished = left
        """Ranks that wait without end."""

    def _advance(self, rank: int) -> bool:
        """Runs a host until it waits; whether it came to the end of its program."""
        while all(one.done < NEVER for one in self._awaited[rank]):
            self.clock[rank] = max([self.clock[rank], *(one.done for one in self._awaited[rank])])
            self._awaited[rank] = ()
            if self._place[rank] == len(self.programs[rank]):
                return True
            item = self.programs[rank][self._place[rank]]
            self._place[rank] += 1
            if isinstance(item, Wait):
                self._awaited[rank] = self.issued[rank]
            elif isinstance(item, Call):
                self.clock[rank] += 0.01
                issued = self._issue(rank, item)
                self._awaited[rank] = [issued] if item.blocks else ()
            else:
                self.clock[rank] += item
        return False

    def _issue(self, rank: int, call: Call) -> Issued:
        counts, is_message = self._counts[rank], call.peer >= 0
        counts[call.group, is_message] += 1
        collectives, messages = counts[call.group, False], counts[call.group, True]
        own = messages if is_message else 0
        issued = Issued(
            call, len(self.issued[rank]), collectives, own, collectives + messages, self.clock[rank]
        )
        self.issued[rank].append(issued)
        meeting: tuple[int, ...] = (call.group, collectives)
        queue: tuple[int, ...] = (rank, -1 if self.serial else call.group)
        if is_message:
            ends = (rank, call.peer) if call.name == "send" else (call.peer, rank)
            counts[call.group, ends] += 1
            meeting, queue = (call.group, *ends, counts[call.group, ends]), (rank, call.group, *ends)
        issued.meeting = meeting
        self.joined[meeting].add(rank)
        self._queues[queue].append(issued)
        if len(self._queues[queue]) == 1:
            self._begin(queue, issued.enqueued)
        return issued

    def ends(self, issued: Issued) -> tuple[int, ...]:
        """The ranks that take part in a call."""
        return issued.meeting[1:3] if issued.call.peer >= 0 else self.groups[issued.call.group].ranks

    def _begin(self, queue: tuple[int, ...], time: float) -> None:
        """The first call of a queue begins; the last rank to come completes it, and the next ones begin."""
        beginning = [(queue, time)]
        while beginning:
            queue, time = beginning.pop()
            issued = self._queues[queue][0]
            if self.fault.device.get(queue[0]) == issued.record:
                continue
            issued.ready = max(time, issued.enqueued)
            met = self._met[issued.meeting]
            met[queue] = issued
            kinds = {(one.call.peer < 0 and one.call.name, one.call.elements) for one in met.values()}
            if len(met) < len(self.ends(issued)) or len(kinds) > 1:
                continue
            done = max(one.ready for one in met.values()) + self.random.uniform(0.05, 0.5)
            for own, one in met.items():
                one.done = done
                self._queues[own].popleft()
                if self._queues[own]:
                    beginning.append((own, done))


# Dumps.


@dataclass
class Style:
    """How a job records, and what of it is dumped."""

    gloo: bool
    only_active: bool = False
    entries: int = 0
    """Entries of a ring buffer; 0: it did not wrap. It holds more calls than are active at once."""
    starts: bool = False
    stacks: bool = True
    members: bool = True
    """Gloo does not record them unless asked to."""
    file: str = "nccl_trace_rank_"

    @classmethod
    def any(cls, random: Random) -> Style:
        gloo = random.random() < 0.3
        active = not gloo and random.random() < 0.3
        return cls(
            gloo,
            active,
            0 if active else random.choice([0, random.randint(8, 40)]),
            not gloo and not active and random.random() < 0.5,
            random.random() < 0.8,
            not gloo or random.random() < 0.5,
            "comm_lib_trace_rank_" if gloo else random.choice(["_dump_", "nccl_trace_rank_"]),
        )


@dataclass
class View:
    """The same job under other numbers, names and clocks."""

    ranks: Callable[[int], int] = lambda rank: rank
    group: Callable[[int], str] = str
    ahead_ms: Callable[[int], float] = lambda rank: 0.0


PLAIN = View()


class Case:
    """A job, and the moments at which its ranks dump."""

    def __init__(self, seed: int | str, faults: Sequence[str] = FAULTS, worlds: Sequence[int] = ()) -> None:
        random = Random(str(seed))
        self.seed = seed
        self.world = random.choice(worlds or [*[4] * 10, *[8] * 10, *[16] * 4, 32, 64])
        self.style = Style.any(random)
        programs = Programs(random, self.world, gloo=self.style.gloo, messages=not self.style.gloo)
        self.groups = programs.groups
        self.fault = with_fault(random.choice(faults), random, programs.items)
        serial = not self.style.gloo and random.random() < 0.3
        self.run = Simulation(random, self.groups, programs.items, self.fault, serial=serial)
        self.issued = self.run.issued
        self.gone = set(self.fault.ranks if self.fault.kind == "dead" else ())
        unfinished = any(one.done == NEVER for calls in self.issued for one in calls)
        self.hung = unfinished or bool(self.run.unfinished) or self.fault.kind in HOST_FAULTS
        self._ahead = [random.uniform(-1, 1) * random.choice([0, 1, 1000]) for _ in range(self.world)]
        self._watchdog = [random.uniform(0, WATCHDOG_MS) for _ in range(self.world)]
        self.skew = random.choice([0, 2, 5, 20, 50, 150])
        last = max(self.run.clock)
        long = [1e3, 3e4, 3e5, *[1.1 * TIMEOUT_MS] * self.style.gloo]
        first = last + random.choice(long) if self.hung else last * random.uniform(0.05, 1)
        self.moments = {
            rank: first + random.uniform(0, self.skew) for rank in range(self.world) if rank not in self.gone
        }

    def __str__(self) -> str:
        style, fault = self.style, self.fault
        how = "gloo" if style.gloo else "only active" if style.only_active else "nccl"
        how += f", {style.entries} entries" * bool(style.entries) + ", no members" * (not style.members)
        groups = "+".join(sorted({group.description.removeprefix("mesh_") for group in self.groups}))
        where = f"{fault.kind} {list(fault.ranks)} at line {fault.line}"
        end = "hung" if self.hung else "runs"
        return f"{self.world} ranks ({how}; {groups}; skew {self.skew} ms): {where}, {end}"

    def calls(self, rank: int) -> list[Issued]:
        """What a rank had called when it dumped."""
        return [one for one in self.issued[rank] if one.enqueued <= self.moments[rank]]

    def is_over(self, rank: int, issued: Issued) -> bool:
        """Whether it was finished when the rank dumped, and its recorder knew."""
        is_known = self.has_left(rank, issued) or not self.style.gloo
        return issued.done <= self.moments[rank] and is_known

    def has_left(self, rank: int, issued: Issued) -> bool:
        """Whether it had left the list of work: gloo's calls do so after their timeout, too."""
        return self._retired(rank, issued) <= self.moments[rank]

    def behind(self) -> set[int]:
        """Ranks that stopped before a call in which others wait for them, and wait for no rank themselves."""
        waiting = {rank for rank in self.moments if any(one.done == NEVER for one in self.calls(rank))}
        stopped = set(self.fault.ranks) - waiting if self.fault.kind in HOST_FAULTS else set()
        open_calls = [one for rank in waiting for one in self.calls(rank) if one.done == NEVER]
        return {
            rank
            for one in open_calls
            for rank in stopped.intersection(self.run.ends(one)) - self.run.joined[one.meeting]
        }

    def dumps(self, absent: Iterable[int] = (), view: View = PLAIN) -> dict[str, bytes]:
        """The files, by name; `absent` ranks have none."""
        return {
            f"{self.style.file}{view.ranks(rank)}": pickle.dumps(self._dump(rank, view), protocol=2)
            for rank in self.moments
            if rank not in set(absent)
        }

    def _retired(self, rank: int, issued: Issued) -> float:
        if self.style.gloo:
            return min(issued.done + 0.05, issued.enqueued + TIMEOUT_MS)
        if issued.done == NEVER:
            return NEVER
        phase = self._watchdog[rank]
        return math.ceil((issued.done - phase) / WATCHDOG_MS) * WATCHDOG_MS + phase

    def _dump(self, rank: int, view: View) -> dict[str, Any]:
        style, calls = self.style, self.calls(rank)
        own = [number for number, group in enumerate(self.groups) if rank in group.ranks]
        handles = {number: handle for handle, number in enumerate(own)}
        members = {number: sorted(map(view.ranks, self.groups[number].ranks)) for number in own}
        config = {
            view.group(number): {
                "name": view.group(number),
                "desc": "" if style.gloo else self.groups[number].description,
                "ranks": str(members[number]),
            }
            for number in sorted(own, key=view.group)
        }
        kept = [one for one in calls if not style.only_active or not self.is_over(rank, one)]
        entries = [
            self._entry(rank, one, handles[one.call.group], members[one.call.group], view)
            for one in kept[-style.entries :]
        ]
        return {
            "version": "2.9" if style.only_active else "2.10",
            "pg_config": config if style.members else {"": {"name": "", "desc": "", "ranks": "[]"}},
            "nccl_version" if style.only_active else "comm_lib_version": "" if style.gloo else "2.27.5",
            "pg_status": {
                str(handles[number]): self._status(rank, [one for one in calls if one.call.group == number])
                for number in own
            },
            "entries": entries,
        }

    def _status(self, rank: int, calls: Sequence[Issued]) -> dict[str, int]:
        retired = [one.sequence for one in calls if self._retired(rank, one) <= self.moments[rank]]
        return {
            "last_enqueued_collective": calls[-1].sequence if calls else -1,
            "last_started_collective": -1,
            "last_completed_collective": max(retired, default=-1),
        }

    def _entry(
        self, rank: int, one: Issued, handle: int, members: Sequence[int], view: View
    ) -> dict[str, Any]:
        call, style, moment = one.call, self.style, self.moments[rank]
        done, started = (
            time <= moment and not style.gloo for time in (one.done, one.ready if style.starts else NEVER)
        )
        ahead = self._ahead[rank] + view.ahead_ms(rank)
        retired = self._retired(rank, one)
        library, name = ("gloo", call.name) if style.gloo else ("nccl", call.name)
        if call.peer >= 0:
            arrow = "->" if name == "send" else "<-"
            name = f"{name} {members.index(view.ranks(rank))}{arrow}{members.index(view.ranks(call.peer))}"
        if style.gloo:
            name = {"_all_gather_base": "all_gather", "_reduce_scatter_base": "all_reduce"}.get(name, name)
        wide = call.elements * len(members)
        frames = [("call", "/opt/train/parallel.py", call.line), ("train_step", "/opt/train/loop.py", 40)]
        entry = {
            "record_id": one.record,
            "pg_id": handle,
            "process_group": (view.group(call.group), self.groups[call.group].description),
            "thread_name": "pt_main_thread",
            "thread_id": "1403216",
            "collective_seq_id": one.collective,
            "p2p_seq_id": one.message,
            "op_id": one.operation,
            "profiling_name": f"{library}:{name}",
            "time_created_ns": _ns(one.enqueued + ahead),
            "input_sizes": [[wide if "reduce_scatter" in call.name else call.elements]],
            "input_dtypes": [call.dtype],
            "output_sizes": [[wide if "all_gather" in call.name else call.elements]],
            "output_dtypes": [call.dtype],
            "state": "completed" if done else "started" if started else "scheduled",
            "time_discovered_started_ns": _ns(one.ready + ahead) if started else None,
            "time_discovered_completed_ns": _ns(min(retired, moment) + ahead) if done else None,
            "retired": retired <= moment,
            "timeout_ms": TIMEOUT_MS,
            "is_p2p": call.peer >= 0,
        }
        stack = [{"name": what, "filename": file, "line": line} for what, file, line in frames]
        return {"frames": stack, **entry} if style.stacks else entry


def _ns(milliseconds: float) -> int:
    return EPOCH_NS + round(milliseconds * 1e6)
