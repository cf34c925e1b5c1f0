"""What notebooks and commands call: load, inspect, collectives, clocks, write, merge."""

from tracelink._api.graphs import clocks, collectives, inspect, load
from tracelink._api.outputs import Merged, merge, write

__all__ = [
    "Merged",
    "clocks",
    "collectives",
    "inspect",
    "inspection",
    "load",
    "merge",
    "outputs",
    "write",
]
