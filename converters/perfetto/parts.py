"""Parts of one output that are written side by side, each into a file of its own, and then joined."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO, cast

from tracelink.engine import Engine
from tracelink.targets import GzipStream

Part = Callable[[], Iterator[bytes]]
Output = BinaryIO | GzipStream

COPY = 1 << 22


def write_parts(parts: Sequence[Part], stream: Output, directory: str | None, engine: Engine) -> None:
    """Writes all parts in order; a gzip stream gets each as a member of its own, however many work on it."""
    _end_member(stream)
    if engine.jobs < 2 or len(parts) < 2:
        for part in parts:
            _write_one(part, stream, engine)
        return
    with ExitStack() as stack:
        files = [cast(BinaryIO, stack.enter_context(tempfile.TemporaryFile(dir=directory))) for _ in parts]

        def work(number: int) -> None:
            file = files[number]
            _write_one(parts[number], GzipStream(file) if isinstance(stream, GzipStream) else file, engine)
            file.flush()

        engine.map(work, range(len(parts)))
        for file in files:
            _append(file, stream.raw if isinstance(stream, GzipStream) else stream)
            file.close()  # its space is free for the next


def _write_one(part: Part, stream: Output, engine: Engine) -> None:
    for text in part():
        stream.write(text)
        engine.meter.add(len(text))
    _end_member(stream)


def _end_member(stream: Output) -> None:
    if isinstance(stream, GzipStream):
        stream.end_member()


def _append(file: BinaryIO, stream: BinaryIO) -> None:
    """Copies `file` behind what `stream` holds; within the kernel where both are files."""
    size = file.seek(0, os.SEEK_END)
    done = 0
    stream.flush()
    try:
        while done < size:
            done += os.sendfile(stream.fileno(), file.fileno(), done, size - done)
    except OSError:  # not a file, or not on this system
        file.seek(done)
        shutil.copyfileobj(file, stream, COPY)
