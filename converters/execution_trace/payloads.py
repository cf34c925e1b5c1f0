"""Whole nodes, found in a piece of the array of nodes."""

from __future__ import annotations

from typing import Any

from tracelink.converters.execution_trace.nodes import TEXTS
from tracelink.converters.execution_trace.schema import NODES
from tracelink.elements import ArrayFormat
from tracelink.rereading import as_json
from tracelink.trace import Payload


def whole_nodes(first_keys: tuple[str, ...]) -> ArrayFormat[list[Payload]]:
    """How nodes that begin with these keys are given back."""
    return ArrayFormat(NODES, first_keys, _texts, _converted)


def _texts(text: memoryview) -> list[Payload]:
    kept = bytes(text)
    if not kept.isascii():
        kept.decode()  # the decoder leaves the bytes of a text that it passes over unchecked
    return list(TEXTS.decode(kept))


def _converted(values: list[Any]) -> list[Payload]:
    return [as_json(value) if isinstance(value, dict) else b"" for value in values]
