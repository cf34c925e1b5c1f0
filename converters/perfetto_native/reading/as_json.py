"""A native trace as the JSON that would have been written instead."""

from __future__ import annotations

import os

from tracelink.converters.perfetto.parts import write_pieces
from tracelink.converters.perfetto_native.reading.document import Document
from tracelink.converters.perfetto_native.reading.findings import findings_of
from tracelink.converters.perfetto_native.reading.trace import native_of
from tracelink.engine import Engine
from tracelink.plugins import Output, Target
from tracelink.sources import Source

SUFFIXES = (".json", ".json.gz")
KNOWN = (".gz", ".pftrace", ".perfetto-trace")


class NativeAsJson:
    """A native trace that tracelink wrote, as JSON."""

    name = "perfetto-json"
    summary = "the same picture as JSON, from a .pftrace that tracelink wrote"
    reads = ("perfetto",)
    suffixes = SUFFIXES

    def convert(self, source: Source, target: Target, engine: Engine) -> list[Output]:
        """Writes one JSON document."""
        document = Document.of(source, native_of(source, engine), engine.meter.add)
        name = _renamed(source.name)
        path = target.path(name)
        with target.file(name) as out:
            out.write(document.opening())
            write_pieces(document.pieces(), out, os.path.dirname(path) or None, engine)
            out.write(document.closing())
        findings = (*findings_of(source.path, document.native), *document.bound.findings)
        return [Output(path, self.name, None, target.size(name), document.events, findings)]


def _renamed(name: str) -> str:
    for known in KNOWN:
        name = name.removesuffix(known)
    return name + SUFFIXES[0]
