"""Faults of collectives and messages, and where in a program each can be injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from generators.recorded_plan import (
    PAIRS,
    START_NS,
    Call,
    Compute,
    Item,
    Part,
    Pause,
    Plan,
    Program,
    Settle,
    Shapes,
    Stop,
    Truth,
    recorded,
)
from generators.recorded_run import run
from generators.recorded_training import program

# Calls of a program at which a fault can be injected.


@dataclass(frozen=True, slots=True)
class Scene:
    """The programs before anything goes wrong."""

    plan: Plan
    programs: Sequence[Program]
    share: float = 0.5
    """How late a straggler is: the share of a step's computing."""
    random: Random = field(default_factory=lambda: Random(0))
    deaths: dict[int, int] = field(default_factory=dict)
    """When ranks are killed: filled by faults."""
    _places: dict[int, Sequence[Place]] = field(default_factory=dict)

    def places(self, rank: int) -> Sequence[Place]:
        """All calls of a rank, numbered as their groups count them."""
        if rank not in self._places:
            self._places[rank] = list(self._numbered(rank))
        return self._places[rank]

    def _numbered(self, rank: int) -> Iterator[Place]:
        numbers: dict[tuple[int, bool], int] = {}
        step = 0
        for index, item in enumerate(self.programs[rank]):
            if isinstance(item, Call):
                counted = item.group.number, item.messages
                numbers[counted] = numbers.get(counted, 0) + 1
                yield Place(self, rank, index, item, numbers[counted], step)
            step += isinstance(item, Settle if self.plan.settles else Pause)


@dataclass(frozen=True, slots=True)
class Place:
    """A call in the program of a rank."""

    scene: Scene
    rank: int
    index: int
    call: Call
    number: int
    """Among the collectives of its group, or among its messages."""
    step: int

    @property
    def plan(self) -> Plan:
        return self.scene.plan

    @property
    def program(self) -> Program:
        return self.scene.programs[self.rank]

    @property
    def part(self) -> Part:
        return self.call.parts[0]

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.call.group.ranks if rank != self.rank)

    @property
    def later(self) -> Iterator[Place]:
        return (each for each in self.scene.places(self.rank) if each.index > self.index)

    @property
    def following(self) -> Place | None:
        """The next collective of the group, or its next message."""
        like = (self.call.group, self.call.messages)
        return next((each for each in self.later if (each.call.group, each.call.messages) == like), None)

    @property
    def known_group(self) -> bool:
        """Whether it is a collective, and not the first of its group."""
        return not self.call.messages and self.number > 1

    @property
    def uneven(self) -> bool:
        return self.part.operation == "all_to_all"

    @property
    def queued(self) -> int:
        """How many more collectives of the group others issue when one member does not come."""
        count = 0
        for item in self.program[self.index :]:
            if isinstance(item, Settle):
                break
            if isinstance(item, Call):
                count += item.group == self.call.group and not item.messages
                if self.plan.blocks and item.waits:
                    break
        return count - 1

    @property
    def looks(self) -> tuple[tuple[object, ...], ...]:
        """The recorded arguments that must be equal on all ranks."""
        return tuple(part.agreement for part in recorded(self.call, self.plan.blocks))

    def reaches(self, later: Place) -> bool:
        """Whether a rank that leaves out this call still issues a later one, though the others are stuck."""
        called = False
        for item in self.program[self.index + 1 : later.index]:
            called |= isinstance(item, Call)
            blocked = self.plan.blocks and isinstance(item, Call) and item.waits
            if (called and isinstance(item, Settle)) or blocked:
                return False
        return True

    def put(self, *items: Item, instead: int = 1) -> Program:
        """The program with some items here, instead of so many that stood there."""
        return (*self.program[: self.index], *items, *self.program[self.index + instead :])

    def exchanged(self, other: Place) -> Program:
        """The program with a later call before this one."""
        without = (*self.program[: other.index], *self.program[other.index + 1 :])
        return (*without[: self.index], other.call, *without[self.index :])

    def with_part(self, part: Part, old: Part | None = None, *, lost: bool = False) -> Call:
        """The call with another operation in place of an old one, or of the first."""
        parts = tuple(part if each is (old or self.part) else each for each in self.call.parts)
        return replace(self.call, parts=parts, lost=lost)

    def truth(self, fault: str, kind: str) -> Truth:
        unjoined: dict[str, int] = {}
        for each in self.scene.places(self.rank):
            if each.index >= self.index and not each.call.messages:
                unjoined.setdefault(each.call.group.name, each.number)
        # Of several operations, the entry that ends them.
        last = recorded(self.call, self.plan.blocks)[-1]
        return Truth(
            fault,
            kind,
            self.call.group.name,
            self.number,
            culprits=(self.rank,),
            waiting=self.others,
            members=self.call.group.ranks,
            operation=f"{self.plan.backend}:{last.operation}",
            point_to_point=self.call.messages,
            places=tuple(unjoined.items()),
        )


