"""Pieces decoded by type; what says something of communication."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import compress, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

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
    INSTANTS,
    LAUNCH_FLOWS,
    METADATA,
    NO_ARGUMENTS,
    NUMBER_IN_GROUP,
    NUMBER_TYPE,
    PEER,
    RECEIVER,
    SENDER,
    SLICES,
    TELLING,
    TIMED,
    UNKNOWN_MEMBERS,
    AllArguments,
    Arguments,
    Element,
    ExactElement,
    MixedElement,
    kind_of,
)
from tracelink.converters.pytorch.arguments import INPUT_DIMS, INPUT_TYPES, INPUT_VALUES
from tracelink.converters.pytorch.times import LATEST_US, decimal_nanoseconds
from tracelink.model.columns import UNKNOWN, Bools, Int32s, Int64s, StringTable
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
    from typing_extensions import Buffer


# What an event and its arguments say of communication.


def statement_of(name: str, arguments: Mapping[str, Any]) -> Statement:
    """What an event says, by its name and its own arguments."""
    if COLLECTIVE in arguments:
        return _recorded(text_in(arguments[COLLECTIVE]) or name, arguments)
    return stated_by_inputs(name, _Inputs(arguments)) if INPUT_DIMS in arguments else stated_by(name)


def _recorded(operation: str, arguments: Mapping[str, Any]) -> Statement:
    """What `record_param_comms` says, or the kernel that it is copied to."""
    statement = stated_by(operation)
    statement.group = text_in(arguments.get(GROUP_NAME))
    statement.sequence = number_in(arguments.get(NUMBER_IN_GROUP))
    if operation_of(statement.operation) == Operation.WAIT:
        # The rest of a wait are fillers, and not of what it waits for.
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
    """The inputs of an operator as far as they were recorded."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.dims = _list(arguments.get(INPUT_DIMS))
        self.types = _list(arguments.get(INPUT_TYPES))
        self.values = _list(arguments.get(INPUT_VALUES))

    def __len__(self) -> int:
        return len(self.dims)

    def sizes(self, place: int) -> Sizes | None:
        """The sizes of the tensors in one input; those of a list were not recorded before 2024."""
        dims = _at(self.dims, place)
        return [[]] if dims == [] and self.type(place) else sizes_in(dims)

    def type(self, place: int) -> str:
        """The type of the numbers in one input; empty where it is a list, whose type is not recorded."""
        name = type_named(text_in(_at(self.types, place)))
        return name if item_bytes(name) is not None else ""

    def value(self, place: int) -> Any:
        """The text of one input that is a number."""
        return _at(self.values, place)


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# Shapes: the combinations of phase and category in a file, and what they mean.


@dataclass(slots=True)
class Shapes:
    """Phase and category of an element as one small number."""

    table: StringTable = field(default_factory=StringTable)
    known: dict[str, int] = field(default_factory=dict)
    """The same as a plain dict, which is looked up faster: every element is."""
    kinds: list[EventKind] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)

    def of(self, elements: Sequence[Any]) -> Int64s:
        """The shape of each element."""
        known = self.known
        try:
            codes = [known[element.ph + element.cat] for element in elements]
        except KeyError:
            codes = [self.table[element.ph + element.cat] for element in elements]
            self.learn()
        return np.fromiter(codes, np.int64, len(codes))

    def learn(self) -> None:
        """Takes note of combinations seen since."""
        for text in self.table.texts()[len(self.kinds) :]:
            self.kinds.append(kind_of(text[:1], text[1:]))
            self.roles.append(text[:1])
        self.known = dict(self.table)

    def are(self, codes: Int64s, roles: frozenset[str]) -> Bools:
        """Which codes have one of these phases."""
        return np.array([role in roles for role in self.roles], np.bool_)[codes]

    def have_kind(self, codes: Int64s, kinds: frozenset[EventKind]) -> Bools:
        """Which codes are slices of one of these kinds."""
        wanted = [kind in kinds and role in SLICES for kind, role in zip(self.kinds, self.roles, strict=True)]
        return np.array(wanted, np.bool_)[codes]

    def in_category(self, codes: Int64s, categories: frozenset[str]) -> Bools:
        """Which codes are of one of these categories."""
        return np.array([text[1:] in categories for text in self.table.texts()], np.bool_)[codes]


# A second look at the events that say something of communication: they are few, and only they cost more.


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


# Decimal microseconds to whole nanoseconds, exactly.


EXACT_BELOW = float(1 << 43)
"""Up to here a double of microseconds still tells all nanoseconds apart (102 days)."""

LONG_DIGITS = 13
"""A whole number of microseconds that is not below `EXACT_BELOW` has at least so many digits."""

LONGEST_US = 1e13
"""A duration above this (116 days) is a wrapped or garbage value, not a measurement."""


