"""Elements of the event array: a piece of JSON text in, its events as columns out.

Pieces are decoded strictly by type; a piece with unexpected elements is decoded element by element.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from itertools import compress, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracelink._model.columns import UNKNOWN, Bools, Int32s, Int64s, KnownInt64s, StringTable, Table
from tracelink._model.communications import Statement
from tracelink._model.events import EventKind
from tracelink._model.operations import COLLECTIVE_ANNOTATION, COLLECTIVE_KERNEL, COLLECTIVE_OPERATOR
from tracelink.converters.kineto import schema
from tracelink.converters.pytorch.arguments import (
    COLLECTIVE,
    LATEST_US,
    decimal_nanoseconds,
    sequence_in,
    statement_key,
    statement_of,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


STRICT = msgspec.json.Decoder(list[schema.Element])
MIXED = msgspec.json.Decoder(list[schema.MixedElement])
EXACT = msgspec.json.Decoder(list[schema.ExactElement])
LOOSE = msgspec.json.Decoder(list[Any], float_hook=Decimal)
BINDINGS = msgspec.json.Decoder(list[schema.FlowBinding])
SCOPE_TEXTS = msgspec.json.Decoder(list[schema.InstantScopeText])

ARGUMENT_NAMES = [(info.encode_name, info.name) for info in msgspec.structs.fields(schema.Arguments)]
INTEGER_ARGUMENTS = [(key, name) for key, name in ARGUMENT_NAMES if key != COLLECTIVE]

NOT_AN_EVENT = cast("schema.Element", schema.ExactElement())
TEXT_LANE = -(1 << 40)
"""Ids of processes and threads that are strings count down from here; numeric ids are unchanged."""


class Stated(Table, frozen=True):
    """One row for each event that states something about communication."""

    event: KnownInt64s
    """The index of the event."""
    statement: KnownInt64s
    """What it states, as an index of a list of statements, but for the sequence number."""
    sequence: Int64s


class Decoded(Struct):
    """The elements of one piece. Times are integer nanoseconds, without the base time of the file."""

    elements: Sequence[schema.Element]
    shape: Int64s
    slices: Bools
    """Which elements are events."""
    events: Sequence[schema.Element]
    """These elements; the columns below have a row for each."""
    name: Int32s
    start: Int64s
    duration: Int64s
    exact: bool = False
    """Whether times are decimal strings."""
    arguments: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Arguments of counters and metadata, by the index of the element."""
    stated: Stated = field(default_factory=Stated.empty)
    """Statements on communication, by the index of the event."""
    bound_to_next: frozenset[int] = frozenset()
    """Indexes of the ends of flows that bind to the next slice, not to the slice around them."""
    scopes: list[tuple[int, int]] = field(default_factory=list)
    """Scope of instants that concern more than their thread, by the index of the element."""
    unusable_durations: int = 0
    not_events: int = 0
    """Elements that are not events: null, a string, an event without a valid time. They keep their index."""

    def times(self, elements: Sequence[schema.Element]) -> Int64s:
        """The times of elements of this piece."""
        return _times(elements, self.exact)


