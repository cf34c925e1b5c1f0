"""Execution traces: the graph of operators that torch's `ExecutionTraceObserver` writes."""

from __future__ import annotations

from tracelink.converters.pytorch.node_recognition import is_execution_trace
from tracelink.plugins import Format, Reader, ReaderSpec

__all__ = ["EXECUTION_TRACE"]


def _reader() -> Reader:
    from tracelink.converters.execution_trace.reader import ExecutionTraceReader

    return ExecutionTraceReader()


EXECUTION_TRACE = Format(
    "execution-trace",
    reader=ReaderSpec(
        "torch ExecutionTraceObserver JSON, schemas 1.0.1 to 1.1.1: .json, .json.gz",
        lambda head, name: is_execution_trace(head),
        _reader,
    ),
)
