"""The files of ranks as they are, and what Perfetto has to know to merge them."""

from tracelink.converters.perfetto_bundle.writer import PerfettoBundleWriter

__all__ = ["PerfettoBundleWriter"]
