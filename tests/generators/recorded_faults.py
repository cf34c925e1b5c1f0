"""Faults of collectives and messages, and where in a program each can be injected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from generators.recorded_plan import (
    PAIRS,
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

# Calls of a program at which a fault can be injected.


@dataclass(frozen=True, slots=True)
class Place:
    """A call in the program of a rank."""

    rank: int
    index: int
    call: Call
    number: int
    """Among the collectives of its group, or among its messages."""
    step: int

    @property
    def others(self) -> tuple[int, ...]:
        """The other members of the group."""
        return tuple(rank for rank in self.call.group.ranks if rank != self.rank)


@dataclass(frozen=True, slots=True)
class Scene:
    """The programs before anything goes wrong."""

    plan: Plan
    programs: Sequence[Program]
    share: float = 0.5
    """How late a straggler is: the share of a step's computing."""

    def places(self, rank: int) -> Iterator[Place]:
        """All calls of a rank."""
        return places(self.programs[rank], rank)

    def queued(self, place: Place) -> int:
        """How many more collectives of the group others issue when one member does not come."""
        count = 0
        for item in self.programs[place.rank][place.index :]:
            if isinstance(item, Settle):
                break
            if isinstance(item, Call):
                count += item.group == place.call.group and not item.messages
                if self.plan.blocks and item.waits:
                    break
        return count - 1

    def following(self, place: Place) -> Place | None:
        """The next collective of the group."""
        later = (each for each in self.places(place.rank) if each.index > place.index)
        same = (each for each in later if each.call.group == place.call.group)
        return next((each for each in same if each.call.messages == place.call.messages), None)

    def recorded(self, call: Call) -> tuple[Part, ...]:
        """The arguments of a call that the recorder keeps."""
        return recorded(call, self.plan.blocks)

    def operation(self, place: Place) -> str:
        """What the recorder calls it; of several operations, the entry that ends them."""
        return f"{self.plan.backend}:{self.recorded(place.call)[-1].operation}"

    def looks(self, place: Place) -> tuple[tuple[object, ...], ...]:
        """The recorded arguments of a call that must be equal on all ranks."""
        return tuple(part.agreement for part in self.recorded(place.call))

    def reaches(self, place: Place, later: Place) -> bool:
        """Whether a rank that leaves out a call still issues a later one, though the others are stuck."""
        between = self.programs[place.rank][place.index + 1 : later.index]
        called = False
        for item in between:
            called |= isinstance(item, Call)
            if (called and isinstance(item, Settle)) or (
                self.plan.blocks and isinstance(item, Call) and item.waits
            ):
                return False
        return True

    def counterpart(self, place: Place) -> Place | None:
        """The other end of a single message."""
        part, members = place.call.parts[0], place.call.group.ranks
        peer = members[part.peer or 0]
        earlier = [
            each
            for each in self.ends(place.rank, place, part.operation, part.peer)
            if each.index < place.index
        ]
        other = "recv" if part.sends else "send"
        ends = self.ends(peer, place, other, members.index(place.rank))
        return next(islice(ends, len(earlier), None), None)

    def ends(self, rank: int, like: Place, operation: str, peer: int | None) -> Iterator[Place]:
        """The single messages of a rank, to or from another of the same group."""
        for each in self.places(rank):
            part = each.call.parts[0]
            same = each.call.group == like.call.group and not each.call.closing
            if same and (part.operation, part.peer) == (operation, peer):
                yield each

    def truth(self, fault: str, kind: str, place: Place) -> Truth:
        """What all truths have in common."""
        return Truth(
            fault=fault,
            kind=kind,
            group=place.call.group.name,
            sequence=place.number,
            culprits=(place.rank,),
            waiting=place.others,
            members=place.call.group.ranks,
            operation=self.operation(place),
            point_to_point=place.call.messages,
            places=self.unjoined(place),
        )

    def unjoined(self, place: Place) -> tuple[tuple[str, int], ...]:
        """The next collective of each group of the rank, counted from a place on."""
        found: dict[str, int] = {}
        for each in self.places(place.rank):
            if each.index >= place.index and not each.call.messages:
                found.setdefault(each.call.group.name, each.number)
        return tuple(found.items())


def places(program: Program, rank: int) -> Iterator[Place]:
    """All calls of a program, numbered as their groups count them."""
    numbers: dict[tuple[int, bool], int] = {}
    step = 0
    for index, item in enumerate(program):
        if isinstance(item, Call):
            counted = item.group.number, item.messages
            numbers[counted] = numbers.get(counted, 0) + 1
            yield Place(rank, index, item, numbers[counted], step)
        step += isinstance(item, Settle)


