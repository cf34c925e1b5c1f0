"""The arguments of Kineto events, read again from the file when someone asks."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import msgspec

from tracelink.converters.kineto.schema import EVENTS, FIRST_KEYS, ArgumentsText
from tracelink.elements import ArrayDocument, ArrayFormat, Part
from tracelink.sources import Source
from tracelink.trace import Payload

LARGEST = sys.float_info.max
"""Numbers beyond this are given back as texts: few readers of JSON can hold them."""

TEXTS = msgspec.json.Decoder(list[ArgumentsText])


@dataclass(frozen=True, slots=True)
class KinetoPayloads:
    """Knows where each piece of the file begins and how many elements it holds."""

    source: Source
    offsets: Sequence[int]
    counts: Sequence[int]

    def batches(self, first: int = 0, last: int | None = None) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive payloads, a piece of the file each."""
        before = [0, *accumulate(self.counts)]
        end = before[-1] if last is None else min(last, before[-1])
        if first >= end:
            return
        piece = min(bisect_right(before, first) - 1, len(self.counts) - 1)
        number = before[piece]
        start = self.offsets[piece] if piece else 0
        document = ArrayDocument(self.source, FORMAT, Part(start))
        for _, texts in document.pieces(lambda _: None):
            if number + len(texts) > first:
                skipped = max(0, first - number)
                yield number + skipped, texts[skipped : end - number]
            number += len(texts)
            if number >= end:
                return


def _texts(text: memoryview) -> list[Payload]:
    return [element.args for element in TEXTS.decode(bytes(text))]


def _converted(values: list[Any]) -> list[Payload]:
    return [_converted_one(value) for value in values]


def _converted_one(value: Any) -> Payload:
    arguments = value.get("args") if isinstance(value, dict) else None
    if arguments is None:
        return b""
    text = json.dumps(arguments, ensure_ascii=False, default=_number)
    return text.encode("utf-8", "replace")


def _number(value: Decimal) -> int | float | str | None:
    if not value.is_finite():
        return None
    if value.copy_abs() > LARGEST:
        return str(value)
    return int(value) if value == value.to_integral_value() else float(value)


FORMAT = ArrayFormat(EVENTS, FIRST_KEYS, _texts, _converted)
