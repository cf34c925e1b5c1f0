"""Faults of collectives and messages, and where in a program each can be injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
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
    def program(self) -> Program:
        """Of its rank."""
        return self.scene.programs[self.rank]

    @property
    def others(self) -> tuple[int, ...]:
        """The other members of the group."""
        return tuple(rank for rank in self.call.group.ranks if rank != self.rank)

    @property
    def later(self) -> Iterator[Place]:
        """The calls of the rank after this one."""
        return (each for each in self.scene.places(self.rank) if each.index > self.index)

    @property
    def next(self) -> Place | None:
        """The next call of the rank."""
        return next(self.later, None)

    @property
    def following(self) -> Place | None:
        """The next collective of the group, or its next message."""
        like = (self.call.group, self.call.messages)
        return next((each for each in self.later if (each.call.group, each.call.messages) == like), None)

    @property
    def collective(self) -> bool:
        return not self.call.messages

    @property
    def known_group(self) -> bool:
        """Whether it is a collective, and not the first of its group."""
        return self.collective and self.number > 1

    @property
    def uneven(self) -> bool:
        return self.call.parts[0].operation == "all_to_all"

    @property
    def queued(self) -> int:
        """How many more collectives of the group others issue when one member does not come."""
        count = 0
        for item in self.program[self.index :]:
            if isinstance(item, Settle):
                break
            if isinstance(item, Call):
                count += item.group == self.call.group and not item.messages
                if self.scene.plan.blocks and item.waits:
                    break
        return count - 1

    @property
    def recorded(self) -> tuple[Part, ...]:
        """The operations that the recorder keeps."""
        return recorded(self.call, self.scene.plan.blocks)

    @property
    def looks(self) -> tuple[tuple[object, ...], ...]:
        """The recorded arguments that must be equal on all ranks."""
        return tuple(part.agreement for part in self.recorded)

    def with_call(self, call: Call) -> Place:
        """The same place with another call."""
        return replace(self, call=call)

    def reaches(self, later: Place) -> bool:
        """Whether a rank that leaves out this call still issues a later one, though the others are stuck."""
        called = False
        for item in self.program[self.index + 1 : later.index]:
            called |= isinstance(item, Call)
            blocked = self.scene.plan.blocks and isinstance(item, Call) and item.waits
            if (called and isinstance(item, Settle)) or blocked:
                return False
        return True

    def ends(self, rank: int, operation: str, peer: int | None) -> Iterator[Place]:
        """The single messages of a rank, to or from another of the same group."""
        for each in self.scene.places(rank):
            part = each.call.parts[0]
            same = each.call.group == self.call.group and not each.call.closing
            if same and (part.operation, part.peer) == (operation, peer):
                yield each

    @property
    def counterpart(self) -> Place:
        """The other end of a single message."""
        part, members = self.call.parts[0], self.call.group.ranks
        own = [each.index for each in self.ends(self.rank, part.operation, part.peer)]
        other = "recv" if part.sends else "send"
        ends = self.ends(members[part.peer or 0], other, members.index(self.rank))
        return next(islice(ends, own.index(self.index), None))

    def put(self, *items: Item, instead: int = 1) -> Program:
        """The program with some items here, instead of so many that stood there."""
        return (*self.program[: self.index], *items, *self.program[self.index + instead :])

    def exchanged(self, other: Place) -> Program:
        """The program with a later call before this one."""
        without = (*self.program[: other.index], *self.program[other.index + 1 :])
        return (*without[: self.index], other.call, *without[self.index :])

    def truth(self, fault: str, kind: str, **more: Any) -> Truth:
        """What all truths have in common."""
        unjoined: dict[str, int] = {}
        for each in self.scene.places(self.rank):
            if each.index >= self.index and each.collective:
                unjoined.setdefault(each.call.group.name, each.number)
        known = Truth(
            fault=fault,
            kind=kind,
            group=self.call.group.name,
            sequence=self.number,
            culprits=(self.rank,),
            waiting=self.others,
            members=self.call.group.ranks,
            # Of several operations, the entry that ends them.
            operation=f"{self.scene.plan.backend}:{self.recorded[-1].operation}",
            point_to_point=self.call.messages,
            places=tuple(unjoined.items()),
        )
        return replace(known, **more)


def changed(call: Call, part: Part, *, lost: bool = False) -> Call:
    """A call with another first operation."""
    return replace(call, parts=(part, *call.parts[1:]), lost=lost)


# Faults of collectives.


MORE_ROWS = 100
"""Large enough that a wrong size is never the right size of another rank."""

Injected = tuple[Mapping[int, Program], Truth]
"""The programs that differ, and what is wrong."""

Suits = Callable[[Place], bool]
Apply = Callable[[Place], Injected]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: where it makes sense, and what it does there."""

    suits: Suits
    apply: Apply
    needs_majority: bool = False
    """Whether a group of two cannot tell who is wrong."""


