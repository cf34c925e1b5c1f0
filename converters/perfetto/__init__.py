"""Perfetto: its own format, the same timeline as Chrome JSON, and the profiles themselves in one archive."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tracelink._io.framing import DELIMITED, VARINT, fields_of, key, length_at
from tracelink.plugins import Content, ConversionSpec, Format, ReaderSpec, WriterSpec

__all__ = ["PERFETTO", "PERFETTO_BUNDLE", "PERFETTO_JSON", "TRACK_EVENTS", "timeline"]

HEAD = key(1, DELIMITED)
"""The tag of a packet."""
MARK = key(1999, DELIMITED)
"""The tag of the field that tracelink adds to the first packet."""
LOOKED_AT = 4
"""Packets that are examined."""

CLOCK_SNAPSHOT, TIME, SEQUENCE, TRACK_EVENT, BUNDLE, TRACK = 6, 8, 10, 11, 50, 60
COMMON = {
    CLOCK_SNAPSHOT: DELIMITED,
    TIME: VARINT,
    SEQUENCE: VARINT,
    TRACK_EVENT: DELIMITED,
    TRACK: DELIMITED,
    BUNDLE: DELIMITED,
}
"""Fields of which most packets of any trace have one, and their wire types."""


def is_own(head: bytes, name: str = "") -> bool:
    """True if the first packet is one that tracelink writes."""
    bounds = _packet_at(head, 0)
    return bounds is not None and head.startswith(MARK, bounds[0])


def is_native(head: bytes, name: str = "") -> bool:
    """True if packets follow one another, as in the traces that Perfetto records."""
    if is_own(head):
        return True
    offset, common = 0, False
    for _ in range(LOOKED_AT):
        bounds = _packet_at(head, offset)
        if bounds is None or bounds[1] > len(head):
            return common and head.startswith(HEAD, offset)
        fields = list(fields_of(head, *bounds))
        if None in fields:
            return False
        common |= any(field and (field.number, field.wire) in COMMON.items() for field in fields)
        offset = bounds[1]
        if offset == len(head):
            break
    return common


def is_foreign_native(head: bytes, name: str = "") -> bool:
    """True if another program wrote it."""
    return is_native(head) and not is_own(head)


PROFILED = re.compile(
    rb"aten::|cpu_op|cuda|torch|autograd|ProfilerStep|nccl|Memcpy|External id|correlation"
    rb"|rocprof|kernel_dispatch|memory_copy|memory_allocation|marker_api|rccl_api|hip_api|hsa_api|AGENT \["
)
"""Names and categories of PyTorch and rocprof, of which one is near the start of their traces."""
BUNDLED = key(BUNDLE, DELIMITED)


def refusal(head: bytes) -> str:
    """The reason for which the trace of another program is not read; empty if it is."""
    if PROFILED.search(head) or BUNDLED in head:
        return ""
    return (
        "a Perfetto trace that neither tracelink nor PyTorch nor rocprof wrote. "
        "Open it at ui.perfetto.dev, or use the file that torch.profiler wrote."
    )


def _packet_at(head: bytes, offset: int) -> tuple[int, int] | None:
    """The bounds of the body of the packet at an offset; None if there is no packet."""
    if not head.startswith(HEAD, offset) or not (found := length_at(head, offset + len(HEAD))):
        return None
    length, begin = found
    return begin, begin + length


OPTIONS: Mapping[str, Sequence[str]] = {
    "args": ("all", "link", "none"),
    "python": ("yes", "no"),
    "compress": ("no", "yes"),
    "critical_path": ("no", "yes"),
}
JSON_SUFFIXES = (".json", ".json.gz")


PERFETTO = Format(
    "perfetto",
    reader=ReaderSpec(
        "Perfetto's own format, as tracelink writes it: .pftrace, .pftrace.gz",
        is_own,
        "tracelink.converters.perfetto.native_profiles:PerfettoReader",
        unpacks=True,
        inspects=True,
    ),
    writer=WriterSpec(
        "One trace of all ranks in Perfetto's own format: exact times, small files",
        (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
        "tracelink.converters.perfetto.native_writer:PerfettoWriter",
        options=OPTIONS,
        timeline="native",
    ),
)
PERFETTO_JSON = Format(
    "perfetto-json",
    writer=WriterSpec(
        "One trace of all ranks for Perfetto's UI, as Chrome JSON",
        JSON_SUFFIXES,
        "tracelink.converters.perfetto.json_writer:PerfettoJsonWriter",
        options=OPTIONS,
        timeline="JSON",
    ),
    conversion=ConversionSpec(
        "the same timeline as JSON, from a .pftrace that tracelink wrote",
        ("perfetto",),
        JSON_SUFFIXES,
        "tracelink.converters.perfetto.native_json:NativeAsJson",
    ),
)
PERFETTO_BUNDLE = Format(
    "perfetto-bundle",
    writer=WriterSpec(
        "The profiles of all ranks as they are, with their clocks, for Perfetto v58 and later to merge",
        (".tar", ".tar.gz"),
        "tracelink.converters.perfetto.bundle:PerfettoBundleWriter",
        copies=True,
    ),
)
TRACK_EVENTS = Format(
    "track-events",
    reader=ReaderSpec(
        "Perfetto traces of torch.profiler (2026) and of rocprofv3: .pftrace, .pftrace.gz",
        is_foreign_native,
        "tracelink.converters.perfetto.track_events.reader:TrackEventReader",
        refusal,
        content=Content.PROFILE,
    ),
)
