"""Arguments of events as JSON, read again from the file: annotations of events on tracks, and data of stages on GPUs.

PyTorch writes a stage's data under other names than in JSON; they get the names of JSON.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import orjson
from msgspec import Struct

from tracelink._io.framing import DELIMITED, VARINT, Batch, Field, fields_of
from tracelink._io.sources import Source
from tracelink._model.columns import Int32s, Int64s
from tracelink._model.errors import encodable
from tracelink._model.trace import Payload
from tracelink.converters.perfetto.packets.reading import BatchStart, Named, read_again
from tracelink.converters.perfetto.packets.schema import Annotation, Event, Packet, Stage, TextTable
from tracelink.converters.pytorch.arguments import (
    ELEMENTS_IN,
    ELEMENTS_OUT,
    GROUP_SIZE,
    NUMBER_IN_GROUP,
    PEER,
    RECEIVER,
    SENDER,
)

DEEPEST = 16
"""Levels of nested values."""
LONGEST = 1 << 20
"""Bytes of the annotations of one event."""
OMITTED = b'{"tracelink_omitted":"too large, or nested too deeply, to be written as JSON"}'

STAGE_NAMES = {"device id": "device", "context id": "context", "stream id": "stream"}
INTEGERS = frozenset(
    {
        *(
            "device id",
            "context id",
            "stream id",
            "correlation",
            "priority",
            "queued",
            "channel",
            "channel_type",
        ),
        *("graph id", "graph node id", "bytes", "value", "memory kind", "External id"),
        *(ELEMENTS_IN, ELEMENTS_OUT, GROUP_SIZE, NUMBER_IN_GROUP, SENDER, RECEIVER, PEER),
        *("Global rank start", "Global rank stride"),
    }
)
"""Data of stages that are numbers in JSON; all are texts here, and the name of a group can be one of digits."""
LAUNCH_NAMES = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "shared memory"}
"""Names in JSON of what PyTorch calls otherwise here."""

Members = list[tuple[str, Any]]


class _TooDeepError(ValueError):
    """A value is nested too deeply."""


class TrackEventPayloads(Struct, frozen=True):
    """The arguments of all packets of a file by number; empty for packets that are no events."""

    source: Source
    starts: Sequence[BatchStart]
    packets: Int64s
    """The numbers of packets that are events, in ascending order."""
    states: Int32s
    """Their states."""
    texts: dict[Named, str]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of arguments."""
        low = bisect_right(self.starts, first, key=lambda start: start.first) - 1
        high = (
            len(self.starts)
            if last is None
            else bisect_left(self.starts, last, key=lambda start: start.first)
        )
        for number, batch in read_again(self.source, self.starts[max(low, 0) : high]):
            begin, end = max(first - number, 0), len(batch.begins)
            end = end if last is None else min(last - number, end)
            if begin < end:
                texts = Annotations(batch.data, self.texts)
                yield number + begin, self._run(texts, batch, number, begin, end)

    def _run(self, texts: Annotations, batch: Batch, number: int, low: int, high: int) -> list[Payload]:
        """The arguments of the packets from `low` to `high` of a batch, whose first packet has this number."""
        run: list[Payload] = [b""] * (high - low)
        begin, end = np.searchsorted(self.packets, [number + low, number + high]).tolist()
        for packet, state in zip(
            self.packets[begin:end].tolist(), self.states[begin:end].tolist(), strict=True
        ):
            place = packet - number
            run[place - low] = texts.of_packet(batch.begins[place], batch.ends[place], state)
        return run


