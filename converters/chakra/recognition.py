"""Is it .et, is it its JSON; the readers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelink.engine import Engine
    from tracelink.io.sources import Source
    from tracelink.model.trace import RankTrace


# Whether bytes are an `.et` file, which has no mark of its own: whether its first messages are what they must be.


LENGTH_BYTES = 5
"""Readers take lengths of 32 bits."""
MOST = 512 << 20
"""A longer message is none: a small compressed file must not be able to ask for all memory."""

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}

VERSION, ATTRIBUTE = 1, 2
"""The fields of the first message."""
NAME, TYPE = 2, 3
NODE_FIELDS = {1: {VARINT}, NAME: {DELIMITED}, TYPE: {VARINT}, 4: {VARINT, DELIMITED}, 5: {VARINT, DELIMITED}}
NODE_FIELDS |= {6: {VARINT}, 7: {VARINT}, 8: {DELIMITED}, 9: {DELIMITED}, 10: {DELIMITED}}
TYPES = range(1, 8)
LAST_KIND = 32
LOOKED_AT = 4
"""Nodes that are looked at."""

JSON_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"metadata"\s*:\s*\{')
JSON_NODES = re.compile(rb'"nodes"\s*:\s*\[\s*\{')
JSON_NODE = re.compile(rb'"type"\s*:\s*"[A-Z_]+_NODE"|"@wire"\s*:\s*"')


class _NoMessageError(Exception):
    """The bytes are not what a message would be."""


class _CutError(Exception):
    """The bytes that are there end within a message."""


@dataclass(frozen=True, slots=True)
class _Field:
    number: int
    wire: int
    value: int
    body: bytes


def is_chakra(head: bytes) -> bool:
    """Metadata of nothing but a version and attributes, then nodes with names and types."""
    try:
        metadata, place = _message(head, 0)
        told = _is_metadata(metadata)
        return _are_nodes(head, place, told)
    except (_NoMessageError, _CutError):
        return False


def is_node_list(head: bytes) -> bool:
    """An object of metadata and nodes, the first of which has a type of this format."""
    if not JSON_START.match(head) or not (nodes := JSON_NODES.search(head)):
        return False
    return bool(JSON_NODE.search(head, nodes.end()))


def _are_nodes(head: bytes, place: int, told: bool) -> bool:
    """Whether nodes follow; metadata that tell something can also stand alone, or before a cut."""
    seen = False
    for _ in range(LOOKED_AT):
        if place == len(head):
            break
        try:
            body, place = _message(head, place)
        except _CutError:
            break
        if body:
            _check_node(body)
            seen = True
    return seen or told


def _is_metadata(body: bytes) -> bool:
    """Whether the first message has attributes; raises what shows that it is none."""
    told = False
    for field in _fields(body):
        if field.wire != DELIMITED or field.number not in (VERSION, ATTRIBUTE):
            raise _NoMessageError
        if field.number == VERSION:
            _text(field.body)
        else:
            _check_attribute(field.body)
            told = True
    return told


def _check_attribute(body: bytes) -> None:
    named = False
    for field in _fields(body):
        if not 1 <= field.number <= LAST_KIND:
            raise _NoMessageError
        if field.number == 1:
            named = bool(_text(field.body)) and field.wire == DELIMITED
    if not named:
        raise _NoMessageError


def _check_node(body: bytes) -> None:
    named = typed = False
    for field in _fields(body):
        if field.wire not in NODE_FIELDS.get(field.number, ()):
            raise _NoMessageError
        if field.number == NAME:
            named = bool(_text(field.body))
        elif field.number == TYPE:
            typed = field.value in TYPES
        elif field.number == max(NODE_FIELDS):
            _check_attribute(field.body)
    if not (named and typed):
        raise _NoMessageError


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _NoMessageError from error


def _message(head: bytes, place: int) -> tuple[bytes, int]:
    """The message at a place, and where the next one begins."""
    length, begin = _varint(head, place, LENGTH_BYTES)
    if length > MOST:
        raise _NoMessageError
    if begin + length > len(head):
        raise _CutError
    return head[begin : begin + length], begin + length


def _fields(body: bytes) -> Iterator[_Field]:
    place = 0
    while place < len(body):
        try:
            key, place = _varint(body, place, LENGTH_BYTES)
            number, wire, value, inside = key >> 3, key & 7, 0, b""
            if wire == VARINT:
                value, place = _varint(body, place)
            elif wire == DELIMITED:
                inside, place = _message(body, place)
            elif wire in WIDTHS and place + WIDTHS[wire] <= len(body):
                place += WIDTHS[wire]
            else:
                raise _NoMessageError
        except _CutError as error:
            raise _NoMessageError from error
        yield _Field(number, wire, value, inside)


def _varint(body: bytes, place: int, longest: int = 10) -> tuple[int, int]:
    number = 0
    for width in range(longest):
        if place + width >= len(body):
            raise _CutError
        byte = body[place + width]
        number |= (byte & 0x7F) << 7 * width
        if byte < 0x80:
            return number, place + width + 1
    raise _NoMessageError


# The readers of Chakra traces; what they need to read is imported when they do, for every file is shown to them.


class ChakraReader:
    """Reads the `.et` files that simulators load, whoever wrote them."""

    name = "chakra"
    summary = "Chakra traces (protobuf), of tracelink, chakra_converter and others: .et, .et.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """Messages behind their lengths: metadata, then nodes."""
        return is_chakra(head)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        from tracelink.converters.chakra.read import read_messages

        return read_messages(source, self.name, engine)


class ChakraNodesReader:
    """Reads the JSON that `tracelink convert` makes of an `.et` file."""

    name = "chakra-nodes"
    summary = "the JSON that `tracelink convert` makes of an .et file: .json, .json.gz"

    def recognises(self, head: bytes, name: str) -> bool:
        """An object of metadata and nodes with Chakra's types."""
        return is_node_list(head)

    def read(self, source: Source, engine: Engine) -> RankTrace:
        """One event for each node."""
        from tracelink.converters.chakra.read import read_node_list

        return read_node_list(source, self.name, engine)
