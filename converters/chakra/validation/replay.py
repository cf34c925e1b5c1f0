"""Replay of the communication of all ranks as ASTRA-sim runs it: does every op complete, and which ranks deadlock?

Input: the communication of each rank in issue order, and what each op waits for. A rank runs one collective or send at
a time; receives do not count. A collective completes when all of its members have issued it, a receive when its message
was sent, and a send by itself. Output: the ops that never complete, and the circles of ranks that wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
from msgspec import Struct

from tracelink._model.columns import UNKNOWN, Int64s
from tracelink.converters.chakra.schema import CollectiveType, NodeType
from tracelink.converters.chakra.table import Links, cycles_in

INSTANT, SLOW = 0, 1 << 50
"""Durations of communication in nanoseconds: less than any computation, and more than all of it."""


class RankSteps(Struct, frozen=True):
    """The communication of one rank in issue order, one row for each op."""

    node: Int64s
    """The id of the node."""
    kind: Int64s
    """A `NodeType`."""
    group: Int64s
    """The group of a collective; UNKNOWN if it is not listed, and for messages."""
    type: Int64s
    """The type of a collective; UNKNOWN for messages."""
    size: Int64s
    peer: Int64s
    """The other rank of a message; UNKNOWN for collectives and incomplete messages."""
    tag: Int64s
    before: Links | None = None
    """The rows that each op directly waits for; None if each op waits for the one before it."""
    delay: Int64s | None = None
    """For each id of `before`, nanoseconds of computation between the two ops."""
    first_delay: Int64s | None = None
    """Nanoseconds of computation from the start of the trace to each op."""

    def __len__(self) -> int:
        return len(self.node)


class Wait(Struct, frozen=True):
    """A rank that never leaves an op."""

    rank: int
    step: int
    """The row of the op."""
    needed: int
    """The row of the op that the next rank of a circle has not issued; in a disagreement, the row of the op that the
    rank itself issues here in issue order. UNKNOWN if there is none."""


class Deadlock(Struct, frozen=True):
    """Ranks that never go on."""

    waits: Sequence[Wait]
    """Each rank waits for the next one, and the last one for the first."""
    disagrees: bool = False
    """True if the ranks are in the same collective of a group, but with different types or sizes."""


class Replay(Struct, frozen=True):
    """The result of a replay."""

    unfinished: Mapping[int, int]
    """The number of ops that never complete, by rank; only ranks that have some."""
    deadlocks: Sequence[Deadlock] = ()

    @property
    def finishes(self) -> bool:
        """True if all communication of all ranks completes."""
        return not self.unfinished


def replay_in_order(
    ranks: Mapping[int, RankSteps], groups: Mapping[int, Sequence[int]], *, one_at_a_time: bool = True
) -> Replay:
    """Runs communication in issue order, as if computation took no time.

    A rank runs an op out of order only if no rank can go on otherwise. `groups` are the members of each group; a member
    that is not among `ranks` always takes part. Without `one_at_a_time`, only dependencies order the ops of a rank.
    """
    return _InOrder(_Job(ranks, groups), one_at_a_time=one_at_a_time).run()


def replay_in_time(
    ranks: Mapping[int, RankSteps], groups: Mapping[int, Sequence[int]], duration: int
) -> Replay:
    """Runs the first op that is free, after the computation that the traces contain; an op takes `duration`."""
    return _InTime(_Job(ranks, groups), duration).run()


# The communication of all ranks: ops by their index in all ranks, and how they match.

_ALONE = 0
"""The kind of ops that complete by themselves: their type needs no other rank, or the other rank is not known."""
_TYPES = 16
"""More than there are types of collectives."""


class _Job:
    """Ops of all ranks in one row of indices."""

    def __init__(self, ranks: Mapping[int, RankSteps], groups: Mapping[int, Sequence[int]]) -> None:
        self.ranks = sorted(ranks)
        self.steps = [ranks[rank] for rank in self.ranks]
        self.bounds = np.cumsum([0, *map(len, self.steps)]).tolist()
        owner = np.repeat(np.arange(len(self.ranks)), [len(steps) for steps in self.steps])
        group = self._column("group")
        self.kind = self._kinds(owner, group)
        self.channel = self._channels(owner, group)
        self.token = self._column("size") * _TYPES + self._column("type")
        self.owner = owner
        self.index_of = {rank: index for index, rank in enumerate(self.ranks)}
        self.members = {
            number: [self.index_of[rank] for rank in members if rank in self.index_of]
            for number, members in groups.items()
        }

    def _column(self, name: str) -> Int64s:
        return np.concatenate([np.empty(0, np.int64), *(getattr(steps, name) for steps in self.steps)])

    def _kinds(self, owner: Int64s, group: Int64s) -> Int64s:
        kind, peer = self._column("kind"), self._column("peer")
        ranks = np.array(self.ranks, np.int64)
        collective = kind == NodeType.COMM_COLL
        alone = collective & ((group == UNKNOWN) | (self._column("type") == CollectiveType.BROADCAST))
        alone |= ~collective & (~np.isin(peer, ranks) | (peer == np.append(ranks, UNKNOWN)[owner]))
        return np.where(alone, _ALONE, kind)

    def _channels(self, owner: Int64s, group: Int64s) -> Int64s:
        """The group of a collective, and a number for messages with equal ends, tag and size."""
        sent = self.kind == NodeType.COMM_SEND
        messages = np.flatnonzero(sent | (self.kind == NodeType.COMM_RECV))
        own, peer = np.array(self.ranks, np.int64)[owner[messages]], self._column("peer")[messages]
        source, target = np.where(sent[messages], own, peer), np.where(sent[messages], peer, own)
        keys = np.stack([source, target, self._column("tag")[messages], self._column("size")[messages]])
        channel = group.copy()
        channel[messages] = (
            np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1) if len(messages) else 0
        )
        return channel

    def following(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Bounds of the ops that wait for each op, these ops, the computation between, and how many each waits for."""
        before, after, delay = list[Int64s](), list[Int64s](), list[Int64s]()
        for steps, base in zip(self.steps, self.bounds, strict=False):
            if steps.before is None:
                rows = np.arange(base, base + len(steps))
                before, after = [*before, rows[:-1]], [*after, rows[1:]]
                delay.append(np.zeros(max(len(steps) - 1, 0), np.int64))
                continue
            before.append(steps.before.ids + base)
            after.append(steps.before.owners + base)
            delay.append(np.zeros(len(steps.before.ids), np.int64) if steps.delay is None else steps.delay)
        total = self.bounds[-1]
        first, second, between = (
            np.concatenate([np.empty(0, np.int64), *part]) for part in (before, after, delay)
        )
        order = np.argsort(first, kind="stable")
        bounds = np.searchsorted(first[order], np.arange(total + 1))
        awaited = np.bincount(second, minlength=total)
        return bounds.tolist(), second[order].tolist(), between[order].tolist(), awaited.tolist()


