"""The arguments of Kineto events, found in a piece of the event array."""

from __future__ import annotations

from typing import Any

import msgspec

from tracelink.converters.kineto.schema import EVENTS, FIRST_KEYS, ArgumentsText
from tracelink.elements import ArrayFormat
from tracelink.rereading import as_json
from tracelink.trace import Payload

TEXTS = msgspec.json.Decoder(list[ArgumentsText])


def _texts(text: memoryview) -> list[Payload]:
    return [element.args for element in TEXTS.decode(bytes(text))]


def _converted(values: list[Any]) -> list[Payload]:
    arguments = [value.get("args") if isinstance(value, dict) else None for value in values]
    return [b"" if given is None else as_json(given) for given in arguments]


ARGUMENTS = ArrayFormat(EVENTS, FIRST_KEYS, _texts, _converted)