def nanoseconds(microseconds: npt.NDArray[np.float64]) -> Int64s:
    """Whole nanoseconds: the whole and the fraction are scaled apart, so that neither is rounded twice."""
    whole = np.floor(microseconds)
    fraction = np.rint((microseconds - whole) * 1000.0)
    return whole.astype(np.int64) * 1000 + fraction.astype(np.int64)


def loses_fractions(microseconds: npt.NDArray[np.float64], text: Buffer) -> bool:
    """Whether these times are so large that a double cannot hold their fraction, and the text has some."""
    large = np.abs(microseconds) >= EXACT_BELOW
    if not large.any():
        return False
    return bool(np.any(large & (microseconds != np.floor(microseconds)))) or _has_long_fractions(text)


def _has_long_fractions(text: Buffer) -> bool:
    """Whether there is a decimal point behind so many digits that a double may have rounded the fraction away."""
    characters = np.frombuffer(memoryview(text), np.uint8)
    points = np.flatnonzero(characters == ord("."))
    points = points[points >= LONG_DIGITS]
    for back in range(1, LONG_DIGITS + 1):
        before = characters[points - back]
        points = points[(before >= ord("0")) & (before <= ord("9"))]
    return bool(len(points))


def are_times(microseconds: npt.NDArray[np.float64]) -> bool:
    """Whether all are numbers that a time can be."""
    return bool(np.all(np.abs(microseconds) <= LATEST_US))


def durations(microseconds: npt.NDArray[np.float64]) -> tuple[Int64s, int]:
    """Nanoseconds, and how many were no duration (negative, endless, not a number): those are unfinished."""
    with np.errstate(invalid="ignore"):
        usable = (microseconds >= 0) & (microseconds <= LONGEST_US)
    if usable.all():
        return nanoseconds(microseconds), 0
    result = nanoseconds(np.where(usable, microseconds, 0.0))
    result[~usable] = UNKNOWN
    return result, int(np.count_nonzero(~usable))


# Elements of the event array: decoded strictly where they are as they should be, else one by one.


STRICT = msgspec.json.Decoder(list[Element])
MIXED = msgspec.json.Decoder(list[MixedElement])
EXACT = msgspec.json.Decoder(list[ExactElement])
LOOSE = msgspec.json.Decoder(list[Any], float_hook=Decimal)

ARGUMENT_NAMES = [(info.encode_name, info.name) for info in msgspec.structs.fields(Arguments)]
INTEGER_ARGUMENTS = [(key, name) for key, name in ARGUMENT_NAMES if key != COLLECTIVE]

TEXT_LANE = -(1 << 40)
"""Process and thread ids that are texts count down from here; ids that are numbers stay what they are."""


@dataclass(slots=True)
class Decoded:
    """The elements of one piece. Times are whole nanoseconds, without the file's base."""

    elements: Sequence[Element]
    shape: Int64s
    slices: Bools
    """Which elements are events."""
    events: Sequence[Element]
    """Those elements; the columns below have a row for each."""
    name: Int32s
    start: Int64s
    duration: Int64s
    exact: bool = False
    """Whether times are decimal text."""
    arguments: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Those of counters and metadata, by the element's place in the piece."""
    stated: Stated = field(default_factory=list)
    """What is said of communication, by the event's place among the events."""
    unusable_durations: int = 0
    not_events: int = 0
    """Elements that are no event: null, text, an event without a usable time. They keep their place."""

    def times(self, elements: Sequence[Element]) -> Int64s:
        """When these elements of the piece were."""
        return _times(elements, self.exact)