def put(program: Program, index: int, *items: Item, instead: int = 1) -> Program:
    """A program with some items at an index, instead of so many that stood there."""
    return (*program[:index], *items, *program[index + instead :])


def changed(call: Call, part: Part, *, lost: bool = False) -> Call:
    """A call with another first operation."""
    return replace(call, parts=(part, *call.parts[1:]), lost=lost)


# Faults of collectives.


MORE_ROWS = 100
"""Large enough that a wrong size is never the right size of another rank."""

Injected = tuple[Mapping[int, Program], Truth]
"""The programs that differ, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: where it makes sense, and what it does there."""

    suits: Callable[[Scene, Place], bool]
    apply: Callable[[Scene, Place], Injected]
    needs_majority: bool = False
    """Whether a group of two cannot tell who is wrong."""


def _collective(scene: Scene, place: Place) -> bool:
    return not place.call.messages


def _known_group(scene: Scene, place: Place) -> bool:
    return _collective(scene, place) and place.number > 1


def _shows(change: Callable[[Part], Part]) -> Callable[[Scene, Place], bool]:
    """Whether what is changed is recorded."""

    def suits(scene: Scene, place: Place) -> bool:
        if not _known_group(scene, place) or _uneven(scene, place):
            return False
        call, other = place.call, changed(place.call, change(place.call.parts[0]))
        return scene.recorded(call) != scene.recorded(other)

    return suits


def _uneven(scene: Scene, place: Place) -> bool:
    return _collective(scene, place) and place.call.parts[0].operation == "all_to_all"


def _stops(fault: str, kind: str, also: frozenset[str]) -> Callable[[Scene, Place], Injected]:
    def apply(scene: Scene, place: Place) -> Injected:
        stopped = (*scene.programs[place.rank][: place.index], Stop())
        return {place.rank: stopped}, replace(scene.truth(fault, kind, place), also=also)

    return apply


def _skipped(scene: Scene, place: Place) -> Injected:
    program = put(scene.programs[place.rank], place.index)
    truth = scene.truth("skipped", "skipped", place)
    # Unless others go on, nothing but the habit of the job tells a skip from another operation.
    seen = scene.queued(place) and len(place.others) > 1
    also = frozenset() if seen else _difference(scene, place)
    return {place.rank: program}, replace(truth, also=also)


def _skip_shows(scene: Scene, place: Place) -> bool:
    following = scene.following(place) if _known_group(scene, place) else None
    if following is None or not scene.reaches(place, following):
        return False
    return scene.looks(following) != scene.looks(place)


def _difference(scene: Scene, place: Place) -> frozenset[str]:
    following = scene.following(place)
    pair = (place, following) if following else (place,)
    names = {tuple(part[0] for part in scene.looks(each)) for each in pair}
    sizes = frozenset({"size_mismatch"})
    return sizes if len(names) == 1 else sizes | {"operation_mismatch"}


def _extra(scene: Scene, place: Place) -> Injected:
    other = Part(_another(place.call.parts[0].operation), ((5, 3),), ((5, 3),), "Float")
    call = replace(place.call, parts=(other,), site="extra", closing="")
    program = put(scene.programs[place.rank], place.index, call, instead=0)
    truth = scene.truth("extra", "operation_mismatch", place)
    return {place.rank: program}, replace(truth, also=frozenset({"skipped"}))


def _another(operation: str) -> str:
    return "all_reduce" if "broadcast" in operation else "broadcast"


def _replaced(fault: str, change: Callable[[Part], Part], hangs: bool) -> Kind:
    def apply(scene: Scene, place: Place) -> Injected:
        call = changed(place.call, change(place.call.parts[0]))
        program = put(scene.programs[place.rank], place.index, call)
        truth = replace(scene.truth(fault, fault, place), hangs=hangs, places=())
        return {place.rank: program}, truth if hangs else replace(truth, waiting=())

    return Kind(_shows(change), apply, needs_majority=True)


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


def _split_mismatch(scene: Scene, place: Place) -> Injected:
    part = place.call.parts[0]
    outputs = tuple((rows + 1, *rest) for rows, *rest in part.outputs)
    call = changed(place.call, replace(part, outputs=outputs), lost=True)
    truth = scene.truth("split_mismatch", "size_mismatch", place)
    # Of single tensors only the sums are recorded, and a sum does not tell whose part of it is wrong.
    return {place.rank: put(scene.programs[place.rank], place.index, call)}, replace(
        truth, places=(), tie=len(outputs) == 1
    )


