"""Shapes of entries in pickles of snapshots: patterns that match a whole entry with known keys in one order."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from tracelink._model.columns import UNKNOWN
from tracelink.converters.memory_snapshot import schema

MOST_PAIRS = 16

GET = rb"(?:h.|j.{4})"
_PUT = rb"(?:q.|r.{4}|\x94)?+"
_NUMBER = rb"(?:K.|M..|J.{4}|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9}))"
_STACK = rb"\](%b)((?:\(%b*+e|%ba)?+)(%b)" % (_PUT, GET, GET, _PUT)
_OTHER = rb"%b|%b|[N\x88\x89]|G.{8}|%b%b\x86(%b)" % (GET, _NUMBER, _NUMBER, _NUMBER, _PUT)
_VALUE = rb"(%b|%b|%b|[N\x88\x89]|G.{8}|%b%b\x86%b)" % (
    GET,
    _NUMBER,
    rb"\]%b(?:\(%b*+e|%ba)?+%b" % (_PUT, GET, GET, _PUT),
    _NUMBER,
    _NUMBER,
    _PUT,
)
KEYS_OF_ENTRY = {
    count: re.compile(rb"\}%b\(" % _PUT + rb"(%b)%b" % (GET, _VALUE) * count + rb"u", re.DOTALL)
    for count in range(3, MOST_PAIRS)
}
"""Entries with so many pairs, each of whose keys is known."""


class Shape(Struct, frozen=True):
    """A pattern of entries with the same keys, and which of its groups hold what."""

    pattern: re.Pattern[bytes]
    action: int
    address: int
    size: int
    time: int
    stack: int
    """0 for what such entries do not have."""
    puts: tuple[tuple[int, bool], ...]
    """Groups with the PUTs of containers, in order, and whether each is of the stack."""


_Value = tuple[bytes, int, bool, tuple[tuple[int, bool], ...]]
"""A pattern, its groups, whether the first of them is the value, and which are PUTs, also of a stack."""

_STACK_VALUE: _Value = (rb"(%b|%b)" % (GET, _STACK), 4, True, ((2, True), (4, True)))
_TEXT_VALUE: _Value = (rb"(%b)" % GET, 1, True, ())
_NUMBER_VALUE: _Value = (rb"(%b)" % _NUMBER, 1, True, ())
_OTHER_VALUE: _Value = (rb"(?:%b)" % _OTHER, 1, False, ((1, False),))
_NUMBERS = (schema.AT, schema.ADDRESS, schema.DEVICE_FREE, schema.SIZE, schema.REQUESTED, schema.TIME)
_VALUES = dict.fromkeys(_NUMBERS, _NUMBER_VALUE)
_VALUES |= {schema.ACTION: _TEXT_VALUE, schema.STATE: _TEXT_VALUE, schema.FRAMES: _STACK_VALUE}


def shape_of(keys: list[bytes], names: list[str]) -> Shape | None:
    """The shape of entries with these keys; None if they are no entries."""
    needed = {schema.ACTION, schema.SIZE} if schema.ACTION in names else {schema.STATE, schema.SIZE}
    if not needed <= set(names) or len(set(names)) < len(names):
        return None
    parts, groups, puts = [rb"\}(%b)\(" % _PUT], 1, [(1, False)]
    found: dict[str, int] = {}
    for key, name in zip(keys, names, strict=True):
        value, count, captured, puts_of_value = _VALUES.get(name, _OTHER_VALUE)
        parts += [re.escape(key), value]
        puts += [(groups + group, is_stack) for group, is_stack in puts_of_value]
        if captured:
            found[name] = groups + 1
        groups += count
    parts.append(rb"u(%b)" % _PUT)
    puts.append((groups + 1, False))
    return Shape(
        re.compile(b"".join(parts), re.DOTALL),
        found.get(schema.ACTION) or found[schema.STATE],
        found.get(schema.AT) or found.get(schema.ADDRESS) or found.get(schema.DEVICE_FREE, 0),
        found.get(schema.REQUESTED) or found[schema.SIZE],
        found.get(schema.TIME, 0),
        found.get(schema.FRAMES, 0),
        tuple(puts),
    )


def number_of(token: bytes) -> int:
    """The value of an integer opcode."""
    if token[:1] == b"\x8a":
        return clipped(int.from_bytes(token[2:], "little", signed=True))
    return int.from_bytes(token[1:], "little", signed=token[:1] == b"J")


def clipped(value: Any) -> int:
    """A number that fits a column; UNKNOWN for all other values."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else UNKNOWN
