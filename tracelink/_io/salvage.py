"""Damaged and non-standard JSON: parses what a strict parser refuses, and reports where the damage is."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import Any

from msgspec import Struct, field

from tracelink._model.errors import encodable

PLAIN = json.JSONDecoder(strict=False)
LENIENT = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=Decimal)
"""Accepts control characters, NaN, Infinity and integers of any size; keeps decimal numbers exact."""

SPACE = re.compile(r"[\s\ufeff]*")
ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NAME_START = re.compile(r'"name"\s*:\s*"')
NAME_END = re.compile(
    r'"\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|rf_id|parent|ctrl_deps|inputs)"\s*:|"\s*\}\s*$'
)
"""A quote that is followed by another key of an event or a node, or by the end of the object."""

TRAILING_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|,(?=\s*[}\]])', re.DOTALL)
"""A comma before a closing bracket; strings are matched too, also one without an end, so that commas in them stay."""

CLOSING = re.compile(r"\}\s*\]")
CLOSING_BEFORE_KEY = re.compile(r"\}\s*\]\s*,\s*\"")

WINDOW, NEAR = 32 << 10, 4 << 10
"""Characters of the text that are decoded at once, and those in which most elements end."""
LONGEST_ESCAPE = 12
UNTERMINATED = "Unterminated"
"""The start of the message on a string without an end, which has the position of its start."""

MOST = 1 << 16
"""Elements without a boundary between them are not all in memory at once."""

LONG = 1 << 20
"""An element without an end within this many characters is damaged, not incomplete."""

UNESCAPED_QUOTE = re.compile(r'(?<!\\)"')


class Damage(Struct, frozen=True):
    """A position in the text that does not parse."""

    position: int
    problem: str
    repaired: bool = False


class Salvaged(Struct):
    """Some elements of an array, as far as they could be parsed."""

    elements: list[Any] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    consumed: int = 0
    """Number of bytes of the text that were processed, with those of earlier parts."""
    closed: bool = False
    """True if the array ended; what follows `consumed` is then outside it."""
    unfinished: bool = False
    """True if the last damage is an element truncated by the end of the text."""


def parse_document(data: bytes | bytearray | memoryview) -> Any:
    """Parses one JSON document leniently; raises ValueError if that fails too."""
    text = bytes(data).decode("utf-8", "replace").lstrip("\ufeff")
    for candidate in chain((text,), _repairs(text)):
        try:
            value = PLAIN.decode(candidate)
            return encodable(value) if SURROGATE.search(candidate) else value
        except (ValueError, RecursionError) as error:
            problem = error
    raise ValueError(str(problem))


def parse_elements(
    data: bytes, boundary: re.Pattern[str], *, final: bool, sure: re.Pattern[str] | None = None
) -> Iterator[Salvaged]:
    """Parses elements of an array, from the middle of it, in parts of at most `MOST` elements.

    `boundary` matches between two elements, but may also match between objects inside an element; `sure` matches only
    between elements. Unless `final`, an element that does not end within `data` is left unconsumed.
    """
    yield from _Run(data, boundary, sure or boundary, final).parse()


class _Run:
    def __init__(self, data: bytes, boundary: re.Pattern[str], sure: re.Pattern[str], final: bool) -> None:
        self.text = data.decode("utf-8", "surrogateescape")
        self.ascii = data.isascii()
        self.boundary = boundary
        self.sure = sure
        self.final = final
        self.result = Salvaged()
        self.window, self.window_at = "", 0
        self.counted = (0, 0)
        """A position, and the number of bytes before it: positions are asked for in order."""

    def parse(self) -> Iterator[Salvaged]:
        position = self._skip_space(0)
        while position < len(self.text):
            if len(self.result.elements) >= MOST:
                self.result.consumed = self._bytes_before(position)
                yield self.result
                self.result = Salvaged()
            if self.text[position] == "]":
                self.result.closed = True
                position += 1
                break
            if self.text[position] == ",":
                position = self._skip_space(position + 1)
                continue
            after = self._element(position)
            if after is None:
                break
            position = self._skip_space(after)
        self.result.consumed = self._bytes_before(position)
        yield self.result

    def _element(self, position: int) -> int | None:
        """Parses one element; returns where it ends, or None if more text is needed."""
        try:
            value, end = self._decode(position)
        except (ValueError, RecursionError) as error:
            return self._damaged_element(position, error)
        element = self.text[position:end]
        if not self.ascii and not _is_clean(element):
            value = LENIENT.decode(_clean(element))
            self._note(position, "bytes that are not UTF-8", repaired=True)
        self.result.elements.append(value)
        return end

    def _decode(self, position: int) -> tuple[Any, int]:
        """The value at a position, and its end; errors count the lines before them, so few see all of the text."""
        at = position - self.window_at
        if not 0 <= at <= len(self.window) - NEAR:
            self.window_at, at = position, 0
            self.window = self.text[position : position + WINDOW]
        cut = self.window_at + len(self.window) < len(self.text)
        try:
            value, end = LENIENT.raw_decode(self.window, at)
        except json.JSONDecodeError as error:
            at_cut = error.pos > len(self.window) - LONGEST_ESCAPE or error.msg.startswith(UNTERMINATED)
            if cut and at_cut:
                return LENIENT.raw_decode(self.text, position)
            error.pos += self.window_at
            raise
        if cut and end == len(self.window):
            return LENIENT.raw_decode(self.text, position)
        return value, self.window_at + end

    def _damaged_element(self, position: int, error: Exception) -> int | None:
        fault = error.pos if isinstance(error, json.JSONDecodeError) else position
        if not self.final and fault >= len(self.text) and len(self.text) - position < LONG:
            return None
        end = self._resume_at(position, fault)
        if end is None:
            if not self.final:
                return None
            end = len(self.text)
        element = _clean(self.text[position:end])
        for candidate in _repairs(element):
            try:
                value, used = LENIENT.raw_decode(candidate)
            except (ValueError, RecursionError):
                continue
            self.result.elements.append(value)
            self._note(position, _problem(error), repaired=True)
            if candidate[used:].strip(" \t\r\n,"):
                self._note(position, "what follows it does not parse")
            return end
        self._note(position, _problem(error))
        self.result.unfinished = end == len(self.text)
        return end

    def _resume_at(self, position: int, fault: int) -> int | None:
        """The comma that most likely ends the element; uncertain boundaries count only after the fault."""
        if self.sure.match("}," + self.text[position : position + 64]):
            found = [self.sure.search(self.text, position), self.boundary.search(self.text, fault)]
        else:
            found = [self.boundary.search(self.text, position)]
        if commas := [self.text.index(",", match.start()) for match in found if match]:
            return min(commas)
        return self._last_end(position, fault) if self.final else None

    def _last_end(self, position: int, fault: int) -> int | None:
        """Where the last element ends: before the first bracket after the fault that closes the array."""
        start, depth = position, 0
        for closing in CLOSING.finditer(self.text, position):
            depth += self.text.count("[", start, closing.end()) - self.text.count("]", start, closing.end())
            if depth < 0 and closing.end() > fault:
                return closing.start() + 1
            start = closing.end()
        followed = CLOSING_BEFORE_KEY.search(self.text, max(position, fault - 1))
        return followed.start() + 1 if followed else None

    def _note(self, position: int, problem: str, *, repaired: bool = False) -> None:
        self.result.damage.append(Damage(self._bytes_before(position), problem, repaired))

    def _bytes_before(self, position: int) -> int:
        if self.ascii:
            return position
        before, size = self.counted if self.counted[0] <= position else (0, 0)
        size += len(self.text[before:position].encode("utf-8", "surrogateescape"))
        self.counted = (position, size)
        return size

    def _skip_space(self, position: int) -> int:
        match = SPACE.match(self.text, position)
        return match.end() if match else position


def _problem(error: Exception) -> str:
    """The problem, without the position, which is relative to this text."""
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _repairs(element: str) -> Iterator[str]:
    """Yields the element with known defects of writers repaired: backslashes, quotes, trailing commas."""
    escaped = _edited(element, ESCAPE, "\\\\")
    yield escaped
    yield _edited(escaped, TRAILING_COMMA, "")
    if requoted := _requoted(escaped):
        yield requoted


def _edited(text: str, pattern: re.Pattern[str], replacement: str) -> str:
    """The text with a replacement for each match without a group, in a buffer: `re.sub` keeps an object for each."""
    edited, done = io.StringIO(), 0
    for match in pattern.finditer(text):
        if match.lastindex is None:
            edited.write(text[done : match.start()])
            edited.write(replacement)
            done = match.end()
    edited.write(text[done:])
    return edited.getvalue()


def _requoted(element: str) -> str:
    """The element with escaped quotes in its first name; empty if that has no end, and then no later one has."""
    start = NAME_START.search(element)
    end = NAME_END.search(element, start.end()) if start else None
    if not start or not end:
        return ""
    name = UNESCAPED_QUOTE.sub(r"\"", element[start.end() : end.start()])
    return element[: start.end()] + name + element[end.start() :]


def _is_clean(text: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in text)


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
