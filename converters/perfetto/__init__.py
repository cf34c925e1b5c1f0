"""Perfetto: the trace that people look at."""

from tracelink.converters.perfetto.writer import PerfettoJsonWriter

__all__ = ["PerfettoJsonWriter"]
