"""One event graph from everything that a distributed PyTorch job left behind.

graph = tracelink.load("traces/")
tracelink.merge("traces/", output="merged.json")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracelink.api import Merged, Survey, load, merge, survey, write
    from tracelink.errors import RankConflictError, TraceError, UnreadableError, UsageError
    from tracelink.events import EventKind, Key, Relation
    from tracelink.findings import Finding, Severity
    from tracelink.graph import EventGraph

__version__ = "0.1.0"

_HOME = {
    "EventGraph": "graph",
    "EventKind": "events",
    "Finding": "findings",
    "Key": "events",
    "Merged": "api",
    "RankConflictError": "errors",
    "Relation": "events",
    "Severity": "findings",
    "Survey": "api",
    "TraceError": "errors",
    "UnreadableError": "errors",
    "UsageError": "errors",
    "load": "api",
    "merge": "api",
    "survey": "api",
    "write": "api",
}

__all__ = [
    "EventGraph",
    "EventKind",
    "Finding",
    "Key",
    "Merged",
    "RankConflictError",
    "Relation",
    "Severity",
    "Survey",
    "TraceError",
    "UnreadableError",
    "UsageError",
    "load",
    "merge",
    "survey",
    "write",
]


def __getattr__(name: str) -> Any:
    """Imports the home of a public name when it is first used, so that `import tracelink` costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tracelink.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
