"""The file that is handed over: opened once, so that nothing can take its place afterwards."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import BinaryIO, cast

from tracelink.errors import TraceError, UsageError
from tracelink.handover.shown import Kind, kind_of
from tracelink.streams import GZIP_MAGIC, Inflated

HEAD = 1 << 20
SAMPLE = 4 << 20
"""So many compressed bytes tell how far the rest of a file was compressed."""

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 100
"""Characters of a name in an address: its end, where the suffixes are."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One open trace."""

    path: str
    file: BinaryIO
    size: int
    """Bytes as stored, which are what is sent."""
    kind: Kind
    unpacked: int
    """Bytes once the UI has decompressed them, as far as a part of them tells."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Offer:
        """Opens a file; raises where it is no trace that the UI shows."""
        name = os.fspath(path)
        file = _opened(name)
        try:
            size = os.fstat(file.fileno()).st_size
            head, unpacked = _looked_into(file, size)
            return cls(name, file, size, kind_of(head, name), unpacked)
        except BaseException:
            file.close()
            raise

    @property
    def name(self) -> str:
        """The name of the file in an address and as the title of the UI, in letters that need no escape."""
        return UNSAFE.sub("_", PurePath(self.path).name)[-LONGEST_NAME:].lstrip(".") or "trace"

    def __enter__(self) -> Offer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def _opened(path: str) -> BinaryIO:
    """A regular file, opened without waiting for whoever writes to a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file", advice="Check the path.") from error
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise TraceError(problem, source=path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(
            f"{path} is not a file", advice=f"To merge a folder and open that: tracelink merge {path} --open"
        )
    return cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))


def _looked_into(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """How the file begins once it is decompressed, and how long it is then."""
    with os.fdopen(os.dup(file.fileno()), "rb", buffering=0) as raw:
        if raw.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            raw.seek(0)
            return raw.read(HEAD), size
        raw.seek(0)
        stream = Inflated(cast(BinaryIO, raw))
        head, given = bytearray(), 0
        while raw.tell() < SAMPLE and (piece := stream.read(HEAD)):
            head += piece[: HEAD - len(head)]
            given += len(piece)
        return bytes(head), given * size // max(raw.tell(), 1)