class ElementDecoder:
    """Decodes pieces of the event array; `lanes` interns ids that are texts."""

    def __init__(self) -> None:
        self.lanes = StringTable()
        self.names = StringTable()
        self.shapes = Shapes()
        self.second_look = SecondLook(self.shapes, self.names)
        self.exact = False

    def decode(self, text: memoryview) -> Decoded:
        """A piece that is valid JSON."""
        try:
            piece = self._piece(self._typed(text), self.exact, text)
        except (msgspec.ValidationError, ValueError):
            return self.convert(LOOSE.decode(text))
        if piece is None:
            self.exact = True
            return self.decode(text)
        telling = np.flatnonzero(self.shapes.are(piece.shape, TELLING))
        if len(telling):
            elements = WHOLE_PIECE.decode(text)
            piece.arguments = {place: elements[place].args for place in telling.tolist()}
        piece.stated = self.second_look.at_text(piece, text)
        return piece

    def convert(self, values: list[Any]) -> Decoded:
        """Elements that only a lenient parser could read, or of types that no event should have."""
        elements: list[Element] = []
        arguments: dict[int, dict[str, Any]] = {}
        not_events = 0
        for place, value in enumerate(values):
            try:
                elements.append(self._element(value))
            except (TypeError, ValueError, AttributeError, OverflowError):
                elements.append(cast("Element", ExactElement()))
                not_events += 1
            else:
                if elements[-1].ph in TELLING and isinstance(value.get(ELEMENT_ARGUMENTS), dict):
                    arguments[place] = value[ELEMENT_ARGUMENTS]
        piece = self._piece(elements, exact=True)
        assert piece is not None
        piece.arguments, piece.not_events = arguments, not_events
        piece.stated = self.second_look.at_values(piece, values)
        return piece

    def _typed(self, text: memoryview) -> Sequence[Element]:
        """The elements by the narrowest type that fits: the narrower, the faster."""
        if not self.exact:
            try:
                return STRICT.decode(text)
            except msgspec.ValidationError:
                return self._numbered(MIXED.decode(text))
        return self._numbered(EXACT.decode(bytes(text)))

    def _numbered(self, elements: list[Any]) -> Sequence[Element]:
        """The same elements with numbers for ids that are texts: from here on they count as `Element`s."""
        for element in elements:
            if type(element.pid) is str:
                element.pid = self._lane(element.pid)
            if type(element.tid) is str:
                element.tid = self._lane(element.tid)
            if type(element.id) is str:
                element.id = self._lane(element.id)
        return elements

    def _piece(self, elements: Sequence[Element], exact: bool, text: Buffer = b"") -> Decoded | None:
        """The piece with its columns; None if its times have fractions that doubles do not hold."""
        shape = self.shapes.of(elements)
        slices = self.shapes.are(shape, SLICES)
        events = list(compress(elements, slices.tolist()))
        timed = self.shapes.are(shape, TIMED) & ~self.shapes.in_category(shape, LAUNCH_FLOWS)
        more = int(np.count_nonzero(timed)) > len(events)
        chosen = list(compress(elements, timed.tolist())) if more else events
        if exact:
            start = _times(chosen, exact)[slices[timed]]
        else:
            microseconds = _microseconds(chosen)
            if not are_times(microseconds):
                raise ValueError("times that are none")
            if loses_fractions(microseconds, text):
                return None
            start = nanoseconds(microseconds[slices[timed]])
        duration, unusable = durations(np.fromiter([event.dur for event in events], np.float64, len(events)))
        name = self._names(events)
        piece = Decoded(elements, shape, slices, events, name, start, duration, exact)
        if unusable:
            instants = self.shapes.are(shape[slices], INSTANTS)
            piece.unusable_durations = unusable - int(np.count_nonzero(instants & (duration == UNKNOWN)))
            duration[instants] = 0
        return piece

    def _names(self, events: Sequence[Element]) -> Int32s:
        names = self.names
        return np.fromiter([names[event.name] for event in events], np.int32, len(events))

    def _element(self, value: dict[str, Any]) -> Element:
        ph = _text(value["ph"])[:1] if "ph" in value else "?"
        arguments = value.get("args")
        element = ExactElement(
            ph=ph or "?",
            cat=_text(value.get("cat") or ""),
            name=_text(value.get("name") or ""),
            pid=self._lane(value.get("pid", 0)),
            tid=self._lane(value.get("tid", 0)),
            dur=_duration(value.get("dur", -1)),
            id=self._lane(value.get("id", 0)),
            args=_arguments(arguments) if isinstance(arguments, dict) else NO_ARGUMENTS,
        )
        if "ts" in value or ph != METADATA:
            decimal_nanoseconds(value.get("ts"))
            element.ts = msgspec.Raw(str(value["ts"]).encode())
        return cast("Element", element)

    def _lane(self, value: Any) -> int:
        if isinstance(value, str):
            return TEXT_LANE - self.lanes[_text(value)]
        return _integer(value)


def _integer(value: Any) -> int:
    """An id as a number; one of astronomic size is none, and would take as long to write out."""
    if isinstance(value, Decimal) and not (value.is_finite() and value.copy_abs() < 1 << 64):
        raise ValueError(f"{value} is no id")
    return int(value)


def _times(elements: Sequence[Element], exact: bool) -> Int64s:
    if exact:
        texts = [bytes(cast("msgspec.Raw", element.ts)).decode() for element in elements]
        return np.array(list(map(decimal_nanoseconds, texts)), np.int64)
    return nanoseconds(_microseconds(elements))


def _microseconds(elements: Sequence[Element]) -> npt.NDArray[np.float64]:
    return np.fromiter([element.ts for element in elements], np.float64, len(elements))


def _duration(value: Any) -> float:
    """A duration as a number; what is none becomes an unusable one."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return -1.0


def _arguments(values: dict[str, Any]) -> Arguments:
    numbers = {name: _whole(values[key]) for key, name in INTEGER_ARGUMENTS if key in values}
    return Arguments(
        **{name: number for name, number in numbers.items() if number is not None},
        collective=_text(values.get(COLLECTIVE, "")),
    )


def _whole(value: Any) -> int | None:
    try:
        return _integer(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """A text that can be written as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()