# The state of a replay, which both kinds of replay share.


class _State(ABC):
    """All that every rank has issued and completed."""

    def __init__(self, job: _Job) -> None:
        self.job = job
        self.owner, self.kind = job.owner.tolist(), job.kind.tolist()
        self.channel, self.token = job.channel.tolist(), job.token.tolist()
        self.bounds, self.after, self.delay, self.awaited = job.following()
        self.issued, self.done = bytearray(len(self.owner)), bytearray(len(self.owner))
        self.running = [UNKNOWN] * len(job.ranks)
        """The op that occupies each rank."""
        self.size_of_group = {number: len(members) for number, members in job.members.items()}
        self.entered: dict[tuple[int, int], int] = {}
        """The number of collectives of a group that a rank has issued."""
        self.open: dict[tuple[int, int], list[int]] = {}
        """The ops in each collective that not all members have issued, by group and number."""
        self.disagreeing: list[tuple[int, int]] = []
        self.sent: dict[int, int] = {}
        """Messages that were sent but not received."""
        self.receiving: dict[int, deque[int]] = {}
        """Receives whose message was not sent."""

    @abstractmethod
    def run(self) -> Replay:
        """Runs to the end."""

    def issue(self, step: int) -> Iterable[int]:
        """Issues an op; returns the ops that it completes."""
        self.issued[step] = 1
        kind, channel = self.kind[step], self.channel[step]
        if kind == NodeType.COMM_COLL:
            return self._enter(step, channel)
        if kind == NodeType.COMM_SEND:
            if waiting := self.receiving.get(channel):
                return step, waiting.popleft()
            self.sent[channel] = self.sent.get(channel, 0) + 1
        elif kind == NodeType.COMM_RECV:
            if not self.sent.get(channel):
                self.receiving.setdefault(channel, deque()).append(step)
                return ()
            self.sent[channel] -= 1
        return (step,)

    def _enter(self, step: int, group: int) -> Iterable[int]:
        member = (group, self.owner[step])
        number = self.entered.get(member, 0)
        self.entered[member] = number + 1
        steps = self.open.setdefault((group, number), [])
        steps.append(step)
        if len(steps) < self.size_of_group.get(group, 0):
            return ()
        if any(self.token[other] != self.token[step] for other in steps):
            self.disagreeing.append((group, number))
            return ()
        return self.open.pop((group, number))

    def result(self) -> Replay:
        """The ops that never complete, and why."""
        done = np.frombuffer(self.done, np.uint8)
        left = np.bincount(self.job.owner[done == 0], minlength=len(self.job.ranks))
        unfinished = {self.job.ranks[index]: int(left[index]) for index in np.flatnonzero(left).tolist()}
        return Replay(unfinished, _deadlocks(self) if unfinished else ())