def _not_started(scene: Scene, place: Place) -> Injected:
    program = put(scene.programs[place.rank], place.index, Compute(None), instead=0)
    truth = scene.truth("not_started", "failed", place)
    return {place.rank: program}, replace(truth, also=frozenset({"lagging"}))


def _timed_out(scene: Scene, place: Place) -> Injected:
    members = place.call.group.ranks
    found = [each for rank in members for each in scene.places(rank) if _same(each, place)]
    programs = {
        each.rank: put(scene.programs[each.rank], each.index, replace(each.call, lost=True)) for each in found
    }
    truth = scene.truth("timed_out", "timed_out", place)
    return programs, replace(truth, culprits=(), waiting=members, places=())


def _same(one: Place, other: Place) -> bool:
    return (one.call.group, one.call.messages, one.number) == (other.call.group, False, other.number)


def _straggler(scene: Scene, place: Place) -> Injected:
    program = scene.programs[place.rank]
    computing = sum(item.ns or 0 for item in program if isinstance(item, Compute))
    pause = Pause(round(scene.share * computing / scene.plan.steps))
    late: list[Item] = []
    for item in program:
        late += [item, pause] if isinstance(item, Settle) else [item]
    truth = scene.truth("straggler", "straggler", place)
    everyone = tuple(rank for rank in range(scene.plan.world) if rank != place.rank)
    told = replace(
        truth, group="", sequence=None, operation="", places=(), members=(), hangs=False, waiting=everyone
    )
    return {place.rank: tuple(late)}, told


def _swapped_with(scene: Scene, place: Place) -> Place | None:
    """The next call, if another member of both groups waits for this one before it comes to that."""
    if not (_collective(scene, place) and place.call.waits):
        return None
    following = next((each for each in scene.places(place.rank) if each.index > place.index), None)
    if (
        following is None
        or following.call.messages
        or not following.call.waits
        or following.step != place.step
    ):
        return None
    return following if set(following.others) & set(place.others) and _differ(place, following) else None


def _differ(one: Place, other: Place) -> bool:
    return one.call.group != other.call.group


def _deadlock(scene: Scene, place: Place) -> Injected:
    other = _swapped_with(scene, place)
    assert other is not None
    program = scene.programs[place.rank]
    moved = put(put(program, other.index), place.index, other.call, instead=0)
    peer = min(set(place.others) & set(other.others))
    cycle = (
        (place.call.group.name, place.number, peer, place.rank),
        (other.call.group.name, other.number, place.rank, peer),
    )
    truth = scene.truth("deadlock", "deadlock", place)
    return {place.rank: moved}, replace(truth, cycle=cycle)


def _corner(scene: Scene, place: Place) -> bool:
    # Groups 01, 12, 02 in this order: only rank 0 closes the circle by changing its two.
    return place.rank == 0 and place.call.group.description == PAIRS[0]


def _deadlock_of_three(scene: Scene, place: Place) -> Injected:
    program = scene.programs[0]
    later = next(each for each in scene.places(0) if each.index > place.index)
    moved = put(put(program, later.index), place.index, later.call, instead=0)
    groups = {role: group for rank in (0, 1) for role, group in scene.plan.groups(rank).items()}
    waits = zip(PAIRS, ((1, 0), (2, 1), (0, 2)), strict=True)
    cycle = tuple((groups[role].name, place.number, *who) for role, who in waits)
    truth = scene.truth("deadlock_of_three", "deadlock", place)
    return {0: moved}, replace(truth, cycle=cycle, tie=True)


COLLECTIVE_FAULTS = {
    "never_joined": Kind(
        lambda scene, place: _known_group(scene, place) and scene.queued(place) == 0,
        _stops("never_joined", "never_joined", frozenset({"lagging"})),
    ),
    "never_joined_any": Kind(
        lambda scene, place: _collective(scene, place) and place.number == 1,
        _stops("never_joined_any", "never_joined", frozenset()),
    ),
    "lagging": Kind(
        lambda scene, place: _known_group(scene, place) and scene.queued(place) > 0,
        _stops("lagging", "lagging", frozenset({"never_joined"})),
    ),
    "died": Kind(_known_group, _stops("died", "never_joined", frozenset({"lagging", "failed"}))),
    "skipped": Kind(_skip_shows, _skipped, needs_majority=True),
    "extra": Kind(_known_group, _extra, needs_majority=True),
    "operation_mismatch": _replaced("operation_mismatch", _other_operation, hangs=True),
    "dtype_mismatch": _replaced("dtype_mismatch", _other_type, hangs=False),
    "size_mismatch": _replaced("size_mismatch", _other_size, hangs=True),
    "split_mismatch": Kind(_uneven, _split_mismatch, needs_majority=True),
    "not_started": Kind(
        lambda scene, place: _known_group(scene, place) and scene.plan.shows_starts, _not_started
    ),
    # After a timeout gloo calls everything retired, as if it were over.
    "timed_out": Kind(lambda scene, place: _known_group(scene, place) and not scene.plan.blocks, _timed_out),
    "straggler": Kind(lambda scene, place: place.index == 0 and scene.plan.steps > 1, _straggler),
    "deadlock": Kind(
        lambda scene, place: _swapped_with(scene, place) is not None, _deadlock, needs_majority=True
    ),
    "deadlock_of_three": Kind(_corner, _deadlock_of_three),
}
"""Faults of one rank in a collective, by name."""


