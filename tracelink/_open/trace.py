"""The trace that is served: an open file, what kind of trace it is, and whether a browser has memory for it."""

from __future__ import annotations

import os
import re
import stat
from pathlib import PurePath
from types import TracebackType
from typing import BinaryIO, cast

from msgspec import Struct

import tracelink.plugins as plugins
from tracelink._io.framing import DELIMITED, FIXED32, FIXED64, VARINT, varint_at
from tracelink._io.remote.addresses import is_remote, plain_path, shown
from tracelink._io.streams import GZIP_MAGIC, Inflated
from tracelink._join.forecast import (
    WITHOUT_BROWSER,
    TraceKind,
    exceeded_limit,
    memory_finding,
    ui_memory,
)
from tracelink._model.errors import TraceError, UnreadableError, UsageError
from tracelink._model.findings import Finding
from tracelink._open.view import view_of
from tracelink.converters.perfetto.timeline.view import StartupView

HEAD = 1 << 20
SAMPLE = 4 << 20
"""Compressed bytes from which the uncompressed size of a file is estimated."""

FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""How a file is opened: without waiting for a pipe that has its name by now; not all systems have all of these."""

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
MAX_NAME = 100
"""Most characters of a name in an address: its end, with the suffixes."""


class OpenTrace(Struct, frozen=True):
    """An open trace: a file that replaces it under the same path is never served."""

    path: str
    file: BinaryIO
    size: int
    """Bytes as stored, which are sent."""
    kind: TraceKind
    unpacked: int
    """Estimated bytes after the UI has decompressed them."""
    view: StartupView
    """What the UI shows first."""

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> OpenTrace:
        """Opens a file; raises if the UI does not show it."""
        name = os.fspath(path)
        file = _opened(name)
        try:
            size = os.fstat(file.fileno()).st_size
            head, unpacked = _head_and_size(file, size)
            name = shown(name)
            kind = kind_of(head, name)
            return cls(name, file, size, kind, unpacked, view_of(head, kind))
        except BaseException:
            file.close()
            raise

    @property
    def name(self) -> str:
        """The name of the file in an address and as the title of the UI, in characters that need no escape."""
        return UNSAFE.sub("_", PurePath(self.path).name)[-MAX_NAME:].lstrip(".") or "trace"

    def __enter__(self) -> OpenTrace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()


def _opened(path: str) -> BinaryIO:
    """A regular file, opened without blocking on a pipe; a temporary copy of an object in a remote store."""
    if is_remote(path):
        from tracelink._io.remote.objects import temporary_copy

        return temporary_copy(path)
    path = plain_path(path)
    try:
        _check_file(path, os.stat(path))
        descriptor = os.open(path, FLAGS)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: there is no such file", advice="Check the path.") from error
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise TraceError(problem, source=path) from error
    file = cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))
    try:
        _check_file(path, os.fstat(descriptor))
    except BaseException:
        file.close()
        raise
    return file


def _check_file(path: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsageError(
            f"{path} is not a file", advice=f"To merge a folder and open that: tracelink merge {path} --open"
        )


def _head_and_size(file: BinaryIO, size: int) -> tuple[bytes, int]:
    """The first uncompressed bytes, and the estimated uncompressed size."""
    with os.fdopen(os.dup(file.fileno()), "rb", buffering=0) as raw:
        if raw.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            raw.seek(0)
            return raw.read(HEAD), size
        raw.seek(0)
        stream = Inflated(cast(BinaryIO, raw))
        head, inflated = bytearray(), 0
        while raw.tell() < SAMPLE and (chunk := stream.read(HEAD)):
            head += chunk[: HEAD - len(head)]
            inflated += len(chunk)
        return bytes(head), inflated * size // max(raw.tell(), 1)


# Kinds of traces, by their first bytes.


ARCHIVE_MANIFEST = b"perfetto_manifest"
"""The file in an archive of traces that describes the others."""

ARCHIVE_MAGIC = ((0, b"PK\x03\x04"), (257, b"ustar"))
"""Offsets and magic numbers of ZIP and TAR."""

PACKET = 0x0A
"""The first byte of each packet of a native trace: field 1, with a length."""

PACKETS = 3
"""So many valid packets in a row are not a coincidence."""

TAG_BITS, WIRE_BITS = 32, 3
WIRE_TYPES = frozenset({VARINT, FIXED64, DELIMITED, FIXED32})


def kind_of(head: bytes, path: str) -> TraceKind:
    """The kind of the trace that starts with these uncompressed bytes; raises if the UI does not show it."""
    if not head:
        raise UnreadableError("the file is empty", source=path, advice="Write it again.")
    if ARCHIVE_MANIFEST in head and any(head[at:].startswith(magic) for at, magic in ARCHIVE_MAGIC):
        return TraceKind.ARCHIVE
    if is_native(head):
        return TraceKind.NATIVE
    formats = [known.name for known in plugins.recognised(head, path)]
    if formats and not plugins.reader_spec(formats[0]).shown_unchanged:
        raise UnreadableError(
            f"this is {formats[0]}, which Perfetto's UI does not show",
            source=path,
            advice="Make a timeline of it: tracelink merge FILE --open",
        )
    if formats and head.lstrip().startswith((b"{", b"[")):
        return TraceKind.JSON
    raise UnreadableError(
        "this is not a trace that Perfetto's UI shows",
        source=path,
        advice="It shows .json, .json.gz, .pftrace, .perfetto-trace, and the .tar of `tracelink merge --bundle`.",
    )


def is_native(head: bytes) -> bool:
    """True if these bytes start with packets of Perfetto's own format, each as long as its length."""
    offset = 0
    for _ in range(PACKETS):
        if offset >= len(head):
            break
        length, begin = varint_at(head, offset + 1, len(head))
        if head[offset] != PACKET or not begin or length < 0 or not _has_field(head, begin, length):
            return False
        offset = begin + length
    return offset > 0


def _has_field(head: bytes, begin: int, length: int) -> bool:
    """True if a packet starts with a possible field, or is empty at the end of `head`."""
    if not length or begin >= len(head):
        return begin == len(head)
    tag, _ = varint_at(head, begin, len(head))
    return tag >> WIRE_BITS > 0 and tag.bit_length() <= TAG_BITS and tag & 7 in WIRE_TYPES


# Memory.


MEMORY_PER_BUNDLED_BYTE = 9.0
"""Memory of the UI for a byte of a native trace as stored: 6.5 with all arguments, 11.7 without any."""

SMALLER = (
    "Fewer --ranks or --steps, a --window, or --only collectives,kernels with `tracelink merge` make it smaller; "
    "compression does not help, because the UI decompresses it."
)


def memory_findings(trace: OpenTrace) -> list[Finding]:
    """A finding on a trace that needs more memory than some browsers have."""
    bundled = trace.kind is TraceKind.NATIVE and trace.size == trace.unpacked
    memory = int(trace.size * MEMORY_PER_BUNDLED_BYTE) if bundled else ui_memory(trace.kind, trace.unpacked)
    if not exceeded_limit(memory):
        return []
    return [memory_finding(memory, f" {SMALLER} {WITHOUT_BROWSER}", trace.path)]
