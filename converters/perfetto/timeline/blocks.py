"""Blocks of one output: made and written by several processes, each into a temporary file, then joined in order."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, BinaryIO, Generic, TypeVar, cast

import numpy as np
from msgspec import Struct

from tracelink._io.engine import Engine
from tracelink._io.spool import LostError, Stored
from tracelink._io.system import copy_within_system
from tracelink._io.temporary import GzipStream
from tracelink._model.columns import UInt8s
from tracelink._run.processes import Processes

Section = Callable[[], Iterator[bytes]]
Stream = BinaryIO | GzipStream
Result = TypeVar("Result")

COPY_BYTES = 1 << 22

OPEN_AT_ONCE = 4
"""Blocks for each process that are written before they are joined; their files are open until then."""

SECTIONS_AT_ONCE = 16
"""Sections for each process that are written before they are joined."""


class Block(Struct, Generic[Result], frozen=True):
    """A head, then sections; without a head the block is empty."""

    head: bytes
    sections: Sequence[Section]
    large: bool
    """True if its sections are worth several processes."""
    result: Result


class BlockWriter(Struct):
    """Writes blocks in order, with a separator between them.

    In a gzip stream each block is a member of its own, so the bytes do not depend on the number of processes.
    """

    stream: Stream
    directory: str | None
    engine: Engine
    separator: bytes
    started: bool = False

    def add(self, makers: Sequence[Callable[[], Block[Result]]], workers: Sequence[str] = ()) -> list[Result]:
        """Makes and writes blocks: in parallel if there are enough of them, else the sections of each in parallel.

        On a cluster, `workers` are those that have what each block is made of.
        """
        if not self.engine.shares_files and workers:
            return self._add_from_cluster(makers, workers)
        jobs = self.engine.jobs if self.engine.shares_files else 1
        if jobs < 2 or len(makers) < jobs:
            return [self._add_one(make) for make in makers]
        batch = OPEN_AT_ONCE * jobs
        return [
            result
            for first in range(0, len(makers), batch)
            for result in self._add_in_parallel(makers[first : first + batch])
        ]

    def _add_from_cluster(
        self, makers: Sequence[Callable[[], Block[Result]]], workers: Sequence[str]
    ) -> list[Result]:
        """Makes blocks on a cluster, and writes them here, one after the other."""
        store = self.engine.store((), in_memory=False)
        compressed = isinstance(self.stream, GzipStream)

        def work(item: _Numbered) -> tuple[Stored[UInt8s] | None, Result]:
            block = makers[item.number]()
            return store.put(_text_of(block, compressed)) if block.head else None, block.result

        items = [_Numbered(number, worker) for number, worker in enumerate(workers)]
        results = []
        for item, (stored, result) in zip(items, self.engine.map(work, items), strict=True):
            results.append(result)
            while stored:
                try:
                    text = store.get(stored)
                except LostError:  # with the worker that had made it
                    ((stored, _),) = self.engine.map(work, [item])
                    continue
                self._separate()
                _raw(self.stream).write(text.data)
                stored = None
        return results

    def add_sections(self, sections: Sequence[Section]) -> None:
        """Writes sections outside of blocks, without separators."""
        write_sections(sections, self.stream, self.directory, self._engine_here)

    @property
    def _engine_here(self) -> Engine:
        """The engine for sections of this process."""
        return self.engine if self.engine.shares_files else self.engine.alone

    def _add_one(self, make: Callable[[], Block[Result]]) -> Result:
        block = make()
        if block.head:
            self._separate()
            _write_block(block, self.stream, self.directory, self._engine_here)
        return block.result

    def _add_in_parallel(self, makers: Sequence[Callable[[], Block[Result]]]) -> list[Result]:
        with ExitStack() as stack:
            files = [_opened(stack, self.directory) for _ in makers]

            def work(number: int) -> Result:
                block = makers[number]()
                if block.head:
                    stream = _same_kind(self.stream, files[number])
                    _write_block(block, stream, None, self.engine.alone)
                    files[number].flush()
                return block.result

            results = self.engine.map(work, range(len(makers)))
            for file in files:
                if os.fstat(file.fileno()).st_size:
                    self._separate()
                    _append(file, self.stream)
                file.close()  # frees its space for the next
        return results

    def _separate(self) -> None:
        if self.started:
            self.stream.write(self.separator)
        _end_member(self.stream)
        self.started = True


class _Numbered(Struct, frozen=True):
    """A block that is made where its rank is."""

    number: int
    worker: str


def _text_of(block: Block[Any], compressed: bool) -> UInt8s:
    """The bytes of a block, made by one process."""
    text = io.BytesIO()
    _write_block(block, GzipStream(text) if compressed else text, None, Processes(1))
    return np.frombuffer(text.getvalue(), np.uint8)


def row_ranges(begin: int, end: int, most: int) -> list[tuple[int, int]]:
    """Equal ranges of at most `most` rows, for sections; independent of the number of processes."""
    count = -(-(end - begin) // most)
    cuts = [begin + (end - begin) * number // count for number in range(count + 1)] if count else []
    return list(pairwise(cuts))


def _write_block(block: Block[Result], stream: Stream, directory: str | None, engine: Engine) -> None:
    stream.write(block.head)
    write_sections(block.sections, stream, directory, engine if block.large else engine.alone)


def write_sections(
    sections: Sequence[Section], stream: Stream, directory: str | None, engine: Engine
) -> None:
    """Writes sections in order, several at a time if the engine has several processes."""
    _end_member(stream)
    if engine.jobs < 2 or len(sections) < 2:
        for section in sections:
            _write_one(section, stream, engine)
        return
    batch = SECTIONS_AT_ONCE * engine.jobs
    for first in range(0, len(sections), batch):
        _write_in_parallel(sections[first : first + batch], stream, directory, engine)


def _write_in_parallel(
    sections: Sequence[Section], stream: Stream, directory: str | None, engine: Engine
) -> None:
    """Each process writes consecutive sections: this one the first of all, the others to files that are then joined."""
    runs = row_ranges(0, len(sections), -(-len(sections) // engine.jobs))
    with ExitStack() as stack:
        files = [_opened(stack, directory) for _ in runs[1:]]

        def work(number: int) -> None:
            low, high = runs[number]
            some = _same_kind(stream, files[number - 1]) if number else stream
            for section in sections[low:high]:
                _write_one(section, some, engine)
            if number:
                files[number - 1].flush()

        engine.map(work, range(len(runs))[::-1])  # the last is for this process
        for file in files:
            _append(file, stream)
            file.close()


def _opened(stack: ExitStack, directory: str | None) -> BinaryIO:
    return cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=directory)))


def _same_kind(stream: Stream, file: BinaryIO) -> Stream:
    return GzipStream(file) if isinstance(stream, GzipStream) else file


def _write_one(section: Section, stream: Stream, engine: Engine) -> None:
    for text in section():
        stream.write(text)
        engine.meter.add(len(text))
    _end_member(stream)


def _end_member(stream: Stream) -> None:
    if isinstance(stream, GzipStream):
        stream.end_member()


def _raw(stream: Stream) -> BinaryIO:
    """The stream of bytes as they are stored."""
    return stream.raw if isinstance(stream, GzipStream) else stream


def _append(file: BinaryIO, stream: Stream) -> None:
    """Appends `file` to `stream`; within the kernel if both are files."""
    target = _raw(stream)
    size = file.seek(0, os.SEEK_END)
    target.flush()
    done = _copied(file, target, size)
    if done < size:
        file.seek(done)
        shutil.copyfileobj(file, target, COPY_BYTES)


def _copied(file: BinaryIO, target: BinaryIO, size: int) -> int:
    try:
        return copy_within_system(file.fileno(), target.fileno(), size)
    except io.UnsupportedOperation:  # not a file
        return 0