def _stops(fault: str, kind: str, *also: str) -> Apply:
    def apply(place: Place) -> Injected:
        stopped = (*place.program[: place.index], Stop())
        return {place.rank: stopped}, place.truth(fault, kind, also=frozenset(also))

    return apply


def _skipped(place: Place) -> Injected:
    # Unless others go on, nothing but the habit of the job tells a skip from another operation.
    seen = place.queued and len(place.others) > 1
    also = frozenset() if seen else _difference(place)
    return {place.rank: place.put()}, place.truth("skipped", "skipped", also=also)


def _skip_shows(place: Place) -> bool:
    following = place.following if place.known_group else None
    return following is not None and place.reaches(following) and following.looks != place.looks


def _difference(place: Place) -> frozenset[str]:
    names = {tuple(part[0] for part in each.looks) for each in (place, place.following) if each}
    sizes = frozenset({"size_mismatch"})
    return sizes if len(names) == 1 else sizes | {"operation_mismatch"}


def _extra(place: Place) -> Injected:
    other = Part(_another(place.call.parts[0].operation), ((5, 3),), ((5, 3),), "Float")
    call = replace(place.call, parts=(other,), site="extra", closing="")
    truth = place.truth("extra", "operation_mismatch", also=frozenset({"skipped"}))
    return {place.rank: place.put(call, instead=0)}, truth


def _another(operation: str) -> str:
    return "all_reduce" if "broadcast" in operation else "broadcast"


def _replaced(fault: str, change: Callable[[Part], Part], hangs: bool) -> Kind:
    def suits(place: Place) -> bool:
        if not place.known_group or place.uneven:
            return False
        return place.recorded != place.with_call(other(place)).recorded

    def other(place: Place) -> Call:
        return changed(place.call, change(place.call.parts[0]))

    def apply(place: Place) -> Injected:
        waiting = place.others if hangs else ()
        truth = place.truth(fault, fault, hangs=hangs, places=(), waiting=waiting)
        return {place.rank: place.put(other(place))}, truth

    return Kind(suits, apply, needs_majority=True)


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
    part = place.call.parts[0]
    outputs = tuple((rows + 1, *rest) for rows, *rest in part.outputs)
    # Of single tensors only the sums are recorded, and a sum does not tell whose part of it is wrong.
    truth = place.truth("split_mismatch", "size_mismatch", places=(), tie=len(outputs) == 1)
    return {place.rank: place.put(changed(place.call, replace(part, outputs=outputs), lost=True))}, truth


def _not_started(place: Place) -> Injected:
    truth = place.truth("not_started", "failed", also=frozenset({"lagging"}))
    return {place.rank: place.put(Compute(None), instead=0)}, truth


def _timed_out(place: Place) -> Injected:
    members = place.call.group.ranks
    wanted = (place.call.group, True, place.number)
    found = [
        each
        for rank in members
        for each in place.scene.places(rank)
        if (each.call.group, each.collective, each.number) == wanted
    ]
    programs = {each.rank: each.put(replace(each.call, lost=True)) for each in found}
    return programs, place.truth("timed_out", "timed_out", culprits=(), waiting=members, places=())


