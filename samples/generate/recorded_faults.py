"""What can go wrong in the collectives of a recorded job, put into the programs of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tracelink.samples.generate.recorded_places import Place, Scene, changed, put
from tracelink.samples.generate.recorded_plan import PAIRS, Truth
from tracelink.samples.generate.recorded_program import (
    Compute,
    Item,
    Part,
    Pause,
    Program,
    Settle,
    Shapes,
    Stop,
)

MORE_ROWS = 100
"""So many that a wrong size is nobody's right size."""

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
