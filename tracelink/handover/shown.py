"""What Perfetto's UI can show, told by how a file begins."""

from __future__ import annotations

from enum import StrEnum

from tracelink import plugins
from tracelink.errors import UnreadableError

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
WIRE_TYPES = frozenset({0, 1, 2, 5})
CONTINUED = 0x80


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
    formats = [reader.name for reader in plugins.working(plugins.readers()) if reader.recognises(head, path)]
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
    at = 0
    for _ in range(PACKETS):
        if at >= len(head):
            break
        length, content = _varint(head, at + 1)
        if head[at] != PACKET or content is None or not _is_field(head, content, length):
            return False
        at = content + length
    return at > 0


def _is_field(head: bytes, at: int, length: int) -> bool:
    """Whether a packet begins with a field that there can be."""
    if not length or at >= len(head):
        return at == len(head)
    tag, _ = _varint(head, at)
    return tag >> WIRE_BITS > 0 and tag.bit_length() <= TAG_BITS and tag & 7 in WIRE_TYPES


def _varint(data: bytes, at: int) -> tuple[int, int | None]:
    """A number, and where it ends; None where it does not end."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        value |= (data[place] & ~CONTINUED) << shift
        shift += 7
        if data[place] < CONTINUED:
            return value, place + 1
    return value, None
