"""Decoded values as JSON: exact numbers, tuples as lists, NaN as null, and never larger than is sensible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

LARGEST_TEXT = 4 << 20
"""Of one entry, or of one fact about the whole dump, as JSON."""

TOO_LARGE = LARGEST_TEXT + 1
DEEPEST = 16
PUNCTUATION = 4
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
        return self._sum((value,), 0) <= LARGEST_TEXT

    def _sum(self, values: Iterable[Any], depth: int) -> int:
        size = 0
        for value in values:
            kind = type(value)
            if kind is str:
                size += ESCAPED * len(value) + PUNCTUATION
            elif kind is list or kind is dict or kind is tuple:
                size += self._known.get(id(value)) or self._measured(value, depth + 1)
            else:
                size += NUMBER
        return size

    def _measured(self, value: Any, depth: int) -> int:
        if depth > DEEPEST:
            return TOO_LARGE
        if type(value) is dict:
            size = PUNCTUATION + _keys_size(value) + self._sum(value.values(), depth)
        else:
            size = PUNCTUATION + self._sum(value, depth)
        self._known[id(value)] = size
        return size


def _keys_size(value: dict[Any, Any]) -> int:
    try:
        return ESCAPED * len("".join(value)) + PUNCTUATION * len(value)
    except TypeError:
        numbered = all(type(key) is str or type(key) is int for key in value)
        return sum(ESCAPED * len(str(key)) + PUNCTUATION for key in value) if numbered else TOO_LARGE


def json_text(value: Any) -> bytes:
    """`value` as JSON; it must fit."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        return orjson.dumps(_in_whole_characters(value), option=orjson.OPT_NON_STR_KEYS)


def _in_whole_characters(value: Any) -> Any:
    """The same with a question mark for each half of a character, which pickles can hold and JSON cannot."""
    kind = type(value)
    if kind is str:
        return value.encode("utf-8", "replace").decode("utf-8")
    if kind is list or kind is tuple:
        return [_in_whole_characters(one) for one in value]
    if kind is dict:
        return {_in_whole_characters(key): _in_whole_characters(one) for key, one in value.items()}
    return value


def plain(value: Any) -> Any:
    """A copy of `value` made of what JSON knows, in which nothing is shared; it must fit."""
    return orjson.loads(json_text(value))
