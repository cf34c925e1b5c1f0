"""Bytes inside gzip streams and zip members; of a damaged one, all bytes before the damage."""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib
from msgspec import Struct

from tracelink._io.system import machine, read_into_at
from tracelink._model.errors import ChangedError

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 256 << 10
FIRST_STEP, LAST_STEP = 1 << 10, 64 << 10
"""Compressed bytes of a step, at first and at most: what follows a small member is not copied for it."""
GZIP_WINDOW = 31
"""zlib's `wbits` for a gzip member."""

UNZIPPED_AT_ONCE = 64 << 10
BROKEN_MEMBER = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError)
"""OSError for bzip2; the last two for a directory that does not fit to the members."""


class Inflated(io.RawIOBase):
    """The bytes inside a gzip stream of any number of members.

    A truncated or damaged stream ends early; `damage` is then the reason.
    """

    def __init__(self, compressed: BinaryIO) -> None:
        self._compressed = compressed
        self._member = isal_zlib.decompressobj(wbits=GZIP_WINDOW)
        self._step = FIRST_STEP
        self._chunk = b""
        self._used = 0
        """Number of bytes of the chunk that were decompressed."""
        self._begun = False
        self._at = 0
        """Number of compressed bytes read so far."""
        self._member_at = 0
        """Offset of the current member."""
        self._given = 0
        """Number of bytes of this member that were returned."""
        self._again = 0
        """Number of bytes to skip because they were returned before."""
        self._fault_at: int | None = None
        self._ended = False
        self.damage = ""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fills `buffer` with the bytes of one step of decompression."""
        view = memoryview(buffer)
        data = self._inflate(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Closes the compressed stream too."""
        self._compressed.close()
        super().close()

    def _inflate(self, limit: int) -> bytes:
        while not self._ended:
            if self._member.eof:
                self._next_member()
                continue
            if self._used == len(self._chunk):
                self._read()
            piece = memoryview(self._chunk)[self._used : self._used + self._step]
            if not piece:
                self._end("the gzip stream is cut off" if self._begun else "")
                break
            self._begun = True
            try:
                data = self._member.decompress(piece, limit)
            except isal_zlib.error as error:  # type: ignore[misc]
                if self._fault_at is None:
                    self._approach(self._place)
                    continue
                self._end(f"the gzip stream is broken ({error})")
                break
            self._used += len(piece) - len(self._member.unconsumed_tail) - len(self._member.unused_data)
            self._step = min(2 * self._step, LAST_STEP)
            fresh = data[self._again :]
            self._again -= len(data) - len(fresh)
            if fresh:
                self._given += len(fresh)
                return fresh
        return b""

    @property
    def _place(self) -> int:
        """The offset of the next compressed byte that is used."""
        return self._at - len(self._chunk) + self._used

    def _read(self) -> None:
        ahead = CHUNK if self._fault_at is None else self._fault_at - self._at
        self._chunk, self._used = self._compressed.read(min(max(ahead, 1), CHUNK)), 0
        self._at += len(self._chunk)

    def _approach(self, fault_at: int) -> None:
        """Decompresses the member again, byte by byte near the fault: a step with a fault returns no bytes."""
        self._fault_at = fault_at
        self._compressed.seek(self._member_at)
        self._at = self._member_at
        self._again = self._given
        self._begin_member()
        self._chunk, self._used = b"", 0

    def _begin_member(self) -> None:
        self._member = isal_zlib.decompressobj(wbits=GZIP_WINDOW)
        self._step = FIRST_STEP

    def _next_member(self) -> None:
        if self._used == len(self._chunk):
            self._read()
        start = self._chunk[self._used : self._used + len(GZIP_MAGIC)]
        self._member_at = self._place
        self._given = 0
        if not start or (start[0] == 0 and not self._chunk[self._used :].strip(b"\0")):
            self._end("")
        elif not start.startswith(GZIP_MAGIC[: len(start)]):
            self._end("bytes that are no gzip member follow the last one")
        else:
            self._begin_member()

    def _end(self, damage: str) -> None:
        self._ended = True
        self.damage = damage


class Unzipped(io.RawIOBase):
    """The bytes of one member of a zip archive.

    A damaged member ends early; `damage` is then the reason.
    """

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self._archive = archive
        self._member = copy(member)
        self._stream = archive.open(member)
        self._at = 0
        self._fault = ""
        self.damage = ""

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves to an offset in the member."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._member.file_size}[whence]
        self._go_to(base + offset)
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fills `buffer` with the bytes of one step; near a fault a step is one byte, as it loses those of its step."""
        view = memoryview(buffer)
        while not self.damage:
            try:
                data = self._stream.read(min(len(view), 1 if self._fault else UNZIPPED_AT_ONCE))
            except BROKEN_MEMBER as error:
                if self._fault:
                    self.damage = self._fault
                else:
                    self._approach(f"the zip member is broken ({error})")
                continue
            if not data:
                self.damage = self._fault
            view[: len(data)] = data
            self._at += len(data)
            return len(data)
        return 0

    def _approach(self, fault: str) -> None:
        """Opens the member again without its checksum, which would fail before the last bytes are returned."""
        self._fault = fault
        del self._member.CRC
        self._go_to(self._at)

    def _go_to(self, offset: int) -> None:
        """Reads up to an offset, from the start of the member if necessary."""
        try:
            if offset < self._at or self._fault:
                self._stream = self._archive.open(self._member)
                self._at = 0
            while self._at < offset and (
                skipped := self._stream.read(min(offset - self._at, UNZIPPED_AT_ONCE))
            ):
                self._at += len(skipped)
        except BROKEN_MEMBER as error:
            self.damage = f"the zip member is broken ({error})"


# Stored bytes: files, parts of them and copies, as small values that other processes and machines can open.


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