class Annotations(Struct, frozen=True):
    """The values in the packets of a batch."""

    data: bytes
    texts: dict[Named, str]

    def of_packet(self, begin: int, end: int, state: int) -> bytes:
        """The arguments of an event as a JSON object; empty if it has none."""
        try:
            members = self.members(begin, end, state)
            return orjson.dumps(encodable_members(members)) if members else b""
        except (_TooDeepError, RecursionError, TypeError, ValueError):
            return OMITTED

    def arguments(self, number: int, begin: int, end: int, state: int) -> dict[str, Any]:
        """The arguments of the event or stage in this field of a packet; none if they are too large."""
        message = Field(number, DELIMITED, begin, end, end - begin)
        try:
            members = (
                self._of_stage(message, state)
                if number == Packet.GPU_STAGE
                else self._of_event(message, state)
            )
        except (_TooDeepError, RecursionError):
            return {}
        return dict(members)

    def members(self, begin: int, end: int, state: int) -> Members:
        """Names and values."""
        for field in fields_of(self.data, begin, end):
            if field and field.wire == DELIMITED and field.number == Packet.TRACK_EVENT:
                return self._of_event(field, state)
            if field and field.wire == DELIMITED and field.number == Packet.GPU_STAGE:
                return self._of_stage(field, state)
        return []

    def _of_event(self, event: Field, state: int) -> Members:
        if event.end - event.begin > LONGEST:
            raise _TooDeepError
        return [
            self._named(field, state, 0)
            for field in fields_of(self.data, event.begin, event.end)
            if field and (field.number, field.wire) == (Event.ANNOTATION, DELIMITED)
        ]

    def _named(self, annotation: Field, state: int, depth: int) -> tuple[str, Any]:
        """The name of an annotation and its value."""
        if depth > DEEPEST:
            raise _TooDeepError
        name, value = "", None
        entries: dict[str, Any] | None = None
        values: list[Any] | None = None
        for field in fields_of(self.data, annotation.begin, annotation.end):
            if field is None:
                break
            match field.number:
                case Annotation.NAME_TEXT:
                    name = self._text(field)
                case Annotation.NAME:
                    name = self.texts.get((TextTable.ANNOTATION_NAMES, state, field.value), f"#{field.value}")
                case Annotation.ENTRIES:
                    entries = {} if entries is None else entries
                    key, inner = self._named(field, state, depth + 1)
                    entries[key] = inner
                case Annotation.VALUES:
                    values = [] if values is None else values
                    values.append(self._named(field, state, depth + 1)[1])
                case _:
                    found = self._value(field, state)
                    value = value if found is None else found
        return name, entries if entries is not None else values if values is not None else value

    def _value(self, field: Field, state: int) -> Any:
        match field.number, field.wire:
            case Annotation.INTEGER, 0:
                return field.value
            case Annotation.STRING, 2:
                return self._text(field)
            case Annotation.UNSIGNED, 0:
                return field.value & (1 << 64) - 1
            case Annotation.BOOL, 0:
                return bool(field.value)
            case Annotation.DOUBLE, 1:
                (number,) = struct.unpack_from("<d", self.data, field.begin)
                return number if math.isfinite(number) else str(number)
            case Annotation.STRING_NUMBER, 0:
                return self.texts.get((TextTable.STRINGS, state, field.value), f"#{field.value}")
            case Annotation.POINTER, 0:
                return hex(field.value & (1 << 64) - 1)
            case Annotation.JSON, 2:
                return self._json(field)
            case Annotation.NESTED, 2:
                return self._nested(field, 0)
        return None

    def _json(self, field: Field) -> Any:
        try:
            return orjson.loads(self.data[field.begin : field.end])
        except orjson.JSONDecodeError:
            return self._text(field)

    def _nested(self, nested: Field, depth: int) -> Any:
        """A value in the form before 2021: keys and values of a dict are in fields of their own."""
        if depth > DEEPEST:
            raise _TooDeepError
        keys: list[str] = []
        values: list[Any] = []
        items: list[Any] = []
        kind = 0
        leaf: Any = None
        for field in fields_of(self.data, nested.begin, nested.end):
            match field:
                case None:
                    break
                case Field(1, 0):
                    kind = field.value
                case Field(2, 2):
                    keys.append(self._text(field))
                case Field(3, 2):
                    values.append(self._nested(field, depth + 1))
                case Field(4, 2):
                    items.append(self._nested(field, depth + 1))
                case Field(5, 0):
                    leaf = field.value
                case Field(6, 1):
                    (leaf,) = struct.unpack_from("<d", self.data, field.begin)
                case Field(7, 0):
                    leaf = bool(field.value)
                case Field(8, 2):
                    leaf = self._text(field)
        if kind == 1 or keys:
            return dict(zip(keys, values, strict=False))
        return items if kind == 2 or items else leaf

    def _text(self, field: Field) -> str:
        return self.data[field.begin : field.end].decode(errors="replace") if field.wire == DELIMITED else ""

    # Stages on GPUs

    def _of_stage(self, stage: Field, state: int) -> Members:
        members: Members = []
        for field in fields_of(self.data, stage.begin, stage.end):
            if not field or field.wire != DELIMITED:
                continue
            if field.number == Stage.EXTRA:
                members.append(self._extra(field))
            elif field.number == Stage.LAUNCH:
                members += self._launch(field, state)
        return members

    def _extra(self, extra: Field) -> tuple[str, Any]:
        name = value = ""
        for field in fields_of(self.data, extra.begin, extra.end):
            if field and field.number == 1:
                name = self._text(field)
            elif field and field.number == 2:
                value = self._text(field)
        return STAGE_NAMES.get(name, name), int(value) if name in INTEGERS and _is_number(value) else value

    def _launch(self, launch: Field, state: int) -> Members:
        """Sizes of the grid and of a block, and other parameters."""
        members: Members = []
        for field in fields_of(self.data, launch.begin, launch.end):
            if not field or field.wire != DELIMITED:
                continue
            if field.number in (1, 2):
                sizes = {
                    size.number: size.value
                    for size in fields_of(self.data, field.begin, field.end)
                    if size and size.wire == VARINT
                }
                members.append(
                    ("grid" if field.number == 1 else "block", [sizes.get(axis, 0) for axis in (1, 2, 3)])
                )
            elif field.number == 3:
                members.append(self._parameter(field, state))
        return members

    def _parameter(self, parameter: Field, state: int) -> tuple[str, Any]:
        name = ""
        value: Any = None
        for field in fields_of(self.data, parameter.begin, parameter.end):
            match field:
                case Field(1, 0):
                    name = self.texts.get((TextTable.ARGUMENTS, state, field.value), f"#{field.value}")
                case Field(2, 2):
                    name = self._text(field)
                case Field(3 | 4, 0):
                    value = field.value
                case Field(5, 1):
                    (value,) = struct.unpack_from("<d", self.data, field.begin)
                case Field(6, 2):
                    value = self._text(field)
                case Field(7, 0):
                    value = self.texts.get((TextTable.STRINGS, state, field.value), f"#{field.value}")
        return LAUNCH_NAMES.get(name, name), value


def encodable_members(members: Members) -> dict[str, Any]:
    """A JSON object; of several members of one name the last one counts."""
    return {
        name: encodable(value) if isinstance(value, (str, list, dict)) else value for name, value in members
    }


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 18
