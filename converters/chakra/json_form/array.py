"""The JSON form read piece by piece: nodes back to messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from tracelink.converters.chakra.json_form.messages import NODES, Said
from tracelink.elements import ArrayFormat
from tracelink.rereading import as_json
from tracelink.trace import Payload

Decoded = TypeVar("Decoded")

METADATA_KEY, NODES_KEY = "metadata", "nodes"
FIRST_KEY = re.compile(rb'"nodes"\s*:\s*\[\s*\{\s*"([\w@]+)"')
USUAL_FIRST_KEYS = ("id", "@wire")
SORTED_FIRST_KEYS = ("attr", "@wire", "ctrl_deps", "data_deps", "duration_micros", "id")
"""Those of nodes whose keys a tool has put in order."""
VALUES = msgspec.json.Decoder(list[Any])
TEXTS = msgspec.json.Decoder(list[msgspec.Raw])


def messages_format(head: bytes) -> ArrayFormat[list[Said | None]]:
    """How pieces of a document that begins with `head` become messages; None for what is no node."""
    return _format(
        head, lambda text: _messages(VALUES.decode(text)), lambda values: _messages(_floats(values))
    )


def texts_format(head: bytes) -> ArrayFormat[list[Payload]]:
    """How pieces of it become the texts of nodes; that of what is no object is empty."""
    return _format(head, _texts, _converted)


def _format(
    head: bytes, decode: Callable[[memoryview], Decoded], convert: Callable[[list[Any]], Decoded]
) -> ArrayFormat[Decoded]:
    first = FIRST_KEY.search(head)
    usual = first is None or first[1].decode() in USUAL_FIRST_KEYS
    return ArrayFormat(NODES_KEY, USUAL_FIRST_KEYS if usual else SORTED_FIRST_KEYS, decode, convert)


def _messages(values: list[Any]) -> list[Said | None]:
    return [NODES.said(value) for value in values]


def _texts(text: memoryview) -> list[Payload]:
    kept = [bytes(raw) for raw in TEXTS.decode(text)]
    return [raw if raw.startswith(b"{") else b"" for raw in kept]


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]


def _floats(value: Any) -> Any:
    """Numbers that only a lenient parser could read, as numbers."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_floats(one) for one in value]
    if isinstance(value, dict):
        return {key: _floats(one) for key, one in value.items()}
    return value
