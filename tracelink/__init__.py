"""One event graph from everything that a distributed PyTorch job left behind.

graph = tracelink.load("traces/")
tracelink.merge("traces/", output="merged.json")

Public is what `__all__` lists, and the modules without an underscore: `plugins`, `adapters`, `pytest`, `samples` and
`schemas`.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from os import environ
from os.path import dirname, isdir, join
from typing import TYPE_CHECKING, Any

from tracelink._model import __version__ as __version__

if TYPE_CHECKING:
    from tracelink._api import Merged as Merged
    from tracelink._api import clocks as clocks
    from tracelink._api import collectives as collectives
    from tracelink._api import inspect as inspect
    from tracelink._api import load as load
    from tracelink._api import merge as merge
    from tracelink._api import write as write
    from tracelink._api.inspection import Inspection as Inspection
    from tracelink._compile.model import CompileReport as CompileReport
    from tracelink._compile.reading import compile as compile  # noqa: A004  the name of the command
    from tracelink._hang.examine import Examined as Examined
    from tracelink._hang.examine import diagnose as diagnose
    from tracelink._hang.examine import examine as examine
    from tracelink._hang.facts.model import Diagnosis as Diagnosis
    from tracelink._hang.facts.model import Kind as Kind
    from tracelink._hang.facts.model import Problem as Problem
    from tracelink._join.during import sampled_during as sampled_during
    from tracelink._model.clock import Clock as Clock
    from tracelink._model.clock import ClockMode as ClockMode
    from tracelink._model.clock import Clocks as Clocks
    from tracelink._model.errors import RankConflictError as RankConflictError
    from tracelink._model.errors import TraceError as TraceError
    from tracelink._model.errors import UnreadableError as UnreadableError
    from tracelink._model.errors import UsageError as UsageError
    from tracelink._model.events import EventKind as EventKind
    from tracelink._model.events import Key as Key
    from tracelink._model.events import Relation as Relation
    from tracelink._model.findings import Finding as Finding
    from tracelink._model.findings import Severity as Severity
    from tracelink._model.graph import EventGraph as EventGraph
    from tracelink._model.job import Job as Job
    from tracelink._model.metrics import Metrics as Metrics
    from tracelink._model.selection import Selection as Selection
    from tracelink._record.session import Capture as Capture
    from tracelink._record.session import capture as capture
    from tracelink._run.reading import ReadOptions as ReadOptions
    from tracelink._sql.session import QueryResult as QueryResult
    from tracelink._sql.session import query as query
    from tracelink._sql.shipped import shipped_queries as shipped_queries
    from tracelink._time.compare.compare import compare as compare
    from tracelink._time.compare.model import Comparison as Comparison
    from tracelink._time.model.results import Summary as Summary
    from tracelink._time.summarize import summarize as summarize
    from tracelink._time.what_if import what_if as what_if
    from tracelink.converters.chakra.validation.rules import Validation as Validation
    from tracelink.converters.chakra.validation.rules import Violation as Violation
    from tracelink.converters.chakra.validation.validate import validate as validate


_ROOT = dirname(dirname(__file__))
if isdir(join(_ROOT, "converters")) and not isdir(join(dirname(__file__), "converters")):
    # In a checkout, what is installed inside this package is next to it.
    __path__.append(_ROOT)

_EXPORTS = {
    "_time.compare.compare": ("compare",),
    "_time.compare.model": ("Comparison",),
    "_time.model.results": ("Summary",),
    "_time.summarize": ("summarize",),
    "_time.what_if": ("what_if",),
    "_api": (
        "Merged",
        "clocks",
        "collectives",
        "inspect",
        "load",
        "merge",
        "write",
    ),
    "_api.inspection": ("Inspection",),
    "_record.session": ("Capture", "capture"),
    "_compile.model": ("CompileReport",),
    "_compile.reading": ("compile",),
    "converters.chakra.validation.rules": ("Validation", "Violation"),
    "converters.chakra.validation.validate": ("validate",),
    "_hang.examine": ("Examined", "diagnose", "examine"),
    "_hang.facts.model": ("Diagnosis", "Kind", "Problem"),
    "_run.reading": ("ReadOptions",),
    "_model.findings": ("Finding", "Severity"),
    "_model.errors": (
        "RankConflictError",
        "TraceError",
        "UnreadableError",
        "UsageError",
    ),
    "_model.clock": ("Clock", "ClockMode", "Clocks"),
    "_model.events": ("EventKind", "Key", "Relation"),
    "_model.graph": ("EventGraph",),
    "_model.job": ("Job",),
    "_join.during": ("sampled_during",),
    "_model.metrics": ("Metrics",),
    "_model.selection": ("Selection",),
    "_sql.session": ("QueryResult", "query"),
    "_sql.shipped": ("shipped_queries",),
}

__all__ = sorted(chain.from_iterable(_EXPORTS.values()))


def __getattr__(name: str) -> Any:
    """Imports the home of a public name when it is first used, so that `import tracelink` costs nothing."""
    for module, names in _EXPORTS.items():
        if name in names:
            return getattr(import_module(f"tracelink.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if "TRACELINK_CAPTURE" in environ:  # records the program that imports tracelink: docs/record.md
    from tracelink._record.hooks import install

    install()
