"""What can go wrong in the sends and receives of a recorded job."""

from __future__ import annotations

from dataclasses import replace

from tracelink.samples.generate.recorded_faults import MORE_ROWS, Injected, Kind
from tracelink.samples.generate.recorded_places import Place, Scene, put
from tracelink.samples.generate.recorded_plan import Truth
from tracelink.samples.generate.recorded_program import Part, Program


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


def _other_size(scene: Scene, place: Place) -> Injected:
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
    "message_size_mismatch": Kind(lambda scene, place: place.call.messages, _other_size),
    "messages_swapped": Kind(_both_receive, _swapped),
}
"""Faults of one rank in a message, by name."""
