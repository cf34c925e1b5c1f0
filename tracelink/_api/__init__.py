"""What notebooks and commands call: load, inspect, collectives, clocks, write, merge, convert."""

from tracelink._api.graphs import clocks, collectives, inspect, load
from tracelink._api.outputs import Merged, Written, convert, merge, write

__all__ = [
    "Merged",
    "Written",
    "clocks",
    "collectives",
    "convert",
    "inspect",
    "inspection",
    "load",
    "merge",
    "outputs",
    "write",
]
