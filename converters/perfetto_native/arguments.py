"""JSON objects as arguments of events: those with the same members at once, a member of all of them at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from tracelink.converters.perfetto.text import loadable
from tracelink.converters.perfetto_native.interning import Texts
from tracelink.converters.perfetto_native.rows import Rows
from tracelink.converters.perfetto_native.schema import Argument, Event, Table
from tracelink.events import Int64s
from tracelink.trace import Payload
from tracelink.wire import FIXED64, VARINT, delimited, key, varint

CHUNK = 4096
SIGNED = 1 << 63

Object = dict[str, Any]

_decode = msgspec.json.Decoder(Object).decode
_compact = msgspec.json.Encoder().encode


def decoded(payload: Payload) -> Object:
    """The members of an object; none where there is no text."""
    if not len(payload):
        return {}
    try:
        return _decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decode(loadable(bytes(payload)))


class Arguments:
    """Turns objects into arguments; what they name by number stands in `texts`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._jsons: dict[bytes, int] = {}

    def of_payloads(self, name: str, payloads: Sequence[Payload]) -> list[bytes]:
        """An argument of this name for each JSON text, or nothing where the object is empty."""
        made: list[bytes] = []
        for at in range(0, len(payloads), CHUNK):
            made += self._many(Event.ARGUMENT, name, list(map(decoded, payloads[at : at + CHUNK])))
        return made

    def _many(self, number: int, name: str, objects: Sequence[Object]) -> list[bytes]:
        """For each object, a field of this number that holds an argument of this name."""
        shapes: dict[tuple[str, ...], list[int]] = {}
        for index, members in enumerate(objects):
            shapes.setdefault(tuple(members), []).append(index)
        made = [b""] * len(objects)
        for names, places in shapes.items():
            rows = [list(objects[index].values()) for index in places]
            self._of_shape(number, name, names, places, rows, made)
        return made

    def _of_shape(
        self,
        number: int,
        name: str,
        names: tuple[str, ...],
        places: list[int],
        rows: list[list[Any]],
        made: list[bytes],
    ) -> None:
        """Fills in the places of objects that have members of the same names."""
        columns = list(zip(*rows, strict=True))
        for column in columns:
            if len(types := set(map(type, column))) > 1:
                for kind in types:
                    some = [index for index, value in enumerate(column) if type(value) is kind]
                    chosen = [places[index] for index in some]
                    self._of_shape(number, name, names, chosen, [rows[index] for index in some], made)
                return
        members = [self._members(text, column) for text, column in zip(names, columns, strict=True)]
        for index, text in zip(places, self._wrapped(number, name, len(places), members), strict=True):
            made[index] = text

    def _wrapped(
        self, number: int, name: str, count: int, members: Sequence[Rows | list[bytes]]
    ) -> list[bytes]:
        if not members and number == Event.ARGUMENT:
            return [b""] * count
        head = self._name(name)
        whole = Rows(count)
        if all(isinstance(member, Rows) for member in members):
            inner = Rows(count)
            inner.constant(head)
            for member in members:
                assert isinstance(member, Rows)
                inner.message(Argument.MEMBER, member)
            whole.message(number, inner)
            return whole.each()
        parts = [self._fields(member) for member in members]
        return [delimited(number, head + b"".join(texts)) for texts in zip(*parts, strict=True)]

    def _fields(self, member: Rows | list[bytes]) -> list[bytes]:
        if isinstance(member, list):
            return member
        whole = Rows(member.count)
        whole.message(Argument.MEMBER, member)
        return whole.each()

    def _members(self, name: str, column: Sequence[Any]) -> Rows | list[bytes]:
        """A member of all objects, whose values are of one type: without what stands before it, or whole."""
        kind = type(column[0])
        if kind is dict and all(column):
            return self._many(Argument.MEMBER, name, column)
        rows = Rows(len(column))
        rows.constant(self._name(name))
        if kind is float:
            rows.words(key(Argument.DOUBLE, FIXED64), np.array(column, np.float64))
        elif kind is bool:
            rows.numbers(key(Argument.BOOLEAN, VARINT), np.array(column, np.int64))
        elif kind is str:
            rows.numbers(key(Argument.TEXT_NUMBER, VARINT), _numbers(map(self._texts.argument, column)))
        elif kind is int and min(column) >= -SIGNED and max(column) < SIGNED:
            rows.numbers(key(Argument.INTEGER, VARINT), np.array(column, np.int64))
        else:
            rows.numbers(key(Argument.TEXT_NUMBER, VARINT), _numbers(map(self._json, column)))
        return rows

    def _name(self, text: str) -> bytes:
        number = self._texts.number(Table.ARGUMENT_NAMES, text)
        return key(Argument.NAME, VARINT) + varint(number)

    def _json(self, value: Any) -> int:
        """The number of what no argument can hold, or nobody could read: lists, what is empty, very large numbers."""
        text = _compact(value)
        number = self._jsons.get(text)
        if number is None:
            number = self._jsons[text] = self._texts.json(json.dumps(value, ensure_ascii=False))
        return number


def _numbers(numbers: Iterable[int]) -> Int64s:
    return np.fromiter(numbers, np.int64)
