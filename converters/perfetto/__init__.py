"""Perfetto: its own format, the same timeline as Chrome JSON, and the profiles themselves in one archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracelink.converters.perfetto.recognition import is_native
from tracelink.plugins import Conversion, ConversionSpec, Format, Reader, ReaderSpec, Writer, WriterSpec

__all__ = ["PERFETTO", "PERFETTO_BUNDLE", "PERFETTO_JSON"]

OPTIONS: Mapping[str, Sequence[str]] = {
    "args": ("all", "link", "none"),
    "python": ("yes", "no"),
    "compress": ("no", "yes"),
}
JSON_SUFFIXES = (".json", ".json.gz")


def _reader() -> Reader:
    from tracelink.converters.perfetto.reading.reader import PerfettoReader

    return PerfettoReader()


def _writer() -> Writer:
    from tracelink.converters.perfetto.native.writer import PerfettoWriter

    return PerfettoWriter()


def _json_writer() -> Writer:
    from tracelink.converters.perfetto.json.writer import PerfettoJsonWriter

    return PerfettoJsonWriter()


def _native_as_json() -> Conversion:
    from tracelink.converters.perfetto.reading.as_json import NativeAsJson

    return NativeAsJson()


def _bundle_writer() -> Writer:
    from tracelink.converters.perfetto.bundle import PerfettoBundleWriter

    return PerfettoBundleWriter()


PERFETTO = Format(
    "perfetto",
    reader=ReaderSpec(
        "Perfetto's own format, as tracelink writes it: .pftrace, .pftrace.gz",
        lambda head, name: is_native(head),
        _reader,
    ),
    writer=WriterSpec(
        "One trace of all ranks in Perfetto's own format: exact times, small files",
        (".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
        _writer,
        options=OPTIONS,
    ),
)
PERFETTO_JSON = Format(
    "perfetto-json",
    writer=WriterSpec(
        "One trace of all ranks for Perfetto's UI, as Chrome JSON",
        JSON_SUFFIXES,
        _json_writer,
        options=OPTIONS,
    ),
    conversion=ConversionSpec(
        "the same picture as JSON, from a .pftrace that tracelink wrote",
        ("perfetto",),
        JSON_SUFFIXES,
        _native_as_json,
    ),
)
PERFETTO_BUNDLE = Format(
    "perfetto-bundle",
    writer=WriterSpec(
        "The profiles of all ranks as they are, with their clocks, for Perfetto v58 and later to merge",
        (".tar", ".tar.gz"),
        _bundle_writer,
    ),
)