# Faults of sends and receives.


def _strangers(scene: Scene, place: Place, operation: str) -> list[int]:
    """Members of the group with whom the rank never has to do in this way."""
    own = place.call.group.ranks.index(place.rank)
    met = {
        part.peer
        for each in scene.places(place.rank)
        if each.call.group == place.call.group
        for part in each.call.parts
        if part.operation == operation
    }
    return [other for other in range(len(place.call.group.ranks)) if other != own and other not in met]


def _with(place: Place, operation: str) -> bool:
    return place.call.messages and any(part.operation == operation for part in place.call.parts)


def _elsewhere(fault: str, operation: str) -> Kind:
    def suits(scene: Scene, place: Place) -> bool:
        return _with(place, operation) and bool(_strangers(scene, place, operation))

    def apply(scene: Scene, place: Place) -> Injected:
        stranger = _strangers(scene, place, operation)[0]
        part = next(part for part in place.call.parts if part.operation == operation)
        truth = _truth(scene, fault, "peer_mismatch", place, part)
        return {place.rank: _changed(scene, place, part, replace(part, peer=stranger))}, truth

    return Kind(suits, apply)


def _other_message_size(scene: Scene, place: Place) -> Injected:
    part = place.call.parts[0]
    (rows, *rest) = part.inputs[0]
    shapes = ((rows + MORE_ROWS, *rest),)
    truth = _truth(scene, "message_size_mismatch", "size_mismatch", place, part)
    program = _changed(scene, place, part, replace(part, inputs=shapes, outputs=shapes))
    return {place.rank: program}, replace(truth, tie=True)


def _both_receive(scene: Scene, place: Place) -> bool:
    """Whether a single send is followed by a receive from the same rank, which does them in the same order."""
    return _next_receive(scene, place) is not None


def _next_receive(scene: Scene, place: Place) -> Place | None:
    if not _with(place, "send") or place.call.closing:
        return None
    following = next((each for each in scene.places(place.rank) if each.index > place.index), None)
    if following is None or following.call.closing or not _with(following, "recv"):
        return None
    same = following.call.group == place.call.group
    return following if same and following.call.parts[0].peer == place.call.parts[0].peer else None


def _swapped(scene: Scene, place: Place) -> Injected:
    receive, there = _next_receive(scene, place), scene.counterpart(place)
    assert receive is not None
    assert there is not None
    program = put(put(scene.programs[place.rank], receive.index), place.index, receive.call, instead=0)
    truth = _truth(scene, "messages_swapped", "deadlock", place, place.call.parts[0])
    group = place.call.group.name
    cycle = (group, place.number, place.rank, there.rank), (group, there.number, there.rank, place.rank)
    return {place.rank: program}, replace(truth, tie=True, cycle=cycle)


def _truth(scene: Scene, fault: str, kind: str, place: Place, part: Part) -> Truth:
    waiting = (place.call.group.ranks[part.peer or 0],)
    operation = f"{scene.plan.backend}:{part.operation}"
    return replace(scene.truth(fault, kind, place), waiting=waiting, operation=operation, places=())


def _changed(scene: Scene, place: Place, old: Part, new: Part) -> Program:
    parts = tuple(new if part is old else part for part in place.call.parts)
    return put(scene.programs[place.rank], place.index, replace(place.call, parts=parts))


MESSAGE_FAULTS = {
    "wrong_target": _elsewhere("wrong_target", "send"),
    "wrong_source": _elsewhere("wrong_source", "recv"),
    "message_size_mismatch": Kind(lambda scene, place: place.call.messages, _other_message_size),
    "messages_swapped": Kind(_both_receive, _swapped),
}
"""Faults of one rank in a message, by name."""
