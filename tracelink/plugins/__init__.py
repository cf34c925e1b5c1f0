"""Formats: what a package declares of them, what their readers and writers can do, which are installed.

A format is declared without being imported. Its package, named by an entry point of the group
`tracelink.formats`, holds a `Format`: names, suffixes, how files are recognised, and which
class reads, writes or converts, to be imported when it is used. Formats of other distributions are found the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelink.plugins.protocols import (
    CompileLogReader,
    Configurable,
    Conversion,
    Copying,
    DetailPayloads,
    Drawing,
    EntryPayloads,
    Forecast,
    Forecasting,
    Inspected,
    Inspecting,
    JobReader,
    MetricsReader,
    Reader,
    Recorder,
    Unpacking,
    Writer,
)
from tracelink.plugins.registry import (
    ConversionSpec,
    Files,
    Format,
    Plugin,
    PluginError,
    ReaderSpec,
    WriterSpec,
    conversion,
    conversions,
    formats,
    installed,
    reader,
    readers,
    recognised,
    writer,
    writer_spec,
    writers,
)

if TYPE_CHECKING:
    from tracelink.plugins.outputs import Output

__all__ = [
    "CompileLogReader",
    "Configurable",
    "Conversion",
    "ConversionSpec",
    "Copying",
    "DetailPayloads",
    "Drawing",
    "EntryPayloads",
    "Files",
    "Forecast",
    "Forecasting",
    "Format",
    "Inspected",
    "Inspecting",
    "JobReader",
    "MetricsReader",
    "Output",
    "Plugin",
    "PluginError",
    "Reader",
    "ReaderSpec",
    "Recorder",
    "Unpacking",
    "Writer",
    "WriterSpec",
    "conversion",
    "conversions",
    "formats",
    "installed",
    "outputs",
    "reader",
    "readers",
    "recognised",
    "writer",
    "writer_spec",
    "writers",
]


def __getattr__(name: str) -> Any:
    """Imports what declares fields when it is used: programs that only list formats do without."""
    if name != "Output":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tracelink.plugins.outputs import Output

    return Output
