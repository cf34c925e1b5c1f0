"""Stored bytes: files, parts of them and copies, as small values that other processes and machines can open."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from msgspec import Struct

from tracelink._io.system import machine, read_into_at
from tracelink._model.errors import ChangedError

Opener = Callable[[], BinaryIO]
"""Opens stored bytes; with an attribute `in_ranges` that is true if reading from the middle costs no more."""


class LocalFile(Struct, frozen=True):
    """Opens a file."""

    path: Path

    in_ranges = True
    is_whole = True

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFile, (self.path.absolute(),)

    def __call__(self) -> BinaryIO:
        """The file, unbuffered."""
        return self.path.open("rb", buffering=0)


class Part(Struct, frozen=True):
    """Opens a part of what another opener opens."""

    whole: Opener
    start: int
    size: int

    @property
    def in_ranges(self) -> bool:
        """As of the whole."""
        return bool(getattr(self.whole, "in_ranges", False))

    def __call__(self) -> BinaryIO:
        """The part as a file."""
        return window(self.whole(), self.start, self.size, owned=True)


class Copied:
    """Opens a temporary copy, which is made when it is first needed; other machines make their own."""

    in_ranges = True

    def __init__(self, make: Opener) -> None:
        self._make = make
        self._copy: BinaryIO | None = None
        self._size = 0

    def __call__(self) -> BinaryIO:
        """The copy as a file with a position of its own."""
        if self._copy is None:
            self._copy = self._make()
            self._size = self._copy.seek(0, io.SEEK_END)
            self._copy.flush()
        return window(self._copy, 0, self._size)

    @property
    def size(self) -> int:
        """The size of the copy."""
        self().close()
        return self._size

    def __reduce__(self) -> tuple[Any, ...]:
        return Copied, (self._make,)


class Spooled(Struct, frozen=True):
    """Opens a stream that was copied to an unnamed temporary file: it cannot be read again on another machine."""

    spool: BinaryIO
    size: int

    def __call__(self) -> BinaryIO:
        """The copy as a file with a position of its own."""
        return window(self.spool, 0, self.size)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a stream that was copied to a temporary file cannot be sent to another machine")


def temporary_file() -> BinaryIO:
    """An unnamed temporary file, which the system removes when it is closed."""
    return cast(BinaryIO, tempfile.TemporaryFile(prefix="tracelink-"))


def window(whole: BinaryIO, start: int, size: int, *, owned: bool = False) -> BinaryIO:
    """A part of a file as a file with a position of its own; if `owned`, the whole is closed with it."""
    return io.BufferedReader(_Window(whole, start, size, owned))


class _Window(io.RawIOBase):
    """A part of a file as a file with a position of its own, even if processes share the file."""

    def __init__(self, whole: BinaryIO, start: int, size: int, owned: bool) -> None:
        self._whole = whole
        self._start = start
        self._size = size
        self._owned = owned
        self._at = 0
        try:
            self._descriptor: int | None = whole.fileno()
        except OSError:
            self._descriptor = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)[: max(0, self._size - self._at)]
        if self._descriptor is not None:
            count = read_into_at(self._descriptor, view, self._start + self._at)
        else:
            self._whole.seek(self._start + self._at)
            count = self._whole.readinto(view)  # type: ignore[attr-defined]
        self._at += count
        return count

    def close(self) -> None:
        if self._owned and not self.closed:
            self._whole.close()
        super().close()


class FileStamp(Struct, frozen=True):
    """By what a changed file is recognised."""

    path: Path
    size: int
    modified_ns: int
    inode: int
    device: int
    machine: str
    """Inodes and devices have other numbers on another machine."""

    @property
    def is_cheap(self) -> bool:
        """True: it is one call of the system."""
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        own = (self.size, self.modified_ns, self.inode, self.device, self.machine)
        return FileStamp, (self.path.absolute(), *own)

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """The stamp of a file as it is now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev, machine())

    def check(self) -> None:
        """Raises ChangedError if the file is not as it was."""
        try:
            changed = "" if self._fits(FileStamp.of(self.path)) else "was changed"
        except FileNotFoundError:
            changed = "was removed"
        if changed:
            raise ChangedError(
                f"the file {changed} since it was first read",
                source=self.path.as_posix(),
                advice="Run the command again when no program writes to it.",
            )

    def _fits(self, other: FileStamp) -> bool:
        if self.machine == other.machine:
            return self == other
        return (self.size, self.modified_ns) == (other.size, other.modified_ns)
