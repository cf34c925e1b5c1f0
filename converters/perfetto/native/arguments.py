"""JSON objects as arguments of native events, in the form that viewers show well."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from tracelink.converters.perfetto.json_text import encoded, loadable
from tracelink.converters.perfetto.native.packets import Texts
from tracelink.converters.perfetto.native.schema import Argument, Event, Table
from tracelink.io.framing import DELIMITED, VARINT, key, varint
from tracelink.model.trace import Payload

BETWEEN = b"\0"


NUMBERED = b"\\u"
"""How a character begins that is written as its number."""


DEPTH = 6
"""Lists that lie deeper within others stay lists, as do those of objects."""


STRING = rb'"(?>[^"\\]|\\.)*+"'


def _rest_of_list(depth: int) -> bytes:
    """What stands behind the bracket of a list that has so many lists within each other."""
    inner = rb"|\[" + _rest_of_list(depth - 1) if depth else b""
    return rb'(?>[^][{}"]|%s%s)*+\]' % (STRING, inner)


def _pattern(mark: bytes, rest: bytes) -> re.Pattern[bytes]:
    """A member that begins so. No text has a quote and a colon like these in it: a quote within a text is escaped."""
    return re.compile(re.escape(mark) + rb"(?<!\\" + re.escape(mark) + b")" + rest)


SHOWN_AS_TEXT = {
    value: {colon + value: _pattern(colon + value, rest) for colon in (b'": ', b'":')}
    for value, rest in ((b"[", _rest_of_list(DEPTH)), (b"null", b""), (b"{}", b""))
}
"""Members with such values: first what is found fast."""


BLANK_BEHIND = {b"[": b'] "', b"null": b'null "', b"{}": b'{} "'}


MARKED = re.compile(rb'": ?+"(?:\[(?>[^"\\]|\\.)*?\]|null|\{\}) ++"')
"""The same as a text: a blank at its end tells it from what was one in its source, which has one more if it had any."""


EMPTY = len(b"{}")


NULL = b"null"
"""Engines that get it as a whole argument end."""


def arguments(texts: Texts, name: str, payloads: Sequence[Payload]) -> list[bytes]:
    """For each object a field that holds an argument of this name, or nothing where it is empty."""
    number = key(Argument.NAME, VARINT) + varint(texts.number(Table.ARGUMENT_NAMES, name))
    objects = readable(payloads)
    lengths = list(map(len, objects))
    heads = {length: _head(number, length) for length in set(lengths)}
    return [
        heads[length] + text if length > EMPTY and text != NULL else b""
        for text, length in zip(objects, lengths, strict=True)
    ]


def _head(number: bytes, length: int) -> bytes:
    """What stands before a text of this length."""
    inner = number + key(Argument.JSON, DELIMITED) + varint(length)
    return key(Event.ARGUMENT, DELIMITED) + varint(len(inner) + length) + inner


def readable(payloads: Sequence[Payload]) -> list[bytes]:
    """These objects for viewers; what is no object stays as it is."""
    whole = BETWEEN.join(payloads)
    texts = _apart(_shown(whole), payloads, _shown)
    return (
        texts if NUMBERED not in whole else [_unescaped(text) if NUMBERED in text else text for text in texts]
    )


def as_recorded(payloads: Sequence[Payload]) -> list[bytes]:
    """What `readable` was given."""
    return _apart(_recorded(BETWEEN.join(payloads)), payloads, _recorded)


def _apart(changed: bytes, payloads: Sequence[Payload], change: Callable[[bytes], bytes]) -> list[bytes]:
    """The texts, all of which were changed together; one by one where one of them holds what stands between them."""
    texts = changed.split(BETWEEN) if payloads else []
    return texts if len(texts) == len(payloads) else [change(bytes(text)) for text in payloads]


def _recorded(text: bytes) -> bytes:
    return MARKED.sub(_plain, text)


def _shown(text: bytes) -> bytes:
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
    there = [value for value in SHOWN_AS_TEXT if value in text]
    if any(BLANK_BEHIND[value] in text for value in there):
        text = MARKED.sub(lambda match: match[0][:-1] + b' "', text)
    for mark, pattern in (pair for value in there for pair in SHOWN_AS_TEXT[value].items()):
        if mark in text:
            text = pattern.sub(quoted, text)
    return text


def _plain(match: re.Match[bytes]) -> bytes:
    if match[0].endswith(b'  "'):
        return match[0][:-2] + b'"'
    before, quote, value = match[0][1:].partition(b'"')
    return quote + before + re.sub(rb"\\(.)", rb"\1", value[:-2])


def _unescaped(text: bytes) -> bytes:
    """The text with characters instead of their numbers, which some engines would show."""
    try:
        return encoded(json.loads(text))
    except (ValueError, RecursionError):
        return text