class ElementDecoder:
    """Decodes pieces of the event array; `lanes` interns ids that are strings."""

    def __init__(self) -> None:
        self.lanes = StringTable()
        self.names = StringTable()
        self.shapes = Shapes()
        self.communication = CommunicationFinder(self.shapes, self.names)
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
        with_arguments = np.flatnonzero(self.shapes.are(piece.shape, schema.WITH_ARGUMENTS))
        if len(with_arguments):
            elements = schema.WHOLE_PIECE.decode(text)
            piece.arguments = {index: elements[index].args for index in with_arguments.tolist()}
        ends = self._drawn_ends(piece)
        if ends:
            bindings = BINDINGS.decode(text)
            piece.bound_to_next = frozenset(index for index in ends if bindings[index].bp != schema.ENCLOSING)
        instants = self._instants(piece)
        if instants:
            scopes = SCOPE_TEXTS.decode(text)
            piece.scopes = _wide_scopes((index, scopes[index].s) for index in instants)
        piece.stated = self.communication.in_text(piece, text)
        return piece

    def convert(self, values: list[Any]) -> Decoded:
        """Elements that only a lenient parser could read, or with unexpected types."""
        elements: list[schema.Element] = []
        arguments: dict[int, dict[str, Any]] = {}
        not_events = 0
        for index, value in enumerate(values):
            try:
                elements.append(self._element(value))
            except (TypeError, ValueError, AttributeError, OverflowError):
                elements.append(NOT_AN_EVENT)
                not_events += 1
            else:
                if elements[-1].ph in schema.WITH_ARGUMENTS and isinstance(
                    value.get(schema.ELEMENT_ARGUMENTS), dict
                ):
                    arguments[index] = value[schema.ELEMENT_ARGUMENTS]
        piece = self._piece(elements, exact=True)
        assert piece is not None
        piece.arguments, piece.not_events = arguments, not_events
        ends = self._drawn_ends(piece)
        piece.bound_to_next = frozenset(
            index for index in ends if values[index].get(schema.BINDING) != schema.ENCLOSING
        )
        piece.scopes = _wide_scopes(
            (index, values[index].get(schema.SCOPE)) for index in self._instants(piece)
        )
        piece.stated = self.communication.in_values(piece, values)
        return piece

    def _drawn_ends(self, piece: Decoded) -> list[int]:
        """The ends of flows that are neither launches nor lead to backward operators."""
        ends = self.shapes.are(piece.shape, frozenset({schema.FLOW_END}))
        ends &= ~self.shapes.in_category(piece.shape, schema.LAUNCH_FLOWS | schema.BACKWARD_FLOWS)
        indexes: list[int] = np.flatnonzero(ends).tolist()
        return indexes

    def _instants(self, piece: Decoded) -> list[int]:
        """The instants that are not memory events, of which there can be very many."""
        instants = self.shapes.are(piece.shape, schema.INSTANTS)
        if not instants.any():
            return []
        instants[np.flatnonzero(piece.slices)[piece.name == self.names.find(schema.MEMORY_EVENT)]] = False
        indexes: list[int] = np.flatnonzero(instants).tolist()
        return indexes

    def _typed(self, text: memoryview) -> Sequence[schema.Element]:
        """The elements by the narrowest type that fits, which is the fastest."""
        if not self.exact:
            try:
                return STRICT.decode(text)
            except msgspec.ValidationError:
                return self._numbered(MIXED.decode(text))
        return self._numbered(EXACT.decode(bytes(text)))

    def _numbered(self, elements: list[Any]) -> Sequence[schema.Element]:
        """The elements with numbers in place of string ids; from here on they are treated as `Element`s."""
        for element in elements:
            if type(element.pid) is str:
                element.pid = self._lane(element.pid)
            if type(element.tid) is str:
                element.tid = self._lane(element.tid)
            if type(element.id) is str:
                element.id = self._lane(element.id)
        return elements

    def _piece(self, elements: Sequence[schema.Element], exact: bool, text: Buffer = b"") -> Decoded | None:
        """The piece with its columns; None if its times have fractions that a double cannot represent."""
        shape = self.shapes.of(elements)
        slices = self.shapes.are(shape, schema.SLICES)
        events = list(compress(elements, slices.tolist()))
        launches = self.shapes.are(shape, schema.FLOWS) & self.shapes.in_category(shape, schema.LAUNCH_FLOWS)
        timed = self.shapes.are(shape, schema.TIMED) & ~launches
        more = int(np.count_nonzero(timed)) > len(events)
        chosen = list(compress(elements, timed.tolist())) if more else events
        if exact:
            start = _times(chosen, exact)[slices[timed]]
        else:
            microseconds = _microseconds(chosen)
            if not _are_valid(microseconds):
                raise ValueError("invalid timestamps")
            if _loses_fractions(microseconds, text):
                return None
            start = _nanoseconds(microseconds[slices[timed]])
        duration, unusable = _durations(np.fromiter([event.dur for event in events], np.float64, len(events)))
        name = self._names(events)
        piece = Decoded(elements, shape, slices, events, name, start, duration, exact)
        if unusable:
            instants = self.shapes.are(shape[slices], schema.INSTANTS)
            piece.unusable_durations = unusable - int(np.count_nonzero(instants & (duration == UNKNOWN)))
            duration[instants] = 0
        return piece

    def _names(self, events: Sequence[schema.Element]) -> Int32s:
        names = self.names
        return np.fromiter([names[event.name] for event in events], np.int32, len(events))

    def _element(self, value: dict[str, Any]) -> schema.Element:
        ph = _text(value["ph"])[:1] if "ph" in value else "?"
        arguments = value.get("args")
        element = schema.ExactElement(
            ph=ph or "?",
            cat=_text(value.get("cat") or ""),
            name=_text(value.get("name") or ""),
            pid=self._lane(value.get("pid", 0)),
            tid=self._lane(value.get("tid", 0)),
            dur=_duration(value.get("dur", -1)),
            id=self._lane(value.get("id", 0)),
            args=_arguments(arguments) if isinstance(arguments, dict) else schema.NO_ARGUMENTS,
        )
        if "ts" in value or ph != schema.METADATA:
            decimal_nanoseconds(value.get("ts"))
            element.ts = msgspec.Raw(str(value["ts"]).encode())
        return cast("schema.Element", element)

    def _lane(self, value: Any) -> int:
        if isinstance(value, str):
            return TEXT_LANE - self.lanes[_text(value)]
        return _integer(value)


