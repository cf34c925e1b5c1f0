"""Runs jobs with one device queue for each rank, and writes what their flight recorders contain at a given time.

A program runs ahead of its device, which works off calls and computing strictly in the order of issue. A collective
ends when the devices of all members have reached it; a message when both ends have, or at once if sends are eager.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from generators.flight_recorder import START_NS
from generators.recorded_plan import Call, Compute, Item, Part, Pause, Plan, Program, Settle, Stop, recorded
from generators.recorded_run import EVENTS, LIBRARY_VERSION, NEVER, THREAD, VERSION, frames

# Execution of all programs together.


ISSUE_NS, LAUNCH_NS, COLLECTIVE_NS, MESSAGE_NS = 20_000, 10_000, 300_000, 120_000
JITTER_NS = 18_000


@dataclass(slots=True, eq=False)
class Work:
    """A call, or computing, in the queue of a device."""

    item: Call | Compute
    rank: int
    index: int
    """Of the item in the program of the rank."""
    created: int
    numbers: tuple[int, int, int] = (0, 0, 0)
    """Of the group at this rank: collectives, messages, operations up to the first one of this call."""
    start: int | None = None
    end: int | None = None
    missing: int = 0
    """How many of its messages have not arrived."""
    arrived: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """How devices and links behave."""

    run_ahead: int = 64
    """How many calls a program issues before it waits for the first of them."""
    eager: bool = False
    """Whether a send ends before its message is received."""
    deaths: Mapping[int, int] = field(default_factory=dict)
    """The time at which a rank is killed."""


@dataclass(frozen=True, slots=True)
class Run:
    """What happened, by rank and in the order of issue."""

    calls: Sequence[Sequence[Work]]
    over: int
    """When the last thing happened."""

    @property
    def stalled(self) -> tuple[int, ...]:
        """Ranks with a call that never ends."""
        return tuple(rank for rank, calls in enumerate(self.calls) if any(work.end is None for work in calls))


class _Rank:
    def __init__(self, rank: int, program: Program, seed: int) -> None:
        self.rank, self.program = rank, program
        self.position = 0
        self.random = Random(f"queue {seed} {rank}")
        self.clock = START_NS + self.random.randrange(200_000)
        self.queue: list[Work] = []
        self.head = 0
        self.free = 0
        self.calls: list[Work] = []
        self.numbers: dict[int, tuple[int, int, int]] = {}

    def number(self, call: Call) -> tuple[int, int, int]:
        """The numbers of the next call of a group, as ProcessGroupNCCL counts."""
        collectives, messages, operations = self.numbers.get(call.group.number, (0, 0, 0))
        if call.messages:
            messages += 1
        else:
            collectives += 1
        self.numbers[call.group.number] = (collectives, messages, operations + len(call.parts))
        return collectives, messages, operations + 1


@dataclass(frozen=True, slots=True)
class _Arrival:
    work: Work
    part: Part


def run(programs: Sequence[Program], seed: int, machine: Machine) -> Run:
    """Runs the programs until nothing moves any more."""
    return _Simulation(programs, seed, machine).run()


class _Simulation:
    def __init__(self, programs: Sequence[Program], seed: int, machine: Machine) -> None:
        self.machine = machine
        self.ranks = [_Rank(rank, program, seed) for rank, program in enumerate(programs)]
        self.meetings: defaultdict[tuple[int, int], list[Work]] = defaultdict(list)
        self.channels: defaultdict[tuple[int, int, int], tuple[deque[_Arrival], deque[_Arrival]]]
        self.channels = defaultdict(lambda: (deque(), deque()))
        self.awake = deque(self.ranks)

    def run(self) -> Run:
        while self.awake:
            rank = self.awake.popleft()
            while self.issue(rank) | self.work_off(rank):
                pass
        times = [
            time for rank in self.ranks for work in rank.calls for time in (work.start, work.end) if time
        ]
        return Run([rank.calls for rank in self.ranks], max([*times, *(rank.clock for rank in self.ranks)]))

    def issue(self, rank: _Rank) -> bool:
        """Whether the program got any further."""
        before = rank.position
        while rank.position < len(rank.program):
            if not self.step(rank, rank.program[rank.position]):
                break
            rank.position += 1
        return rank.position > before

    def step(self, rank: _Rank, item: Item) -> bool:
        """Whether the program is past an item."""
        match item:
            case Stop():
                return False
            case Pause():
                rank.clock += item.ns
            case Settle():
                return self.wait_for(rank, rank.queue[-1:])
            case Call():
                if not self.wait_for(rank, rank.calls[-self.machine.run_ahead :][:1], self.machine.run_ahead):
                    return False
                self.enqueue(rank, item)
            case Compute():
                self.enqueue(rank, item)
        return True

    def wait_for(self, rank: _Rank, awaited: Sequence[Work], unless_fewer_than: int = 0) -> bool:
        """Whether the program may go on: at the end of some work, unless few calls are issued."""
        if not awaited or len(rank.calls) < unless_fewer_than:
            return True
        end = awaited[0].end
        rank.clock = max(rank.clock, end or 0)
        return end is not None

    def enqueue(self, rank: _Rank, item: Call | Compute) -> None:
        rank.clock += ISSUE_NS + rank.random.randrange(JITTER_NS)
        work = Work(item, rank.rank, rank.position, rank.clock)
        if rank.clock > self.death(rank.rank):
            return
        if isinstance(item, Call):
            work.numbers = rank.number(item)
            rank.calls.append(work)
        rank.queue.append(work)

    def death(self, rank: int) -> int:
        return self.machine.deaths.get(rank, NEVER)

    def work_off(self, rank: _Rank) -> bool:
        """Whether the device got any further."""
        before = rank.head
        while rank.head < len(rank.queue):
            work = rank.queue[rank.head]
            if work.start is None:
                start = max(work.created + LAUNCH_NS, rank.free)
                if start > self.death(rank.rank):
                    break
                work.start = start
                self.meet(rank, work)
            if work.end is None:
                break
            rank.free = work.end
            rank.head += 1
        return rank.head > before

    def meet(self, rank: _Rank, work: Work) -> None:
        """Brings together what belongs together."""
        item, start = work.item, work.start or 0
        if isinstance(item, Compute):
            work.end = None if item.ns is None else start + item.ns + rank.random.randrange(JITTER_NS)
        elif item.messages:
            work.missing = len(item.parts)
            for part in item.parts:
                self.pass_on(work, item, part)
        else:
            members = self.meetings[item.group.number, work.numbers[0]]
            members.append(work)
            calls = [_call(each) for each in members]
            if len(members) < len(item.group.ranks) or any(call.lost for call in calls):
                return
            if all(call.agreement == item.agreement for call in calls):
                self.end(members, max(each.start or 0 for each in members) + COLLECTIVE_NS)

    def pass_on(self, work: Work, call: Call, part: Part) -> None:
        """Matches one end of a message with the first that waits at the other end."""
        me, peer = call.group.ranks.index(work.rank), part.peer or 0
        ends = (me, peer) if part.sends else (peer, me)
        waiting = self.channels[(call.group.number, *ends)]
        waiting[part.sends].append(_Arrival(work, part))
        if part.sends and self.machine.eager and not call.lost:
            self.arrive(work, (work.start or 0) + MESSAGE_NS)
        while waiting[0] and waiting[1]:
            receive, send = waiting[0].popleft(), waiting[1].popleft()
            when = max(receive.work.start or 0, send.work.start or 0) + MESSAGE_NS
            lost = any(_call(end.work).lost or when > self.death(end.work.rank) for end in (receive, send))
            if lost or receive.part.inputs != send.part.inputs:
                continue
            self.arrive(receive.work, when)
            if not self.machine.eager:
                self.arrive(send.work, when)

    def arrive(self, work: Work, when: int) -> None:
        work.missing -= 1
        work.arrived = max(work.arrived, when)
        if not work.missing:
            self.end([work], work.arrived)

    def end(self, members: Sequence[Work], when: int) -> None:
        if any(when > self.death(work.rank) for work in members):
            return
        for work in members:
            work.end = when
            self.awake.append(self.ranks[work.rank])


# The dump of one rank at a given time.


STARTED_LAG_NS, COMPLETED_LAG_NS = 20_000_000, 50_000_000
"""From a start or an end to its discovery by the watchdog."""

MEMBER_NS = 900
"""Between the entries of one call."""


@dataclass(frozen=True, slots=True)
class Taken:
    """When and how the dump of a rank is made."""

    time: int
    expire: bool = False
    """Whether calls whose timeout has passed are retired."""
    lagging: bool = False
    """Whether states are those that the watchdog has found, and not those of the device."""
    message_status: bool = False
    """Whether `pg_status` also counts messages."""


class Recorder:
    """The recorder of one rank."""

    def __init__(self, plan: Plan, rank: int, calls: Sequence[Work], taken: Taken) -> None:
        self.plan, self.rank, self.taken = plan, rank, taken
        self.calls = [work for work in calls if work.created <= taken.time]
        groups = plan.groups(rank).values()
        self.local = {group.number: number for number, group in enumerate(groups)}
        """The number that this process gives a group."""
        self.position = {group.number: group.ranks.index(rank) for group in groups}
        self.offset = plan.clock_offset(rank)
        self.thread = str(140_321_668_979_584 + rank * 4096)

    def content(self) -> dict[str, Any]:
        """The whole dump."""
        return {
            "version": VERSION,
            "pg_config": {
                group.name: {"name": group.name, "desc": group.description, "ranks": str(list(group.ranks))}
                for group in self.plan.groups(self.rank).values()
            },
            "comm_lib_version": LIBRARY_VERSION,
            "pg_status": self.status(),
            "entries": self.entries(),
        }

    def status(self) -> dict[str, dict[str, int]]:
        """How far the groups have come."""
        last = {number: [-1, -1, -1] for number in self.local.values()}
        for work in self.calls:
            call = _call(work)
            if call.messages and not self.taken.message_status:
                continue
            found, number = last[self.local[call.group.number]], work.numbers[call.messages]
            found[0] = number
            started, completed = self.found(work)
            found[1] = number if started is not None else found[1]
            found[2] = number if completed is not None else found[2]
        return {
            str(group): {
                f"last_{event}_collective": value for event, value in zip(EVENTS, found, strict=True)
            }
            for group, found in last.items()
        }

    def found(self, work: Work) -> tuple[int | None, int | None]:
        """When the watchdog found that a call has started, and is over."""
        times = []
        for time, lag in ((work.start, STARTED_LAG_NS), (work.end, COMPLETED_LAG_NS)):
            seen = time is not None and time + lag * self.taken.lagging <= self.taken.time
            times.append(min(time + lag, self.taken.time) if time is not None and seen else None)
        started, completed = times
        return (started if self.plan.timing else None), completed

    def entries(self) -> list[dict[str, Any]]:
        """The newest entries, oldest first."""
        record, written = 0, []
        for work in self.calls:
            call = _call(work)
            parts = recorded(call, by_gloo=False)
            written += [self.entry(record + at, work, call, at, part) for at, part in enumerate(parts)]
            record += len(parts)
        return written[-self.plan.buffer :]

    def entry(self, record: int, work: Work, call: Call, at: int, part: Part) -> dict[str, Any]:
        """One entry, in the order of the recorder's writer."""
        collective, message, operation = work.numbers
        # Of a coalesced batch only the closing entry has events, so only its state is known.
        silent = bool(call.closing) and at < len(call.parts)
        started, completed = (None, None) if silent else self.found(work)
        expired = self.taken.expire and work.created + self.plan.timeout_ms * 1_000_000 <= self.taken.time
        return {
            "frames": frames(call.site, part.operation),
            "record_id": record,
            "pg_id": self.local[call.group.number],
            "process_group": (call.group.name, call.group.description),
            "thread_name": THREAD,
            "thread_id": self.thread,
            "collective_seq_id": collective,
            "p2p_seq_id": message,
            "op_id": operation + min(at, len(call.parts) - 1),
            "profiling_name": self.name(call, part),
            "time_created_ns": work.created + at * MEMBER_NS + self.offset,
            "input_sizes": [*map(list, part.inputs)],
            "input_dtypes": [part.type] * len(part.inputs),
            "output_sizes": [*map(list, part.outputs)],
            "output_dtypes": [part.type] * len(part.outputs),
            "state": "completed" if completed else "started" if started else "scheduled",
            "time_discovered_started_ns": started and started + self.offset,
            "time_discovered_completed_ns": completed and completed + self.offset,
            "retired": not silent and (completed is not None or expired),
            "timeout_ms": self.plan.timeout_ms,
            "is_p2p": part.peer is not None,
        }

    def name(self, call: Call, part: Part) -> str:
        """An operation as it is recorded; messages name ranks of the group."""
        if part.peer is None:
            return f"{self.plan.backend}:{part.operation}"
        arrow = "->" if part.sends else "<-"
        return f"{self.plan.backend}:{part.operation} {self.position[call.group.number]}{arrow}{part.peer}"


def _call(work: Work) -> Call:
    assert isinstance(work.item, Call)
    return work.item
