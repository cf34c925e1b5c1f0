"""JSON objects that differ in nothing but their digits: where their members stand is found out once for all of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from tracelink.events import Int64s
from tracelink.trace import Payload
from tracelink.wire import Bytes

DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
"""Makes objects of one form equal."""
MEMBER = re.compile(rb'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
"""What stands before a value."""
MOST_DIGITS = 18
"""A whole number of more may need more than 63 bits."""

_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Form:
    """Texts of one form, and where they stand among all."""

    places: list[int]
    texts: list[bytes]


@dataclass(frozen=True, slots=True)
class Member:
    """Where a member's value stands in all texts of a form."""

    name: str
    begin: int
    end: int
    constant: bool
    """Whether it is the same in all of them."""


def forms_of(payloads: Iterable[Payload]) -> Iterator[Form]:
    """All texts by form; those that are empty are left out."""
    texts = list(map(bytes, payloads))
    forms: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        forms[text.translate(DIGITS)].append(place)
    forms.pop(b"", None)
    return (Form(places, [texts[place] for place in places]) for places in forms.values())


def members_of(text: bytes) -> list[Member] | None:
    """The members of all objects of the form of this one; None where they may have other names, or it is unusual."""
    try:
        values = _values(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    members = []
    at = text.index(b"{") + 1
    for name, raw in values.items():
        value, before = bytes(raw), MEMBER.match(text, at)
        if not before or not text.startswith(value, before.end()) or _has_digit(before[1]):
            return None
        at = before.end() + len(value)
        members.append(Member(name, before.end(), at, not _has_digit(value)))
    return members if text[at:].strip() == b"}" else None


def whole_numbers(digits: Bytes) -> Int64s | None:
    """The values of columns of characters; None where they are no whole numbers, or too long."""
    negative = digits[0, 0] == ord("-")
    digits = digits[:, int(negative) :] - np.uint8(ord("0"))
    if digits.shape[1] > MOST_DIGITS or digits[0].max() > 9:
        return None
    numbers = digits[:, 0].astype(np.int64)
    for column in digits.T[1:]:
        numbers = numbers * 10 + column
    return -numbers if negative else numbers


def _has_digit(text: bytes) -> bool:
    return b"0" in text.translate(DIGITS)
