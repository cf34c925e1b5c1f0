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
    from tracelink._api.functions import clocks as clocks
    from tracelink._api.functions import collectives as collectives
    from tracelink._api.functions import compile as compile  # noqa: A004  the name of the command
    from tracelink._api.functions import diagnose as diagnose
    from tracelink._api.functions import diff as diff
    from tracelink._api.functions import inspect as inspect
    from tracelink._api.functions import load as load
    from tracelink._api.functions import merge as merge
    from tracelink._api.functions import query as query
    from tracelink._api.functions import summary as summary
    from tracelink._api.functions import validate as validate
    from tracelink._api.functions import what_if as what_if
    from tracelink._api.inspection import Inspection as Inspection
    from tracelink._api.job import Job as Job
    from tracelink._api.outputs import Merged as Merged
    from tracelink._compile.model import CompileReport as CompileReport
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
    from tracelink._model.metrics import Metrics as Metrics
    from tracelink._model.tables import Columns as Columns
    from tracelink._record.session import Capture as Capture
    from tracelink._record.session import capture as capture
    from tracelink._run.reading import ReadOptions as ReadOptions
    from tracelink._sql.session import QueryResult as QueryResult
    from tracelink._sql.shipped import shipped_queries as shipped_queries
    from tracelink._time.compare.model import Comparison as Comparison
    from tracelink._time.model.results import Summary as Summary
    from tracelink.converters.chakra.validation.rules import Validation as Validation
    from tracelink.converters.chakra.validation.rules import Violation as Violation


_ROOT = dirname(dirname(__file__))
if isdir(join(_ROOT, "converters")) and not isdir(join(dirname(__file__), "converters")):
    # In a checkout, what is installed inside this package is next to it.
    __path__.append(_ROOT)

_EXPORTS = {
    "_api.functions": (
        "clocks",
        "collectives",
        "compile",
        "diagnose",
        "diff",
        "inspect",
        "load",
        "merge",
        "query",
        "summary",
        "validate",
        "what_if",
    ),
    "_api.job": ("Job",),
    "_api.outputs": ("Merged",),
    "_model.tables": ("Columns",),
    "_time.compare.model": ("Comparison",),
    "_time.model.results": ("Summary",),
    "_api.inspection": ("Inspection",),
    "_record.session": ("Capture", "capture"),
    "_compile.model": ("CompileReport",),
    "converters.chakra.validation.rules": ("Validation", "Violation"),
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
    "_join.during": ("sampled_during",),
    "_model.metrics": ("Metrics",),
    "_sql.session": ("QueryResult",),
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
