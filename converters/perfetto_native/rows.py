"""Many messages at once, a field of all of them at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tracelink.events import Bools, Int64s
from tracelink.wire import DELIMITED, Bytes, key, varint, varint_groups

ONE_BYTE = 1 << 7
"""Lower numbers take one byte."""


class Rows:
    """The bytes of messages: each column holds bytes of every one, of which some may not count."""

    def __init__(self) -> None:
        self.lengths: Int64s | int = 0
        self._columns: list[tuple[Bytes, Int64s | None]] = []

    def constant(self, text: bytes, given: Bools | None = None) -> None:
        """The same bytes in all messages, or in some."""
        column = np.frombuffer(text, np.uint8)
        self._add(column, None if given is None else given * np.int64(len(text)))

    def numbers(self, field: bytes, values: Int64s, given: Bools | None = None) -> None:
        """A whole number in all messages, or in some; `field` is what stands before it."""
        self.constant(field, given)
        if given is None and len(values) and values.min() >= 0 and values.max() < ONE_BYTE:
            self._add(values.astype(np.uint8)[:, None], None)
            return
        groups, widths = varint_groups(np.ascontiguousarray(values))
        self._add(groups, widths if given is None else widths * given)

    def words(self, field: bytes, values: npt.NDArray[np.float64]) -> None:
        """A number of 64 bits in all messages."""
        self.constant(field)
        self._add(np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize), None)

    def message(self, number: int, inner: Rows, more: Int64s | int = 0) -> None:
        """A message within each; `more` bytes of it are to follow."""
        head, lengths = key(number, DELIMITED), inner.lengths + more
        if isinstance(lengths, int):
            self.constant(head + varint(lengths))
        else:
            self.numbers(head, lengths)
        self._columns += inner._columns
        self.lengths = self.lengths + inner.lengths

    def joined(self) -> tuple[bytes, Int64s]:
        """All messages one after the other, and where each begins."""
        widths = [column.shape[-1] for column, _ in self._columns]
        count = max(len(column) for column, _ in self._columns if column.ndim > 1)
        matrix = np.empty((count, sum(widths)), np.uint8)
        counts = np.ones(matrix.shape, np.bool_)
        at = 0
        for (column, used), width in zip(self._columns, widths, strict=True):
            matrix[:, at : at + width] = column
            if used is not None:
                counts[:, at : at + width] = np.arange(width) < used[:, None]
            at += width
        bounds = np.zeros(count + 1, np.int64)
        np.cumsum(np.broadcast_to(self.lengths, count), out=bounds[1:])
        return matrix[counts].tobytes(), bounds

    def each(self) -> list[bytes]:
        """Every message by itself."""
        text, bounds = self.joined()
        return [text[low:high] for low, high in pairwise(bounds.tolist())]

    def _add(self, column: Bytes, used: Int64s | None) -> None:
        self._columns.append((column, used))
        self.lengths = self.lengths + (column.shape[-1] if used is None else used)
