"""What events recorded of themselves, read again from the source when someone asks."""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate, count
from typing import Any

import numpy as np

from tracelink.elements import ArrayDocument, ArrayFormat, Part
from tracelink.events import Int64s
from tracelink.sources import Source
from tracelink.trace import Payload

FAR = 1 << 11
"""So many payloads that nobody asks for are passed over and not decoded."""

LARGEST = sys.float_info.max
"""Numbers beyond this are given back as texts: few readers of JSON can hold them."""


@dataclass(frozen=True, slots=True)
class RereadPayloads:
    """The payloads of a long array: knows where each piece of it begins and how many elements it holds."""

    source: Source
    format: ArrayFormat[list[Payload]]
    """How the payload of each element is found in a piece."""
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
        document = ArrayDocument(self.source, self.format, Part(self.offsets[piece] if piece else 0))
        for _, texts in document.pieces(lambda _: None):
            if number + len(texts) > first:
                skipped = max(0, first - number)
                yield number + skipped, texts[skipped : end - number]
            number += len(texts)
            if number >= end:
                return

    def near(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Runs of consecutive payloads with these among them, in order; as little else as possible is decoded."""
        if not len(numbers):
            return
        with self.source.open() as stream:
            plain = stream.plain
        if not plain:
            yield from self._in_one_pass(numbers)
            return
        for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > FAR) + 1):
            yield from self.batches(int(run[0]), int(run[-1]) + 1)

    def _in_one_pass(self, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
        """Whole pieces: to begin in the middle of what is compressed would be to begin anew each time."""
        before = [0, *accumulate(self.counts)]
        wanted = set((np.searchsorted(before[1:-1], numbers, side="right")).tolist())
        turn = count()

        def decode(text: memoryview) -> list[Payload]:
            return self.format.decode(text) if next(turn) in wanted else []

        document = ArrayDocument(self.source, replace(self.format, decode=decode))
        numbered = dict(zip(self.offsets, before, strict=False))
        for place, texts in document.pieces(lambda _: None):
            if texts and place in numbered:
                yield numbered[place], texts
            if place >= self.offsets[max(wanted)]:
                return


def as_json(value: Any) -> bytes:
    """The text of something that only a lenient parser could read."""
    return json.dumps(value, ensure_ascii=False, default=_number).encode("utf-8", "replace")


def _number(value: Decimal) -> int | float | str | None:
    if not value.is_finite():
        return None
    if value.copy_abs() > LARGEST:
        return str(value)
    return int(value) if value == value.to_integral_value() else float(value)
