"""A second look at the events that say something of communication: they are few, and only they cost more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, islice
from operator import attrgetter
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
from tracelink.events import EventKind, Int64s
from tracelink.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.statements import Statement
from tracelink.strings import StringTable

if TYPE_CHECKING:
    from tracelink.converters.kineto.elements import Decoded

ONE_OBJECT = msgspec.json.Decoder(dict[str, Any])
WHOLE_PIECE = msgspec.json.Decoder(list[AllArguments])

WITH_INPUTS = frozenset({EventKind.OPERATOR, EventKind.ANNOTATION})

OPERATOR, ANNOTATION, KERNEL = 1, 2, 4
"""Roles that an event can have in communication: bits, for a name may be like several."""
FORMS = {OPERATOR: COLLECTIVE_OPERATOR, ANNOTATION: COLLECTIVE_ANNOTATION, KERNEL: COLLECTIVE_KERNEL}
ROLE_OF_KIND = {
    EventKind.OPERATOR: OPERATOR,
    EventKind.ANNOTATION: ANNOTATION,
    EventKind.GPU_ANNOTATION: ANNOTATION,
    EventKind.KERNEL: KERNEL,
}

SHORT = 3
"""Elements are hardly ever this many times shorter than the average: so far ahead nothing needs to be looked for."""
REACH = 1 << 16
"""Arguments of communication are hardly ever longer than this."""

COLLECTIVE_OF = attrgetter("args.collective")

Stated = list[tuple[int, Statement]]
"""What each event says, by its place among the events of a piece."""


class SecondLook:
    """Finds the events of a piece that say something of communication, and what they say."""

    def __init__(self, shapes: Shapes, names: StringTable) -> None:
        self.shapes = shapes
        self.names = names
        self.roles = np.zeros(0, np.uint8)
        """The role of each shape; 0 for one that has nothing to do with communication."""
        self.likeness = np.zeros(0, np.uint8)
        """The roles in which each name is one of communication."""

    def at_text(self, piece: Decoded, text: memoryview) -> Stated:
        """What the events say; `text` is what the piece was decoded from."""
        places = self._communicating(piece)
        telling = [place for place in places if _has_more_to_say(piece.events[place])]
        numbers = np.flatnonzero(piece.slices)[telling]
        arguments = _near_names(text, [piece.events[place] for place in telling], numbers, len(piece.slices))
        if arguments is None:
            elements = WHOLE_PIECE.decode(text)
            arguments = [elements[number].args for number in numbers.tolist()]
        return _statements(piece, places, dict(zip(telling, arguments, strict=True)))

    def at_values(self, piece: Decoded, values: Sequence[Any]) -> Stated:
        """The same from the elements as a lenient parser gives them."""
        places, numbers = self._communicating(piece), np.flatnonzero(piece.slices)
        arguments = {place: values[numbers[place]].get(ELEMENT_ARGUMENTS) for place in places}
        told = {place: given for place, given in arguments.items() if isinstance(given, dict)}
        return _statements(piece, places, told)

    def _communicating(self, piece: Decoded) -> list[int]:
        """Places of the events whose names or arguments are of communication."""
        self._learn()
        role = self.roles[piece.shape[piece.slices]]
        like = self.likeness[piece.name] & role
        found: list[int] = np.flatnonzero(like).tolist()
        others = np.flatnonzero((role == KERNEL) & (like == 0)).tolist()
        collectives = list(map(COLLECTIVE_OF, map(piece.events.__getitem__, others)))
        return sorted(found + list(compress(others, collectives))) if any(collectives) else found

    def _learn(self) -> None:
        """Takes note of shapes and names seen since."""
        if new := len(self.shapes.kinds) - len(self.roles):
            slices = [role in SLICES for role in self.shapes.roles[-new:]]
            roles = [ROLE_OF_KIND.get(kind, 0) for kind in self.shapes.kinds[-new:]]
            self.roles = np.append(self.roles, np.array(roles, np.uint8) * np.array(slices))
        if new := len(self.names) - len(self.likeness):
            texts = list(islice(reversed(self.names), new))[::-1]
            likeness = [sum(role for role, form in FORMS.items() if form.search(text)) for text in texts]
            self.likeness = np.append(self.likeness, np.array(likeness, np.uint8))


def _has_more_to_say(event: Element) -> bool:
    if event.args.collective:
        return True
    return event.args is not NO_ARGUMENTS and kind_of(COMPLETE, event.cat) in WITH_INPUTS


def _statements(piece: Decoded, places: Sequence[int], told: Mapping[int, Mapping[str, Any]]) -> Stated:
    return [(place, statement_of(piece.events[place].name, told.get(place, {}))) for place in places]


def _near_names(
    text: memoryview, events: Sequence[Element], elements: Int64s, count: int
) -> list[Mapping[str, Any]] | None:
    """The arguments of events, which are some `elements` out of `count`: the object that follows each name.

    None unless all are found, and are surely theirs.
    """
    found: list[Mapping[str, Any]] = []
    whole = text.obj if isinstance(text.obj, bytes | bytearray) else bytes(text)
    step = len(text) // max(count, 1) // SHORT
    place, last, before = 0, len(text), 0
    for event, element in zip(events, elements.tolist(), strict=True):
        arguments, place = _next_like(event, whole, place + (element - before) * step, last)
        if arguments is None:
            return None
        found.append(arguments)
        before = element + 1
    return found


def _next_like(
    event: Element, text: bytes | bytearray, place: int, last: int
) -> tuple[Mapping[str, Any] | None, int]:
    """The arguments of the next element that is as this event, and where they end."""
    name = msgspec.json.encode(event.name)
    while (place := text.find(name, place, last)) >= 0:
        place += len(name)
        start = text.find(b"{", place, min(place + REACH, last))
        end = text.find(b"}", start, min(start + REACH, last)) + 1
        try:
            arguments = ONE_OBJECT.decode(text[start:end])
        except msgspec.DecodeError:
            continue
        if _are_same(event.args, arguments):
            return arguments, end
    return None, last


def _are_same(known: Arguments, found: Mapping[str, Any]) -> bool:
    """Whether these are the arguments of the event that is known by its ids."""
    ids = found.get(EXTERNAL_ID, -1), found.get(CORRELATION, -1), found.get(COLLECTIVE, "")
    return ids == (known.external_id, known.correlation, known.collective)
