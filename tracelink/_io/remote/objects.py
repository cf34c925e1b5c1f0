"""Objects as files: read in ranges with read-ahead, or from a temporary copy, and recognised when they change."""

from __future__ import annotations

import atexit
import io
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from msgspec import Struct

from tracelink._io.remote.addresses import folder_of, is_remote, shown
from tracelink._io.remote.listing import found_at
from tracelink._io.remote.stores import Entry, store_of
from tracelink._model.errors import ChangedError, UnreadableError, UsageError

FIRST_BLOCK, LARGEST_BLOCK = 64 << 10, 8 << 20
"""Bytes of a range after a seek, and at most."""
MOST_COPIED = 64 << 30
"""Bytes of an object that is copied for a program that needs a file."""
GROWTH = 4
"""By how much a range is longer than the one that it follows."""
BLOCKS = 4
"""Ranges that are kept of each open object."""


class RemoteObject(Struct, frozen=True):
    """Opens an object: a value that can be sent to other processes and machines, which have their own credentials."""

    entry: Entry

    in_ranges = True
    is_whole = True

    @property
    def address(self) -> str:
        """The address, with everything that opens the object."""
        return self.entry.url

    def __call__(self) -> BinaryIO:
        """The object as a file."""
        return cast(BinaryIO, io.BufferedReader(_Ranges(self.entry), 64 << 10))

    def __repr__(self) -> str:
        return f"RemoteObject({shown(self.entry.url)})"


def copied(entry: Entry, limit: int) -> BinaryIO:
    """An unnamed temporary copy of an object that cannot be read in ranges, of at most `limit` bytes."""
    spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))  # noqa: SIM115  it lives as long as its readers

    def begin() -> None:
        spool.seek(0)
        spool.truncate()

    try:
        store_of(entry.url).copy(entry, spool.write, begin, limit)
    except BaseException:
        spool.close()
        raise
    return spool


class RemoteStamp(Struct, frozen=True):
    """By what a changed object is recognised."""

    entry: Entry

    @property
    def is_cheap(self) -> bool:
        """False: it is a request."""
        return False

    @property
    def modified_ns(self) -> int:
        """When it was written; 0 if unknown."""
        return self.entry.modified_ns

    def check(self) -> None:
        """Raises ChangedError if the object is not as it was."""
        known = self.entry
        found = store_of(known.url).find(known.url)
        if found and found.bytes == known.bytes and same_tag(found.tag, known.tag):
            return
        raise ChangedError(
            f"the object was {'changed' if found else 'removed'} since it was first read",
            source=shown(known.url),
            advice="Run the command again when no program writes to it.",
        )

    def __repr__(self) -> str:
        return f"RemoteStamp({shown(self.entry.url)}, {self.entry.bytes}, {self.entry.tag})"


def same_tag(one: str, other: str) -> bool:
    """False if two tags of one kind differ; a list of objects can have other kinds than an object."""
    return one == other or one.partition(" ")[0] != other.partition(" ")[0]


class _Ranges(io.RawIOBase):
    """An object as a file; it keeps the last ranges, and reads ahead as long as it is read on."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._at = 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        """Ranges by their starts, the one that was used last at the end."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._entry.bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        if self._at >= self._entry.bytes or not len(view):
            return 0
        start, block = self._block(len(view))
        piece = memoryview(block)[self._at - start :][: len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        self._blocks.clear()
        super().close()

    def _block(self, wanted: int) -> tuple[int, bytes]:
        """The range with the next byte, and its start."""
        for start, block in reversed(self._blocks.items()):
            if start <= self._at < start + len(block):
                self._blocks.move_to_end(start)
                return start, block
        before = max(
            (len(block) for start, block in self._blocks.items() if start + len(block) == self._at), default=0
        )
        size = min(max(GROWTH * before, FIRST_BLOCK, wanted), LARGEST_BLOCK)
        stop = min(self._at + size, self._entry.bytes)
        while len(self._blocks) >= BLOCKS:
            self._blocks.popitem(last=False)
        try:
            block = store_of(self._entry.url).read(self._entry, self._at, stop)
        except UnreadableError:
            RemoteStamp(self._entry).check()  # of a changed object, there can be no such range
            raise
        self._blocks[self._at] = block
        return self._at, block


@contextmanager
def as_file(path: str) -> Iterator[Path]:
    """The path of a file of this machine: the file itself, or a temporary copy of an object."""
    if not is_remote(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="tracelink-") as folder:
        yield copy_into(path, Path(folder))


@cache
def lasting_copy(url: str) -> Path:
    """A temporary copy of an object, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="tracelink-"))
    atexit.register(_remove, folder, os.getpid())
    return copy_into(url, folder)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def copy_into(url: str, folder: Path) -> Path:
    """Copies an object to a file `copy` with its suffix; returns the path."""
    file = folder / f"copy{PurePosixPath(shown(url)).suffix}"
    with temporary_copy(url) as whole, file.open("wb") as copy:
        shutil.copyfileobj(whole, copy, LARGEST_BLOCK)
    return file


def copy_folder(url: str, folder: Path) -> None:
    """Copies the objects in a folder, and in folders of it, to a new local one."""
    base = folder_of(url)
    for entry in found_at(base).entries:
        file = folder / entry.url.removeprefix(base)
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_copy(entry.url) as whole, file.open("wb") as copy:
            shutil.copyfileobj(whole, copy, LARGEST_BLOCK)


def temporary_copy(url: str) -> BinaryIO:
    """An unnamed temporary file with the bytes of one object; raises UsageError if there is none."""
    entry = store_of(url).find(url)
    if entry is None:
        raise UsageError(f"{shown(url)}: there is no such object", advice="Check the address.")
    if not entry.in_ranges:
        return copied(entry, MOST_COPIED)
    if entry.bytes > MOST_COPIED:
        raise UnreadableError(
            f"it has more than {MOST_COPIED >> 30} GiB", source=shown(url), advice="Copy it yourself."
        )
    spool = cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))  # noqa: SIM115  it is the result
    with RemoteObject(entry)() as stream:
        shutil.copyfileobj(stream, spool, LARGEST_BLOCK)
    spool.seek(0)
    return spool
