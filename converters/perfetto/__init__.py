"""Perfetto: the trace that people look at."""

from tracelink.converters.perfetto.json.writer import PerfettoJsonWriter

__all__ = ["PerfettoJsonWriter"]
