"""JSON objects as arguments of native events.

Viewers take lists apart and omit empty values, so both become strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tracelink.converters.perfetto.json_text import encoded, loadable
from tracelink.converters.perfetto.native.packets import InternTables
from tracelink.converters.perfetto.native.schema import Argument, Event, Table
from tracelink.io.framing import DELIMITED, VARINT, key, varint
from tracelink.model.trace import Payload

SEPARATOR = b"\0"


ESCAPED_CHARACTER = b"\\u"
"""The start of a character that is written as a number."""


LIST_DEPTH = 6
"""Lists nested deeper than this stay lists, as do lists that contain objects."""


STRING = rb'"(?>[^"\\]|\\.)*+"'


def _rest_of_list(depth: int) -> bytes:
    """A pattern for the rest of a list, with lists nested to this depth."""
    inner = rb"|\[" + _rest_of_list(depth - 1) if depth else b""
    return rb'(?>[^][{}"]|%s%s)*+\]' % (STRING, inner)


def _pattern(mark: bytes, rest: bytes) -> re.Pattern[bytes]:
    """A member with such a value; it cannot match within a string, where quotes are escaped."""
    return re.compile(re.escape(mark) + rb"(?<!\\" + re.escape(mark) + b")" + rest)


SHOWN_AS_STRING = {
    value: {colon + value: _pattern(colon + value, rest) for colon in (b'": ', b'":')}
    for value, rest in ((b"[", _rest_of_list(LIST_DEPTH)), (b"null", b""), (b"{}", b""))
}
"""Members with such values, by a prefix that is found fast."""


SPACE_AFTER = {b"[": b'] "', b"null": b'null "', b"{}": b'{} "'}


MARKED = re.compile(rb'": ?+"(?:\[(?>[^"\\]|\\.)*?\]|null|\{\}) ++"')
"""A member that became a string: the space at its end marks it; a string that already ended so has one more."""


EMPTY = len(b"{}")


NULL = b"null"
"""Some engines crash if it is a whole argument."""


def arguments(interned: InternTables, name: str, payloads: Sequence[Payload]) -> list[bytes]:
    """For each object a field that contains it as an argument of this name; empty for empty objects."""
    number = key(Argument.NAME, VARINT) + varint(interned.number(Table.ARGUMENT_NAMES, name))
    objects = for_viewers(payloads)
    lengths = list(map(len, objects))
    heads = {length: _head(number, length) for length in set(lengths)}
    return [
        heads[length] + text if length > EMPTY and text != NULL else b""
        for text, length in zip(objects, lengths, strict=True)
    ]


def _head(number: bytes, length: int) -> bytes:
    """Everything before a JSON text of this length."""
    inner = number + key(Argument.JSON, DELIMITED) + varint(length)
    return key(Event.ARGUMENT, DELIMITED) + varint(len(inner) + length) + inner


def for_viewers(payloads: Sequence[Payload]) -> list[bytes]:
    """These objects in the form for viewers; other JSON values stay unchanged."""
    whole = SEPARATOR.join(payloads)
    texts = _separately(_as_strings(whole), payloads, _as_strings)
    return (
        texts
        if ESCAPED_CHARACTER not in whole
        else [_unescaped(text) if ESCAPED_CHARACTER in text else text for text in texts]
    )


def as_recorded(payloads: Sequence[Payload]) -> list[bytes]:
    """The inverse of `for_viewers`."""
    return _separately(_without_marks(SEPARATOR.join(payloads)), payloads, _without_marks)


def _separately(changed: bytes, payloads: Sequence[Payload], change: Callable[[bytes], bytes]) -> list[bytes]:
    """The changed texts; if one of them contains the separator, each is changed on its own."""
    texts = changed.split(SEPARATOR) if payloads else []
    return texts if len(texts) == len(payloads) else [change(bytes(text)) for text in payloads]


def _without_marks(text: bytes) -> bytes:
    return MARKED.sub(_unmarked, text)


def _as_strings(text: bytes) -> bytes:
    known: dict[bytes, bytes] = {}

    def quoted(match: re.Match[bytes]) -> bytes:
        member = match[0]
        made = known.get(member)
        if made is None:
            before, colon, value = member.partition(b": " if member[2:3] == b" " else b":")
            escaped = value.replace(b"\\", rb"\\").replace(b'"', rb"\"")
            made = known[member] = b'%s%s"%s "' % (before, colon, escaped)
        return made

    text = loadable(text)
    there = [value for value in SHOWN_AS_STRING if value in text]
    if any(SPACE_AFTER[value] in text for value in there):
        text = MARKED.sub(lambda match: match[0][:-1] + b' "', text)
    for mark, pattern in (pair for value in there for pair in SHOWN_AS_STRING[value].items()):
        if mark in text:
            text = pattern.sub(quoted, text)
    return text


def _unmarked(match: re.Match[bytes]) -> bytes:
    if match[0].endswith(b'  "'):
        return match[0][:-2] + b'"'
    before, quote, value = match[0][1:].partition(b'"')
    return quote + before + re.sub(rb"\\(.)", rb"\1", value[:-2])


def _unescaped(text: bytes) -> bytes:
    """The JSON with characters instead of their numbers, which some engines would show literally."""
    try:
        return encoded(json.loads(text))
    except (ValueError, RecursionError):
        return text
