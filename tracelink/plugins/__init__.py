"""Plugins: formats and engines of other distributions, and what their code is built from.

A format is declared without being imported. Its package, named by an entry point of the group `tracelink.formats`,
holds a `Format`: names, suffixes, how files are recognised, what its reader and writer can do, and which classes they
are, to be imported when they are used. An engine is an `EngineSpec`, named by one of the group `tracelink._run`.
Our own formats and engines are found the same way. docs/plugins.md has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracelink._model.errors import CrashError
from tracelink.plugins.protocols import (
    Conversion,
    ConversionMethods,
    Forecast,
    Inspected,
    Reader,
    ReaderMethods,
    Writer,
    WriterMethods,
)
from tracelink.plugins.registry import (
    ENGINES,
    FORMATS,
    Content,
    ConversionSpec,
    EngineSpec,
    Files,
    Format,
    Plugin,
    PluginError,
    ReaderSpec,
    WriterSpec,
    check_reader,
    connect,
    conversion,
    conversions,
    engines,
    formats,
    installed,
    isolated,
    reader,
    reader_spec,
    readers,
    recognised,
    writer,
    writer_spec,
    writers,
)

if TYPE_CHECKING:
    from tracelink.plugins.outputs import Output

__all__ = [
    "ENGINES",
    "FORMATS",
    "Content",
    "Conversion",
    "ConversionMethods",
    "ConversionSpec",
    "CrashError",
    "EngineSpec",
    "Files",
    "Forecast",
    "Format",
    "Inspected",
    "Output",
    "Plugin",
    "PluginError",
    "Reader",
    "ReaderMethods",
    "ReaderSpec",
    "Writer",
    "WriterMethods",
    "WriterSpec",
    "check_reader",
    "connect",
    "conversion",
    "conversions",
    "engines",
    "formats",
    "installed",
    "isolated",
    "outputs",
    "reader",
    "reader_spec",
    "readers",
    "recognised",
    "writer",
    "writer_spec",
    "writers",
]

_LATER = {"Output": "outputs"}
"""Names by their modules, whose imports take time that programs that only list formats do not need."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