class _InOrder(_State):
    """Communication in issue order; computation takes no time."""

    def __init__(self, job: _Job, *, one_at_a_time: bool) -> None:
        super().__init__(job)
        self.one_at_a_time = one_at_a_time
        self.head = list(job.bounds[:-1])
        """The first op of each rank that was not issued."""
        self.free: list[list[int]] = [[] for _ in job.ranks]
        """Ops of each rank that could be issued, as a heap."""
        self.completed: list[int] = []
        self.can_go_on = list(range(len(job.ranks)))

    def run(self) -> Replay:
        for step, awaited in enumerate(self.awaited):
            if not awaited:
                self._release(step)
        while True:
            while self.completed or self.can_go_on:
                while self.completed:
                    self._complete(self.completed.pop())
                if self.can_go_on:
                    self._advance(self.can_go_on.pop())
            if not self._issue_out_of_order():
                return self.result()

    def _release(self, step: int) -> None:
        """An op that waits for no other op of its rank any more."""
        if self.kind[step] == NodeType.COMM_RECV or not self.one_at_a_time:
            self.completed += self.issue(step)
        else:
            heappush(self.free[self.owner[step]], step)

    def _complete(self, step: int) -> None:
        self.done[step] = 1
        rank = self.owner[step]
        if self.running[rank] == step:
            self.running[rank] = UNKNOWN
        self.can_go_on.append(rank)
        for after in self.after[self.bounds[step] : self.bounds[step + 1]]:
            self.awaited[after] -= 1
            if not self.awaited[after]:
                self._release(after)

    def _advance(self, rank: int) -> None:
        """Issues the next op in order, if it is free."""
        head, end = self.head[rank], self.job.bounds[rank + 1]
        while self.running[rank] == UNKNOWN and head < end:
            if self.issued[head] or self.kind[head] == NodeType.COMM_RECV:
                head += 1
            elif self.awaited[head]:
                break
            else:
                self._start(head, rank)
                break
        self.head[rank] = head

    def _start(self, step: int, rank: int) -> None:
        self.running[rank] = step
        self.completed += self.issue(step)

    def _issue_out_of_order(self) -> bool:
        """Issues free ops behind ops that are not free: sends if there are some, else one op of each rank."""
        candidates = []
        for rank, free in enumerate(self.free):
            while free and self.issued[free[0]]:
                heappop(free)
            if free and self.running[rank] == UNKNOWN:
                candidates.append((rank, free[0]))
        sends = [(rank, step) for rank, step in candidates if self.kind[step] != NodeType.COMM_COLL]
        for rank, step in sends or candidates:
            self._start(step, rank)
        return bool(candidates)


class _InTime(_State):
    """The first op that is free; computation takes the time that the traces contain."""

    def __init__(self, job: _Job, duration: int) -> None:
        super().__init__(job)
        self.duration = duration
        self.free: list[list[int]] = [[] for _ in job.ranks]
        zeros = [
            np.zeros(len(steps), np.int64) if steps.first_delay is None else steps.first_delay
            for steps in job.steps
        ]
        self.ready: list[int] = np.concatenate([np.empty(0, np.int64), *zeros]).tolist()
        """The time at which each op is free, as far as it is known."""
        self.events: list[tuple[int, bool, int]] = []
        """Time, whether an op completes or is free, and the op."""

    def run(self) -> Replay:
        self.events = [(self.ready[step], False, step) for step, left in enumerate(self.awaited) if not left]
        heapify(self.events)
        while self.events:
            now, ranks = self.events[0][0], set[int]()
            while self.events and self.events[0][0] == now:
                _, completes, step = heappop(self.events)
                ranks.add(self.owner[step])
                if completes:
                    self._complete(step, now)
                elif self.kind[step] == NodeType.COMM_RECV:
                    self._issue(step, now)
                else:
                    heappush(self.free[self.owner[step]], step)
            for rank in ranks:
                if self.free[rank] and self.running[rank] == UNKNOWN:
                    step = heappop(self.free[rank])
                    self.running[rank] = step
                    self._issue(step, now)
        return self.result()

    def _issue(self, step: int, now: int) -> None:
        for completed in self.issue(step):
            heappush(self.events, (now + self.duration, True, completed))

    def _complete(self, step: int, now: int) -> None:
        self.done[step] = 1
        if self.running[self.owner[step]] == step:
            self.running[self.owner[step]] = UNKNOWN
        for at in range(self.bounds[step], self.bounds[step + 1]):
            after = self.after[at]
            self.ready[after] = max(self.ready[after], now + self.delay[at])
            self.awaited[after] -= 1
            if not self.awaited[after]:
                heappush(self.events, (self.ready[after], False, after))


