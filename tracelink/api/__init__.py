"""What notebooks and commands call: load, inspect, collectives, clocks, write, merge, convert."""

from tracelink.api.graphs import Inspection, clocks, collectives, inspect, inspect_sources, load
from tracelink.api.outputs import Converted, Merged, convert, merge, write

__all__ = [
    "Converted",
    "Inspection",
    "Merged",
    "clocks",
    "collectives",
    "convert",
    "inspect",
    "inspect_sources",
    "load",
    "merge",
    "write",
]
