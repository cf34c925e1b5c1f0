"""Runs all ranks of a recorded job together: when calls are issued, start and end."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from generators.recorded_plan import START_NS, Call, Compute, Part, Pause, Plan, Program, Settle

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


def run(plan: Plan, programs: Sequence[Program], deaths: Mapping[int, int] | None = None) -> Run:
    """Until nothing moves any more; `deaths` is the time at which a rank is killed."""
    return _Simulation(plan, programs, deaths or {}).run()


class _Rank:
    """A program and its GPU."""

    def __init__(self, plan: Plan, rank: int, program: Program, death: int) -> None:
        self.rank, self.program, self.death = rank, program, death
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
        collectives += not call.messages
        messages += call.messages
        self.numbers[call.group.number] = (collectives, messages, operations + len(call.parts))
        return collectives, messages, operations + 1


class _Simulation:
    def __init__(self, plan: Plan, programs: Sequence[Program], deaths: Mapping[int, int]) -> None:
        self.plan = plan
        self.ranks = [_Rank(plan, rank, each, deaths.get(rank, NEVER)) for rank, each in enumerate(programs)]
        self.meetings: defaultdict[tuple[int, int], list[Issued]] = defaultdict(list)
        self.channels: defaultdict[Channel, tuple[deque[_End], deque[_End]]] = defaultdict(
            lambda: (deque(), deque())
        )
        self.awake = deque(self.ranks)

    def run(self) -> Run:
        """Resumes ranks until all of them wait."""
        while self.awake:
            rank = self.awake.popleft()
            while rank.compute() | self.start(rank) | self.issue(rank):
                pass
        known = [rank.clock for rank in self.ranks]
        known += [each.end or each.start or 0 for rank in self.ranks for each in rank.issued[-64:]]
        return Run([rank.issued for rank in self.ranks], max(known))

    def issue(self, rank: _Rank) -> bool:
        """Whether the program got any further."""
        before = rank.position
        while rank.position < len(rank.program) and rank.clock < rank.death:
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
        rank.clock += ISSUE_NS
        issued = Issued(call, rank.rank, rank.numbered(call), rank.clock, len(rank.line))
        rank.issued.append(issued)
        rank.streams.setdefault(_stream(call, rank.rank), deque()).append(issued)
        if call.waits or self.plan.queued:
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
                    start = max(head.enqueued + LAUNCH_NS, ready, rank.free.get(name, 0))
                    if start > rank.death:
                        break
                    head.start = start
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
        if part.sends and self.plan.eager and not issued.call.lost:
            self.arrive(issued, (issued.start or 0) + MESSAGE_NS)
        while waiting[0] and waiting[1]:
            pair = waiting[0].popleft(), waiting[1].popleft()
            if pair[0].part.inputs != pair[1].part.inputs or any(end.issued.call.lost for end in pair):
                continue
            arrived = max(end.issued.start or 0 for end in pair) + MESSAGE_NS
            if all(arrived <= self.ranks[end.issued.rank].death for end in pair):
                for end in pair[: 1 if self.plan.eager else 2]:
                    self.arrive(end.issued, arrived)

    def arrive(self, issued: Issued, when: int) -> None:
        """One message of a call is over."""
        issued.undone -= 1
        issued.latest = max(issued.latest, when)
        if not issued.undone:
            self.end([issued], issued.latest)

    def end(self, members: Sequence[Issued], when: int) -> None:
        """Ends calls that belong together, on each rank at about the same time."""
        if any(when > self.ranks[each.rank].death for each in members):
            return
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
