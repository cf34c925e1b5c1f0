"""Statements on communication: the events of a piece that describe communication, and what they state.

There are few of them, so that decoding their arguments again is fast; all other arguments stay undecoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tracelink.converters.kineto.schema import (
    COLLECTIVE,
    COMPLETE,
    CORRELATION,
    ELEMENT_ARGUMENTS,
    ELEMENTS_IN,
    ELEMENTS_OUT,
    EXTERNAL_ID,
    GROUP_NAME,
    GROUP_RANKS,
    GROUP_SIZE,
    NO_ARGUMENTS,
    NUMBER_IN_GROUP,
    NUMBER_TYPE,
    PEER,
    RECEIVER,
    SENDER,
    SLICES,
    UNKNOWN_MEMBERS,
    AllArguments,
    Arguments,
    Element,
    kind_of,
)
from tracelink.converters.pytorch.arguments import INPUT_DIMS, INPUT_TYPES, INPUT_VALUES
from tracelink.model.columns import UNKNOWN, Int64s, StringTable
from tracelink.model.communications import (
    Sizes,
    Statement,
    number_in,
    rank_in,
    sizes_in,
    stated_by,
    stated_by_inputs,
    text_in,
)
from tracelink.model.events import EventKind
from tracelink.model.operations import (
    COLLECTIVE_ANNOTATION,
    COLLECTIVE_KERNEL,
    COLLECTIVE_OPERATOR,
    Operation,
    item_bytes,
    operation_of,
    type_named,
)

if TYPE_CHECKING:
    from tracelink.converters.kineto.elements import Decoded, Shapes


ONE_OBJECT = msgspec.json.Decoder(dict[str, Any])
WHOLE_PIECE = msgspec.json.Decoder(list[AllArguments])

WITH_INPUTS = frozenset({EventKind.OPERATOR, EventKind.ANNOTATION})

OPERATOR, ANNOTATION, KERNEL = 1, 2, 4
"""Roles that an event can have in communication, as bits: a name can match several."""
PATTERNS = {OPERATOR: COLLECTIVE_OPERATOR, ANNOTATION: COLLECTIVE_ANNOTATION, KERNEL: COLLECTIVE_KERNEL}
ROLE_OF_KIND = {
    EventKind.OPERATOR: OPERATOR,
    EventKind.ANNOTATION: ANNOTATION,
    EventKind.GPU_ANNOTATION: ANNOTATION,
    EventKind.KERNEL: KERNEL,
}

SHORTEST = 3
"""Elements are rarely this many times shorter than the average, so the search skips that far ahead."""
REACH = 1 << 16
"""Arguments of communication are rarely longer than this."""

COLLECTIVE_OF = attrgetter("args.collective")

Statements = list[tuple[int, Statement]]
"""Statements by the index of the event among the events of a piece."""


class CommunicationFinder:
    """Finds the events of a piece that describe communication, and parses what they state."""

    def __init__(self, shapes: Shapes, names: StringTable) -> None:
        self.shapes = shapes
        self.names = names
        self.roles = np.zeros(0, np.uint8)
        """The role of each shape; 0 for shapes without communication."""
        self.name_roles = np.zeros(0, np.uint8)
        """The roles in which each name is of communication."""

    def in_text(self, piece: Decoded, text: memoryview) -> Statements:
        """The statements of a piece that was decoded from `text`."""
        indexes = self._communicating(piece)
        with_arguments = [index for index in indexes if _needs_arguments(piece.events[index])]
        numbers = np.flatnonzero(piece.slices)[with_arguments]
        arguments = _near_names(
            text, [piece.events[index] for index in with_arguments], numbers, len(piece.slices)
        )
        if arguments is None:
            elements = WHOLE_PIECE.decode(text)
            arguments = [elements[number].args for number in numbers.tolist()]
        return _statements(piece, indexes, dict(zip(with_arguments, arguments, strict=True)))

    def in_values(self, piece: Decoded, values: Sequence[Any]) -> Statements:
        """The statements of a piece from values of a lenient parser."""
        indexes, numbers = self._communicating(piece), np.flatnonzero(piece.slices)
        arguments = {index: values[numbers[index]].get(ELEMENT_ARGUMENTS) for index in indexes}
        arguments = {index: given for index, given in arguments.items() if isinstance(given, dict)}
        return _statements(piece, indexes, arguments)

    def _communicating(self, piece: Decoded) -> list[int]:
        """Indexes of the events with names or arguments of communication."""
        self._learn()
        role = self.roles[piece.shape[piece.slices]]
        matching = self.name_roles[piece.name] & role
        found: list[int] = np.flatnonzero(matching).tolist()
        unnamed_kernels = np.flatnonzero((role == KERNEL) & (matching == 0)).tolist()
        collectives = list(map(COLLECTIVE_OF, map(piece.events.__getitem__, unnamed_kernels)))
        return sorted(found + list(compress(unnamed_kernels, collectives))) if any(collectives) else found

    def _learn(self) -> None:
        """Adds the roles of new shapes and names."""
        if new := len(self.shapes.kinds) - len(self.roles):
            slices = [role in SLICES for role in self.shapes.roles[-new:]]
            roles = [ROLE_OF_KIND.get(kind, 0) for kind in self.shapes.kinds[-new:]]
            self.roles = np.append(self.roles, np.array(roles, np.uint8) * np.array(slices))
        if new := len(self.names) - len(self.name_roles):
            texts = list(islice(reversed(self.names), new))[::-1]
            name_roles = [sum(role for role, form in PATTERNS.items() if form.search(text)) for text in texts]
            self.name_roles = np.append(self.name_roles, np.array(name_roles, np.uint8))


def _needs_arguments(event: Element) -> bool:
    if event.args.collective:
        return True
    return event.args is not NO_ARGUMENTS and kind_of(COMPLETE, event.cat) in WITH_INPUTS


def _statements(
    piece: Decoded, indexes: Sequence[int], arguments: Mapping[int, Mapping[str, Any]]
) -> Statements:
    return [(index, statement_of(piece.events[index].name, arguments.get(index, {}))) for index in indexes]


def _near_names(
    text: memoryview, events: Sequence[Element], elements: Int64s, count: int
) -> list[Mapping[str, Any]] | None:
    """The arguments of events, which are some `elements` out of `count`: the object that follows each name.

    None unless all are found with certainty.
    """
    found: list[Mapping[str, Any]] = []
    data = text.obj if isinstance(text.obj, bytes | bytearray) else bytes(text)
    step = len(text) // max(count, 1) // SHORTEST
    index, last, before = 0, len(text), 0
    for event, element in zip(events, elements.tolist(), strict=True):
        arguments, index = _next_arguments(event, data, index + (element - before) * step, last)
        if arguments is None:
            return None
        found.append(arguments)
        before = element + 1
    return found


def _next_arguments(
    event: Element, text: bytes | bytearray, index: int, last: int
) -> tuple[Mapping[str, Any] | None, int]:
    """The arguments of the next element with the name and ids of the event, and their end."""
    name = msgspec.json.encode(event.name)
    while (index := text.find(name, index, last)) >= 0:
        index += len(name)
        start = text.find(b"{", index, min(index + REACH, last))
        end = text.find(b"}", start, min(start + REACH, last)) + 1
        try:
            arguments = ONE_OBJECT.decode(text[start:end])
        except msgspec.DecodeError:
            continue
        if _same_ids(event.args, arguments):
            return arguments, end
    return None, last


def _same_ids(known: Arguments, found: Mapping[str, Any]) -> bool:
    """Whether arguments have the ids of the event."""
    ids = found.get(EXTERNAL_ID, -1), found.get(CORRELATION, -1), found.get(COLLECTIVE, "")
    return ids == (known.external_id, known.correlation, known.collective)


# Statements of single events.


def statement_of(name: str, arguments: Mapping[str, Any]) -> Statement:
    """The statement of an event, from its name and arguments."""
    if COLLECTIVE in arguments:
        return _recorded(text_in(arguments[COLLECTIVE]) or name, arguments)
    return stated_by_inputs(name, _Inputs(arguments)) if INPUT_DIMS in arguments else stated_by(name)


def _recorded(operation: str, arguments: Mapping[str, Any]) -> Statement:
    """The statement of `record_param_comms`, or of a kernel with a copy of its arguments."""
    statement = stated_by(operation)
    statement.group = text_in(arguments.get(GROUP_NAME))
    statement.sequence = number_in(arguments.get(NUMBER_IN_GROUP))
    if operation_of(statement.operation) == Operation.WAIT:
        # the other arguments of a wait are fillers, and do not describe what it waits for
        return statement
    statement.elements_in = number_in(arguments.get(ELEMENTS_IN))
    statement.elements_out = number_in(arguments.get(ELEMENTS_OUT))
    statement.type = text_in(arguments.get(NUMBER_TYPE))
    statement.size = rank_in(arguments.get(GROUP_SIZE))
    members = text_in(arguments.get(GROUP_RANKS))
    statement.members = "" if members == UNKNOWN_MEMBERS else members
    statement.source, statement.target = rank_in(arguments.get(SENDER)), rank_in(arguments.get(RECEIVER))
    statement.global_ranks = (statement.source, statement.target) != (UNKNOWN, UNKNOWN)
    if not statement.global_ranks:
        statement.name_peer(rank_in(arguments.get(PEER)))
    return statement


class _Inputs:
    """The recorded inputs of an operator."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.dims = _list(arguments.get(INPUT_DIMS))
        self.types = _list(arguments.get(INPUT_TYPES))
        self.values = _list(arguments.get(INPUT_VALUES))

    def __len__(self) -> int:
        return len(self.dims)

    def sizes(self, index: int) -> Sizes | None:
        """The sizes of the tensors in one input; those of a list were not recorded before 2024."""
        dims = _at(self.dims, index)
        return [[]] if dims == [] and self.type(index) else sizes_in(dims)

    def type(self, index: int) -> str:
        """The element type of one input; empty for a list, which is recorded without a type."""
        name = type_named(text_in(_at(self.types, index)))
        return name if item_bytes(name) is not None else ""

    def value(self, index: int) -> Any:
        """The value of one input that is a number, as a string."""
        return _at(self.values, index)


def _at(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
