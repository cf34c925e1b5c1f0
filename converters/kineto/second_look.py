"""A second look at the events that say something of communication: they are few, and only they cost more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracelink.converters.kineto.communication import statement_of
from tracelink.converters.kineto.schema import (
    COLLECTIVE,
    COMPLETE,
    CORRELATION,
    ELEMENT_ARGUMENTS,
    EXTERNAL_ID,
    NO_ARGUMENTS,
    SLICES,
    AllArguments,
    Arguments,
    Element,
    kind_of,
)
from tracelink.converters.kineto.shapes import Shapes
from tracelink.events import EventKind, Int32s, Int64s
from tracelink.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.statements import Statement

if TYPE_CHECKING:
    from tracelink.converters.kineto.elements import Decoded

ONE_OBJECT = msgspec.json.Decoder(dict[str, Any])
WHOLE_PIECE = msgspec.json.Decoder(list[AllArguments])

WITH_INPUTS = frozenset({EventKind.OPERATOR, EventKind.ANNOTATION})

KERNELS = 3
ROLES = (re.compile("(?!)"), COLLECTIVE_OPERATOR, COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL)
"""What names of communication look like, by the role of an event."""
ROLE_OF_KIND = {
    EventKind.OPERATOR: 1,
    EventKind.ANNOTATION: 2,
    EventKind.GPU_ANNOTATION: 2,
    EventKind.KERNEL: KERNELS,
}
UNSEEN, NO, YES = 0, 1, 2

Stated = list[tuple[int, Statement]]
"""What each event says, by its place among the events of a piece."""


class SecondLook:
    """Finds the events of a piece that say something of communication, and what they say."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.roles = np.zeros(0, np.uint8)
        """The role of each shape: a place in ROLES, or 0."""
        self.marks = np.zeros(0, np.uint8)
        """Whether the name matches, by name and role; each is looked at once."""

    def at_text(self, piece: Decoded, text: memoryview) -> Stated:
        """What the events say; `text` is what the piece was decoded from."""
        places = self._communicating(piece)
        telling = [place for place in places if _has_more_to_say(piece.events[place])]
        arguments = _near_names(text, [piece.events[place] for place in telling])
        if arguments is None:
            elements, numbers = WHOLE_PIECE.decode(text), np.flatnonzero(piece.slices)
            arguments = [elements[numbers[place]].args for place in telling]
        return _statements(piece, places, dict(zip(telling, arguments, strict=True)))

    def at_values(self, piece: Decoded, values: Sequence[Any]) -> Stated:
        """The same from the elements as a lenient parser gives them."""
        places, numbers = self._communicating(piece), np.flatnonzero(piece.slices)
        arguments = {place: values[numbers[place]].get(ELEMENT_ARGUMENTS) for place in places}
        told = {place: given for place, given in arguments.items() if isinstance(given, dict)}
        return _statements(piece, places, told)

    def _communicating(self, piece: Decoded) -> list[int]:
        """Places of the events whose names or arguments are of communication."""
        role = self._roles(piece)
        places = np.flatnonzero(role)
        keys = piece.name[places] * len(ROLES) + role[places]
        marks = self._marks(piece, places, keys)
        found: list[int] = places[marks == YES].tolist()
        others = places[(marks == NO) & (role[places] == KERNELS)].tolist()
        more = [place for place in others if piece.events[place].args.collective]
        return sorted(found + more) if more else found

    def _roles(self, piece: Decoded) -> Any:
        kinds = self.shapes.kinds
        if len(self.roles) < len(kinds):
            roles = [ROLE_OF_KIND.get(kind, 0) for kind in kinds]
            slices = [role in SLICES for role in self.shapes.roles]
            self.roles = np.array(roles, np.uint8) * np.array(slices)
        return self.roles[piece.shape[piece.slices]]

    def _marks(self, piece: Decoded, places: Int64s, keys: Int32s) -> Any:
        if len(keys) and (largest := int(keys.max())) >= len(self.marks):
            self.marks = np.concatenate([self.marks, np.zeros(2 * largest, np.uint8)])
        marks = self.marks[keys]
        unseen = np.flatnonzero(marks == UNSEEN)
        if not len(unseen):
            return marks
        new, first = np.unique(keys[unseen], return_index=True)
        names = [piece.events[place].name for place in places[unseen[first]].tolist()]
        self.marks[new] = [
            YES if ROLES[role].search(name) else NO
            for role, name in zip((new % len(ROLES)).tolist(), names, strict=True)
        ]
        return self.marks[keys]


def _has_more_to_say(event: Element) -> bool:
    if event.args.collective:
        return True
    return event.args is not NO_ARGUMENTS and kind_of(COMPLETE, event.cat) in WITH_INPUTS


def _statements(piece: Decoded, places: Sequence[int], told: Mapping[int, Mapping[str, Any]]) -> Stated:
    return [(place, statement_of(piece.events[place].name, told.get(place, {}))) for place in places]


def _near_names(text: memoryview, events: Sequence[Element]) -> list[Mapping[str, Any]] | None:
    """The arguments of each event: the object that follows its name; None unless all are surely found so."""
    found: list[Mapping[str, Any]] = []
    place, last = 0, len(text)
    whole = text.obj if isinstance(text.obj, bytes | bytearray) else bytes(text)
    for event in events:
        place = whole.find(msgspec.json.encode(event.name), place, last)
        start = whole.find(b"{", place, last)
        end = whole.find(b"}", start, last) + 1
        if place < 0 or start < 0 or not end:
            return None
        try:
            arguments = ONE_OBJECT.decode(whole[start:end])
        except msgspec.DecodeError:
            return None
        if not _are_same(event.args, arguments):
            return None
        found.append(arguments)
        place = end
    return found


def _are_same(known: Arguments, found: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of the event that is known by its ids."""
    ids = found.get(EXTERNAL_ID, -1), found.get(CORRELATION, -1), found.get(COLLECTIVE, "")
    return ids == (known.external_id, known.correlation, known.collective)
