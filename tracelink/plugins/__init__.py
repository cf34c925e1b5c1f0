"""Plugins: formats and engines of other distributions, and what their code is built from.

A format is declared without being imported. Its package, named by an entry point of the group `tracelink.formats`,
holds a `Format`: names, suffixes, how files are recognised, what its reader and writer can do, and which classes they
are, to be imported when they are used. An engine is an `EngineSpec`, named by one of the group `tracelink._run`.
Our own formats and engines are found the same way. docs/plugins.md has an example of each.
"""

from __future__ import annotations

import os
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
    check_trace,
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
    from tracelink._io.engine import Engine as Engine
    from tracelink._io.sources import Source as Source
    from tracelink._io.targets import Target as Target
    from tracelink._model.columns import NO_TIME as NO_TIME
    from tracelink._model.columns import UNKNOWN as UNKNOWN
    from tracelink._model.events import TrackKind as TrackKind
    from tracelink._model.fields import Bytes as Bytes
    from tracelink._model.fields import Count as Count
    from tracelink._model.fields import Doc as Doc
    from tracelink._model.fields import Nanoseconds as Nanoseconds
    from tracelink._model.fields import RankNumber as RankNumber
    from tracelink._model.fields import Row as Row
    from tracelink._model.fields import Shown as Shown
    from tracelink._model.fields import Text as Text
    from tracelink._model.fields import UnixNanoseconds as UnixNanoseconds
    from tracelink._model.results import Result as Result
    from tracelink._model.trace import RankTrace as RankTrace
    from tracelink._show.document import Paragraph as Paragraph
    from tracelink._show.document import Report as Report
    from tracelink._show.document import Section as Section
    from tracelink._show.document import Table as Table
    from tracelink.plugins.outputs import Output as Output
    from tracelink.plugins.traces import TraceBuilder as TraceBuilder

_LATER = {
    "_io.engine": ("Engine",),
    "_io.sources": ("Source",),
    "_io.targets": ("Target",),
    "_model.columns": ("NO_TIME", "UNKNOWN"),
    "_model.events": ("TrackKind",),
    "_model.fields": (
        *("Bytes", "Count", "Doc", "Nanoseconds", "RankNumber"),
        *("Row", "Shown", "Text", "UnixNanoseconds"),
    ),
    "_model.results": ("Result",),
    "_model.trace": ("RankTrace",),
    "_show.document": ("Paragraph", "Report", "Section", "Table"),
    "plugins.outputs": ("Output",),
    "plugins.traces": ("TraceBuilder",),
}
"""Names by their modules, whose imports take time that declarations of formats do not need."""

__all__ = [
    *(name for names in _LATER.values() for name in names),
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
    "Plugin",
    "PluginError",
    "Reader",
    "ReaderMethods",
    "ReaderSpec",
    "Writer",
    "WriterMethods",
    "WriterSpec",
    "check",
    "check_reader",
    "check_trace",
    "connect",
    "conversion",
    "conversions",
    "engines",
    "formats",
    "installed",
    "isolated",
    "local_engine",
    "outputs",
    "reader",
    "reader_spec",
    "readers",
    "recognised",
    "save",
    "text_of",
    "traces",
    "writer",
    "writer_spec",
    "writers",
]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"tracelink.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# What authors of plugins call that is built on rooms above this one.


def check(declared: Format, *files: str | os.PathLike[str]) -> list[str]:
    """Returns what is wrong with the reader of a format, in sentences: `assert check(FORMAT, "a.notes") == []`.

    Args:
        declared: The format, whether it is installed or not.
        files: Good files of the format; damaged ones are made of them.
    """
    return import_module("tracelink._api.plugin_check").problems_of(declared, files)


def local_engine(jobs: int = 1) -> Engine:
    """Returns the engine of this machine, for work that the engine of a cluster does not do itself."""
    return import_module("tracelink._run.processes").Processes(jobs)


def text_of(result: Result, width: int = 100) -> str:
    """Returns the report of a result as text."""
    return str(import_module("tracelink._show.terminal").draw(result.report(), width=width))


def save(result: Result, path: str | os.PathLike[str]) -> list[str]:
    """Writes a result, and returns the files: .html, .md, .csv, .json, .parquet, .sqlite or .duckdb."""
    return import_module("tracelink._store.results").save(result, os.fspath(path), result.report())
