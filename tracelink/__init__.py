"""One event graph from everything that a distributed PyTorch job left behind.

graph = tracelink.load("traces/")
tracelink.merge("traces/", output="merged.json")
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from os import environ
from os.path import dirname, isdir, join
from typing import TYPE_CHECKING, Any

from tracelink.model import __version__ as __version__

if TYPE_CHECKING:
    from tracelink.answers.compare.compare import compare as compare
    from tracelink.answers.compare.model import Comparison as Comparison
    from tracelink.answers.model.results import Summary as Summary
    from tracelink.answers.summarize import summarize as summarize
    from tracelink.answers.what_if import what_if as what_if
    from tracelink.api import Merged as Merged
    from tracelink.api import Written as Written
    from tracelink.api import clocks as clocks
    from tracelink.api import collectives as collectives
    from tracelink.api import convert as convert
    from tracelink.api import inspect as inspect
    from tracelink.api import load as load
    from tracelink.api import merge as merge
    from tracelink.api import write as write
    from tracelink.api.inspection import Inspection as Inspection
    from tracelink.capturing.session import Capture as Capture
    from tracelink.capturing.session import capture as capture
    from tracelink.compiling.model import CompileReport as CompileReport
    from tracelink.compiling.reading import compile as compile  # noqa: A004  the name of the command
    from tracelink.converters.chakra.validation.rules import Validation as Validation
    from tracelink.converters.chakra.validation.rules import Violation as Violation
    from tracelink.converters.chakra.validation.validate import validate as validate
    from tracelink.diagnosis.examine import Examined as Examined
    from tracelink.diagnosis.examine import diagnose as diagnose
    from tracelink.diagnosis.examine import examine as examine
    from tracelink.diagnosis.model import Diagnosis as Diagnosis
    from tracelink.diagnosis.model import Kind as Kind
    from tracelink.diagnosis.model import Problem as Problem
    from tracelink.engines.reading import ReadOptions as ReadOptions
    from tracelink.metrics.during import sampled_during as sampled_during
    from tracelink.model.clock import Clock as Clock
    from tracelink.model.clock import ClockMode as ClockMode
    from tracelink.model.clock import Clocks as Clocks
    from tracelink.model.errors import RankConflictError as RankConflictError
    from tracelink.model.errors import TraceError as TraceError
    from tracelink.model.errors import UnreadableError as UnreadableError
    from tracelink.model.errors import UsageError as UsageError
    from tracelink.model.events import EventKind as EventKind
    from tracelink.model.events import Key as Key
    from tracelink.model.events import Relation as Relation
    from tracelink.model.findings import Finding as Finding
    from tracelink.model.findings import Severity as Severity
    from tracelink.model.graph import EventGraph as EventGraph
    from tracelink.model.job import Job as Job
    from tracelink.model.metrics import Metrics as Metrics
    from tracelink.model.selection import Selection as Selection
    from tracelink.sql.session import QueryResult as QueryResult
    from tracelink.sql.session import query as query
    from tracelink.sql.shipped import shipped_queries as shipped_queries


_ROOT = dirname(dirname(__file__))
if isdir(join(_ROOT, "converters")) and not isdir(join(dirname(__file__), "converters")):
    # In a checkout, what is installed inside this package is next to it.
    __path__.append(_ROOT)

_EXPORTS = {
    "answers.compare.compare": ("compare",),
    "answers.compare.model": ("Comparison",),
    "answers.model.results": ("Summary",),
    "answers.summarize": ("summarize",),
    "answers.what_if": ("what_if",),
    "api": (
        "Merged",
        "Written",
        "clocks",
        "collectives",
        "convert",
        "inspect",
        "load",
        "merge",
        "write",
    ),
    "api.inspection": ("Inspection",),
    "capturing.session": ("Capture", "capture"),
    "compiling.model": ("CompileReport",),
    "compiling.reading": ("compile",),
    "converters.chakra.validation.rules": ("Validation", "Violation"),
    "converters.chakra.validation.validate": ("validate",),
    "diagnosis.examine": ("Examined", "diagnose", "examine"),
    "diagnosis.model": ("Diagnosis", "Kind", "Problem"),
    "engines.reading": ("ReadOptions",),
    "model.findings": ("Finding", "Severity"),
    "model.errors": (
        "RankConflictError",
        "TraceError",
        "UnreadableError",
        "UsageError",
    ),
    "model.clock": ("Clock", "ClockMode", "Clocks"),
    "model.events": ("EventKind", "Key", "Relation"),
    "model.graph": ("EventGraph",),
    "model.job": ("Job",),
    "metrics.during": ("sampled_during",),
    "model.metrics": ("Metrics",),
    "model.selection": ("Selection",),
    "sql.session": ("QueryResult", "query"),
    "sql.shipped": ("shipped_queries",),
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
    from tracelink.capturing.hooks import install

    install()