# Why ranks do not go on.


def _deadlocks(state: _State) -> list[Deadlock]:
    """The disagreements, else the circles of ranks that wait for each other."""
    if state.disagreeing:
        return [_disagreement(state, group, number) for group, number in state.disagreeing]
    numbers = {step: number for (_, number), steps in state.open.items() for step in steps}
    waits: dict[int, tuple[int, int, int]] = {}
    for rank in range(len(state.job.ranks)):
        step = _current(state, rank)
        if step != UNKNOWN and (awaited := _awaited(state, rank, step, numbers.get(step, 0))):
            waits[rank] = (step, *awaited)
    return [Deadlock([_wait(state, rank, *waits[rank]) for rank in circle]) for circle in _circles(waits)]


def _wait(state: _State, rank: int, step: int, other: int, needed: int) -> Wait:
    base, other_base = state.job.bounds[rank], state.job.bounds[other]
    return Wait(state.job.ranks[rank], step - base, needed - other_base if needed != UNKNOWN else UNKNOWN)


def _disagreement(state: _State, group: int, number: int) -> Deadlock:
    waits = []
    for step in sorted(state.open[group, number]):
        rank = state.owner[step]
        base = state.job.bounds[rank]
        expected = _rows(state, rank, NodeType.COMM_COLL, group)
        waits.append(Wait(state.job.ranks[rank], step - base, int(expected[number]) - base))
    return Deadlock(waits, disagrees=True)


def _current(state: _State, rank: int) -> int:
    """The op that a rank is in: the one that occupies it, else the first receive that never completes."""
    if state.running[rank] != UNKNOWN:
        return state.running[rank]
    begin, end = state.job.bounds[rank : rank + 2]
    inside = slice(begin, end)
    waiting = np.frombuffer(state.issued, np.uint8)[inside] > np.frombuffer(state.done, np.uint8)[inside]
    return begin + int(waiting.argmax()) if waiting.any() else UNKNOWN


def _awaited(state: _State, rank: int, step: int, number: int) -> tuple[int, int] | None:
    """A rank that has not issued its part of an op, and its first op that would be this part."""
    kind, channel = state.kind[step], state.channel[step]
    if kind == NodeType.COMM_COLL:
        others = [
            member
            for member in state.job.members[channel]
            if state.entered.get((channel, member), 0) <= number
        ]
        wanted = NodeType.COMM_COLL
    else:
        peer = int(state.job.steps[rank].peer[step - state.job.bounds[rank]])
        others, wanted = [state.job.index_of[peer]], NodeType.COMM_SEND
    for other in others:
        rows = _rows(state, other, wanted, channel)
        missing = rows[np.frombuffer(state.issued, np.uint8)[rows] == 0]
        if len(missing):
            return other, int(missing[0])
    return None


def _rows(state: _State, rank: int, kind: int, channel: int) -> Int64s:
    """The ops of a rank of one kind and group, or of one kind of message."""
    begin, end = state.job.bounds[rank : rank + 2]
    inside = slice(begin, end)
    return begin + np.flatnonzero((state.job.kind[inside] == kind) & (state.job.channel[inside] == channel))


def _circles(waits: Mapping[int, tuple[int, int, int]]) -> list[list[int]]:
    """The circles found by following each rank to the rank that it waits for, each from its lowest rank on."""
    circles = cycles_in({rank: other for rank, (_, other, _) in waits.items()})
    firsts = [circle.index(min(circle)) for circle in circles]
    return [circle[first:] + circle[:first] for circle, first in zip(circles, firsts, strict=True)]
