"""Perfetto: its own format, the same timeline as Chrome JSON, and the profiles themselves in one archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelink.converters.perfetto.recognition import is_native
from tracelink.plugins import ConversionSpec, Format, ReaderSpec, WriterSpec

__all__ = ["PERFETTO", "PERFETTO_BUNDLE", "PERFETTO_JSON"]

OPTIONS: Mapping[str, Sequence[str]] = {
    "args": ("all", "link", "none"),
    "python": ("yes", "no"),
    "compress": ("no", "yes"),
}
JSON_SUFFIXES = (".json", ".json.gz")


PERFETTO = Format(
    "perfetto",
    reader=ReaderSpec(
        "Perfetto's own format, as tracelink writes it: .pftrace, .pftrace.gz",
        is_native,
        "tracelink.converters.perfetto.reading.reader:PerfettoReader",
    ),
    writer=WriterSpec(
        "One trace of all ranks in Perfetto's own format: exact times, small files",
        (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
        "tracelink.converters.perfetto.native.writer:PerfettoWriter",
        options=OPTIONS,
    ),
)
PERFETTO_JSON = Format(
    "perfetto-json",
    writer=WriterSpec(
        "One trace of all ranks for Perfetto's UI, as Chrome JSON",
        JSON_SUFFIXES,
        "tracelink.converters.perfetto.json.writer:PerfettoJsonWriter",
        options=OPTIONS,
    ),
    conversion=ConversionSpec(
        "the same timeline as JSON, from a .pftrace that tracelink wrote",
        ("perfetto",),
        JSON_SUFFIXES,
        "tracelink.converters.perfetto.reading.as_json:NativeAsJson",
    ),
)
PERFETTO_BUNDLE = Format(
    "perfetto-bundle",
    writer=WriterSpec(
        "The profiles of all ranks as they are, with their clocks, for Perfetto v58 and later to merge",
        (".tar", ".tar.gz"),
        "tracelink.converters.perfetto.bundle:PerfettoBundleWriter",
    ),
)
