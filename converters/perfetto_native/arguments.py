"""JSON objects as arguments of events: those with the same members at once, a member of all of them at a time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tracelink.converters.perfetto.text import loadable
from tracelink.converters.perfetto_native.forms import Form, Member, forms_of, members_of, whole_numbers
from tracelink.converters.perfetto_native.interning import Texts
from tracelink.converters.perfetto_native.rows import Rows
from tracelink.converters.perfetto_native.schema import Argument, Event, Table
from tracelink.trace import Payload
from tracelink.wire import FIXED64, VARINT, delimited, key, varint

FEW = 8
"""Objects of so few a form are looked at one by one."""
SIGNED = 1 << 63


class Kind(IntEnum):
    """How the values of a member are written."""

    BOOLEAN = Argument.BOOLEAN
    INTEGER = Argument.INTEGER
    DOUBLE = Argument.DOUBLE
    OBJECT = Argument.MEMBER
    TEXT = Argument.TEXT_NUMBER
    """By its number; so are lists, what is empty and very large numbers."""


Shape = tuple[tuple[str, Kind], ...]
"""Names and kinds of members."""
Column = npt.NDArray[Any]
"""Numbers, or objects."""
Block = tuple[Sequence[int], Sequence[Column]]
"""Places of objects of one shape, and a column for each member."""


def value_of(text: bytes) -> Any:
    """What a JSON text says."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(loadable(text))


class Arguments:
    """Turns objects into arguments; what they name by number stands in `texts`."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._known: dict[bytes, int] = {}

    def of_payloads(self, name: str, payloads: Sequence[Payload]) -> list[bytes]:
        """An argument of this name for each JSON text, or nothing where the object is empty."""
        blocks: defaultdict[Shape, list[Block]] = defaultdict(list)
        rare: list[tuple[int, Any]] = []
        for form in forms_of(payloads):
            members = members_of(form.texts[0]) if len(form.places) >= FEW else None
            if members is None or not self._add_form(members, form, blocks):
                rare += zip(form.places, map(value_of, form.texts), strict=True)
        self._add_objects(rare, blocks)
        return self._written(Event.ARGUMENT, name, len(payloads), blocks)

    def _add_form(
        self, members: Sequence[Member], form: Form, blocks: defaultdict[Shape, list[Block]]
    ) -> bool:
        """Adds objects of one form; False where they have to be looked at one by one."""
        matrix = np.frombuffer(b"".join(form.texts), np.uint8).reshape(len(form.texts), -1)
        shape, columns = [], []
        for member in members:
            kind, column = self._column(member, matrix[:, member.begin : member.end], form.texts)
            if kind == Kind.OBJECT:
                return False
            shape.append((member.name, kind))
            columns.append(column)
        blocks[tuple(shape)].append((form.places, columns))
        return True

    def _column(
        self, member: Member, digits: npt.NDArray[np.uint8], texts: list[bytes]
    ) -> tuple[Kind, Column]:
        """A member of all objects of a form."""
        begin, end = member.begin, member.end
        first = texts[0][begin:end]
        if member.constant:
            kind, value = self._value(value_of(first))
            return kind, np.full(len(texts), value)
        if first[:1] in b'"[':
            return Kind.TEXT, np.array([self._text(text[begin:end]) for text in texts], np.int64)
        if (whole := whole_numbers(digits)) is not None:
            return Kind.INTEGER, whole
        if first[:1] != b"{" and first.strip(b"-0123456789"):
            return Kind.DOUBLE, np.array([float(text[begin:end]) for text in texts])
        return Kind.OBJECT, digits

    def _add_objects(
        self, objects: Sequence[tuple[int, dict[str, Any]]], blocks: defaultdict[Shape, list[Block]]
    ) -> None:
        """Adds objects one by one."""
        rows: defaultdict[Shape, list[tuple[int, list[Any]]]] = defaultdict(list)
        for place, members in objects:
            pairs = [self._value(value) for value in members.values()]
            shape = tuple(zip(members, (kind for kind, _ in pairs), strict=True))
            rows[shape].append((place, [value for _, value in pairs]))
        for shape, found in rows.items():
            columns = []
            for number, (_, kind) in enumerate(shape):
                column = np.empty(len(found), _type(kind))
                column[:] = [values[number] for _, values in found]
                columns.append(column)
            blocks[shape].append(([place for place, _ in found], columns))

    def _written(
        self, number: int, name: str, count: int, blocks: defaultdict[Shape, list[Block]]
    ) -> list[bytes]:
        """For each object, a field of this number that holds an argument of this name."""
        made = [b""] * count
        for shape, found in blocks.items():
            if not shape:
                continue
            places = [place for block, _ in found for place in block]
            columns = [
                np.concatenate(parts) for parts in zip(*(columns for _, columns in found), strict=True)
            ]
            members = [
                self._members(text, kind, column) for (text, kind), column in zip(shape, columns, strict=True)
            ]
            for place, text in zip(places, self._wrapped(number, name, members), strict=True):
                made[place] = text
        return made

    def _wrapped(self, number: int, name: str, members: Sequence[Rows | list[bytes]]) -> list[bytes]:
        head = self._name(name)
        if all(isinstance(member, Rows) for member in members):
            inner, whole = Rows(), Rows()
            inner.constant(head)
            for member in members:
                assert isinstance(member, Rows)
                inner.message(Argument.MEMBER, member)
            whole.message(number, inner)
            return whole.each()
        parts = [_fields(member) for member in members]
        return [delimited(number, head + b"".join(texts)) for texts in zip(*parts, strict=True)]

    def _members(self, name: str, kind: Kind, column: Column) -> Rows | list[bytes]:
        """A member of all objects: without what stands before it, or whole where it is an object."""
        if kind == Kind.OBJECT:
            blocks: defaultdict[Shape, list[Block]] = defaultdict(list)
            self._add_objects(list(enumerate(column.tolist())), blocks)
            return self._written(Argument.MEMBER, name, len(column), blocks)
        rows = Rows()
        rows.constant(self._name(name))
        if kind == Kind.DOUBLE:
            rows.words(key(kind, FIXED64), column)
        else:
            rows.numbers(key(kind, VARINT), column)
        return rows

    def _value(self, value: Any) -> tuple[Kind, Any]:
        """How a value is written: lists stand as text, which is what people can read."""
        kind = type(value)
        if kind is str:
            return Kind.TEXT, self._texts.argument(value)
        if kind is int and -SIGNED <= value < SIGNED:
            return Kind.INTEGER, value
        if kind is float:
            return Kind.DOUBLE, value
        if kind is bool:
            return Kind.BOOLEAN, int(value)
        if kind is dict and value:
            return Kind.OBJECT, value
        return Kind.TEXT, self._texts.json(json.dumps(value, ensure_ascii=False))

    def _text(self, text: bytes) -> int:
        """The number of a text or a list, as it stands in its source."""
        number = self._known.get(text)
        if number is None:
            _, number = self._value(value_of(text))
            self._known[text] = number
        return number

    def _name(self, text: str) -> bytes:
        number = self._texts.number(Table.ARGUMENT_NAMES, text)
        return key(Argument.NAME, VARINT) + varint(number)


def _fields(member: Rows | list[bytes]) -> list[bytes]:
    if isinstance(member, list):
        return member
    whole = Rows()
    whole.message(Argument.MEMBER, member)
    return whole.each()


def _type(kind: Kind) -> type[Any]:
    if kind == Kind.OBJECT:
        return object
    return np.float64 if kind == Kind.DOUBLE else np.int64
