"""What can go wrong in the collectives of a recorded job, put into the programs of its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tracelink.samples.generate.recorded_places import Place, Scene, changed, put
from tracelink.samples.generate.recorded_plan import Truth
from tracelink.samples.generate.recorded_program import Part, Program, Stop

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


def _single(scene: Scene, place: Place) -> bool:
    call = place.call
    plain = not call.closing and len(call.parts[0].inputs) == 1 and call.parts[0].operation != "all_to_all"
    return _known_group(scene, place) and plain


def _stops(fault: str, kind: str, also: frozenset[str]) -> Callable[[Scene, Place], Injected]:
    def apply(scene: Scene, place: Place) -> Injected:
        stopped = (*scene.programs[place.rank][: place.index], Stop())
        return {place.rank: stopped}, replace(scene.truth(fault, kind, place), also=also)

    return apply


def _skipped(scene: Scene, place: Place) -> Injected:
    program = put(scene.programs[place.rank], place.index)
    truth = scene.truth("skipped", "skipped", place)
    # Unless others go on, nothing but the habit of the job tells a skip from another operation.
    also = frozenset() if scene.queued(place) else _difference(scene, place)
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
    return frozenset({"size_mismatch" if len(names) == 1 else "operation_mismatch"})


def _extra(scene: Scene, place: Place) -> Injected:
    other = Part(_another(place.call.parts[0].operation), ((5, 3),), ((5, 3),), "Float")
    call = replace(place.call, parts=(other,), site="extra", closing="")
    program = put(scene.programs[place.rank], place.index, call, instead=0)
    truth = scene.truth("extra", "operation_mismatch", place)
    return {place.rank: program}, replace(truth, also=frozenset({"skipped"}))


def _another(operation: str) -> str:
    return "broadcast" if operation != "broadcast" else "all_reduce"


def _replaced(fault: str, change: Callable[[Part], Part], hangs: bool) -> Callable[[Scene, Place], Injected]:
    def apply(scene: Scene, place: Place) -> Injected:
        call = changed(place.call, change(place.call.parts[0]))
        program = put(scene.programs[place.rank], place.index, call)
        truth = replace(scene.truth(fault, fault, place), hangs=hangs, places=())
        return {place.rank: program}, truth if hangs else replace(truth, waiting=())

    return apply


def _other_operation(part: Part) -> Part:
    return replace(part, operation=_another(part.operation), outputs=part.inputs)


def _other_type(part: Part) -> Part:
    return replace(part, type="Half" if part.type == "Float" else "Float")


def _other_size(part: Part) -> Part:
    (gives, *rest), (gets, *_) = part.inputs[0], part.outputs[0]
    small = min(gives, gets)
    larger = ((gives + gives // small, *rest),), ((gets + gets // small, *rest),)
    return replace(part, inputs=larger[0], outputs=larger[1])


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
    "operation_mismatch": Kind(
        _single, _replaced("operation_mismatch", _other_operation, hangs=True), needs_majority=True
    ),
    "dtype_mismatch": Kind(
        _single, _replaced("dtype_mismatch", _other_type, hangs=False), needs_majority=True
    ),
    "size_mismatch": Kind(_single, _replaced("size_mismatch", _other_size, hangs=True), needs_majority=True),
}
"""Faults of one rank in a collective, by name."""
