"""Decoded values as JSON: exact numbers, tuples as lists, NaN as null, and never larger than is sensible."""

from __future__ import annotations

from typing import Any

import orjson

LARGEST_TEXT = 4 << 20
"""Of one entry, or of one fact about the whole dump, as JSON."""

DEEPEST = 16
ESCAPED = 6
"""The longest escape of one character."""

NUMBER = 24
"""The longest number, with its comma."""


class Sizes:
    """How long values become as JSON, each object measured once however often others refer to it.

    Measures objects that stay alive: an object is told by its identity.
    """

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def fits(self, value: Any) -> bool:
        """Whether `value` may be written out as JSON."""
        return self._size(value, 0) <= LARGEST_TEXT

    def _size(self, value: Any, depth: int) -> int:
        kind = type(value)
        if kind is str:
            return ESCAPED * len(value) + 3
        if kind is not list and kind is not dict and kind is not tuple:
            return NUMBER
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = self._container_size(value, depth + 1)
        return known

    def _container_size(self, value: Any, depth: int) -> int:
        if depth > DEEPEST:
            return LARGEST_TEXT + 1
        size = 3
        for part in value:
            size += self._size(part, depth)
        if type(value) is dict:
            if any(type(key) is tuple for key in value):  # JSON has no such keys
                return LARGEST_TEXT + 1
            for part in value.values():
                size += self._size(part, depth)
        return size


def json_text(value: Any) -> bytes:
    """`value` as JSON; it must fit."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)


def plain(value: Any) -> Any:
    """A copy of `value` made of what JSON knows, in which nothing is shared; it must fit."""
    return orjson.loads(json_text(value))