def _straggler(place: Place) -> Injected:
    plan, program = place.scene.plan, place.program
    computing = sum(item.ns or 0 for item in program if isinstance(item, Compute))
    pause = Pause(round(place.scene.share * computing / plan.steps))
    late: list[Item] = []
    for item in program:
        late += [item, pause] if isinstance(item, Settle) else [item]
    everyone = tuple(rank for rank in range(plan.world) if rank != place.rank)
    unknown: dict[str, Any] = {"group": "", "sequence": None, "operation": "", "places": (), "members": ()}
    return {place.rank: tuple(late)}, place.truth(
        "straggler", "straggler", **unknown, hangs=False, waiting=everyone
    )


def _swapped_with(place: Place) -> Place | None:
    """The next call, if another member of both groups waits for this one before it comes to that."""
    following = place.next if place.collective and place.call.waits else None
    if (
        following is None
        or following.call.messages
        or not following.call.waits
        or following.step != place.step
    ):
        return None
    differ = following.call.group != place.call.group
    return following if differ and set(following.others) & set(place.others) else None


def _deadlock(place: Place) -> Injected:
    other = _swapped_with(place)
    assert other is not None
    peer = min(set(place.others) & set(other.others))
    cycle = (
        (place.call.group.name, place.number, peer, place.rank),
        (other.call.group.name, other.number, place.rank, peer),
    )
    return {place.rank: place.exchanged(other)}, place.truth("deadlock", "deadlock", cycle=cycle)


def _corner(place: Place) -> bool:
    # Groups 01, 12, 02 in this order: only rank 0 closes the circle by changing its two.
    return place.rank == 0 and place.call.group.description == PAIRS[0]


def _deadlock_of_three(place: Place) -> Injected:
    plan = place.scene.plan
    groups = {role: group for rank in (0, 1) for role, group in plan.groups(rank).items()}
    waits = zip(PAIRS, ((1, 0), (2, 1), (0, 2)), strict=True)
    cycle = tuple((groups[role].name, place.number, *who) for role, who in waits)
    assert place.next
    truth = place.truth("deadlock_of_three", "deadlock", cycle=cycle, tie=True)
    return {0: place.exchanged(place.next)}, truth