# Faults of collectives.


Injected = tuple[Mapping[int, Program], Mapping[str, Any]]
"""The programs that differ, and what is true besides what all truths have in common."""

MORE_ROWS = 100
"""Large enough that a wrong size is never the right size of another rank."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: what a diagnosis should call it, where it makes sense, and what it does there."""

    verdict: str
    suits: Callable[[Place], bool]
    inject: Callable[[Place], Injected]
    also: frozenset[str] = frozenset()
    needs_majority: bool = False
    """Whether a group of two cannot tell who is wrong."""


def _known(place: Place) -> bool:
    return place.known_group


def _stops(place: Place) -> Injected:
    return {place.rank: (*place.program[: place.index], Stop())}, {}


def _skipped(place: Place) -> Injected:
    # Unless others go on, nothing but the habit of the job tells a skip from another operation.
    seen = place.queued and len(place.others) > 1
    names = {tuple(part[0] for part in each.looks) for each in (place, place.following) if each}
    also = {"size_mismatch"} if len(names) == 1 else {"size_mismatch", "operation_mismatch"}
    return {place.rank: place.put()}, {"also": frozenset(() if seen else also)}


def _skip_shows(place: Place) -> bool:
    following = place.following if place.known_group else None
    return following is not None and place.reaches(following) and following.looks != place.looks


def _extra(place: Place) -> Injected:
    other = Part(_another(place.part.operation), ((5, 3),), ((5, 3),), "Float")
    call = replace(place.call, parts=(other,), site="extra", closing="")
    return {place.rank: place.put(call, instead=0)}, {}


def _another(operation: str) -> str:
    return "all_reduce" if "broadcast" in operation else "broadcast"


def _replaced(verdict: str, change: Callable[[Part], Part], hangs: bool) -> Kind:
    def suits(place: Place) -> bool:
        if not place.known_group or place.uneven:
            return False
        calls = (place.call, place.with_part(change(place.part)))
        own, other = (recorded(call, place.plan.blocks) for call in calls)
        return own != other

    def inject(place: Place) -> Injected:
        more = {"places": (), "hangs": hangs, "waiting": place.others if hangs else ()}
        return {place.rank: place.put(place.with_part(change(place.part)))}, more

    return Kind(verdict, suits, inject, needs_majority=True)


def _other_operation(part: Part) -> Part:
    return replace(part, operation=_another(part.operation), outputs=part.inputs)


def _other_type(part: Part) -> Part:
    return replace(part, type="Half" if part.type == "Float" else "Float")


