"""Whole nodes, read again from the file when someone asks."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

from tracelink.converters.execution_trace.nodes import TEXTS
from tracelink.converters.execution_trace.schema import NODES
from tracelink.elements import ArrayDocument, ArrayFormat, Part
from tracelink.sources import Source
from tracelink.trace import Payload


@dataclass(frozen=True, slots=True)
class NodePayloads:
    """Knows where each piece of the file begins and how many elements it holds."""

    source: Source
    first_keys: tuple[str, ...]
    offsets: Sequence[int]
    counts: Sequence[int]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive nodes, a piece of the file each."""
        before = [0, *accumulate(self.counts)]
        end = before[-1] if last is None else min(last, before[-1])
        if first >= end:
            return
        piece = min(bisect_right(before, first) - 1, len(self.counts) - 1)
        number = before[piece]
        start = self.offsets[piece] if piece else 0
        document = ArrayDocument(
            self.source, ArrayFormat(NODES, self.first_keys, _texts, _converted), Part(start)
        )
        for _, texts in document.pieces(lambda _: None):
            if number + len(texts) > first:
                skipped = max(0, first - number)
                yield number + skipped, texts[skipped : end - number]
            number += len(texts)
            if number >= end:
                return


def _texts(text: memoryview) -> list[Payload]:
    kept = bytes(text)
    if not kept.isascii():
        kept.decode()  # the decoder leaves the bytes of a text that it passes over unchecked
    return list(TEXTS.decode(kept))


def _converted(values: list[Any]) -> list[Payload]:
    return [_json(value) if isinstance(value, dict) else b"" for value in values]


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=_number).encode("utf-8", "replace")


def _number(value: Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    return int(value) if value == value.to_integral_value() else float(value)
