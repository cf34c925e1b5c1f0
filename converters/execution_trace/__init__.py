"""Execution traces: the graph of operators that torch's `ExecutionTraceObserver` writes."""

from tracelink.converters.execution_trace.reader import ExecutionTraceReader

__all__ = ["ExecutionTraceReader"]