def _other_size(part: Part) -> Part:
    (gives, *_), (gets, *_) = part.inputs[0], part.outputs[0]
    inputs, outputs = (
        _larger(shapes, MORE_ROWS * rows // min(gives, gets))
        for shapes, rows in ((part.inputs, gives), (part.outputs, gets))
    )
    return replace(part, inputs=inputs, outputs=outputs)


def _larger(shapes: Shapes, rows: int) -> Shapes:
    (first, *rest), *others = shapes
    return ((first + rows, *rest), *others)


def _split_mismatch(place: Place) -> Injected:
    outputs = tuple((rows + 1, *rest) for rows, *rest in place.part.outputs)
    call = place.with_part(replace(place.part, outputs=outputs), lost=True)
    # Of single tensors only the sums are recorded, and a sum does not tell whose part of it is wrong.
    return {place.rank: place.put(call)}, {"places": (), "tie": len(outputs) == 1}


def _not_started(place: Place) -> Injected:
    return {place.rank: place.put(Compute(None), instead=0)}, {}


def _timed_out(place: Place) -> Injected:
    members = place.call.group.ranks
    wanted = (place.call.group, False, place.number)
    programs = {
        each.rank: each.put(replace(each.call, lost=True))
        for rank in members
        for each in place.scene.places(rank)
        if (each.call.group, each.call.messages, each.number) == wanted
    }
    return programs, {"culprits": (), "waiting": members, "places": ()}


def _straggler(place: Place) -> Injected:
    computing = sum(item.ns or 0 for item in place.program if isinstance(item, Compute))
    pause = Pause(round(place.scene.share * computing / place.plan.steps))
    late: list[Item] = []
    for item in place.program:
        late += [item, pause] if isinstance(item, Settle) else [item]
    everyone = tuple(rank for rank in range(place.plan.world) if rank != place.rank)
    unknown: dict[str, Any] = {"group": "", "sequence": None, "operation": "", "places": (), "members": ()}
    return {place.rank: tuple(late)}, {**unknown, "hangs": False, "waiting": everyone}


def _swapped_with(place: Place) -> Place | None:
    """The next call, if another member of both groups waits for this one before it comes to that."""
    following = next(place.later, None)
    if place.call.messages or following is None or following.call.messages:
        return None
    wait = place.call.waits and following.call.waits and following.step == place.step
    differ = following.call.group != place.call.group
    return following if wait and differ and set(following.others) & set(place.others) else None


def _deadlock(place: Place) -> Injected:
    other = _swapped_with(place)
    assert other is not None
    peer = min(set(place.others) & set(other.others))
    cycle = (
        (place.call.group.name, place.number, peer, place.rank),
        (other.call.group.name, other.number, place.rank, peer),
    )
    return {place.rank: place.exchanged(other)}, {"cycle": cycle}


def _corner(place: Place) -> bool:
    # Groups 01, 12, 02 in this order: only rank 0 closes the circle by changing its two.
    return place.rank == 0 and place.call.group.description == PAIRS[0]


def _deadlock_of_three(place: Place) -> Injected:
    groups = {role: group for rank in (0, 1) for role, group in place.plan.groups(rank).items()}
    waits = zip(PAIRS, ((1, 0), (2, 1), (0, 2)), strict=True)
    cycle = tuple((groups[role].name, place.number, *who) for role, who in waits)
    return {0: place.exchanged(next(place.later))}, {"cycle": cycle, "tie": True}


NEVER_JOINED, LAGGING = "never_joined", frozenset({"lagging"})
COLLECTIVE_FAULTS = {
    "never_joined": Kind(
        NEVER_JOINED, lambda place: place.known_group and place.queued == 0, _stops, LAGGING
    ),
    "never_joined_any": Kind(
        NEVER_JOINED, lambda place: not place.call.messages and place.number == 1, _stops
    ),
    "lagging": Kind(
        "lagging",
        lambda place: place.known_group and place.queued > 0,
        _stops,
        frozenset({NEVER_JOINED}),
    ),
    "died": Kind(NEVER_JOINED, _known, _stops, LAGGING | {"failed"}),
    "skipped": Kind("skipped", _skip_shows, _skipped, needs_majority=True),
    "extra": Kind(
        "extra_call", _known, _extra, frozenset({"skipped", "operation_mismatch"}), needs_majority=True
    ),
    "operation_mismatch": _replaced("operation_mismatch", _other_operation, hangs=True),
    "dtype_mismatch": _replaced("dtype_mismatch", _other_type, hangs=False),
    "size_mismatch": _replaced("size_mismatch", _other_size, hangs=True),
    "split_mismatch": Kind("size_mismatch", lambda place: place.uneven, _split_mismatch, needs_majority=True),
    "not_started": Kind(
        "failed", lambda place: place.known_group and place.plan.shows_starts, _not_started, LAGGING
    ),
    # After a timeout gloo calls everything retired, as if it were over.
    "timed_out": Kind("timed_out", lambda place: place.known_group and not place.plan.blocks, _timed_out),
    "straggler": Kind("straggler", lambda place: place.index == 0 and place.plan.steps > 1, _straggler),
    "deadlock": Kind(
        "deadlock", lambda place: _swapped_with(place) is not None, _deadlock, needs_majority=True
    ),
    "deadlock_of_three": Kind("deadlock", _corner, _deadlock_of_three),
}
"""Faults of one rank in a collective, by name."""


# Faults of sends and receives.


def _strangers(place: Place, operation: str) -> list[int]:
    """Members of the group with whom the rank never has to do in this way."""
    met = {
        part.peer
        for each in place.scene.places(place.rank)
        if each.call.group == place.call.group
        for part in each.call.parts
        if part.operation == operation
    }
    members = enumerate(place.call.group.ranks)
    return [other for other, rank in members if rank != place.rank and other not in met]


def _elsewhere(operation: str) -> Kind:
    def suits(place: Place) -> bool:
        return operation in operations(place) and bool(_strangers(place, operation))

    def operations(place: Place) -> list[str]:
        return [part.operation for part in place.call.parts]

    def inject(place: Place) -> Injected:
        part = place.call.parts[operations(place).index(operation)]
        other = replace(part, peer=_strangers(place, operation)[0])
        return {place.rank: place.put(place.with_part(other, part))}, _of_message(place, part)

    return Kind("deadlock", suits, inject, also=frozenset({"never_joined"}))


def _other_message_size(place: Place) -> Injected:
    shapes = _larger(place.part.inputs, MORE_ROWS)
    call = place.with_part(replace(place.part, inputs=shapes, outputs=shapes))
    return {place.rank: place.put(call)}, {**_of_message(place, place.part), "tie": True}


def _single(place: Place, operation: str) -> bool:
    return place.part.operation == operation and not place.call.closing


def _next_receive(place: Place) -> Place | None:
    """A receive that follows a single send to the same rank, which does them in the same order."""
    following = next(place.later, None)
    if not _single(place, "send") or following is None or not _single(following, "recv"):
        return None
    same = following.call.group == place.call.group and following.part.peer == place.part.peer
    return following if same else None


def _swapped(place: Place) -> Injected:
    receive, there = _next_receive(place), _counterpart(place)
    assert receive is not None
    group = place.call.group.name
    cycle = (group, place.number, place.rank, there.rank), (group, there.number, there.rank, place.rank)
    truth = {**_of_message(place, place.part), "tie": True, "cycle": cycle}
    return {place.rank: place.exchanged(receive)}, truth


def _counterpart(send: Place) -> Place:
    """The receive of a single send."""

    def ends(rank: int, operation: str, peer: int | None) -> list[Place]:
        found = (each for each in send.scene.places(rank) if each.call.group == send.call.group)
        return [each for each in found if _single(each, operation) and each.part.peer == peer]

    members, peer = send.call.group.ranks, send.part.peer
    number = [each.index for each in ends(send.rank, "send", peer)].index(send.index)
    return ends(members[peer or 0], "recv", members.index(send.rank))[number]


def _of_message(place: Place, part: Part) -> dict[str, Any]:
    waiting = (place.call.group.ranks[part.peer or 0],)
    operation = f"{place.plan.backend}:{part.operation}"
    return {"waiting": waiting, "operation": operation, "places": ()}


MESSAGE_FAULTS = {
    "wrong_target": _elsewhere("send"),
    "wrong_source": _elsewhere("recv"),
    "message_size_mismatch": Kind("size_mismatch", lambda place: place.call.messages, _other_message_size),
    "messages_swapped": Kind("deadlock", lambda place: _next_receive(place) is not None, _swapped),
}
"""Faults of one rank in a message, by name."""


# Faults of programs that run ahead of their devices.


def _late(place: Place) -> bool:
    return place.index * 4 >= len(place.program)


def _one_microbatch_less(place: Place) -> Injected:
    ranks = _block(place, place.plan.tensor)
    return {rank: program(place.plan, rank, place.step) for rank in ranks}, {"culprits": ranks}


def _killed(place: Place, count: int = 1) -> Injected:
    scene, ranks = place.scene, _block(place, count)
    lasted = run(scene.plan, scene.programs).over - START_NS
    moment = START_NS + round(lasted * scene.random.uniform(0.2, 0.8))
    scene.deaths.update({rank: moment + scene.random.randrange(100_000) for rank in ranks})
    return {}, {"culprits": ranks}


def _block(place: Place, count: int) -> tuple[int, ...]:
    """So many neighbours of the rank, and itself."""
    first = place.rank - place.rank % count
    return tuple(range(first, min(first + count, place.plan.world)))


QUEUE_FAULTS = {
    "stuck": Kind(NEVER_JOINED, _late, _stops),
    "left_out": Kind("skipped", _late, lambda place: ({place.rank: place.put()}, {})),
    "repeated": Kind(
        "skipped",
        lambda place: _late(place) and not place.call.messages,
        lambda place: ({place.rank: place.put(place.call, instead=0)}, {}),
    ),
    "fewer_microbatches": Kind("skipped", lambda place: place.plan.microbatches > 1, _one_microbatch_less),
    "killed": Kind(NEVER_JOINED, lambda place: True, _killed),
    "node_killed": Kind(
        NEVER_JOINED,
        lambda place: place.plan.world > place.plan.ranks_per_host,
        lambda place: _killed(place, place.plan.ranks_per_host),
    ),
}
"""Further faults of jobs with a queue for each device, by name."""
