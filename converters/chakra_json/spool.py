"""The text of every node, kept outside memory: files list nodes as they ended, readers want them as they began."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
import numpy as np

from tracelink.events import Int64s
from tracelink.trace import Payloads


@dataclass(frozen=True, slots=True)
class Spool:
    """Compact JSON text by its number in the source."""

    file: BinaryIO
    offsets: Int64s

    def text(self, number: int) -> bytes:
        """One text; empty where the source has none of this number."""
        if not 0 <= number < len(self.offsets) - 1:
            return b""
        begin, end = self.offsets[number : number + 2].tolist()
        self.file.seek(begin)
        return self.file.read(end - begin)


@contextmanager
def spooled(payloads: Payloads, directory: str | None) -> Iterator[Spool]:
    """Every payload of a source, in a file that is gone afterwards."""
    with tempfile.TemporaryFile(dir=directory) as file:
        lengths: list[int] = []
        for first, texts in payloads.batches():
            lengths += [0] * (first - len(lengths))
            compact = [msgspec.json.format(text, indent=-1) if len(text) else b"" for text in texts]
            lengths += map(len, compact)
            file.writelines(compact)
        yield Spool(file, np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]))