COLLECTIVE_FAULTS = {
    "never_joined": Kind(
        lambda place: place.known_group and place.queued == 0,
        _stops("never_joined", "never_joined", "lagging"),
    ),
    "never_joined_any": Kind(
        lambda place: place.collective and place.number == 1, _stops("never_joined_any", "never_joined")
    ),
    "lagging": Kind(
        lambda place: place.known_group and place.queued > 0, _stops("lagging", "lagging", "never_joined")
    ),
    "died": Kind(lambda place: place.known_group, _stops("died", "never_joined", "lagging", "failed")),
    "skipped": Kind(_skip_shows, _skipped, needs_majority=True),
    "extra": Kind(lambda place: place.known_group, _extra, needs_majority=True),
    "operation_mismatch": _replaced("operation_mismatch", _other_operation, hangs=True),
    "dtype_mismatch": _replaced("dtype_mismatch", _other_type, hangs=False),
    "size_mismatch": _replaced("size_mismatch", _other_size, hangs=True),
    "split_mismatch": Kind(lambda place: place.uneven, _split_mismatch, needs_majority=True),
    "not_started": Kind(lambda place: place.known_group and place.scene.plan.shows_starts, _not_started),
    # After a timeout gloo calls everything retired, as if it were over.
    "timed_out": Kind(lambda place: place.known_group and not place.scene.plan.blocks, _timed_out),
    "straggler": Kind(lambda place: place.index == 0 and place.scene.plan.steps > 1, _straggler),
    "deadlock": Kind(lambda place: _swapped_with(place) is not None, _deadlock, needs_majority=True),
    "deadlock_of_three": Kind(_corner, _deadlock_of_three),
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


def _with(place: Place, operation: str) -> bool:
    return place.call.messages and any(part.operation == operation for part in place.call.parts)


def _elsewhere(fault: str, operation: str) -> Kind:
    def suits(place: Place) -> bool:
        return _with(place, operation) and bool(_strangers(place, operation))

    def apply(place: Place) -> Injected:
        part = next(part for part in place.call.parts if part.operation == operation)
        other = replace(part, peer=_strangers(place, operation)[0])
        parts = tuple(other if each is part else each for each in place.call.parts)
        program = place.put(replace(place.call, parts=parts))
        return {place.rank: program}, _of_message(place, fault, "peer_mismatch", part)

    return Kind(suits, apply)


def _other_message_size(place: Place) -> Injected:
    part = place.call.parts[0]
    shapes = _larger(part.inputs, MORE_ROWS)
    program = place.put(changed(place.call, replace(part, inputs=shapes, outputs=shapes)))
    return {place.rank: program}, _of_message(place, "message_size_mismatch", "size_mismatch", part, tie=True)


def _next_receive(place: Place) -> Place | None:
    """A receive that follows a single send to the same rank, which does them in the same order."""
    if not _with(place, "send") or place.call.closing:
        return None
    following = place.next
    if following is None or following.call.closing or not _with(following, "recv"):
        return None
    same = following.call.group == place.call.group
    return following if same and following.call.parts[0].peer == place.call.parts[0].peer else None


def _swapped(place: Place) -> Injected:
    receive, there = _next_receive(place), place.counterpart
    assert receive is not None
    group = place.call.group.name
    cycle = (group, place.number, place.rank, there.rank), (group, there.number, there.rank, place.rank)
    truth = _of_message(place, "messages_swapped", "deadlock", place.call.parts[0], tie=True, cycle=cycle)
    return {place.rank: place.exchanged(receive)}, truth


def _of_message(place: Place, fault: str, kind: str, part: Part, **more: Any) -> Truth:
    waiting = (place.call.group.ranks[part.peer or 0],)
    operation = f"{place.scene.plan.backend}:{part.operation}"
    return place.truth(fault, kind, waiting=waiting, operation=operation, places=(), **more)


MESSAGE_FAULTS = {
    "wrong_target": _elsewhere("wrong_target", "send"),
    "wrong_source": _elsewhere("wrong_source", "recv"),
    "message_size_mismatch": Kind(lambda place: place.call.messages, _other_message_size),
    "messages_swapped": Kind(lambda place: _next_receive(place) is not None, _swapped),
}
"""Faults of one rank in a message, by name."""


# Faults of programs that run ahead of their devices.


def _late(place: Place) -> bool:
    return place.index * 4 >= len(place.program)


def _left_out(place: Place) -> Injected:
    return {place.rank: place.put()}, place.truth("left_out", "skipped")


def _repeated(place: Place) -> Injected:
    return {place.rank: place.put(place.call, instead=0)}, place.truth("repeated", "skipped")


def _one_microbatch_less(place: Place) -> Injected:
    plan = place.scene.plan
    first = place.rank - place.rank % plan.tensor
    ranks = tuple(range(first, first + plan.tensor))
    return {rank: program(plan, rank, place.step) for rank in ranks}, place.truth(
        "fewer_microbatches", "skipped", culprits=ranks
    )


def _killed(size: Callable[[Plan], int]) -> Apply:
    def apply(place: Place) -> Injected:
        scene, count = place.scene, size(place.scene.plan)
        first = place.rank - place.rank % count
        ranks = tuple(range(first, min(first + count, scene.plan.world)))
        lasted = run(scene.plan, scene.programs).over - START_NS
        moment = START_NS + round(lasted * scene.random.uniform(0.2, 0.8))
        scene.deaths.update({rank: moment + scene.random.randrange(100_000) for rank in ranks})
        return {}, place.truth("killed", "never_joined", culprits=ranks)

    return apply


QUEUE_FAULTS = {
    "stuck": Kind(_late, _stops("stuck", "never_joined")),
    "left_out": Kind(_late, _left_out),
    "repeated": Kind(lambda place: _late(place) and place.collective, _repeated),
    "fewer_microbatches": Kind(lambda place: place.scene.plan.microbatches > 1, _one_microbatch_less),
    "killed": Kind(lambda place: True, _killed(lambda plan: 1)),
    "node_killed": Kind(
        lambda place: place.scene.plan.world > place.scene.plan.ranks_per_host,
        _killed(lambda plan: plan.ranks_per_host),
    ),
}
"""Further faults of jobs with a queue for each device, by name."""
