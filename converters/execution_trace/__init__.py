"""Execution traces: the graph of operators that torch's `ExecutionTraceObserver` writes."""

from __future__ import annotations

from tracelink.converters.pytorch import is_execution_trace
from tracelink.plugins import Content, Format, ReaderSpec

__all__ = ["EXECUTION_TRACE"]

EXECUTION_TRACE = Format(
    "execution-trace",
    reader=ReaderSpec(
        "torch ExecutionTraceObserver JSON, schemas 1.0.1 to 1.1.1: .json, .json.gz",
        is_execution_trace,
        "tracelink.converters.execution_trace.reader:ExecutionTraceReader",
        content=Content.NODES,
    ),
)
