"""JSON dumps, as torch's control plane hands them out."""

from __future__ import annotations

from typing import Any

import orjson

from tracelink.converters.flight_recorder.budget import refuse_if_too_large
from tracelink.errors import UnreadableError

COSTS = {b"{": 540, b"[": 120, b",": 96}
"""Bytes of memory that a value leads to at most; an object is counted with the row that it may become."""


def load(data: bytes, path: str) -> Any:
    """Decodes a dump in JSON."""
    refuse_if_too_large(data, COSTS, path)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UnreadableError(
            f"it is not whole JSON: {error.msg}",
            source=path,
            position=f"line {error.lineno}, column {error.colno}",
            advice="Copy or take the dump again.",
        ) from None
