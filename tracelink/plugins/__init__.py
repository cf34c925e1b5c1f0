"""Formats: what a package declares of them, what their readers and writers can do, which are installed.

A format is declared without being imported. Its package, named by an entry point of the group
`tracelink.formats`, holds a `Format`: names, suffixes, how files are recognised, and which
class reads, writes or converts, to be imported when it is used. Formats of other distributions are found the same way.
"""

from tracelink.plugins.protocols import (
    CompileLogReader,
    Configurable,
    Conversion,
    Copying,
    Drawing,
    EntryPayloads,
    Forecast,
    Forecasting,
    Output,
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

__all__ = [
    "CompileLogReader",
    "Configurable",
    "Conversion",
    "ConversionSpec",
    "Copying",
    "Drawing",
    "EntryPayloads",
    "Files",
    "Forecast",
    "Forecasting",
    "Format",
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
    "reader",
    "readers",
    "recognised",
    "writer",
    "writer_spec",
    "writers",
]
