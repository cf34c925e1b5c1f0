"""The arguments that sources recorded, in the order of the events that ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tracelink.events import Int64s
from tracelink.trace import Payload, Payloads


def payload_runs(payloads: Payloads | None, numbers: Int64s) -> Iterator[tuple[int, Sequence[Payload]]]:
    """A text for each of `numbers`, in runs: where the run begins and its texts. A missing one is empty."""
    if not len(numbers):
        return
    reached = np.maximum.accumulate(numbers)
    if payloads is None or reached[-1] < 0:
        yield 0, [b""] * len(numbers)
        return
    if (numbers[numbers >= 0] < reached[numbers >= 0]).any():
        yield 0, _scattered(payloads, numbers)
        return
    done = 0
    lowest = int(numbers[numbers >= 0][0])
    for first, texts in payloads.batches(lowest, int(reached[-1]) + 1):
        upto = int(np.searchsorted(reached, first + len(texts)))
        if upto > done:
            yield done, _picked(texts, numbers[done:upto] - first)
            done = upto
    if done < len(numbers):
        yield done, [b""] * (len(numbers) - done)


def _picked(texts: Sequence[Payload], wanted: Int64s) -> Sequence[Payload]:
    if np.array_equal(wanted, np.arange(len(texts))):
        return texts
    return [texts[index] if index >= 0 else b"" for index in wanted.tolist()]


def _scattered(payloads: Payloads, numbers: Int64s) -> Sequence[Payload]:
    """Texts of events that do not stand in the order of their payloads."""
    result: list[Payload] = [b""] * len(numbers)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    for first, texts in payloads.batches(max(0, int(ordered[0])), int(ordered[-1]) + 1):
        low, high = np.searchsorted(ordered, [first, first + len(texts)]).tolist()
        for place, number in zip(order[low:high].tolist(), ordered[low:high].tolist(), strict=True):
            result[place] = texts[number - first]
    return result