def _wide_scopes(scopes: Iterable[tuple[int, Any]]) -> list[tuple[int, int]]:
    return [
        (index, schema.SCOPES[scope])
        for index, scope in scopes
        if isinstance(scope, str) and scope in schema.SCOPES
    ]


def _integer(value: Any) -> int:
    """An id as a number; huge ones are invalid, and would take very long to print."""
    if isinstance(value, Decimal) and not (value.is_finite() and value.copy_abs() < 1 << 64):
        raise ValueError(f"{value} is not a valid id")
    return int(value)


def _duration(value: Any) -> float:
    """A duration as a number; invalid values become -1."""
    try:
        return -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return -1.0


def _arguments(values: dict[str, Any]) -> schema.Arguments:
    numbers = {name: _integer_or_none(values[key]) for key, name in INTEGER_ARGUMENTS if key in values}
    return schema.Arguments(
        **{name: number for name, number in numbers.items() if number is not None},
        collective=_text(values.get(COLLECTIVE, "")),
    )


def _integer_or_none(value: Any) -> int | None:
    try:
        return _integer(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """A string that can be encoded as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()


# Shapes: the combinations of phase and category in a file.


class Shapes(Struct):
    """Phase and category of an element as one small number."""

    table: StringTable = field(default_factory=StringTable)
    known: dict[str, int] = field(default_factory=dict)
    """`table` as a plain dict, which is faster to look up for every element."""
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
        """Adds the kinds and phases of new combinations."""
        for text in self.table.texts()[len(self.kinds) :]:
            self.kinds.append(schema.kind_of(text[:1], text[1:]))
            self.roles.append(text[:1])
        self.known = dict(self.table)

    def are(self, codes: Int64s, roles: frozenset[str]) -> Bools:
        """Which codes have one of these phases."""
        return np.array([role in roles for role in self.roles], np.bool_)[codes]

    def have_kind(self, codes: Int64s, kinds: frozenset[EventKind]) -> Bools:
        """Which codes are slices of one of these kinds."""
        wanted = [
            kind in kinds and role in schema.SLICES for kind, role in zip(self.kinds, self.roles, strict=True)
        ]
        return np.array(wanted, np.bool_)[codes]

    def in_category(self, codes: Int64s, categories: frozenset[str]) -> Bools:
        """Which codes are of one of these categories."""
        return np.array([text[1:] in categories for text in self.table.texts()], np.bool_)[codes]


# Microseconds to integer nanoseconds, exactly.


EXACT_BELOW = float(1 << 43)
"""Up to here a double of microseconds still distinguishes all nanoseconds (102 days)."""

LONG_DIGITS = 13
"""An integer number of microseconds that is not below `EXACT_BELOW` has at least this many digits."""

LONGEST_US = 1e13
"""A longer duration (116 days) is a wrapped or garbage value, not a measurement."""


def _times(elements: Sequence[schema.Element], exact: bool) -> Int64s:
    """Times of elements in nanoseconds; `exact` if they are decimal strings."""
    if exact:
        texts = [bytes(cast("msgspec.Raw", element.ts)).decode() for element in elements]
        return np.array(list(map(decimal_nanoseconds, texts)), np.int64)
    return _nanoseconds(_microseconds(elements))


def _microseconds(elements: Sequence[schema.Element]) -> npt.NDArray[np.float64]:
    """Times of elements, as in the text."""
    return np.fromiter([element.ts for element in elements], np.float64, len(elements))


def _nanoseconds(microseconds: npt.NDArray[np.float64]) -> Int64s:
    """Integer nanoseconds: integer part and fraction are scaled separately, so that neither is rounded twice."""
    integer = np.floor(microseconds)
    fraction = np.rint((microseconds - integer) * 1000.0)
    return integer.astype(np.int64) * 1000 + fraction.astype(np.int64)


def _loses_fractions(microseconds: npt.NDArray[np.float64], text: Buffer) -> bool:
    """Whether times are too large for a double to hold their fraction, and the text has fractions."""
    large = np.abs(microseconds) >= EXACT_BELOW
    if not large.any():
        return False
    return bool(np.any(large & (microseconds != np.floor(microseconds)))) or _has_long_fractions(text)


def _has_long_fractions(text: Buffer) -> bool:
    """Whether a decimal point follows so many digits that a double may have lost the fraction."""
    characters = np.frombuffer(memoryview(text), np.uint8)
    points = np.flatnonzero(characters == ord("."))
    points = points[points >= LONG_DIGITS]
    for back in range(1, LONG_DIGITS + 1):
        before = characters[points - back]
        points = points[(before >= ord("0")) & (before <= ord("9"))]
    return bool(len(points))


def _are_valid(microseconds: npt.NDArray[np.float64]) -> bool:
    """Whether all are valid times."""
    return bool(np.all(np.abs(microseconds) <= LATEST_US))


def _durations(microseconds: npt.NDArray[np.float64]) -> tuple[Int64s, int]:
    """Nanoseconds, and the number of invalid durations (negative, infinite, not a number), which are unfinished."""
    with np.errstate(invalid="ignore"):
        usable = (microseconds >= 0) & (microseconds <= LONGEST_US)
    if usable.all():
        return _nanoseconds(microseconds), 0
    result = _nanoseconds(np.where(usable, microseconds, 0.0))
    result[~usable] = UNKNOWN
    return result, int(np.count_nonzero(~usable))


# Statements on communication. Their arguments are found in the text and decoded again. Most events state the same as
# others, but for the sequence number: each distinct statement is evaluated once.


STATED_ARGUMENTS = msgspec.json.Decoder(schema.CommunicationArguments)
ALL_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])
NOTHING_STATED = schema.CommunicationArguments()

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


class CommunicationFinder:
    """Finds the events of a piece that describe communication, and parses what they state."""

    def __init__(self, shapes: Shapes, names: StringTable) -> None:
        self.shapes = shapes
        self.names = names
        self.roles = np.zeros(0, np.uint8)
        """The role of each shape; 0 for shapes without communication."""
        self.name_roles = np.zeros(0, np.uint8)
        """The roles in which each name is of communication."""
        self.statements: list[Statement] = []
        """What events state; the sequence number of each event is in `Stated`."""
        self.codes: dict[Hashable, int] = {}
        """The index of the statement of each key."""

    def in_text(self, piece: Decoded, text: memoryview) -> Stated:
        """The statements of a piece that was decoded from `text`."""
        indexes = self._communicating(piece)
        events = [piece.events[index] for index in indexes]
        numbers = np.flatnonzero(piece.slices)[indexes]
        needed = self._with_arguments(events, piece.shape[numbers])
        rows = np.array(indexes, np.int64)[needed]
        sought = self._with_same_ids(piece, rows)
        if sought is not None and (found := _near_names(text, piece, sought)) is not None:
            chosen = np.isin(sought, rows, assume_unique=True).tolist()
            return self._distinct(indexes, events, needed, list(compress(found, chosen)))
        elements = schema.WHOLE_PIECE.decode(text)
        return self._each(indexes, events, needed, [elements[number].args for number in numbers.tolist()])

    def in_values(self, piece: Decoded, values: Sequence[Any]) -> Stated:
        """The statements of a piece from values of a lenient parser."""
        indexes, numbers = self._communicating(piece), np.flatnonzero(piece.slices)
        events, numbers = [piece.events[index] for index in indexes], numbers[indexes]
        needed = self._with_arguments(events, piece.shape[numbers])
        return self._each(
            indexes,
            events,
            needed,
            [values[number].get(schema.ELEMENT_ARGUMENTS) for number in numbers.tolist()],
        )

    def _distinct(
        self, indexes: Sequence[int], events: Sequence[schema.Element], needed: Bools, found: Sequence[Found]
    ) -> Stated:
        """Statements of events, where each distinct one is evaluated once."""
        remaining, codes = iter(found), self.codes
        given = [next(remaining) if need else NOTHING_FOUND for need in needed.tolist()]
        stated = []
        for event, (arguments, text) in zip(events, given, strict=True):
            key = statement_key(event.name, arguments)
            code = codes.get(key)
            if code is None:
                code = codes[key] = self._add(statement_of(event.name, ALL_ARGUMENTS.decode(text)))
            stated.append(code)
        sequences = [sequence_in(arguments) for arguments, _ in given]
        return Stated.of(event=indexes, statement=stated, sequence=sequences)

    def _each(
        self,
        indexes: Sequence[int],
        events: Sequence[schema.Element],
        needed: Bools,
        arguments: Sequence[Any],
    ) -> Stated:
        """Statements of events, one by one: for arguments of any types."""
        given = [each if need else {} for each, need in zip(arguments, needed.tolist(), strict=True)]
        statements = [statement_of(event.name, each) for event, each in zip(events, given, strict=True)]
        sequences = [statement.sequence for statement in statements]
        return Stated.of(event=indexes, statement=list(map(self._add, statements)), sequence=sequences)

    def _add(self, statement: Statement) -> int:
        self.statements.append(statement)
        return len(self.statements) - 1

    def _communicating(self, piece: Decoded) -> list[int]:
        """Indexes of the events with names or arguments of communication."""
        self._learn()
        role = self.roles[piece.shape[piece.slices]]
        matching = self.name_roles[piece.name] & role
        found: list[int] = np.flatnonzero(matching).tolist()
        unnamed_kernels = np.flatnonzero((role == KERNEL) & (matching == 0)).tolist()
        collectives = list(map(COLLECTIVE_OF, map(piece.events.__getitem__, unnamed_kernels)))
        return sorted(found + list(compress(unnamed_kernels, collectives))) if any(collectives) else found

    def _with_arguments(self, events: Sequence[schema.Element], shape: Int64s) -> Bools:
        """Which events have arguments that state something."""
        recorded = np.array([event.args.collective != "" for event in events], np.bool_)
        given = np.array([event.args is not schema.NO_ARGUMENTS for event in events], np.bool_)
        result: Bools = recorded | (given & self.shapes.have_kind(shape, WITH_INPUTS))
        return result

    def _with_same_ids(self, piece: Decoded, rows: Int64s) -> Int64s | None:
        """These events, and all others of the piece with the same name and ids as one of them.

        None if one has no ids, or other elements have the same.
        """
        named, chosen = np.zeros(len(self.name_roles), np.bool_), np.zeros(len(piece.name), np.bool_)
        named[piece.name[rows]] = True
        chosen[rows] = True
        candidates = np.flatnonzero(named[piece.name])
        names = piece.name[candidates].tolist()
        arguments = [piece.events[row].args for row in candidates.tolist()]
        ids = [(known.external_id, known.correlation) for known in arguments]
        identities = list(zip(names, ids, strict=True))
        wanted = set(compress(identities, chosen[candidates].tolist()))
        rest = compress(piece.elements, (~piece.slices).tolist())
        others = {(self.names.find(e.name), _ids(e.args)) for e in rest if e.args is not schema.NO_ARGUMENTS}
        if not wanted.isdisjoint(others) or any(known == _ids(schema.NO_ARGUMENTS) for _, known in wanted):
            return None
        return candidates[[identity in wanted for identity in identities]]

    def _learn(self) -> None:
        """Adds the roles of new shapes and names."""
        if new := len(self.shapes.kinds) - len(self.roles):
            slices = [role in schema.SLICES for role in self.shapes.roles[-new:]]
            roles = [ROLE_OF_KIND.get(kind, 0) for kind in self.shapes.kinds[-new:]]
            self.roles = np.append(self.roles, np.array(roles, np.uint8) * np.array(slices))
        if new := len(self.names) - len(self.name_roles):
            texts = list(islice(reversed(self.names), new))[::-1]
            name_roles = [sum(role for role, form in PATTERNS.items() if form.search(text)) for text in texts]
            self.name_roles = np.append(self.name_roles, np.array(name_roles, np.uint8))


def _ids(arguments: schema.Arguments) -> tuple[int, int]:
    return arguments.external_id, arguments.correlation


Found = tuple[schema.CommunicationArguments, bytes | bytearray]
"""The arguments of an event, and their text."""
NOTHING_FOUND: Found = NOTHING_STATED, b"{}"


def _near_names(text: memoryview, piece: Decoded, rows: Int64s) -> list[Found] | None:
    """The arguments of events: for each the object after its name in which its ids are.

    None unless all are found, with the usual types. As `rows` has all events with these names and ids, no one can be
    found in place of another then.
    """
    found: list[Found] = []
    data = text.obj if isinstance(text.obj, bytes | bytearray) else bytes(text)
    events = [piece.events[row] for row in rows.tolist()]
    numbers = np.flatnonzero(piece.slices)[rows]
    step = len(text) // max(len(piece.slices), 1) // SHORTEST
    quoted = {name: msgspec.json.encode(name) for name in {event.name for event in events}}
    index, before = 0, 0
    for event, number in zip(events, numbers.tolist(), strict=True):
        ahead = index + (number - before) * step
        arguments, index = _next_arguments(quoted[event.name], event.args, data, ahead, len(text))
        if arguments is None:
            return None
        found.append(arguments)
        before = number + 1
    return found


def _next_arguments(
    name: bytes, known: schema.Arguments, text: bytes | bytearray, index: int, last: int
) -> tuple[Found | None, int]:
    """The arguments of the next element with this name and the known ids, and their end."""
    while (index := text.find(name, index, last)) >= 0:
        index += len(name)
        start = text.find(b"{", index, index + REACH)
        end = text.find(b"}", start, start + REACH) + 1
        given = text[start:end]
        try:
            arguments = STATED_ARGUMENTS.decode(given)
        except msgspec.DecodeError:
            continue
        if (
            arguments.external_id == known.external_id
            and arguments.correlation == known.correlation
            and (arguments.operation or "") == known.collective
            and end <= last
        ):
            return (arguments, given), end
    return None, last
