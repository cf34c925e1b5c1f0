"""What PyTorch defines, whichever file contains it: arguments of profiled events, nodes of execution traces.

Formats do not know each other; what several of them contain is here.
"""

__all__ = ["arguments", "node_recognition", "node_schema", "node_trace", "nodes", "storages", "times"]
