"""What notebooks and commands call: load, inspect, collectives, clocks, write, merge, convert."""

from tracelink.api.graphs import clocks, collectives, inspect, load
from tracelink.api.outputs import Converted, Merged, convert, merge, write

__all__ = [
    "Converted",
    "Merged",
    "clocks",
    "collectives",
    "convert",
    "inspect",
    "inspection",
    "load",
    "merge",
    "write",
]
