"""Elements of the event array: decoded strictly where they are as they should be, else one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import compress
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.converters.kineto.schema import (
    COLLECTIVE,
    ELEMENT_ARGUMENTS,
    INSTANTS,
    LAUNCH_FLOWS,
    METADATA,
    NO_ARGUMENTS,
    SLICES,
    TELLING,
    TIMED,
    Arguments,
    Element,
    ExactElement,
    MixedElement,
)
from tracelink.converters.kineto.second_look import WHOLE_PIECE, SecondLook, Stated
from tracelink.converters.kineto.shapes import Shapes
from tracelink.converters.kineto.times import (
    are_times,
    decimal_nanoseconds,
    durations,
    loses_fractions,
    nanoseconds,
)
from tracelink.events import UNFINISHED, Bools, Int32s, Int64s
from tracelink.strings import StringTable

if TYPE_CHECKING:
    from typing_extensions import Buffer

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
            piece.unusable_durations = unusable - int(np.count_nonzero(instants & (duration == UNFINISHED)))
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
