"""Blocks written side by side; what is wanted of a job."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import BinaryIO, Generic, TypeVar, cast

from tracelink.engine import Engine
from tracelink.io.targets import GzipStream

# Blocks of one output that are written side by side, each into a file of its own, and then joined.


Piece = Callable[[], Iterator[bytes]]
Stream = BinaryIO | GzipStream
Result = TypeVar("Result")

COPY = 1 << 22

OPEN_AT_ONCE = 4
"""Blocks for each process that are written before they are joined: their files are open all the time."""


@dataclass(frozen=True, slots=True)
class Block(Generic[Result]):
    """Text that stands together: a head, then pieces; without a head there is nothing."""

    head: bytes
    pieces: Sequence[Piece]
    large: bool
    """Whether its pieces are worth processes of their own."""
    result: Result


@dataclass(slots=True)
class Joint:
    """Writes blocks one after the other, with a separator between them.

    In a gzip stream all of them are members of their own, so that the bytes are the same however many work.
    """

    stream: Stream
    directory: str | None
    engine: Engine
    separator: bytes
    started: bool = False

    def add(self, makers: Sequence[Callable[[], Block[Result]]]) -> list[Result]:
        """Makes and writes blocks: side by side if they are enough for that, else the pieces of each."""
        jobs = self.engine.jobs
        if jobs < 2 or len(makers) < jobs:
            return [self._add_one(make) for make in makers]
        batch = OPEN_AT_ONCE * jobs
        return [
            result
            for first in range(0, len(makers), batch)
            for result in self._add_side_by_side(makers[first : first + batch])
        ]

    def add_pieces(self, pieces: Sequence[Piece]) -> None:
        """Writes pieces of no block, each of which stands well behind any text."""
        write_pieces(pieces, self.stream, self.directory, self.engine)

    def _add_one(self, make: Callable[[], Block[Result]]) -> Result:
        block = make()
        if block.head:
            self._separate()
            _write_block(block, self.stream, self.directory, self.engine)
        return block.result

    def _add_side_by_side(self, makers: Sequence[Callable[[], Block[Result]]]) -> list[Result]:
        with ExitStack() as stack:
            files = [_opened(stack, self.directory) for _ in makers]

            def work(number: int) -> Result:
                block = makers[number]()
                if block.head:
                    stream = _like(self.stream, files[number])
                    _write_block(block, stream, None, replace(self.engine, jobs=1))
                    files[number].flush()
                return block.result

            results = self.engine.map(work, range(len(makers)))
            for file in files:
                if os.fstat(file.fileno()).st_size:
                    self._separate()
                    _append(file, self.stream)
                file.close()  # its space is free for the next
        return results

    def _separate(self) -> None:
        if self.started:
            self.stream.write(self.separator)
        _end_member(self.stream)
        self.started = True


def spans(begin: int, end: int, most: int) -> list[tuple[int, int]]:
    """Equal spans of at most `most` rows, for pieces; the same however many work on them."""
    count = -(-(end - begin) // most)
    cuts = [begin + (end - begin) * number // count for number in range(count + 1)] if count else []
    return list(pairwise(cuts))


def _write_block(block: Block[Result], stream: Stream, directory: str | None, engine: Engine) -> None:
    stream.write(block.head)
    write_pieces(block.pieces, stream, directory, engine if block.large else replace(engine, jobs=1))


def write_pieces(pieces: Sequence[Piece], stream: Stream, directory: str | None, engine: Engine) -> None:
    """Writes all pieces in order."""
    _end_member(stream)
    if engine.jobs < 2 or len(pieces) < 2:
        for piece in pieces:
            _write_one(piece, stream, engine)
        return
    with ExitStack() as stack:
        files = [_opened(stack, directory) for _ in pieces]

        def work(number: int) -> None:
            _write_one(pieces[number], _like(stream, files[number]), engine)
            files[number].flush()

        engine.map(work, range(len(pieces)))
        for file in files:
            _append(file, stream)
            file.close()


def _opened(stack: ExitStack, directory: str | None) -> BinaryIO:
    return cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=directory)))


def _like(stream: Stream, file: BinaryIO) -> Stream:
    return GzipStream(file) if isinstance(stream, GzipStream) else file


def _write_one(piece: Piece, stream: Stream, engine: Engine) -> None:
    for text in piece():
        stream.write(text)
        engine.meter.add(len(text))
    _end_member(stream)


def _end_member(stream: Stream) -> None:
    if isinstance(stream, GzipStream):
        stream.end_member()


def _append(file: BinaryIO, stream: Stream) -> None:
    """Copies `file` behind what `stream` holds; within the kernel where both are files."""
    place = stream.raw if isinstance(stream, GzipStream) else stream
    size = file.seek(0, os.SEEK_END)
    done = 0
    place.flush()
    try:
        while done < size:
            done += os.sendfile(place.fileno(), file.fileno(), done, size - done)
    except OSError:  # not a file, or not on this system
        file.seek(done)
        shutil.copyfileobj(file, place, COPY)
