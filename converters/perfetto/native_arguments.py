"""JSON objects as arguments of native events.

Viewers take lists apart and omit empty values, so both become strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from msgspec import Struct

from tracelink._io.framing import DELIMITED, VARINT, key, varint
from tracelink._model.columns import Int64s
from tracelink._model.trace import Payload
from tracelink.converters.perfetto.facts import encoded, loadable
from tracelink.converters.perfetto.native_packets import InternTables
from tracelink.converters.perfetto.packets.schema import Annotation, Event, TextTable

SEPARATOR = b"\0"


BACKSLASH = b"\\"
ESCAPED_CHARACTER = b"\\u"
"""The start of a character that is written as a number."""


LIST_DEPTH = 6
"""Lists nested deeper than this stay lists, as do lists that contain objects."""


STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


def _rest_of_list(depth: int) -> bytes:
    """A pattern for the rest of a list, with lists nested to this depth."""
    inner = rb"|\[" + _rest_of_list(depth - 1) if depth else b""
    return rb'(?>[^][{}"]++|%s%s)*+\]' % (STRING, inner)


LISTS = [
    re.compile(re.escape(mark) + rb"(?<!\\" + re.escape(mark) + b")" + _rest_of_list(LIST_DEPTH))
    for mark in (b'": [', b'":[')
]
"""Members with a list; they cannot match within a string, where quotes are escaped."""

BEFORE_LIST = len(b'\\": ')
"""Bytes before the bracket of a list that decide whether it is the value of a member."""

NOTHING = {
    value: re.compile(
        re.escape(value)
        + b"(?:%s)"
        % b"|".join(
            rb"(?<=%s)(?<!\\%s)" % (before, before)
            for before in (b'": ' + re.escape(value), b'":' + re.escape(value))
        )
    )
    for value in (b"null", b"{}")
}
"""Members without a value: a search for the value is faster than one for a key before it."""

SPACE_AFTER = {value: re.compile(re.escape(value) + b" ") for value in NOTHING}


LONGEST_KNOWN = 1 << 11
"""Longer lists are not remembered."""


MARKED = re.compile(rb'": ?+"(?:\[(?>[^"\\]|\\.)*?\]|null|\{\}) ++"')
"""A member that became a string: the space at its end marks it; a string that already ended so has one more."""


EMPTY = len(b"{}")


NULL = b"null"
"""Some engines crash if it is a whole argument."""

_LONGEST_EMPTY = 32
"""More than the bytes of an empty object or `null` with its head."""


def arguments(interned: InternTables, name: str, payloads: Sequence[Payload]) -> list[bytes]:
    """For each object a field that contains it as an argument of this name; empty for empty objects."""
    heads, texts, _ = argument_columns(interned, name, payloads)
    return [head + text for head, text in zip(heads, texts, strict=True)]


def argument_columns(
    interned: InternTables, name: str, payloads: Sequence[Payload]
) -> tuple[list[bytes], list[bytes], Int64s]:
    """The same as two parts, the second of which is the object, and the length of both."""
    number = key(Annotation.NAME, VARINT) + varint(interned.number(TextTable.ANNOTATION_NAMES, name))
    texts = for_viewers(payloads)
    lengths = list(map(len, texts))
    distinct = {length: _head(number, length) for length in set(lengths)}
    heads = list(map(distinct.__getitem__, lengths))
    total = np.array(lengths, np.int64) + np.fromiter(map(len, heads), np.int64, len(heads))
    for index in np.flatnonzero(total <= _LONGEST_EMPTY).tolist():
        if lengths[index] <= EMPTY or texts[index] == NULL:
            heads[index] = texts[index] = b""
            total[index] = 0
    return heads, texts, total


def _head(number: bytes, length: int) -> bytes:
    """Everything before a JSON text of this length."""
    inner = number + key(Annotation.JSON, DELIMITED) + varint(length)
    return key(Event.ANNOTATION, DELIMITED) + varint(len(inner) + length) + inner


def for_viewers(payloads: Sequence[Payload]) -> list[bytes]:
    """These objects in the form for viewers; other JSON values stay unchanged."""
    whole = SEPARATOR.join(payloads)
    texts = _separately(_as_strings(whole), payloads, _as_strings)
    if BACKSLASH not in whole or ESCAPED_CHARACTER not in whole:
        return texts
    return [_unescaped(text) if ESCAPED_CHARACTER in text else text for text in texts]


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
    text = loadable(text)
    brackets = _brackets(text)
    there = [value for value in NOTHING if re.search(re.escape(value), text)]
    if (brackets.before_space and len(brackets.opening)) or any(
        SPACE_AFTER[value].search(text) for value in there
    ):
        text = MARKED.sub(lambda match: match[0][:-1] + b' "', text)
        brackets = _brackets(text)
    if len(brackets.opening):
        text = _lists_as_strings(text, brackets)
    for value in there:
        text = NOTHING[value].sub(b'"%s "' % value, text)
    return text


class _Brackets(Struct, frozen=True):
    """Offsets of the brackets in a text, and whether a string can end with the mark of a list."""

    opening: Int64s
    closing: Int64s
    separators: Int64s
    before_space: bool


def _brackets(text: bytes) -> _Brackets:
    characters = np.frombuffer(text, np.uint8)
    opening, closing, separators = (np.flatnonzero(characters == character) for character in b"[]\0")
    before_space = characters[closing[closing < len(text) - 1] + 1] == ord(" ")
    return _Brackets(opening, closing, separators, bool(before_space.any()))


def _lists_as_strings(text: bytes, brackets: _Brackets) -> bytes:
    """Of each object only the text from its first list to its last is searched, and once if it recurs: few differ."""
    ends = np.append(brackets.separators, len(text))
    begins = np.append(0, ends[:-1])
    first = np.append(brackets.opening, len(text))[np.searchsorted(brackets.opening, begins)]
    last = np.append(brackets.closing, -1)[np.searchsorted(brackets.closing, ends) - 1]
    some = (first < last) & (last < ends)
    lows = np.maximum(begins, first - BEFORE_LIST)[some].tolist()
    highs = (last[some] + 1).tolist()
    parts = [b""] * (2 * len(lows) + 1)
    parts[0::2] = [text[low:high] for low, high in zip([0, *highs], [*lows, len(text)], strict=True)]
    lists = [text[low:high] for low, high in zip(lows, highs, strict=True)]
    parts[1::2] = [
        _known_lists(some) if len(some) <= LONGEST_KNOWN else _quoted_lists(some) for some in lists
    ]
    return b"".join(parts)


def _quoted_lists(text: bytes) -> bytes:
    for pattern in LISTS:
        text = pattern.sub(_quoted, text)
    return text


_known_lists = lru_cache(1 << 12)(_quoted_lists)


def _quoted(match: re.Match[bytes]) -> bytes:
    """A member with its value as a string."""
    member = match[0]
    before, colon, value = member.partition(b": " if member[2:3] == b" " else b":")
    escaped = value.replace(b"\\", rb"\\").replace(b'"', rb"\"")
    return b'%s%s"%s "' % (before, colon, escaped)


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
