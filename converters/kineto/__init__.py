"""Kineto: the Chrome trace that `torch.profiler` writes."""

from tracelink.converters.kineto.reader import KinetoReader

__all__ = ["KinetoReader"]
