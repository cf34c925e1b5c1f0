"""Decimal microseconds as text, to whole nanoseconds: exactly, and a whole column at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracelink.converters.kineto.times import LATEST_US, decimal_nanoseconds
from tracelink.events import NO_TIME, Bools, Int64s

LONGEST = 24
"""Characters of a usual number."""
MOST_DIGITS = 16
"""Of whole microseconds."""
DECIMALS = 3
"""Of nanoseconds."""
ZERO, MINUS, POINT, NOTHING = b"0-.\0"


def nanoseconds_of(texts: Sequence[bytes]) -> Int64s:
    """The nanoseconds of each number of microseconds; NO_TIME where the text is empty or no time."""
    if not texts:
        return np.empty(0, np.int64)
    usual, value = _usual(np.array([text[: LONGEST + 1] for text in texts], f"S{LONGEST + 1}"))
    for place in np.flatnonzero(~usual).tolist():
        value[place] = _unusual(texts[place])
    return value


def _usual(texts: np.ndarray[tuple[int], np.dtype[np.bytes_]]) -> tuple[Bools, Int64s]:
    """Which texts are plain decimals with at most so many digits, and their values, character by character."""
    characters = texts.view(np.uint8).reshape(len(texts), LONGEST + 1)
    count = len(texts)
    value, whole, decimals = (np.zeros(count, np.int64) for _ in range(3))
    fraction = np.zeros(count, np.bool_)
    usual = (characters[:, -1] == NOTHING) & (characters[:, 0] != NOTHING)
    for place in range(LONGEST):
        character = characters[:, place]
        if not character.any():
            break
        digit = (character >= ZERO) & (character < ZERO + 10)
        point = character == POINT
        usual &= digit | (character == NOTHING) | (point & ~fraction) | ((character == MINUS) & (place == 0))
        value = np.where(
            digit & (whole + decimals < MOST_DIGITS + DECIMALS), value * 10 + character - ZERO, value
        )
        whole += digit & ~fraction
        decimals += digit & fraction
        fraction |= point
    usual &= (whole > 0) & (whole <= MOST_DIGITS) & (decimals <= DECIMALS)
    usual &= value <= LATEST_US * 10.0**decimals
    value *= 10 ** np.clip(DECIMALS - decimals, 0, DECIMALS)
    return usual, np.where(characters[:, 0] == MINUS, -value, value)


def _unusual(text: bytes) -> int:
    try:
        return decimal_nanoseconds(text.decode("ascii", "replace"))
    except ValueError:
        return NO_TIME
