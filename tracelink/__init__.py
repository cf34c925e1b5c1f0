"""One event graph from everything that a distributed PyTorch job left behind.

graph = tracelink.load("traces/")
tracelink.merge("traces/", output="merged.json")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelink.api import Merged, convert, load, merge, survey, tables, write
    from tracelink.clock import Clock, ClockMode, Clocks
    from tracelink.converters.chakra.validation import Validation, Violation, validate
    from tracelink.converting import Converted
    from tracelink.diagnosis import Diagnosis, Kind, Problem
    from tracelink.errors import RankConflictError, TraceError, UnreadableError, UsageError
    from tracelink.events import EventKind, Key, Relation
    from tracelink.examining import Examined, diagnose, examine
    from tracelink.findings import Finding, Severity
    from tracelink.graph import EventGraph
    from tracelink.job import Job
    from tracelink.selection import Selection
    from tracelink.surveying import Survey

__version__ = "0.1.0"

_HOME = {
    "Clock": "clock",
    "ClockMode": "clock",
    "Clocks": "clock",
    "Converted": "converting",
    "Diagnosis": "diagnosis",
    "EventGraph": "graph",
    "EventKind": "events",
    "Examined": "examining",
    "Finding": "findings",
    "Job": "job",
    "Key": "events",
    "Kind": "diagnosis",
    "Merged": "api",
    "Problem": "diagnosis",
    "RankConflictError": "errors",
    "Relation": "events",
    "Selection": "selection",
    "Severity": "findings",
    "Survey": "surveying",
    "TraceError": "errors",
    "UnreadableError": "errors",
    "UsageError": "errors",
    "Validation": "converters.chakra.validation",
    "Violation": "converters.chakra.validation",
    "convert": "api",
    "diagnose": "examining",
    "examine": "examining",
    "load": "api",
    "merge": "api",
    "survey": "api",
    "tables": "api",
    "validate": "converters.chakra.validation",
    "write": "api",
}

__all__ = [
    "Clock",
    "ClockMode",
    "Clocks",
    "Converted",
    "Diagnosis",
    "EventGraph",
    "EventKind",
    "Examined",
    "Finding",
    "Job",
    "Key",
    "Kind",
    "Merged",
    "Problem",
    "RankConflictError",
    "Relation",
    "Selection",
    "Severity",
    "Survey",
    "TraceError",
    "UnreadableError",
    "UsageError",
    "Validation",
    "Violation",
    "convert",
    "diagnose",
    "examine",
    "load",
    "merge",
    "survey",
    "tables",
    "validate",
    "write",
]


def __getattr__(name: str) -> Any:
    """Imports the home of a public name when it is first used, so that `import tracelink` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tracelink.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
