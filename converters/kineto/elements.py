"""Elements of the event array: decoded strictly where they are as they should be, else one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.kineto.schema import (
    COMPLETE,
    COUNTER,
    NO_ARGUMENTS,
    Arguments,
    CounterSample,
    Element,
    ExactElement,
    MixedElement,
)
from tracelink.converters.kineto.shapes import Shapes
from tracelink.converters.kineto.times import decimal_nanoseconds, durations, loses_fractions, nanoseconds
from tracelink.events import UNFINISHED, Int64s
from tracelink.strings import StringTable

AnyElement = Element | MixedElement | ExactElement

STRICT = msgspec.json.Decoder(list[Element])
MIXED = msgspec.json.Decoder(list[MixedElement])
EXACT = msgspec.json.Decoder(list[ExactElement])
LOOSE = msgspec.json.Decoder(list[Any], float_hook=Decimal)
SAMPLES = msgspec.json.Decoder(list[CounterSample])

ARGUMENT_NAMES = [(info.encode_name, info.name) for info in msgspec.structs.fields(Arguments)]
INTEGER_ARGUMENTS = [(key, name) for key, name in ARGUMENT_NAMES if name not in ("name", "labels")]

TEXT_LANE = -(1 << 40)
"""Process and thread ids that are texts count down from here; ids that are numbers stay what they are."""


@dataclass(slots=True)
class Decoded:
    """The elements of one piece, with their times as whole nanoseconds (without the file's base)."""

    elements: Sequence[AnyElement]
    shape: Int64s
    start: Int64s
    duration: Int64s
    samples: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Values of the counters, by the element's place in the piece."""
    unusable_durations: int = 0
    not_events: int = 0
    """Elements that are no event: null, text, an event without a usable time. They keep their place."""


class ElementDecoder:
    """Decodes pieces of the event array; `lanes` interns ids that are texts."""

    def __init__(self) -> None:
        self.lanes = StringTable()
        self.shapes = Shapes()
        self.exact = False

    def decode(self, text: memoryview) -> Decoded:
        """A piece that is valid JSON."""
        try:
            elements = self._typed(text)
            if self.exact:
                start = [decimal_nanoseconds(bytes(element.ts).decode()) for element in elements]  # type: ignore[arg-type]
                return self._decoded(elements, np.array(start, np.int64), text)
        except (msgspec.ValidationError, ValueError):
            return self.convert(LOOSE.decode(text))
        microseconds = np.fromiter([element.ts for element in elements], np.float64, len(elements))
        if loses_fractions(microseconds):
            self.exact = True
            return self.decode(text)
        return self._decoded(elements, nanoseconds(microseconds), text)

    def _typed(self, text: memoryview) -> Sequence[AnyElement]:
        """The elements by the narrowest type that fits: the narrower, the faster."""
        if not self.exact:
            try:
                return STRICT.decode(text)
            except msgspec.ValidationError:
                return self._numbered(MIXED.decode(text))
        return self._numbered(EXACT.decode(bytes(text)))

    def _numbered(self, elements: list[Any]) -> Sequence[AnyElement]:
        for element in elements:
            if type(element.pid) is str:
                element.pid = self._lane(element.pid)
            if type(element.tid) is str:
                element.tid = self._lane(element.tid)
            if type(element.id) is str:
                element.id = self._lane(element.id)
        return elements

    def _decoded(self, elements: Sequence[AnyElement], start: Int64s, text: memoryview) -> Decoded:
        microseconds = np.fromiter([element.dur for element in elements], np.float64, len(elements))
        duration, unusable = durations(microseconds)
        shape = self.shapes.of(elements)
        result = Decoded(elements, shape, start, duration)
        if unusable:
            complete = self.shapes.are(shape, frozenset({COMPLETE}))
            result.unusable_durations = int(np.count_nonzero(complete & (duration == UNFINISHED)))
        counters = np.flatnonzero(self.shapes.are(shape, frozenset({COUNTER})))
        if len(counters):
            samples = SAMPLES.decode(text)
            result.samples = {place: samples[place].args for place in counters.tolist()}
        return result

    def convert(self, values: list[Any]) -> Decoded:
        """Elements that only a lenient parser could read, or of types that no event should have."""
        none = np.zeros(len(values), np.int64)
        result = Decoded([], none, np.zeros_like(none), np.full(len(values), UNFINISHED, np.int64))
        elements: list[Element] = []
        for place, value in enumerate(values):
            try:
                elements.append(self._element(place, value, result))
            except (TypeError, ValueError, AttributeError, OverflowError):
                elements.append(Element("?"))
                result.not_events += 1
        result.elements = elements
        result.shape = self.shapes.of(elements)
        return result

    def _element(self, place: int, value: dict[str, Any], result: Decoded) -> Element:
        ph = _text(value["ph"]) if "ph" in value else "?"
        if ph != "M":
            result.start[place] = decimal_nanoseconds(value["ts"] if "ts" in value else None)
        if ph == "X":
            result.duration[place] = self._duration(value.get("dur"), result)
        arguments = value.get("args")
        if ph == COUNTER and isinstance(arguments, dict):
            result.samples[place] = arguments
        return Element(
            ph=ph or "?",
            cat=_text(value.get("cat") or ""),
            name=_text(value.get("name") or ""),
            pid=self._lane(value.get("pid", 0)),
            tid=self._lane(value.get("tid", 0)),
            id=self._lane(value.get("id", 0)),
            args=_arguments(arguments) if isinstance(arguments, dict) else NO_ARGUMENTS,
        )

    def _duration(self, value: Any, result: Decoded) -> int:
        try:
            duration, unusable = durations(np.array([float(value)]))
            result.unusable_durations += unusable
            return UNFINISHED if unusable else decimal_nanoseconds(value) if duration[0] >= 0 else UNFINISHED
        except (TypeError, ValueError):
            result.unusable_durations += 1
            return UNFINISHED

    def _lane(self, value: Any) -> int:
        if isinstance(value, str):
            return TEXT_LANE - self.lanes[_text(value)]
        return int(value)


def _arguments(values: dict[str, Any]) -> Arguments:
    numbers = {name: _whole(values[key]) for key, name in INTEGER_ARGUMENTS if key in values}
    return Arguments(
        **{name: number for name, number in numbers.items() if number is not None},
        name=_text(values.get("name", "")),
        labels=_text(values.get("labels", "")),
    )


def _whole(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """A text that can be written as UTF-8."""
    return str(value).encode("utf-8", "replace").decode()
