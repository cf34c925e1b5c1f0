"""The messages of a source, one after the other, and what tells that there should be more."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from tracelink.findings import Finding, Severity
from tracelink.sources import Opened, Source

BUFFER = 1 << 20


class _Raw(io.RawIOBase):
    """An opened source as what Python buffers."""

    def __init__(self, opened: Opened, count: Callable[[int], None]) -> None:
        self._opened = opened
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        got = self._opened.readinto(memoryview(buffer))
        self._count(got)
        return got


@contextmanager
def buffered(
    source: Source, count: Callable[[int], None] = lambda _: None, offset: int = 0
) -> Iterator[tuple[BinaryIO, Opened]]:
    """The bytes of a source from `offset` on, buffered, and the source itself; `count` is told how many are read."""
    with source.open() as opened:
        opened.skip(offset)
        yield cast(BinaryIO, io.BufferedReader(_Raw(opened, count), BUFFER)), opened


def cut_off(path: str, problem: str, kept: int, offset: int) -> Finding:
    """What to say of a file that ends before its time."""
    text = f"{path}: {problem}; the {kept:,} nodes before that are used. Copy or record it again."
    return Finding(Severity.WARNING, "cut_off", text, source=path, example=f"byte {offset}")


def too_few(path: str, said: int, kept: int) -> Finding:
    """What to say of a file that holds fewer nodes than its metadata count."""
    text = f"{path}: its metadata count {said:,} nodes, and {kept:,} are there. Copy or record it again."
    return Finding(Severity.WARNING, "cut_off", text, source=path)
