"""Runs all ranks of a recorded job, and what their recorders contain at a given time."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any

from generators.flight_recorder import START_NS
from generators.recorded_plan import (
    Call,
    Compute,
    Part,
    Pause,
    Plan,
    Program,
    Settle,
    Snapshot,
    Truth,
    recorded,
)

# Execution of all programs together: when calls are issued, start and end.


ISSUE_NS, LAUNCH_NS, COLLECTIVE_NS, MESSAGE_NS = 18_000, 6_000, 300_000, 120_000
NEVER = 1 << 62
JITTER = 0.05
"""By which share computing takes longer than planned at most."""

Stream = tuple[int, ...]
Channel = tuple[int, int, int, bool]


@dataclass(slots=True, eq=False)
class Issued:
    """A call that a rank has issued, with its numbers and how far it came."""

    call: Call
    rank: int
    numbers: tuple[int, int, int]
    """Of the group at this rank: collectives, messages, operations up to the first one of this call."""
    enqueued: int
    needs: int
    """How much of what was computed before must be over."""
    start: int | None = None
    end: int | None = None
    undone: int = 0
    """How many of its messages have not arrived."""
    latest: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """What happened, by rank and in the order of issuing."""

    issued: Sequence[Sequence[Issued]]
    over: int
    """When the last thing happened."""


def run(plan: Plan, programs: Sequence[Program]) -> Run:
    """Until nothing moves any more."""
    return _Simulation(plan, programs).run()


class _Rank:
    """A program and its GPU."""

    def __init__(self, plan: Plan, rank: int, program: Program) -> None:
        self.rank, self.program = rank, program
        self.position = 0
        self.random = Random(f"run {plan.seed} {rank}")
        self.clock = START_NS + self.random.randrange(1_000_000)
        self.line: list[tuple[int, Issued | None, int]] = []
        """What is computed, or waited for before computing goes on, and when it was issued."""
        self.reached: list[int] = []
        """When each of these was over, as far as known."""
        self.streams: dict[Stream, deque[Issued]] = {}
        self.free: dict[Stream, int] = {}
        self.issued: list[Issued] = []
        self.unwaited: list[Issued] = []
        self.numbers: dict[int, tuple[int, int, int]] = {}

    def compute(self) -> bool:
        """Whether computing got any further."""
        before = len(self.reached)
        for ns, awaited, issued in self.line[before:]:
            now = max(issued, self.reached[-1] if self.reached else 0)
            if awaited is not None:
                if awaited.end is None:
                    break
                now = max(now, awaited.end)
            if ns == NEVER:
                break
            self.reached.append(now + ns)
        return len(self.reached) > before

    def caught_up(self) -> bool:
        """Whether everything issued is computed; the program then goes on from there."""
        if len(self.reached) < len(self.line):
            return False
        if self.line:
            self.clock = max(self.clock, self.reached[-1])
        return True

    def numbered(self, call: Call) -> tuple[int, int, int]:
        """The numbers of the next call of a group, as ProcessGroupNCCL counts."""
        collectives, messages, operations = self.numbers.get(call.group.number, (0, 0, 0))
        if call.messages:
            messages += 1
        else:
            collectives += 1
        self.numbers[call.group.number] = (collectives, messages, operations + len(call.parts))
        return collectives, messages, operations + 1


class _Simulation:
    def __init__(self, plan: Plan, programs: Sequence[Program]) -> None:
        self.plan = plan
        self.ranks = [_Rank(plan, rank, program) for rank, program in enumerate(programs)]
        self.meetings: defaultdict[tuple[int, int], list[Issued]] = defaultdict(list)
        self.channels: defaultdict[Channel, tuple[deque[_End], deque[_End]]] = defaultdict(
            lambda: (deque(), deque())
        )
        self.awake = deque(self.ranks)

    def run(self) -> Run:
        """Resumes ranks until all of them wait."""
        while self.awake:
            rank = self.awake.popleft()
            moved = True
            while moved:
                moved = rank.compute() | self.start(rank) | self.issue(rank)
        known = [rank.clock for rank in self.ranks]
        known += [each.end or each.start or 0 for rank in self.ranks for each in rank.issued[-64:]]
        return Run([rank.issued for rank in self.ranks], max(known))

    def issue(self, rank: _Rank) -> bool:
        """Whether the program got any further."""
        before = rank.position
        while rank.position < len(rank.program):
            item = rank.program[rank.position]
            if isinstance(item, Call):
                if not self.has_room(rank):
                    break
                self.enqueue(rank, item)
            elif isinstance(item, Compute):
                self.add_computing(rank, item)
            elif isinstance(item, Pause):
                rank.clock += item.ns
            elif not (isinstance(item, Settle) and self.settled(rank)):
                break
            rank.position += 1
            if self.plan.blocks and not rank.caught_up():
                break
        return rank.position > before

    def has_room(self, rank: _Rank) -> bool:
        """Whether the rank may issue one more call; it waits for the one so many calls ago."""
        if self.plan.blocks and not rank.caught_up():
            return False
        if len(rank.issued) < self.plan.run_ahead:
            return True
        end = rank.issued[-self.plan.run_ahead].end
        rank.clock = max(rank.clock, end or 0)
        return end is not None

    def settled(self, rank: _Rank) -> bool:
        """Whether nothing is left to wait for."""
        if rank.unwaited:
            rank.line += [(0, each, rank.clock) for each in rank.unwaited]
            rank.unwaited.clear()
        return rank.caught_up()

    def add_computing(self, rank: _Rank, item: Compute) -> None:
        ns = NEVER if item.ns is None else round(item.ns * (1 + JITTER * rank.random.random()))
        rank.clock += ISSUE_NS
        rank.line.append((ns, None, rank.clock))

    def enqueue(self, rank: _Rank, call: Call) -> None:
        """Puts a call on its stream."""
        rank.clock += ISSUE_NS
        issued = Issued(call, rank.rank, rank.numbered(call), rank.clock, len(rank.line))
        rank.issued.append(issued)
        rank.streams.setdefault(_stream(call, rank.rank), deque()).append(issued)
        if call.waits:
            rank.line.append((0, issued, rank.clock))
        else:
            rank.unwaited.append(issued)

    def start(self, rank: _Rank) -> bool:
        """Whether anything on a stream got any further."""
        moved = False
        for name, stream in rank.streams.items():
            while stream and (stream[0].start is None or stream[0].end is not None):
                head = stream[0]
                if head.start is None:
                    if head.needs > len(rank.reached):
                        break
                    ready = rank.reached[head.needs - 1] if head.needs else 0
                    head.start = max(head.enqueued + LAUNCH_NS, ready, rank.free.get(name, 0))
                    moved = True
                    self.meet(head)
                if head.end is None:
                    break
                rank.free[name] = head.end
                stream.popleft()
                moved = True
        return moved

    def meet(self, issued: Issued) -> None:
        """Brings together what belongs together."""
        if issued.call.messages:
            issued.undone = len(issued.call.parts)
            for part in issued.call.parts:
                self.pass_on(issued, part)
            return
        group = issued.call.group
        members = self.meetings[group.number, issued.numbers[0]]
        members.append(issued)
        if len(members) < len(group.ranks) or any(each.call.lost for each in members):
            return
        if all(each.call.agreement == issued.call.agreement for each in members):
            self.end(members, max(each.start or 0 for each in members) + COLLECTIVE_NS)

    def pass_on(self, issued: Issued, part: Part) -> None:
        """Matches one end of a message with the next that waits at the other end."""
        me, peer = issued.call.group.ranks.index(issued.rank), part.peer or 0
        ends = (me, peer) if part.sends else (peer, me)
        waiting = self.channels[(issued.call.group.number, *ends, bool(issued.call.closing))]
        waiting[part.sends].append(_End(issued, part))
        while waiting[0] and waiting[1]:
            pair = waiting[0].popleft(), waiting[1].popleft()
            if pair[0].part.inputs != pair[1].part.inputs or any(end.issued.call.lost for end in pair):
                continue
            arrived = max(end.issued.start or 0 for end in pair) + MESSAGE_NS
            for end in pair:
                end.issued.undone -= 1
                end.issued.latest = max(end.issued.latest, arrived)
                if not end.issued.undone:
                    self.end([end.issued], end.issued.latest)

    def end(self, members: Sequence[Issued], when: int) -> None:
        """Ends calls that belong together, on each rank at about the same time."""
        for each in members:
            rank = self.ranks[each.rank]
            each.end = when + int(rank.random.random() * 4_000)
            self.awake.append(rank)


@dataclass(frozen=True, slots=True)
class _End:
    issued: Issued
    part: Part


def _stream(call: Call, rank: int) -> Stream:
    if call.closing or not call.messages:
        return (call.group.number,)
    me, peer = call.group.ranks.index(rank), call.parts[0].peer or 0
    return (call.group.number, min(me, peer), max(me, peer))


# The dump of one rank at a given time, by the rules of torch's FlightRecorder and its backends.


VERSION, LIBRARY_VERSION = "2.10", "2.27.5"
WATCHDOG_NS = 100_000_000
"""How often the watchdog looks; it alone retires entries."""

DISCOVERY_NS = 1_500
"""From its finding that a call has started to its finding that it is over."""

MEMBER_NS = 900
"""Between the entries of one call."""

EVENTS = ("enqueued", "started", "completed")
THREAD = "pt_main_thread"
TORCH = "/srv/job/lib/torch/distributed/distributed_c10d.py"
TRAINING = "/srv/job/train.py"

Progress = tuple[float | None, str, int | None, int | None, bool]
"""Duration, state, when it was found to have started and to be over, and whether it is retired."""

UNTOUCHED: Progress = (None, "scheduled", None, None, False)


class Recorder:
    """The recorder of one rank."""

    def __init__(self, plan: Plan, rank: int, issued: Sequence[Issued], taken: int, expire: bool) -> None:
        self.plan, self.rank, self.taken, self.expire = plan, rank, taken, expire
        self.blocks, self.shows_starts = plan.blocks, plan.shows_starts
        self.timeout_ns = plan.timeout_ms * 1_000_000
        self.thread = str(140_321_668_979_584 + rank * 4096)
        self.issued = [each for each in issued if each.enqueued <= taken and self.records(each.call)]
        self.offset = plan.clock_offset(rank)
        self.phase = Random(f"watchdog {plan.seed} {rank}").randrange(WATCHDOG_NS)
        groups = plan.groups(rank).values()
        self.groups = {group.number: place for place, group in enumerate(groups)}
        """The number that this process gives a group."""
        self.places = {group.number: group.ranks.index(rank) for group in groups}

    def records(self, call: Call) -> bool:
        """Whether the backend tells the recorder of a call."""
        return self.plan.records_messages or not call.messages

    def content(self) -> dict[str, Any]:
        """The whole dump."""
        return {
            "version": VERSION,
            "pg_config": self.configuration(),
            "comm_lib_version": "" if self.blocks else LIBRARY_VERSION,
            "pg_status": self.status(),
            "entries": self.entries(),
        }

    def configuration(self) -> dict[str, dict[str, str]]:
        """The groups that the recorder knows of."""
        if not self.plan.configured:
            return {"": {"name": "", "desc": "", "ranks": "[]"}}
        return {
            group.name: {"name": group.name, "desc": group.description, "ranks": str(list(group.ranks))}
            for group in self.plan.groups(self.rank).values()
        }

    def status(self) -> dict[str, dict[str, int]]:
        """How far the groups have come; numbers of messages and of collectives overwrite each other."""
        found: dict[int, list[int]] = {}
        for each in self.issued:
            number = each.numbers[each.call.messages]
            last = found.setdefault(self.groups[each.call.group.number], [-1, -1, -1])
            last[0] = number
            if self.shows_starts and each.start is not None and self.watched(each.start) <= self.taken:
                last[1] = max(last[1], number)
            if self.retired(each):
                last[2] = number
        return {
            str(group): {
                f"last_{event}_collective": number for event, number in zip(EVENTS, last, strict=True)
            }
            for group, last in sorted(found.items())
        }

    def entries(self) -> list[dict[str, Any]]:
        """The newest entries, oldest first."""
        room, kept = self.plan.buffer, []
        record = sum(len(recorded(each.call, self.blocks)) for each in self.issued)
        for each in reversed(self.issued):
            if room <= 0:
                break
            parts = recorded(each.call, self.blocks)
            record -= len(parts)
            room -= len(parts)
            kept.append((record, each, parts))
        written = [
            self.entry(record + place, each, place, part)
            for record, each, parts in reversed(kept)
            for place, part in enumerate(parts)
        ]
        return written[-self.plan.buffer :]

    def entry(self, record: int, issued: Issued, place: int, part: Part) -> dict[str, Any]:
        """One entry, in the order of the recorder's writer."""
        call, (collective, message, operation) = issued.call, issued.numbers
        # Of a coalesced batch only the closing entry has events, so only its state is known.
        tells = not call.closing or place == len(call.parts) or self.blocks
        duration, state, started, completed, retired = self.progress(issued) if tells else UNTOUCHED
        return {
            "frames": frames(call.site, part.operation),
            "record_id": record,
            "pg_id": self.groups[call.group.number],
            "process_group": (call.group.name, call.group.description),
            "thread_name": THREAD,
            "thread_id": self.thread,
            "collective_seq_id": collective,
            "p2p_seq_id": message if self.plan.records_messages else 0,
            "op_id": operation + min(place, len(call.parts) - 1),
            "profiling_name": self.spelled(call, part),
            "time_created_ns": issued.enqueued + place * MEMBER_NS + self.offset,
            **({} if duration is None else {"duration_ms": duration}),
            "input_sizes": [*map(list, part.inputs)],
            "input_dtypes": [part.type] * len(part.inputs),
            "output_sizes": [*map(list, part.outputs)],
            "output_dtypes": [part.type] * len(part.outputs),
            "state": state,
            "time_discovered_started_ns": started,
            "time_discovered_completed_ns": completed,
            "retired": retired,
            "timeout_ms": self.plan.timeout_ms,
            "is_p2p": part.peer is not None,
        }

    def spelled(self, call: Call, part: Part) -> str:
        """An operation as it is recorded; messages name ranks of the group."""
        if part.peer is None:
            return f"{self.plan.backend}:{part.operation}"
        arrow = "->" if part.sends else "<-"
        return f"{self.plan.backend}:{part.operation} {self.places[call.group.number]}{arrow}{part.peer}"

    def watched(self, time: int) -> int:
        """When the watchdog next looks."""
        return time + (self.phase - time) % WATCHDOG_NS

    def retired(self, issued: Issued) -> bool:
        """Whether it has left the work list: it is over, or was given up."""
        if issued.end is None or issued.end > self.taken:
            return self.expire and issued.enqueued + self.timeout_ns <= self.taken
        return self.blocks or self.watched(issued.end) <= self.taken

    def progress(self, issued: Issued) -> Progress:
        """How far the recorder knows that a call came; what is not retired is looked at for the dump."""
        retired = self.retired(issued)
        if self.blocks:
            return None, "scheduled", None, None, retired
        begun = issued.start is not None and issued.start <= self.taken and self.plan.timing
        over = issued.end is not None and issued.end <= self.taken
        looked = self.taken
        if retired:
            given_up = issued.enqueued + self.timeout_ns
            looked = self.watched(issued.end or 0) if over else min(self.watched(given_up), self.taken)
        state = "completed" if over else "started" if begun else "scheduled"
        duration = ((issued.end or 0) - (issued.start or 0)) / 1e6 if over and retired and begun else None
        shown = looked + self.offset
        return duration, state, shown if begun else None, shown + DISCOVERY_NS if over else None, retired


