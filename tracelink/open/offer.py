"""The file, its kind and what a browser has room for."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from types import TracebackType
from typing import BinaryIO, cast

from tracelink import plugins
from tracelink.errors import Finding, Severity, TraceError, UnreadableError, UsageError
from tracelink.io.framing import DELIMITED, FIXED32, FIXED64, VARINT, varint_at
from tracelink.io.streams import GZIP_MAGIC, Inflated
from tracelink.text import about

# What Perfetto's UI can show, told by how a file begins.


PROFILE = "kineto"
"""The reader of what is shown as it is: JSON with a list of trace events."""

ARCHIVED = b"perfetto_manifest"
"""The file that says what belongs together in an archive of traces."""

ARCHIVES = ((0, b"PK\x03\x04"), (257, b"ustar"))
"""Where the marks of ZIP and TAR stand."""

PACKET = 0x0A
"""How each packet of a native trace begins: field 1, with a length."""

PACKETS = 3
"""So many packets in a row are no coincidence."""

TAG_BITS, WIRE_BITS = 32, 3
WIRE_TYPES = frozenset({VARINT, FIXED64, DELIMITED, FIXED32})


class Kind(StrEnum):
    """How a trace is written."""

    JSON = "JSON"
    NATIVE = "native"
    ARCHIVE = "archive"


def kind_of(head: bytes, path: str) -> Kind:
    """The kind of the trace whose uncompressed bytes begin with `head`; raises where the UI shows no such file."""
    if not head:
        raise UnreadableError("the file is empty", source=path, advice="Write it again.")
    if ARCHIVED in head and any(head[at:].startswith(mark) for at, mark in ARCHIVES):
        return Kind.ARCHIVE
    if is_native(head):
        return Kind.NATIVE
    formats = [known.name for known in plugins.recognised(head, path)]
    if formats and formats[0] != PROFILE:
        raise UnreadableError(
            f"this is {formats[0]}, which Perfetto's UI does not show",
            source=path,
            advice="Make a timeline of it: tracelink merge FILE --open",
        )
    if formats and head.lstrip().startswith((b"{", b"[")):
        return Kind.JSON
    raise UnreadableError(
        "this is no trace that Perfetto's UI shows",
        source=path,
        advice="It shows .json, .json.gz, .pftrace, .perfetto-trace, and the .tar of `tracelink merge --bundle`.",
    )


def is_native(head: bytes) -> bool:
    """Whether these bytes begin with packets of Perfetto's own format, each as long as it says."""
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
    """Whether a packet begins with a field that is possible, or is empty at the end of `head`."""
    if not length or begin >= len(head):
        return begin == len(head)
    tag, _ = varint_at(head, begin, len(head))
    return tag >> WIRE_BITS > 0 and tag.bit_length() <= TAG_BITS and tag & 7 in WIRE_TYPES


# The file that is handed over: opened once, so that nothing can take its place afterwards.


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


# Whether a browser has room for a trace.


GIGABYTE = 10**9
HEAP_PER_BYTE = {Kind.JSON: 1.6, Kind.NATIVE: 1.2}
"""Bytes of memory that the UI's engine takes for a byte of a trace, as measured on traces of GPU jobs.

It keeps a JSON until it has read all of it; of a native trace that is in order of time it keeps slices and texts.
"""

HEAP_PER_BARE_BYTE = {Kind.JSON: 1.6, Kind.NATIVE: 3.6}
"""The same of traces without most arguments, of which slices are a larger part."""

HEAP_PER_BUNDLED_BYTE = 9.0
"""The same of a native trace as it is stored: 6.5 with all arguments, 11.7 without any."""

MOST = 16 * GIGABYTE
"""What WebAssembly with addresses of 64 bits gives the engine."""

MOST_OF_32_BITS = 4 * GIGABYTE

REASON = "larger_than_a_browser_takes"

CUT = (
    "Fewer --ranks or --steps, a --window, or --only collectives,kernels with `tracelink merge` make it smaller; "
    "compression does not, for the UI decompresses it."
)
OUTSIDE = "Or load it outside of the browser: trace_processor_shell server http FILE"


def too_heavy(offer: Offer) -> list[Finding]:
    """What to know before the UI loads a trace that is larger than what some browsers take."""
    bundled = offer.kind is Kind.NATIVE and offer.size == offer.unpacked
    heap = int(offer.size * HEAP_PER_BUNDLED_BYTE) if bundled else heap_of(offer.kind, offer.unpacked)
    if not limit_passed(heap):
        return []
    return [heavy(f"{need(heap)}. {CUT} {OUTSIDE}", offer.path)]


def heap_of(kind: Kind, unpacked: int, *, bare: bool = False) -> int:
    """The memory that the UI needs for a trace of so many bytes; `bare`: without most arguments."""
    return int(unpacked * (HEAP_PER_BARE_BYTE if bare else HEAP_PER_BYTE).get(kind, 0))


def limit_passed(heap: int) -> int:
    """What browsers have that is less than what is needed, the most of it; 0 where all have enough."""
    return max((limit for limit in (MOST, MOST_OF_32_BITS) if heap > limit), default=0)


def need(heap: int) -> str:
    """In words, what a trace needs that is too large for some browsers."""
    needed = f"Perfetto's UI needs about {about(heap)} of memory for this file"
    if limit_passed(heap) == MOST:
        return f"{needed}, and can have {MOST // GIGABYTE} GB"
    return f"{needed}, where browsers without 64-bit WebAssembly stop at {MOST_OF_32_BITS // GIGABYTE} GB"


def heavy(message: str, path: str) -> Finding:
    """The finding on a trace that is too large for some browsers."""
    return Finding(Severity.WARNING, REASON, message, source=path)
