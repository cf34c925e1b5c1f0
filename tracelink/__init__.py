"""One event graph from everything that a distributed PyTorch job left behind.

graph = tracelink.load("traces/")
tracelink.merge("traces/", output="merged.json")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelink.api import (
        Converted,
        Inspection,
        Merged,
        clocks,
        collectives,
        convert,
        inspect,
        load,
        merge,
        write,
    )
    from tracelink.converters.chakra.validation.rules import Validation, Violation
    from tracelink.converters.chakra.validation.validate import validate
    from tracelink.diagnosis.examine import Examined, diagnose, examine
    from tracelink.diagnosis.model import Diagnosis, Kind, Problem
    from tracelink.errors import Finding, RankConflictError, Severity, TraceError, UnreadableError, UsageError
    from tracelink.model.clock import Clock, ClockMode, Clocks
    from tracelink.model.events import EventKind, Key, Relation
    from tracelink.model.graph import EventGraph
    from tracelink.model.job import Job
    from tracelink.pipeline.selection import Selection

__version__ = "0.1.0"

_HOME = {
    "Clock": "model.clock",
    "ClockMode": "model.clock",
    "Clocks": "model.clock",
    "Converted": "api",
    "Diagnosis": "diagnosis.model",
    "EventGraph": "model.graph",
    "EventKind": "model.events",
    "Examined": "diagnosis.examine",
    "Finding": "errors",
    "Inspection": "api",
    "Job": "model.job",
    "Key": "model.events",
    "Kind": "diagnosis.model",
    "Merged": "api",
    "Problem": "diagnosis.model",
    "RankConflictError": "errors",
    "Relation": "model.events",
    "Selection": "pipeline.selection",
    "Severity": "errors",
    "TraceError": "errors",
    "UnreadableError": "errors",
    "UsageError": "errors",
    "Validation": "converters.chakra.validation.rules",
    "Violation": "converters.chakra.validation.rules",
    "clocks": "api",
    "collectives": "api",
    "convert": "api",
    "diagnose": "diagnosis.examine",
    "examine": "diagnosis.examine",
    "inspect": "api",
    "load": "api",
    "merge": "api",
    "validate": "converters.chakra.validation.validate",
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
    "Inspection",
    "Job",
    "Key",
    "Kind",
    "Merged",
    "Problem",
    "RankConflictError",
    "Relation",
    "Selection",
    "Severity",
    "TraceError",
    "UnreadableError",
    "UsageError",
    "Validation",
    "Violation",
    "clocks",
    "collectives",
    "convert",
    "diagnose",
    "examine",
    "inspect",
    "load",
    "merge",
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