@lru_cache(maxsize=512)
def frames(site: str, operation: str) -> list[dict[str, Any]]:
    """Where the program asked for it, innermost first."""
    return [
        frame(operation.strip("_"), TORCH, 2000 + len(operation) * 37),
        frame(site, TRAINING, _line(site)),
        frame("train_step", TRAINING, 41),
        frame("main", TRAINING, 80),
    ]


@lru_cache(maxsize=1024)
def frame(name: str, file: str, line: int) -> dict[str, Any]:
    """A frame; entries share it, and so does what is pickled."""
    return {"name": name, "filename": file, "line": line}


def _line(site: str) -> int:
    return 100 + sum(site.encode()) % 800


# Whether the dumps contain the evidence of a fault: ring buffers wrap, and dumps are missing.


Dumps = Mapping[int, Mapping[str, Any]]

STOPS = frozenset({"never_joined", "never_joined_any", "lagging", "died"})
"""Faults that show in those who wait."""

FEWEST_FOR_A_MAJORITY = 2


def with_evidence(truth: Truth, plan: Plan, snapshot: Snapshot, dumps: Dumps) -> Truth:
    """The truth, with whether these dumps can tell it."""
    culprits = set(truth.culprits)
    if truth.fault == "straggler":
        return replace(truth, evident=culprits <= set(dumps) and len(dumps) > 1)
    if truth.cycle:
        kept = all(_holds(dumps, who, group, number, truth) for group, number, who, _ in truth.cycle)
        return replace(truth, evident=kept)
    holding = {rank for rank in truth.members if _holds(dumps, rank, truth.group, truth.sequence, truth)}
    if truth.point_to_point:
        return replace(truth, evident=culprits <= holding and set(truth.waiting) <= set(dumps))
    others = holding - culprits
    if truth.fault in STOPS:
        # After a timeout gloo calls everything retired: only the culprit's own dump shows what it left out.
        ended = plan.blocks and snapshot.when == "timed_out"
        return replace(truth, evident=bool(others) and (not ended or culprits <= set(dumps)))
    if truth.fault == "timed_out":
        return replace(truth, evident=bool(others) and (snapshot.when == "timed_out" or plan.timing))
    tie = truth.tie or len(others) < FEWEST_FOR_A_MAJORITY
    return replace(truth, evident=culprits <= holding and bool(others), tie=tie)


def _holds(dumps: Dumps, rank: int, group: str, number: int | None, truth: Truth) -> bool:
    key = "p2p_seq_id" if truth.point_to_point else "collective_seq_id"
    return rank in dumps and any(
        entry["process_group"][0] == group and entry[key] == number for entry in dumps[rank]["entries"]
    )
